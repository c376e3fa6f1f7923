/* Copyright (c) 2026, fleet.cdi contributors
 * GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Moves a megabyte to each NVIDIA GPU that it sees and back, and prints the UUID of the GPU. With an argument it then
 * keeps the GPUs open until its input ends. It loads libcuda.so.1 as programs in containers do, so it builds without CUDA.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE (1 << 20)
#define CALL(name, types, ...)                                                   \
    do {                                                                         \
        int (*call) types = (int (*) types)dlsym(library, #name);                \
        int status = call ? call(__VA_ARGS__) : -1;                              \
        if (status) {                                                            \
            fprintf(stderr, "%s: error %d of the driver\n", #name, status);      \
            return 1;                                                            \
        }                                                                        \
    } while (0)

static char there[SIZE], back[SIZE];

int main(int argc, char **argv)
{
    int count = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

    (void)argv;
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    CALL(cuInit, (unsigned int), 0);
    CALL(cuDeviceGetCount, (int *), &count);
    for (int number = 0; number < count; number++) {
        int device;
        void *context;
        unsigned long long memory;
        unsigned char uuid[16];

        CALL(cuDeviceGet, (int *, int), &device, number);
        CALL(cuDeviceGetUuid, (unsigned char *, int), uuid, device);
        CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, device);
        CALL(cuCtxSetCurrent, (void *), context);
        CALL(cuMemAlloc_v2, (unsigned long long *, size_t), &memory, SIZE);
        memset(there, 'a' + number % 26, SIZE);
        CALL(cuMemcpyHtoD_v2, (unsigned long long, const void *, size_t), memory, there, SIZE);
        CALL(cuMemcpyDtoH_v2, (void *, unsigned long long, size_t), back, memory, SIZE);
        if (memcmp(there, back, SIZE)) {
            fprintf(stderr, "GPU %d gave other bytes back\n", number);
            return 1;
        }
        printf("GPU-");
        for (int place = 0; place < 16; place++)
            printf("%s%02x", place == 4 || place == 6 || place == 8 || place == 10 ? "-" : "", uuid[place]);
        printf("\n");
    }
    fflush(stdout);
    if (argc > 1)
        while (getchar() != EOF)
            ;
    return 0;
}
