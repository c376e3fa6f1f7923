# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module refresh_service: units and rules on real files below a directory, with a systemctl that only remembers."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from layouts import layout_beside

from ansible_collections.fleet.cdi.plugins.module_utils.converge.driver import device_links
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import refresh_service, refresh_unit, units
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

SETTINGS = refresh_unit.RefreshUnit()
SERVICE, PATH, TIMER, LIBRARIES_PATH, CLAIMS_TIMER = refresh_service.UNITS
UNITS = " ".join(refresh_service.UNITS)
BOTH = f"{refresh_unit.WANTED} {refresh_unit.WANTED_BY_UDEV}"


class Systemd:
    """Answers as systemctl(1) of Debian 13 does, and notes what it was told."""

    def __init__(self, root):
        self.root, self.enabled, self.active, self.told = root, set(), set(), []
        self.knows = {}  # the text of each unit as systemd has it in memory

    def __call__(self, command):
        offline = command[:2] == ["env", "SYSTEMD_OFFLINE=1"]
        program, *words = command[2:] if offline else command
        assert offline == (words[0] in ("enable", "disable")), "systemd would read all units anew"
        names = [word for word in words[1:] if not word.startswith("-")]
        if words[0] == "is-enabled":
            there = [name for name in names if os.path.exists(f"{refresh_unit.UNIT_DIR}/{name}")]
            return 0, "".join(f"{'enabled' if one in self.enabled else 'disabled'}\n" for one in there)
        if words[0] == "is-active":
            return 0, "".join(f"{'active' if one in self.active else 'inactive'}\n" for one in names)
        if words[0] == "show":
            outdated = {name: self.knows.get(name, self.text(name)) != self.text(name) for name in names}
            said = [f"Id={name}\nNeedDaemonReload={'yes' if old else 'no'}\n" for name, old in outdated.items()]
            return 0, "\n".join(said)
        self.told.append(" ".join([os.path.basename(program), *words]))
        if words[0] == "daemon-reload":
            self.knows = {name: self.text(name) for name in self.knows}
        if words[0] in ("restart", "start"):
            self.knows.update({name: self.knows.get(name, self.text(name)) for name in names})
        changes = {"enable": (self.enabled, set.add), "restart": (self.active, set.add)}
        if words[0] in changes:
            where, how = changes[words[0]]
            for name in names:
                how(where, name)
        if words[0] == "disable":
            self.enabled -= set(names)
        if words[0] == "stop":
            self.active -= set(names)
        return 0, ""

    def text(self, name):
        path = f"{refresh_unit.UNIT_DIR}/{name}"
        return open(path).read() if os.path.exists(path) else None


@pytest.fixture
def host(tmp_path, monkeypatch):
    """(systemd, state directory); the files go below tmp_path."""
    monkeypatch.setattr(refresh_unit, "UNIT_DIR", str(tmp_path / "units"))
    monkeypatch.setattr(refresh_unit, "RULES", str(tmp_path / "rules.d/70-fleet-cdi.rules"))
    monkeypatch.setattr(refresh_unit, "WANTED", str(tmp_path / "wanted"))
    monkeypatch.setattr(refresh_unit, "WANTED_BY_UDEV", str(tmp_path / "wanted-by-udev"))
    for name in ("RULES", "WANTED", "WANTED_BY_UDEV"):
        monkeypatch.setattr(refresh_service, name, getattr(refresh_unit, name))
    monkeypatch.setattr(units.shutil, "which", lambda name: f"/usr/bin/{name}")
    return Systemd(tmp_path), str(tmp_path / "state")


def install(host, check=False, booted=True, **options):
    systemd, state_dir = host
    return refresh_service.install(SETTINGS._replace(**options), state_dir, check, systemd, booted)


def everything(root):
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def test_the_second_time_nothing_changes(host, tmp_path):
    assert install(host)["changed"]
    before = everything(tmp_path)
    assert set(before) == {
        *(f"units/{unit}" for unit in {*refresh_service.UNITS, *refresh_service.SERVICES}),
        "rules.d/70-fleet-cdi.rules",
        "state/manifest.json",
    }
    host[0].told.clear()
    assert install(host) == {"changed": False, "diff": []}
    assert host[0].told == [] and everything(tmp_path) == before


def test_the_order_of_what_systemd_is_told(host):
    install(host)
    assert host[0].told == [
        "udevadm control --reload",
        f"systemctl enable {UNITS}",
        f"systemctl restart {PATH} {TIMER} {LIBRARIES_PATH} {CLAIMS_TIMER}",
        f"systemctl start --no-block {SERVICE}",
    ]


