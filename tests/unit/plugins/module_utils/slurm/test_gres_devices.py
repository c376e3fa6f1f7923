# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of `slurmd -G`, and the devices that SLURM_JOB_GPUS names in it."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.slurm.gres_devices import chosen, parse_gres, with_nodes

# Printed by slurmd 22.05.8 for a gres.conf whose lines are in another order than Gres of slurm.conf.
TYPED = """\
slurmd: Gres Name=gpu Type=tty41 Count=1 Index=41 ID=7696487 File=/dev/tty41 (null)
slurmd: Gres Name=gpu Type=tty40 Count=1 Index=40 ID=7696487 File=/dev/tty40 (null)
slurmd: Gres Name=console Type=(null) Count=2 Index=0 ID=1943264210 File=/dev/tty[50-51] (null)
"""
UNTYPED = "slurmd: Gres Name=gpu Type=(null) Count=4 Index=0 ID=7696487 File=/dev/tty[08-10,40] (null)\n"
SEVERAL = (
    "slurmd: Gres Name=gpu Type=1g Count=1 Index=0 ID=7696487 File=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap12 (null)\n"
)


def test_indexes_count_in_the_order_of_slurmd():
    devices = parse_gres(TYPED)
    assert [device.files for device in chosen(devices, "0")] == [("/dev/tty41",)]
    assert [device.files for device in chosen(devices, "1,0")] == [("/dev/tty40",), ("/dev/tty41",)]


def test_a_list_of_files_is_one_device_each():
    files = [device.files for device in chosen(parse_gres(UNTYPED), "0,1,2,3")]
    assert files == [("/dev/tty08",), ("/dev/tty09",), ("/dev/tty10",), ("/dev/tty40",)]


def test_several_files_of_one_device_stay_together():
    (device,) = parse_gres(SEVERAL)
    assert device.files == ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12") and device.alone


def test_only_a_type_of_its_own_names_one_device():
    assert [device.alone for device in parse_gres(TYPED)] == [True, True, False, False]
    assert not any(device.alone for device in parse_gres(UNTYPED))
    assert [device.word for device in with_nodes(parse_gres(TYPED), {"/dev/tty40", "/dev/kfd"})] == ["gpu:tty40:1"]


@pytest.mark.parametrize("indexes", ["2", "-1", "0,", "x", "\u0660", "1" * 9])
def test_odd_indexes_are_refused(indexes):
    with pytest.raises(CdiError, match="SLURM_JOB_GPUS: found .* expected indexes below 2"):
        chosen(parse_gres(TYPED), indexes)


@pytest.mark.parametrize(
    "file",
    [
        "/dev/a[0-1]b[0-1]",
        "/dev/a[1-0]",
        "/dev/a[0-99999]",
        "/dev/a[-]",
        f"/dev/a[{'9' * 5000}]",
        f"/dev/a[0-{'9' * 5000}]",
        f"/dev/a[{'0' * 5000}-{'0' * 5000}]",
        "/dev/a[0-4095,4096]",  # one more than there may be
        "/dev/a[0-4095],/dev/b",
        "/dev/a" + ",/dev/b" * 4096,
    ],
)
def test_odd_lists_are_refused(file):
    with pytest.raises(CdiError, match="slurmd -G: found File=.*; expected ") as error:
        parse_gres(f"slurmd: Gres Name=gpu Type=(null) Count=2 Index=0 ID=1 File={file} (null)")
    assert len(str(error.value)) < 300


def test_a_count_of_any_length_is_a_count():
    line = f"slurmd: Gres Name=gpu Type=a Count={'9' * 5000} Index=0 ID=1 File=/dev/a[0-1] (null)\n"
    assert [device.files for device in parse_gres(line)] == [("/dev/a0",), ("/dev/a1",)]
    (device,) = parse_gres(line.replace("9" * 5000, "01"))
    assert device.files == ("/dev/a0", "/dev/a1")


def test_many_devices_of_one_type():
    lines = (
        f"slurmd: Gres Name=gpu Type=t{n} Count=4096 Index=0 ID=1 File=/dev/t{n}_[0-4095] (null)\n" for n in range(40)
    )
    devices = parse_gres("".join(lines))  # ten minutes, if each is compared with all others
    assert len(devices) == 40 * 4096 and not any(device.alone for device in devices)
