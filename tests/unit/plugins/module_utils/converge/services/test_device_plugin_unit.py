# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device plugin's unit as a text, judged by systemd itself where this machine has it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_unit as unit_file
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services.device_plugin_unit import (
    PluginUnit,
    plugin_texts,
    unit_mark,
    unit_text,
)
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

CHECKOUT = Path(__file__).resolve().parents[6]
TRIED = yaml.safe_load((CHECKOUT / "extensions/molecule/device_plugin/vars/directives.yml").read_text(encoding="utf-8"))

# What says when and how the service runs, rather than what it may do.
LIFE = {
    "Type", "Environment", "ExecStartPre", "ExecStart", "ExecReload", "WatchdogSec", "Restart", "RestartSec",
    "TimeoutStopSec", "KillMode",
    "OOMScoreAdjust", "RuntimeDirectoryPreserve",
}  # fmt: skip

VARIANTS = {
    "closed": PluginUnit(),
    "metrics for this host": PluginUnit(metrics="127.0.0.1:9400"),
    "metrics for all": PluginUnit(metrics="0.0.0.0:9400"),
    "open": PluginUnit(metrics="127.0.0.1:9400", device_access=True),
    "all that is offered but capabilities": PluginUnit(metrics="[::]:9400", device_access=True),
}


# What systemd-analyze says of each at most, and of who looks at processes for it.
EXPOSED = {
    "closed": (1.6, 1.4),
    "metrics for this host": (1.9, 1.4),
    "metrics for all": (2.2, 1.4),
    "open": (2.4, 1.4),
    "all that is offered but capabilities": (2.5, 1.4),
}


def directives(content: bytes) -> set[str]:
    """Those of the section Service."""
    section = content.decode().partition("[Service]")[2].partition("[Install]")[0]
    return {line.partition("=")[0] for line in section.splitlines() if line and not line.startswith("#")}


def written(unit: PluginUnit, directory: Path) -> None:
    """All files of it, as instances of the templates where they are some."""
    for path, content in plugin_texts(unit).items():
        (directory / os.path.basename(path).replace("@.", "@a.")).write_bytes(content or b"")


@pytest.mark.parametrize(("variant", "promised"), EXPOSED.items())
def test_exposure(variant, promised, tmp_path):
    """`systemd-analyze security`, which docs/device-plugin.md promises."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze: there is none on this machine")
    written(VARIANTS[variant], tmp_path)
    for name, most in zip(("device-plugin", "openers"), promised):
        path = tmp_path / f"fleet-cdi-{name}@a.service"
        command = ["systemd-analyze", "security", "--no-pager", "--offline=true", str(path)]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        exposure = float(re.findall(r"exposure level for \S+: ([0-9.]+)", said)[0])
        assert exposure <= most, said


@pytest.mark.parametrize("unit", VARIANTS.values(), ids=VARIANTS)
def test_systemd_has_nothing_to_say_of_it(unit, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze: there is none on this machine")
    command = tmp_path / "opt % $x/bin/fleet-cdi"
    command.parent.mkdir(parents=True)
    command.symlink_to("/bin/true")
    written(unit._replace(prefix=str(command.parents[1])), tmp_path)
    for path in tmp_path.glob("*.service"):
        done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_directive_is_tried_on_a_host():
    """By extensions/molecule/device_plugin: each one's effect, and every feature with all of them in force."""
    tried = {name.partition(",")[0] for name in (*TRIED["directives"], *TRIED["unified"], *TRIED["others"])}
    assert directives(unit_text(PluginUnit())) | directives(unit_text(VARIANTS["open"])) == tried | LIFE
    tried = {name.partition(",")[0] for name in TRIED["openers"]} | {*TRIED["others"], "PrivateNetwork"}
    looks = {"ExecStart", "StandardInput", "StandardOutput", "StandardError"}
    assert directives(plugin_texts(PluginUnit())[unit_file.paths()[1]]) == tried | looks


def test_what_it_is_before_and_that_it_never_gives_up():
    said = unit_text(PluginUnit()).decode()
    assert "\nBefore=kubelet.service k3s.service " in said and "\nStartLimitIntervalSec=0\n" in said
    assert "\nRestart=always\n" in said and "\nWantedBy=multi-user.target\n" in said
    assert "Requires=" not in said and "After=" not in said and "Wants=" not in said


