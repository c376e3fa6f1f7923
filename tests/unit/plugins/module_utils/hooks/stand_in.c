/*
 * Copyright (c) 2026, fleet.cdi contributors
 * GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Stands in for an ldconfig that an image has taken over. stand_in ATTACK [ARGUMENT]: 0 where it got through.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int touched(void *memory, size_t size)
{
    if (memory == MAP_FAILED || !memory)
        return 1;
    memset(memory, 1, size);
    return 0;
}

static int files(void)
{
    char text[16];
    int handle = open("/new", O_CREAT | O_RDWR | O_TRUNC, 0600);
    if (handle < 0 || write(handle, "text", 4) != 4 || lseek(handle, 0, SEEK_SET) || read(handle, text, 4) != 4)
        return 1;
    return fchmod(handle, 0644) || fsync(handle) || rename("/new", "/newer") || symlink("a", "/link") || unlink("/link")
        || access("/hidden/file", R_OK) || mmap(0, 4096, PROT_READ, MAP_SHARED, handle, 0) == MAP_FAILED
        || touched(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
}

static int by_handle(const char *hex)
{
    char buffer[sizeof(struct file_handle) + 128];
    struct file_handle *handle = (struct file_handle *)buffer;
    char text[64];
    int root = open("/", O_RDONLY | O_DIRECTORY), found;
    unsigned int byte;
    sscanf(hex, "%d:", &handle->handle_type);
    hex = strchr(hex, ':') + 1;
    for (handle->handle_bytes = 0; sscanf(hex, "%2x", &byte) == 1; hex += 2)
        handle->f_handle[handle->handle_bytes++] = byte;
    found = open_by_handle_at(root, handle, O_RDONLY);
    return found < 0 || read(found, text, sizeof text) <= 0;
}

static int large_file(void)
{
    static char block[1 << 20];
    int handle = open("/large", O_CREAT | O_WRONLY, 0600), megabytes;
    signal(SIGXFSZ, SIG_IGN);
    for (megabytes = 0; megabytes < 96; megabytes++)
        if (write(handle, block, sizeof block) != sizeof block)
            return 1;
    return 0;
}

/* A dump of its memory goes where the kernel's core_pattern says: to a program of the host, perhaps. */
static int core_dump(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_CORE, &limit) || !limit.rlim_max;
}

/* Tell the sets of capabilities: effective, permitted and inheritable, for numbers up to 31, then for the others. And
 * the bounding set. */
static int capabilities(void)
{
    unsigned int header[2] = {0x20080522, 0}, sets[6];
    unsigned long long bounding = 0;
    int number;
    if (syscall(SYS_capget, header, sets))
        return 1;
    for (number = 0; number < 64; number++)
        bounding |= (unsigned long long)(prctl(PR_CAPBSET_READ, number, 0, 0, 0) == 1) << number;
    printf("%x %x %x, %x %x %x", sets[0], sets[1], sets[2], sets[3], sets[4], sets[5]);
    return printf("; %llx\n", bounding) < 0;
}

int main(int count, char **words)
{
    const char *attack = words[1], *argument = count > 2 ? words[2] : "";
    size_t large = 128 << 20;
#define IS(name) if (!strcmp(attack, name)) return !!
    IS("files") files();
    IS("handle") by_handle(argument);
    IS("kill") kill(atoi(argument), 0);
    IS("ptrace") ptrace(PTRACE_ATTACH, atoi(argument), 0, 0);
    IS("memory of another") (open(argument, O_RDONLY) < 0);
    IS("socket") (socket(AF_INET, SOCK_DGRAM, 0) < 0);
    IS("netlink") (socket(AF_NETLINK, SOCK_RAW, 0) < 0);
    IS("local socket") (socket(AF_UNIX, SOCK_STREAM, 0) < 0);
    IS("mount") mount("none", "/hidden", "tmpfs", 0, "");
    IS("unmount") umount2("/proc", MNT_DETACH);
    IS("proc") access("/proc/self", F_OK);
    IS("node") mknod("/node", S_IFCHR | 0600, 0x103);
    IS("chroot") chroot("/hidden");
    IS("owner") chown("/hidden/file", 1, 1);
    IS("fork") (fork() < 0);
    IS("clone") (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) < 0);
    IS("namespace") unshare(CLONE_NEWUTS);
    IS("host name") sethostname("x", 1);
    IS("shared memory") (shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600) < 0);
    IS("memory file") (syscall(SYS_memfd_create, "x", 0) < 0);
    IS("bpf") (syscall(SYS_bpf, 0, 0, 0) < 0 && errno == ENOSYS);
    IS("keys") (syscall(SYS_keyctl, 0, -3, 1) < 0);
    IS("heap") touched(malloc(large), large);
    IS("private map") touched(mmap(0, large, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), large);
    IS("shared map") touched(mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), 4096);
    IS("large file") large_file();
    IS("core dump") core_dump();
    IS("host") (access(argument, F_OK) != 0);
    IS("environment") (getenv("SECRET") == 0);
    IS("descriptor") (fcntl(atoi(argument), F_GETFD) < 0);
    if (!strcmp(attack, "capabilities"))
        return capabilities();
    if (!strcmp(attack, "say"))
        return puts("\033[31mred\n/opt/lib: a line") < 0;
    if (!strcmp(attack, "say much"))
        for (count = 0; count < 1 << 20; count++)
            puts("more and more");
    if (!strcmp(attack, "crash"))
        abort();
    if (!strcmp(attack, "exit"))
        return atoi(argument);
    if (!strcmp(attack, "spin"))
        for (;;)
            ;
    return 99;
}