def test_systemd_reads_its_units_anew_only_where_it_has_an_old_one(host):
    """A reload takes devices away from containers whose runtime did not tell systemd of them; so does enable."""
    install(host)
    host[0].told.clear()
    install(host, timeout=61)
    assert host[0].told[0] == "systemctl daemon-reload"


class TestLinks:
    """By number, to the device nodes of the specs; device_links.py makes them, to real nodes in its own test."""

    CHANGE = device_links.LinkChange("/dev/char/195:0", "", "../nvidia0")

    def test_they_are_made_before_systemd_reads_its_units_anew(self, host, monkeypatch):
        install(host)
        host[0].told.clear()
        asked = []

        def keep(spec_dirs, state_dir, check):
            asked.append((spec_dirs, state_dir, check, list(host[0].told)))
            return (self.CHANGE,)

        monkeypatch.setattr(device_links, "keep_links", keep)
        done = install(host, timeout=61, spec_dir="/srv/cdi")
        assert asked == [(("/srv/cdi", "/etc/cdi", "/var/run/cdi"), host[1], False, [])]
        assert done["diff"][-1] == {
            "before_header": "/dev/char/195:0",
            "after_header": "/dev/char/195:0",
            "before": "",
            "after": "symlink to ../nvidia0\n",
        }

    def test_one_that_was_lost_is_a_change(self, host, monkeypatch):
        install(host)
        host[0].told.clear()
        monkeypatch.setattr(device_links, "keep_links", lambda *_arguments: (self.CHANGE,))
        assert install(host, check=True) == install(host) and install(host)["changed"]
        assert host[0].told == []

    def test_in_an_image_there_are_none(self, host, monkeypatch):
        monkeypatch.setattr(device_links, "keep_links", lambda *_arguments: pytest.fail("an image has no devices"))
        install(host, booted=False)


def test_check_mode_shows_what_the_run_does(host, tmp_path):
    preview = install(host, check=True)
    assert everything(tmp_path) == {} and host[0].told == []
    assert preview == install(host)
    assert [one["after_header"] for one in preview["diff"]][-1] == "systemd"


@pytest.mark.parametrize("harm", ["edit", "disable", "stop"])
def test_what_somebody_changed_is_put_right(host, tmp_path, harm):
    install(host)
    before = everything(tmp_path)
    if harm == "edit":
        (tmp_path / "units" / TIMER).write_text("theirs")
    elif harm == "disable":
        host[0].enabled.discard(TIMER)
    else:
        host[0].active.discard(TIMER)
    host[0].told.clear()
    assert install(host)["changed"]
    assert everything(tmp_path).keys() == before.keys() and host[0].enabled == set(refresh_service.UNITS)
    restarted = [line for line in host[0].told if "restart" in line]
    assert restarted == ([] if harm == "disable" else [f"systemctl restart {TIMER}"])


def test_in_an_image_units_are_enabled_and_not_started(host):
    install(host, booted=False)
    assert host[0].told == ["udevadm control --reload", f"systemctl enable {UNITS}"]
    assert install(host, booted=False)["changed"] is False


def test_a_foreign_file_stays(host, tmp_path):
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / PATH).write_text("theirs")
    with pytest.raises(CdiError, match=f"{PATH}: is not ours"):
        install(host)
    assert everything(tmp_path) == {f"units/{PATH}": b"theirs"} and host[0].told == []


def test_absent_stops_and_takes_every_trace(host, tmp_path):
    install(host)
    for name in ("wanted", "wanted-by-udev"):
        (tmp_path / name).touch()
    systemd, state_dir = host
    systemd.told.clear()
    preview = refresh_service.uninstall(state_dir, True, systemd, True)
    assert preview["changed"] and systemd.told == []
    assert refresh_service.uninstall(state_dir, False, systemd, True) == preview
    assert everything(tmp_path) == {} and not list(tmp_path.iterdir())
    every = " ".join((*refresh_service.WATCHERS, *refresh_service.SERVICES))
    assert systemd.told[:2] == [f"systemctl stop {every}", f"systemctl disable {UNITS}"]
    assert refresh_service.uninstall(state_dir, False, systemd, True) == {"changed": False, "diff": []}


def test_undo_does_so_as_well(host, tmp_path, monkeypatch):
    install(host)
    systemd, state_dir = host
    monkeypatch.setattr(refresh_service, "run_on_host", systemd)
    monkeypatch.setattr(refresh_service.systemd, "booted", lambda: True)
    assert len(undo(layout_beside(state_dir), check=True).removed) == 8 and systemd.enabled
    undo(layout_beside(state_dir))
    assert everything(tmp_path) == {} and not systemd.enabled and not systemd.active


