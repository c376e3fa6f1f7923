# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi device: what it prints and its exit codes, with /dev/null of this machine as the device."""

from __future__ import annotations

import calendar
import json
import re
import time

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import spec as provision
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.plan_kind import WantedKind
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cli.memory import ENTRY, KIND, only_where_it_is

pytestmark = [only_where_it_is, pytest.mark.usefixtures("bare_host")]

NAME = f"{KIND}=null"


@pytest.fixture
def device(tmp_path, capsys):
    """device(*arguments) -> (exit code, stdout, stderr), on a host that offers /dev/null."""
    paths = Layout(str(tmp_path / "state"), str(tmp_path / "inventory.json"), spec_dirs=(str(tmp_path / "etc"),))
    provision.converge_spec(WantedKind(KIND, {"memory": ENTRY}, runtimes={"podman": "5.4.0"}), paths)
    defaults = {"state_dir": paths.state_dir, "inventory": paths.inventory, "spec_dirs": [], "prefix": ""}

    def run(*arguments):
        capsys.readouterr()
        status = main(["device", *arguments], "test", defaults)
        out, err = capsys.readouterr()
        return status, out.replace(str(tmp_path), ""), err

    return run


CHANGED = "changed: /state/device-state.json\nchanged: /etc/test.fleet.cdi-memory.json\nchanged: /inventory.json\n"


def test_out_of_service_and_back(device):
    status, out, _err = device("disable", NAME, "--reason", "it leaks\n badly", "--until", "3d", "--check")
    assert status == 0 and "would be changed: /state/device-state.json\n" in out
    status, out, err = device("disable", NAME, "--reason", "it leaks\n badly", "--until", "3d")
    assert status == 0 and out.endswith(CHANGED)
    assert re.match(r"mem:null is out of service until 20..-..-..T..:..:..Z: it leaks badly\n", out)
    assert f"{NAME} is left out of the spec" in err
    status, out, _err = device("enable", "mem:null", "--json")
    document = json.loads(out)
    assert (status, document["devices"]) == (0, [{"id": "mem:null", "disabled": None}])
    assert len(document["changed"]) == 3
    assert device("enable", NAME)[:2] == (0, "mem:null is in service\n")


def test_a_spec_that_somebody_changed_still_offers_the_device_and_that_is_no_success(device, tmp_path):
    path = tmp_path / "etc/test.fleet.cdi-memory.json"
    path.write_text(path.read_text().replace("1:3", "1:4") + "\n")
    for _time in range(2):
        status, out, err = device("disable", NAME, "--reason", "it leaks")
        assert (status, path.exists(), "left out of the spec" in err) == (1, True, False)
        assert f"failed: {KIND}: {path}: was changed since fleet.cdi wrote it" in err and f"still offers {NAME}" in err
        assert out.startswith("mem:null is out of service")
    path.rename(f"{path}.old")
    assert device("disable", NAME, "--reason", "it leaks")[0] == 0 and not path.exists()


def test_several_devices_as_a_drain_names_them(device):
    """Options come before `--`, so that no id is an option."""
    status, out, _err = device("disable", "--reason", "moved", "--json", "--", NAME, "mem:null")
    assert (status, [one["id"] for one in json.loads(out)["devices"]]) == (0, ["mem:null"])
    assert device("disable", "--reason", "moved", "--", NAME, "mem:none")[0] == 2
    assert device("enable", "--", "mem:null")[1].startswith("mem:null is in service\n")


@pytest.mark.parametrize(("until", "seconds"), [("90m", 5400), ("36h", 129600), ("3d", 259200)])
def test_a_duration_begins_now(device, until, seconds):
    document = json.loads(device("disable", NAME, "--reason", "x", "--until", until, "--check", "--json")[1])
    ends = calendar.timegm(time.strptime(document["devices"][0]["disabled"]["until"], "%Y-%m-%dT%H:%M:%SZ"))
    assert 0 <= time.time() + seconds - ends < 60


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("disable", NAME), "--reason: found none"),
        (("disable", NAME, "--reason", " "), "--reason: found none"),
        (("disable", NAME, "--reason", "x", "--until", "2020-01-01"), "--until: found '2020-01-01', which is over"),
        (("disable", NAME, "--reason", "x", "--until", "soon"), "until: found 'soon'; expected a date"),
        (("disable", "mem:none", "--reason", "x"), "which this host does not have"),
        (("stop", NAME), "device: found 'stop'; expected disable or enable"),
    ],
)
def test_what_can_not_be_meant_is_one_line(device, arguments, says):
    status, out, err = device(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err
