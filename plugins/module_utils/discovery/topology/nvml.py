# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVLinks, from NVIDIA's management library where Python can import it.

A supplement: sysfs has nothing of NVLinks, and hosts need no vendor library. Package pynvml is python3-pynvml in Debian
and Ubuntu, nvidia-ml-py on PyPI. Functions are called as in NVML's reference, "NvLink Methods".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Optional

from ...records import Link
from .bandwidth import NVLINK
from .graph import End, merged, pair, through_switches
from .pcie import address, identity

GPU, SWITCH = 0, 2  # NVML_NVLINK_DEVICE_TYPE_GPU, _SWITCH
MOST = 18  # NVML_NVLINK_MAX_LINKS of the newest header; older modules say fewer than newer GPUs have


def nvml_links(nvml: Any = None) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    """(NVLinks between the GPUs of this host, warnings); nothing where there is no pynvml or no driver.

    `nvml` is the module, for those who have it already. Each GPU's links are asked for once, never pair by pair: that
    is n times 18 calls for n GPUs, where n squared has taken NVIDIA's device plugin 26 s (its issue 774).
    """
    if nvml is None:
        nvml = _import()
    if nvml is None:
        return (), ()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return (), ()  # no driver, or another one than the library's: the profile reports that
    try:
        return _links(nvml)
    except nvml.NVMLError as error:
        return (), (f"NVML can't be asked for NVLinks ({error}); links between GPUs are not known",)
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _import() -> Optional[Any]:
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml


def _links(nvml: Any) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    gpus = {identity(_address(nvml.nvmlDeviceGetPciInfo(handle))): handle for handle in handles}
    ends: list[End] = []
    switched: dict[str, tuple[int, float]] = {}
    for id_, handle in gpus.items():
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        each = NVLINK.get(10 * major + minor, 0.0)
        for link in _active(nvml, handle):
            peer = _peer(nvml, handle, link)
            if peer in gpus:
                ends.append(End(id_, peer, "NVL", 1, each))
            elif _type(nvml, handle, link) == SWITCH:
                count, bandwidth = switched.get(id_, (0, 0.0))
                switched[id_] = (count + 1, bandwidth + each)
            elif _type(nvml, handle, link) == GPU:  # one that this host or virtual machine does not have
                ends.append(End(id_, peer, "NVL", 1, each))
    direct, warnings = pair(ends, gpus)
    return merged(through_switches(switched), direct), tuple(f"NVML: {text}" for text in warnings)


def _active(nvml: Any, handle: Any) -> Iterator[int]:
    """The numbers of the links that are up."""
    for link in range(MOST):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED:
                yield link
        except nvml.NVMLError:  # there is no such link on this GPU
            continue


def _peer(nvml: Any, handle: Any, link: int) -> str:
    """Return the id of the other end, or "pci:" if a virtual machine hides it."""
    try:
        return identity(_address(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)))
    except nvml.NVMLError:
        return identity("")


def _type(nvml: Any, handle: Any, link: int) -> int:
    """What sort of device the other end is; 255, unknown, before driver 470."""
    try:
        return int(nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link))
    except (AttributeError, nvml.NVMLError):
        return 255


def _address(info: Any) -> str:
    """The address in an nvmlPciInfo_t, whose busId is bytes in some releases of pynvml."""
    text = info.busId.decode("ascii", "replace") if isinstance(info.busId, bytes) else str(info.busId)
    return address(text)
