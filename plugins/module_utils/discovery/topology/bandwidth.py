# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one NVLink or xGMI link carries, in GB/s in one direction.

Nominal figures, since drivers report such ones: KFD's max_bandwidth, hwloc's matrices. They are for comparing links
with each other. A generation that is not in the table has an unknown bandwidth (0), never a guessed one.
"""

from __future__ import annotations

# By compute capability. NVIDIA's NVLink pages and whitepapers: NVLink 1 has 20 (P100), 2 to 4 have 25 (V100, A100,
# H100), 5 has 50 (B200, B300); GA102's has 14.0625 ("NVIDIA Ampere GA102 GPU Architecture", "Third-Generation NVLink").
NVLINK = {
    60: 20.0,
    70: 25.0,
    72: 25.0,
    75: 25.0,
    80: 25.0,
    86: 14.0625,
    90: 25.0,
    100: 50.0,
    103: 50.0,
}

# By the number in AMD's name of the processor, as RCCL writes it ("910" is gfx90a). 16 lanes of 25 or 32 GT/s: Linux,
# drivers/gpu/drm/amd/amdgpu/amdgpu_xgmi.c, amdgpu_xgmi_early_init (GC 9.4.0 to 9.4.2; 9.4.3, 9.4.4 and 9.5.0).
XGMI = {
    "906": 50.0,
    "908": 50.0,
    "90a": 50.0,
    "910": 50.0,
    "940": 64.0,
    "941": 64.0,
    "942": 64.0,
    "950": 64.0,
}


def of_nvlink(capability: str) -> float:
    """Of one NVLink of a GPU with this compute capability, written as NCCL does ("90"); 0 if it is not known."""
    return NVLINK.get(int(capability), 0.0) if capability.isdecimal() and len(capability) < 5 else 0.0


def of_xgmi(processor: str) -> float:
    """Of one xGMI link of a GPU with this processor ("gfx90a", "gfx942:sramecc+", "910"); 0 if it is not known."""
    return XGMI.get(processor.partition(":")[0].replace("gfx", "", 1), 0.0)