def test_a_failure_of_systemctl_is_told_in_full(host):
    def fails(command):
        return (1, "Unit is masked.\n") if "enable" in command else (0, "")

    with pytest.raises(
        CdiError, match=r"`env SYSTEMD_OFFLINE=1 systemctl enable .*` failed \(exit status 1\): Unit is masked\."
    ):
        refresh_service.install(SETTINGS, host[1], False, fails, True)


def test_a_host_without_systemd_is_told_so(host, monkeypatch):
    monkeypatch.setattr(units.shutil, "which", lambda _name: None)
    with pytest.raises(CdiError, match="systemctl: this host has no such program"):
        install(host)
    assert refresh_service.uninstall(host[1], False) == {"changed": False, "diff": []}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": -1}, "timeout: found -1 .a whole number.; expected 0 or more seconds"),
        ({"interval": 9}, "interval: found 9 .a whole number.; expected 10 or more seconds"),
        (
            {"metrics_file": "/srv/x.txt"},
            "metrics_file: found '/srv/x.txt' .a text.; expected an absolute path that ends with .prom",
        ),
        (
            {"metrics_file": "x.prom"},
            "metrics_file: found 'x.prom' .a text.; expected an absolute path that ends with .prom",
        ),
        (
            {"feature_file": "features.d/x"},
            "feature_file: found 'features.d/x' .a text.; expected an absolute path of a file",
        ),
        ({"claims_idle": -1}, "claims_idle: found -1 .a whole number.; expected 0 or more seconds"),
        ({"load_modules": ("nvidia; reboot",)}, "load_modules.0.: found 'nvidia; reboot'"),
    ],
)
def test_settings_that_make_no_unit(host, options, message):
    with pytest.raises(CdiError, match=message):
        install(host, **options)
    assert read_manifest(host[1]).files == {}


@pytest.mark.parametrize("check", [True, False])
def test_a_feature_file_of_others_is_refused_before_anything_is_changed(host, tmp_path, check):
    """The service fails to write it, and nobody hears of that."""
    path = tmp_path / "features.d/x"
    path.parent.mkdir()
    path.write_text("theirs=1\n")
    with pytest.raises(CdiError, match=f"{path}: is not ours"):
        install(host, check, feature_file=str(path))
    assert host[0].told == [] and list(everything(tmp_path)) == ["features.d/x"]


def test_a_feature_file_that_may_be_written_is_left_to_the_service(host, tmp_path):
    path = tmp_path / "features.d/x"
    assert install(host, feature_file=str(path))["changed"] and not path.parent.exists()
    path.parent.mkdir()
    path.write_text("feature.node.kubernetes.io/fleet-cdi-vendor.com-gpu.count=1\n")  # its record was lost
    assert not install(host, feature_file=str(path))["changed"]