@pytest.mark.parametrize(
    ("unit", "has", "lacks"),
    [
        (
            PluginUnit(),
            ["IPAddressDeny=any", "DevicePolicy=closed", "AF_UNIX AF_NETLINK\n"],
            ["AF_INET", "Allow=", "/tmp"],
        ),
        (PluginUnit(metrics="127.0.0.1:1"), ["AF_INET AF_INET6", "IPAddressDeny=any", "IPAddressAllow=localhost"], []),
        (PluginUnit(metrics="[::1]:1"), ["IPAddressAllow=localhost"], []),
        (PluginUnit(metrics="10.0.0.1:1"), ["AF_INET AF_INET6"], ["IPAddress"]),
        (PluginUnit(device_access=True), ['-"/tmp"'], ["DevicePolicy", "ProtectClock"]),
        (PluginUnit(network_access=True), ["AF_INET AF_INET6\n", "DevicePolicy=closed"], ["IPAddress", "/tmp"]),
        (PluginUnit(network_access=True, metrics="127.0.0.1:1"), ["AF_INET AF_INET6\n"], ["IPAddress"]),
        (
            PluginUnit(),
            ["CapabilityBoundingSet=\n", "SystemCallFilter=~@privileged @resources\n"],
            ["GIVE_UP", "capset"],
        ),
        (
            PluginUnit(capabilities=("CAP_SYS_ADMIN", "CAP_KILL")),
            ["CapabilityBoundingSet=CAP_SYS_ADMIN CAP_KILL\n"],
            [],
        ),
        (PluginUnit(prefix="/o p%t"), ['ExecStart="/o p%%t/bin/fleet-cdi" plugin run '], []),
        (PluginUnit(config_file="/etc/x $y.json"), ['--config "/etc/x $$y.json" --instance %i'], []),
        (PluginUnit(state_dir="/srv $x/cdi"), ['=-"/srv $x/cdi" ', '-p "/srv $$x/cdi" '], ['-"/srv $x"']),
        (PluginUnit(writable_paths=("/var/log/x",)), [' -"/var/log/x"\n'], ['mkdir -p "/var/log']),
    ],
)
def test_what_settings_change(unit, has, lacks):
    said = unit_text(unit).decode()
    assert [one for one in has if one not in said] == [] and [one for one in lacks if one in said] == []


@pytest.mark.parametrize(
    ("unit", "writable"),
    [
        (PluginUnit(), ["/var/lib/cdi", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/plugins_registry"]),
        (
            PluginUnit(kubelet_dir="/data/kubelet", state_dir="/srv/site/cdi"),
            ["/data/kubelet/device-plugins", "/data/kubelet/plugins_registry", "/srv/site/cdi"],
        ),
    ],
)
def test_it_may_write_what_it_needs_and_makes_that_first(unit, writable):
    lines = unit_text(unit).decode().splitlines()
    assert "ReadWritePaths=" + " ".join(f'-"{path}"' for path in writable) in lines
    made = "ExecStartPre=-+/usr/bin/mkdir -p " + " ".join(f'"{path}"' for path in writable)
    assert lines.index(made) < next(index for index, line in enumerate(lines) if line.startswith("ExecStart="))


def test_who_looks_at_processes_is_asked_by_root_alone():
    service, socket = (plugin_texts(PluginUnit(prefix="/o p%t"))[path].decode() for path in unit_file.paths()[1:])
    assert 'ExecStart="/o p%%t/bin/fleet-cdi" plugin openers\n' in service
    assert {"ListenStream=/run/fleet-cdi-openers.socket", "SocketMode=0600", "Accept=yes"} <= {*socket.splitlines()}
    assert [*plugin_texts(PluginUnit(process_access=False)).values()][1:] == [None, None]


def test_a_frozen_daemon_is_started_again():
    lines = unit_text(PluginUnit()).decode().splitlines()
    assert {"WatchdogSec=30", "Restart=always"} <= set(lines)


def test_the_mark_tells_texts_apart():
    units = [
        *VARIANTS.values(),
        PluginUnit(prefix="/o"),
        PluginUnit(config_file="/x"),
        PluginUnit(capabilities=("CAP_KILL",)),
    ]
    marks = [unit_mark(unit_text(unit)) for unit in units]
    assert len(set(marks)) == len(units) and all(re.fullmatch("[0-9a-f]{12}", one) for one in marks)
    assert unit_mark(b"[Service]\n") == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"capabilities": ("SYS_ADMIN",)}, "capabilities.0.: found 'SYS_ADMIN'"),
        ({"capabilities": ("CAP_KILL\nUser=x",)}, "capabilities.0.: found"),
        ({"config_file": "/etc/x\nUser=nobody"}, "config_file: found"),
        ({"writable_paths": ("/x\nUser=nobody",)}, "writable_paths: found"),
        ({"prefix": "opt"}, "prefix: found 'opt'; expected an absolute path"),
    ],
)
def test_what_makes_no_unit(changes, message):
    with pytest.raises(CdiError, match=message):
        unit_text(PluginUnit(**changes))


def test_instances():
    assert [unit_file.instance(name) for name in unit_file.INSTANCES] == [
        "fleet-cdi-device-plugin@a.service",
        "fleet-cdi-device-plugin@b.service",
    ]
