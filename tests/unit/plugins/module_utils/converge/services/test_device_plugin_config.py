# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module device_plugin_config: the file on a real directory, and instances that take it or don't."""

from __future__ import annotations

import hashlib
import json

import pytest
from layouts import layout_beside

from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_config as module
from ansible_collections.fleet.cdi.plugins.module_utils.converge.undo import undo
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.survey import RuntimeReader
from ansible_collections.fleet.cdi.plugins.module_utils.system import openers
from ansible_collections.fleet.cdi.tests.unit.builders import spec


@pytest.fixture
def host(tmp_path):
    """Options for a file below tmp_path, and what the module makes of them."""

    class Host:
        path = str(tmp_path / "etc/device-plugin.json")
        state_dir = str(tmp_path / "state")

        def options(self, **changes):
            usual = {
                "resources": {}, "delivery": "auto", "registration": "auto", "takeover": False, "metrics": "",
                "occupied": "warn", "occupied_ignore": list(openers.EXPECTED),
                "grace": 30, "spec_dirs": ["/etc/cdi"], "device_list": "/run/i.json", "state_dir": self.state_dir,
                "kubelet_dir": "/var/lib/kubelet", "config_file": self.path,
            }  # fmt: skip
            return {**usual, **changes}

        def write(self, content=None, force=False, check=False, **changes):
            content = module.rendered(self.options(**changes)) if content is None else content
            return module.write_config(self.path, content or None, self.state_dir, force, check)

        def files(self):
            return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())

    return Host()


def test_what_is_written_is_what_the_daemon_reads(host):
    resources = {"vendor.com/gpu": {"replicas": 2, "kinds": ["vendor.com/card"]}}
    assert host.write(check=True, resources=resources) and host.files() == []
    host.write(resources=resources, grace=7, kubelet_dir="/var/lib/k0s/kubelet/")
    read = configuration.read(host.path)
    assert read.resources["vendor.com/gpu"].replicas == 2 and read.grace == 7
    assert read.plugin_dir == "/var/lib/k0s/kubelet/device-plugins"
    assert read.registry_dir == "/var/lib/k0s/kubelet/plugins_registry"
    assert read.pod_resources == "/var/lib/k0s/kubelet/pod-resources/kubelet.sock"
    assert host.write(resources=resources, grace=7, kubelet_dir="/var/lib/k0s/kubelet") is None


def test_the_defaults_are_those_of_the_daemon(host):
    assert module.rendered(host.options(path=configuration.PATH))
    host.write(spec_dirs=["/etc/cdi", "/var/run/cdi"], device_list="/run/cdi-inventory.json")
    assert configuration.read(host.path)._replace(state_dir="/var/lib/cdi") == configuration.PluginSettings()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resources": {"gpu": {}}}, "gpu"),
        ({"resources": {"vendor.com/gpu": {"replica": 2}}}, "did you mean 'replicas'"),
        ({"resources": {"vendor.com/gpu": {"replicas": 0}}}, "replicas"),
        ({"grace": -1}, "grace"),
        ({"metrics": "nowhere"}, "metrics"),
        ({"spec_dirs": ["relative"]}, "spec_dirs"),
        ({"kubelet_dir": "/var//lib"}, "kubelet_dir: found '/var//lib' .a text.; expected an absolute path"),
        (
            {"kubelet_dir": "var/lib/kubelet/"},
            "kubelet_dir: found 'var/lib/kubelet' .a text.; expected an absolute path",
        ),
        (
            {"config_file": "etc/device-plugin.json"},
            "config_file: found 'etc/device-plugin.json' .a text.; expected an absolute path",
        ),
        ({"config_file": "/etc/cdi/device-plugin.json"}, "container runtimes would take it for a spec"),
        ({"config_file": "/var/run/cdi/device-plugin.json"}, "container runtimes would take it for a spec"),
        (
            {"config_file": "/opt/specs/x.json", "spec_dirs": ["/opt/specs"]},
            "container runtimes would take it for a spec",
        ),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(host, changes, message):
    with pytest.raises(CdiError, match=message) as error:
        host.write(**changes)
    assert changes.get("config_file", host.path) in str(error.value) and "\n" not in str(error.value)
    assert host.files() == []


