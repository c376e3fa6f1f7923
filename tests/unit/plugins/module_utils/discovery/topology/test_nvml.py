# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVLinks from NVIDIA's library: a small stand-in for pynvml says what the library would."""
# ruff: noqa: N802 - functions are called as in NVML

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.discovery.topology import nvml

GPU, NPU, SWITCH = 0, 1, 2
HIDDEN = "hidden"


class Library:
    """pynvml for a host. `gpus`: bus id -> (compute capability, [(bus id, type) of a peer; None where it is down])."""

    NVML_FEATURE_ENABLED = 1

    class NVMLError(Exception):
        pass

    def __init__(self, gpus, as_bytes=False, old=False, broken=""):
        self.gpus, self.as_bytes, self.broken, self.calls, self.open = list(gpus.items()), as_bytes, broken, 0, 0
        if old:
            self.nvmlDeviceGetNvLinkRemoteDeviceType = self._missing

    def __getattribute__(self, name):
        found = object.__getattribute__(self, name)
        if name.startswith("nvml"):
            self.calls += 1
            if name == self.broken:
                raise self.NVMLError("Unknown Error")
            if found == self._missing:
                raise AttributeError(name)
        return found

    def _missing(self):
        pass

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetPciInfo(self, handle):
        return self._info(self.gpus[handle][0])

    def nvmlDeviceGetCudaComputeCapability(self, handle):
        return self.gpus[handle][1][0]

    def nvmlDeviceGetNvLinkState(self, handle, link):
        links = self.gpus[handle][1][1]
        if link >= len(links):
            raise self.NVMLError("Not Supported")
        return int(links[link] is not None)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle, link):
        peer = self.gpus[handle][1][1][link][0]
        if peer == HIDDEN:
            raise self.NVMLError("Invalid Argument")
        return self._info(peer)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle, link):
        return self.gpus[handle][1][1][link][1]

    def _info(self, bus):
        return SimpleNamespace(busId=bus.encode() if self.as_bytes else bus)


A, B, C = "00000000:06:00.0", "00000000:07:00.0", "00000000:0A:00.0"
DIRECT = {
    A: ((7, 0), [(B, GPU), (B, GPU), None, (C, GPU)]),
    B: ((7, 0), [(A, GPU), (A, GPU)]),
    C: ((7, 0), [(A, GPU)]),
}
SWITCHED = {
    A: ((9, 0), [("00000000:C1:00.0", SWITCH)] * 10 + [("00000000:C2:00.0", SWITCH)] * 8),
    B: ((9, 0), [(HIDDEN, SWITCH)] * 16),
    C: ((9, 0), []),
}


def plain(links):
    return [(link.a[-7:-2], link.b[-7:-2], *link[2:]) for link in links]


@pytest.mark.parametrize("as_bytes", [False, True])
def test_gpus_that_are_linked_directly(as_bytes):
    links, warnings = nvml.nvml_links(Library(DIRECT, as_bytes))
    assert plain(links) == [("06:00", "07:00", "NVL", 2, 50.0), ("06:00", "0a:00", "NVL", 1, 25.0)]
    assert links[0].a == "pci:0000:06:00.0"
    assert warnings == ()


def test_gpus_on_switches():
    links, warnings = nvml.nvml_links(Library(SWITCHED))
    assert plain(links) == [("06:00", "07:00", "NVL", 16, 400.0)]
    assert warnings == ()


def test_links_to_a_cpu_join_no_gpus():
    power = {A: ((7, 0), [("00000004:00:01.0", NPU)] * 3), B: ((7, 0), [("00000004:00:01.1", NPU)] * 3)}
    assert nvml.nvml_links(Library(power)) == ((), ())


def test_a_gpu_that_this_host_does_not_have():
    links, warnings = nvml.nvml_links(Library({A: ((8, 0), [(C, GPU), (B, GPU)]), B: ((8, 0), [(A, GPU)])}))
    assert plain(links) == [("06:00", "07:00", "NVL", 1, 25.0)]
    assert warnings == ("NVML: links name devices that are not there: pci:0000:0a:00.0; those links are left out",)


def test_a_library_before_driver_470_knows_no_types():
    assert plain(nvml.nvml_links(Library(DIRECT, old=True))[0])[0] == ("06:00", "07:00", "NVL", 2, 50.0)
    assert nvml.nvml_links(Library(SWITCHED, old=True)) == ((), ())


@pytest.mark.parametrize("name", ["nvmlDeviceGetCount", "nvmlDeviceGetPciInfo", "nvmlDeviceGetCudaComputeCapability"])
def test_a_library_that_fails_is_told_and_closed(name):
    library = Library(DIRECT, broken=name)
    assert nvml.nvml_links(library) == (
        (),
        ("NVML can't be asked for NVLinks (Unknown Error); links between GPUs are not known",),
    )
    assert library.open == 0


def test_a_host_without_driver_or_library(monkeypatch):
    assert nvml.nvml_links(Library(DIRECT, broken="nvmlInit")) == ((), ())
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.nvml_links() == ((), ())
    monkeypatch.setitem(sys.modules, "pynvml", Library(DIRECT))
    assert len(nvml.nvml_links()[0]) == 2


def test_calls_grow_with_gpus_not_with_pairs():
    """Asking pair by pair is what took NVIDIA's device plugin 26 s (its issue 774)."""

    def calls(number):
        library = Library({f"00000000:{index:02x}:00.0": ((8, 0), [(HIDDEN, SWITCH)] * 12) for index in range(number)})
        assert len(nvml.nvml_links(library)[0]) == number * (number - 1) / 2
        return library.calls

    assert calls(16) < 2.1 * calls(8)
