# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only NVIDIA's management library knows of GPUs, where Python can import it.

A supplement: files say all that a container needs. NVML adds the memory, the UUIDs, numbers and profiles of MIG
devices, and whether one has graphics. Functions are called as in NVML's reference, "Device Queries" and "Multi
Instance GPU".
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Optional

from ..root import Root
from ..topology.pcie import address

GRAPHICS = (10, 11, 12)  # NVML_GPU_INSTANCE_PROFILE_1_, 2_ and 4_SLICE_GFX
# In the name of a MIG device, "NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb" (MIG User Guide, "MIG Device Names").
_PROFILE = re.compile(r"\bMIG (\S+)")


class Mig(NamedTuple):
    """One MIG device."""

    number: int  # among those of its GPU
    uuid: str
    memory: int  # MiB
    graphics: bool
    profile: str  # "1g.5gb", "" where it is not known


class NvmlGpu(NamedTuple):
    """One GPU."""

    uuid: str = ""
    memory: int = 0  # MiB
    mig_mode: bool = False
    mig: Mapping[tuple[int, int], Mig] = {}  # by GPU instance and compute instance


def library(root: Root) -> Optional[Any]:
    """The Python module (python3-pynvml of Debian and Ubuntu, nvidia-ml-py of PyPI), None where it is not installed.

    Nor for a dump or an image: it knows this host and no other.
    """
    if root.prefix:
        return None
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml


def nvml_gpus(nvml: Optional[Any]) -> tuple[dict[str, NvmlGpu], tuple[str, ...]]:
    """({PCI address: what NVML knows}, warnings). Empty without the library or a driver; files give the reason."""
    if nvml is None:
        return {}, ()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return {}, ()
    found, warnings = {}, []
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            try:  # a GPU that is lost hides no other
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                found[address(_text(nvml.nvmlDeviceGetPciInfo(handle).busId))] = _gpu(nvml, handle)
            except nvml.NVMLError as error:
                warnings.append(f"NVML does not answer for GPU {index} ({error}); what only NVML knows is left out")
    except nvml.NVMLError as error:
        warnings.append(f"NVML does not answer ({error}); what only NVML knows is left out")
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()
    return found, tuple(warnings)


def _gpu(nvml: Any, handle: Any) -> NvmlGpu:
    mode = False
    with contextlib.suppress(nvml.NVMLError):  # not supported: there is no MIG
        mode = bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    return NvmlGpu(
        _text(nvml.nvmlDeviceGetUUID(handle)),
        _memory(nvml, handle),
        mode,
        dict(_mig(nvml, handle)) if mode else {},
    )


def _memory(nvml: Any, handle: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total) >> 20
    except nvml.NVMLError:  # a GPU whose memory is the host's has none of its own
        return 0


def _mig(nvml: Any, parent: Any) -> Iterator[tuple[tuple[int, int], Mig]]:
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(parent)):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, index)
        except nvml.NVMLError:  # no device has this number
            continue
        gi, ci = nvml.nvmlDeviceGetGpuInstanceId(handle), nvml.nvmlDeviceGetComputeInstanceId(handle)
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        yield (gi, ci), Mig(index, uuid, _memory(nvml, handle), _has_graphics(nvml, parent, gi), _profile(nvml, handle))


def _profile(nvml: Any, handle: Any) -> str:
    """The profile of a MIG device, as its name says it."""
    try:
        found = _PROFILE.search(_text(nvml.nvmlDeviceGetName(handle)))
    except nvml.NVMLError:
        return ""
    return found[1] if found else ""


def _has_graphics(nvml: Any, parent: Any, gi: int) -> bool:
    try:
        profile = nvml.nvmlGpuInstanceGetInfo(nvml.nvmlDeviceGetGpuInstanceById(parent, gi)).profileId
    except nvml.NVMLError:  # only root may ask
        return False
    for number in GRAPHICS:
        with contextlib.suppress(nvml.NVMLError):  # this GPU has no such profile
            if nvml.nvmlDeviceGetGpuInstanceProfileInfo(parent, number).id == profile:
                return True
    return False


def _text(value: Any) -> str:
    """Text, which is bytes in some releases of pynvml."""
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