class TestTexts:
    def text(self, unit, **options):
        return refresh_unit.refresh_texts(SETTINGS._replace(**options))[f"{refresh_unit.UNIT_DIR}/{unit}"].decode()

    def test_the_service_is_before_what_starts_containers_and_ends_in_time(self):
        text = self.text(SERVICE, timeout=60)
        assert (
            "\nBefore=docker.service containerd.service crio.service kubelet.service podman-restart.service\n" in text
        )
        assert "\nTimeoutSec=90\n" in text and "RequiredBy" not in text
        assert '\nExecStart="/opt/cdi/bin/fleet-cdi" refresh --no-claims --timeout=60 --grace=600\n' in text

    def test_claims_are_restored_outside_of_the_sandbox_also_after_a_failure(self):
        assert '\nExecStopPost=+"/opt/cdi/bin/fleet-cdi" claim restore\n' in self.text(SERVICE)

    def test_what_settings_add(self):
        text = self.text(SERVICE, load_modules=("nvidia", "nvidia-uvm"), make_nodes=True)
        lines = [line for line in text.splitlines() if line.startswith("ExecStart")]
        assert lines[1] == "ExecStartPre=-+/sbin/modprobe -a nvidia nvidia-uvm"
        assert lines[-1].endswith("--make-nodes")
        assert "CAP_MKNOD" in text and "CAP_MKNOD" not in self.text(SERVICE)

    def test_virtual_functions_are_made_when_drivers_are_loaded_and_seen_when_they_have_their_own(self):
        """Only a driver makes functions. At boot the service starts before udev has loaded it."""
        lines = [line for line in self.text(SERVICE, virtual_functions=("ens1=2",)).splitlines() if "Exec" in line]
        settle = f"ExecStartPre=-/usr/bin/udevadm settle --timeout={refresh_unit.SETTLE}"
        assert lines[2:-2] == [
            settle,
            f"ExecStartPre=+/usr/bin/rm -f {BOTH}",  # before: a driver that comes later is an event
            'ExecStartPre=-+"/opt/cdi/bin/fleet-cdi" functions ens1=2',
            settle,
        ]

    def test_only_where_it_writes_is_writable(self):
        text = self.text(SERVICE, spec_dir="/srv/a%b/cdi", state_dir="/var/lib/cdi", device_list="/run/cdi.json")
        assert '\nReadWritePaths=-"/run" -"/srv/a%%b/cdi" -"/var/lib/cdi"\n' in text
        assert '\nExecStartPre=-+/usr/bin/mkdir -p "/run" "/srv/a%%b/cdi" "/var/lib/cdi"\n' in text

    def test_the_rules_make_the_file_that_the_path_unit_waits_for_and_the_service_removes(self):
        rules = refresh_unit.refresh_texts(SETTINGS)[refresh_unit.RULES].decode().splitlines()
        assert f'RUN+="/usr/bin/touch {refresh_unit.WANTED_BY_UDEV}"' in rules
        assert {f"PathExists={path}" for path in BOTH.split()} <= set(self.text(PATH).splitlines())
        lines = [line for line in self.text(SERVICE).splitlines() if line.startswith("ExecStart")]
        assert lines[-2] == f"ExecStartPre=+/usr/bin/rm -f {BOTH}"  # last: after udev has settled

    def test_udev_makes_a_file_in_its_own_directory_alone(self):
        """SELinux's policy of Debian lets udev_t make files below /run/udev (udev_runtime_t), and none in /run."""
        rules = refresh_unit.refresh_texts(SETTINGS)[refresh_unit.RULES].decode()
        assert re.findall(r'RUN\+="/usr/bin/touch (.*)/[^/]+"', rules) == ["/run/udev"]

    def test_a_change_of_the_libraries_is_one_refresh_after_it_is_quiet(self):
        """What the shell does with it is scenario refresh's part."""
        assert f"PathChanged={refresh_unit.LIBRARIES}" in self.text(LIBRARIES_PATH).splitlines()
        lines = self.text(refresh_unit.LIBRARIES_SERVICE).splitlines()
        assert f"ExecStart=/usr/bin/touch {refresh_unit.WANTED}" in lines
        assert f"ReadWritePaths={os.path.dirname(refresh_unit.WANTED)}" in lines

    def test_claims_are_given_back_after_engines_and_restore_and_only_where_there_are_any(self):
        lines = self.text("fleet-cdi-claims.service", state_dir="/srv/a%b$c", claims_idle=7).splitlines()
        assert f"After={SERVICE} docker.service" in lines
        assert 'ExecCondition=/usr/bin/test -d "/srv/a%%b$$c/claims"' in lines
        assert "ExecStartPre=-/sbin/modprobe -abq overlay" in lines
        assert 'ExecStart="/opt/cdi/bin/fleet-cdi" claim gc --idle-for=7' in lines
        assert "OnUnitInactiveSec=60" in self.text(CLAIMS_TIMER, interval=60).splitlines()

    def test_files_for_others_are_written_after_the_refresh_and_outside_of_its_sandbox(self):
        command = 'ExecStopPost=-+"/opt/cdi/bin/fleet-cdi"'
        lines = self.text(SERVICE, metrics_file="/srv/a%b$c.prom", feature_file="/srv/features.d/x").splitlines()
        wanted = [f'{command} features --output "/srv/features.d/x"', f'{command} metrics --output "/srv/a%%b$$c.prom"']
        assert [line for line in lines if "--output" in line] == wanted
        assert "--output" not in self.text(SERVICE)

    @pytest.mark.counterpart("udev")
    def test_systemd_and_udev_take_them(self, tmp_path):
        """The real parsers; systemd-analyze and udevadm verify come with these packages."""
        texts = refresh_unit.refresh_texts(
            SETTINGS._replace(prefix="/usr", load_modules=("nvidia",), make_nodes=True, metrics_file="/srv/x y.prom")
        )
        paths = []
        for path, content in texts.items():
            place = tmp_path / os.path.basename(path)
            # What is not on this machine would be an error of another sort.
            place.write_bytes(
                content.replace(b'"/usr/bin/fleet-cdi"', b"/bin/true").replace(b"/sbin/modprobe", b"/bin/true")
            )
            paths.append(str(place))
        rules = [path for path in paths if path.endswith(".rules")]
        done = subprocess.run(["udevadm", "verify", *rules], capture_output=True, text=True, check=False)
        if "Unknown command" not in done.stderr:  # before systemd 254
            assert done.returncode == 0, done.stdout + done.stderr
        unit_files = [path for path in paths if path not in rules]
        done = subprocess.run(["systemd-analyze", "verify", *unit_files], capture_output=True, text=True, check=False)
        assert tmp_path.name not in done.stderr and "fleet-cdi" not in done.stderr, done.stderr
