# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Virtual functions: made where there are none, and nothing taken away."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.driver import virtual_functions
from ansible_collections.fleet.cdi.plugins.module_utils.converge.driver.virtual_functions import (
    WantedFunctions,
    check_devices,
    make_functions,
    parse,
)
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

CARD = "sys/bus/pci/devices/0000:3b:00.0"


@pytest.fixture
def root(tmp_path):
    directory = tmp_path / CARD
    directory.mkdir(parents=True)
    (directory / "sriov_totalvfs").write_text("8\n")
    (directory / "sriov_numvfs").write_text("0\n")
    (tmp_path / "sys/class/net/ens1f0").mkdir(parents=True)
    (tmp_path / "sys/class/net/ens1f0/device").symlink_to("../../../bus/pci/devices/0000:3b:00.0")
    return tmp_path


def now(root):
    return int((root / CARD / "sriov_numvfs").read_text())


@pytest.mark.parametrize("device", ["0000:3b:00.0", "ens1f0"])
def test_made_once(root, device):
    assert make_functions(WantedFunctions(device, 4), True, str(root))
    assert now(root) == 0
    assert make_functions(WantedFunctions(device, 4), False, str(root))
    assert now(root) == 4
    assert not make_functions(WantedFunctions(device, 4), False, str(root))


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (("ens1f0", 8), ""),
        (("ens1f0", 4), "found 8 of 0000:3b:00.0 and 4 of ens1f0, which is the same device; expected one number"),
        (("ens9", 4), "virtual functions of 'ens9': there is no such PCI function"),
    ],
)
def test_names_are_checked_before_the_first_function_is_made(root, second, words):
    wanted = [WantedFunctions("0000:3b:00.0", 8), WantedFunctions(*second)]
    with pytest.raises(CdiError, match=words) if words else nullcontext():
        check_devices(wanted, str(root))


@pytest.mark.parametrize(
    ("there", "wanted", "words"),
    [
        (0, 9, "has at most 8 virtual functions; 9 are wanted"),
        (2, 4, "has 2 virtual functions and 4 are wanted"),
        (2, 0, "has 2"),
    ],
)
def test_refused(root, there, wanted, words):
    (root / CARD / "sriov_numvfs").write_text(str(there))
    with pytest.raises(CdiError, match=words):
        make_functions(WantedFunctions("ens1f0", wanted), False, str(root))
    assert now(root) == there


def test_devices_that_can_not_have_any(root):
    (root / "sys/bus/pci/devices/0000:00:1f.6").mkdir()
    with pytest.raises(CdiError, match="neither the device nor its driver has SR-IOV"):
        make_functions(WantedFunctions("0000:00:1f.6", 1), False, str(root))
    with pytest.raises(CdiError, match="there is no such PCI function"):
        make_functions(WantedFunctions("0000:00:1f.7", 1), False, str(root))
    (root / CARD / "sriov_numvfs").write_text("many")
    with pytest.raises(CdiError, match="can't be read"):
        make_functions(WantedFunctions("ens1f0", 1), False, str(root))


@pytest.mark.parametrize(("driver", "words"), [(False, "no driver is bound to the device"), (True, "off in the firm")])
def test_the_kernel_makes_none(root, monkeypatch, driver, words):
    """Without a driver the kernel answers ENOENT, as if the file were not there (drivers/pci/iov.c)."""

    def refuse(path, mode="r", **more):
        if mode == "w":
            raise FileNotFoundError(2, "No such file or directory", path)
        return open(path, mode, **more)

    monkeypatch.setattr(virtual_functions, "open", refuse, raising=False)
    if driver:
        (root / CARD / "driver").symlink_to("../../drivers/nvme")
    with pytest.raises(CdiError, match=words):
        make_functions(WantedFunctions("ens1f0", 4), False, str(root))


def test_what_is_asked_for():
    assert parse("0000:3b:00.0=8") == WantedFunctions("0000:3b:00.0", 8)
    for text in ("", "ens1f0", "=8", "../x=8", "a/b=8", "ens1f0=-1", "ens1f0=x", "ens1f0=123456"):
        with pytest.raises(CdiError, match="expected DEVICE=COUNT"):
            parse(text)