def test_a_foreign_file_stays_unless_forced_and_comes_back(host, tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/device-plugin.json").write_text("theirs")
    with pytest.raises(CdiError, match="is not ours"):
        host.write()
    assert host.write(b"") is None, "absent: what is not ours is none of our business"
    assert host.write(force=True).before == b"theirs"
    assert host.write(b"", check=True).after == b"theirs"
    host.write(b"")
    assert (tmp_path / "etc/device-plugin.json").read_text() == "theirs"
    assert host.files() == ["etc/device-plugin.json"]


def test_absent_and_undo_leave_nothing(host, tmp_path):
    host.write()
    assert host.write(b"").after is None
    assert not list(tmp_path.iterdir())
    assert host.write(b"") is None
    host.write()
    undo(layout_beside(host.state_dir))
    assert not list(tmp_path.iterdir())


def test_what_somebody_changed_is_not_taken_back_unless_forced(host, tmp_path):
    host.write()
    (tmp_path / "etc/device-plugin.json").write_text("{}")
    with pytest.raises(CdiError, match="was changed since fleet.cdi wrote it"):
        host.write(b"")
    host.write(b"", force=True)
    assert not list(tmp_path.iterdir())


def test_the_module_warns_of_a_way_that_can_not_work_on_this_node(host, tmp_path, monkeypatch):
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi/gpu.json").write_text(json.dumps(spec({"0": {"env": ["A=b"]}})))
    reader = RuntimeReader("containerd", False, "containerd 1.7 has CDI off")
    monkeypatch.setattr(module.delivery, "readers", lambda _root: (reader,))
    told = []
    monkeypatch.setattr(module, "_reload", lambda: told.append("reload"))
    options = host.options(
        spec_dirs=[str(tmp_path / "cdi")], prefix=str(tmp_path), release="", state="present", timeout=0, force=False
    )
    for mode, warned in (("cdi", 1), ("auto", 0)):
        for check in (True, False, False):
            _result, warnings = module.answer({**options, "delivery": mode}, check)
            assert [one for one in warnings if "containerd 1.7 has CDI off" in one] == warnings
            assert len(warnings) == warned
    assert told == ["reload", "reload"], "once for each change"


class TestTaken:
    CONTENT = json.dumps({"version": 1}).encode()
    DIGEST = hashlib.sha256(CONTENT).hexdigest()

    def ask(self, *lives, content=CONTENT, wait=5.0, path="/etc/x.json"):
        """What comes of instances whose (sha256, error) are the next of `lives` at each look, and the time it took."""
        now = [0.0]
        looks = iter(lives)
        last = [()]

        def living():
            last[0] = next(looks, last[0])
            return [
                {"instance": name, "config": {"path": path, "sha256": digest, "error": error}}
                for name, digest, error in last[0]
            ]

        found = module.taken(
            "/etc/x.json", content, wait, living, lambda: now[0], lambda seconds: now.__setitem__(0, now[0] + seconds)
        )
        return found, now[0]

    def test_it_waits_until_all_have_it(self):
        found, waited = self.ask(
            [("a", "", None), ("b", self.DIGEST, None)],
            [("a", "", None), ("b", self.DIGEST, None)],
            [("a", self.DIGEST, None), ("b", self.DIGEST, None)],
        )
        assert [one.taken for one in found] == [True, True] and waited == pytest.approx(2 * module.PAUSE)

    def test_one_that_refuses_is_not_waited_for(self):
        found, waited = self.ask([("a", "other", "/etc/x.json: is wrong")])
        assert found == (module.TakenOver("a", False, "/etc/x.json: is wrong"),) and waited < 2.5

    def test_what_it_said_of_the_file_before_does_not_count(self):
        found, waited = self.ask([("a", "other", "/etc/x.json: is wrong")], [("a", self.DIGEST, None)])
        assert found == (module.TakenOver("a", True, None),) and waited == pytest.approx(module.PAUSE)

    def test_one_that_does_neither_is_waited_for_that_long(self):
        found, waited = self.ask([("a", "other", None)], wait=1.0)
        assert found == (module.TakenOver("a", False, None),) and 1.0 <= waited < 2.0

    def test_one_with_another_file_does_not_count(self):
        assert self.ask([("a", "other", None)], path="/etc/y.json") == ((), 0)

    def test_without_a_file_the_defaults_are_in_force(self):
        found, _waited = self.ask([("a", "", None)], content=None)
        assert found == (module.TakenOver("a", True, None),)
