# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NVML adds to the files of the driver: MIG devices, graphics, memory."""

from __future__ import annotations

from types import SimpleNamespace

from ansible_collections.fleet.cdi.plugins.module_utils.discovery.profiles import nvidia_nvml
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.discovery.profiles.nvidia_cases import (
    found,
    needs_nodes,
)
from ansible_collections.fleet.cdi.tests.unit.trees import nvidia


class Nvml:
    """The part of pynvml that is called, for one A100 with MIG devices: GPU and compute instance -> their number."""

    class NVMLError(Exception):
        pass

    def __init__(self, mig, mode=True):
        self.mig, self.mode = mig, mode

    def __getattr__(self, name):
        answers = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetPciInfo": lambda _gpu: SimpleNamespace(busId=b"00000000:07:00.0"),
            "nvmlDeviceGetUUID": lambda handle: f"MIG-{handle}" if isinstance(handle, tuple) else nvidia.A100[0].uuid,
            "nvmlDeviceGetName": lambda handle: f"NVIDIA A100-SXM4-40GB MIG {handle[0]}g.5gb".encode(),
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=(5 if handle != 0 else 40) << 30),
            "nvmlDeviceGetMigMode": lambda _gpu: [int(self.mode), 0],
            "nvmlDeviceGetMaxMigDeviceCount": lambda _gpu: 7 if self.mode else self._refuse(),
            "nvmlDeviceGetGpuInstanceId": lambda handle: handle[0],
            "nvmlDeviceGetComputeInstanceId": lambda handle: handle[1],
            "nvmlDeviceGetGpuInstanceById": lambda _gpu, number: number,
            "nvmlGpuInstanceGetInfo": lambda number: SimpleNamespace(profileId=40 + number),
            "nvmlDeviceGetGpuInstanceProfileInfo": self._profile,
            "nvmlDeviceGetHandleByIndex": self._gpu,
            "nvmlDeviceGetMigDeviceHandleByIndex": self._part,
        }
        return answers.get(name, self._refuse)

    def _gpu(self, index):
        return self._refuse() if index else index  # the second GPU is lost

    def _part(self, _gpu, index):
        return next((part for part, number in self.mig.items() if number == index), None) or self._refuse()

    def _profile(self, _gpu, profile):
        return SimpleNamespace(id=42) if profile == 10 else self._refuse()

    def _refuse(self, *_arguments):
        raise self.NVMLError("no")


@needs_nodes
def test_nvml_adds_what_has_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(nvidia_nvml, "library", lambda _root: Nvml({(2, 0): 0, (1, 0): 1}))
    result = found({"mig": {"0000:07:00.0": [[1, 0], [2, 0]]}}, tmp_path, name_by=["index", "uuid"])
    first, second = result.devices[:2]
    assert (first.names, second.names) == (("0:1", "MIG--1-0"), ("0:0", "MIG--2-0"))
    assert first.capacity == {"memory": 5120}
    assert (first.partition, second.partition) == ("1g.5gb", "2g.5gb")
    assert [node.role for node in first.nodes] == ["gpu", "gpu-instance", "compute-instance"]
    assert [node.role for node in second.nodes][3:] == ["primary", "render"]  # its profile has graphics
    assert [hook.args[1] for hook in second.hooks] == ["create-symlinks"]
    assert result.warnings[0].startswith("devices entry 'gpus': NVML does not answer for GPU 1 (no)")
    assert result.devices[2].names == ("1", nvidia.A100[1].uuid)  # by its files


def test_mig_mode_without_instances_is_told_and_moves_no_number(tmp_path, monkeypatch):
    monkeypatch.setattr(nvidia_nvml, "library", lambda _root: Nvml({}))
    result = found({"remove": ["/sys/devices/pci0000:bd/0000:bd:00.0/driver*"]}, tmp_path)  # one without a driver
    assert any("0000:07:00.0: its MIG mode is on, but no instance is created" in text for text in result.warnings)
    named = {device.pci_address: device.names[0] for device in result.devices}
    addresses = [gpu.address for gpu in nvidia.A100]
    assert named == {address: str(index) for index, address in enumerate(addresses) if index}


def test_memory_of_a_whole_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(nvidia_nvml, "library", lambda _root: Nvml({}, mode=False))
    assert found({}, tmp_path).devices[0].capacity == {"memory": 40960}


def test_an_nvml_that_can_not_start_says_nothing(tmp_path, monkeypatch):
    broken = Nvml({})
    broken.nvmlInit = broken._refuse
    monkeypatch.setattr(nvidia_nvml, "library", lambda _root: broken)
    assert found({}, tmp_path).warnings == ()
