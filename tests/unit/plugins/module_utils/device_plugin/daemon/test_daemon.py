# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What could slip past the daemon between two of its steps, and defects, which end none of its work."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.reclaim import Reclaimer
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon import daemon as module
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon.daemon import Daemon
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon.observer import NodeView, Viewer
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon.served_node import ServedNode
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.udev_events import Events
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.log import Log
from ansible_collections.fleet.cdi.tests.unit.builders import spec
from ansible_collections.fleet.cdi.tests.unit.limits import settle

IMPORTS = next(path for path in sys.path if path.endswith("build/pythonpath"))
NAME = "acme.com/widget"
DEADLINE = 20  # seconds, for what takes one at most; looks that nothing asks for are 30 apart


class Stage:
    """A host with one device, and a daemon of it in this process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "dev" / "w0"
        self.file.parent.mkdir()
        self.file.touch()
        (directory / "cdi").mkdir()
        edits = {"mounts": [{"hostPath": str(self.file), "containerPath": "/w0", "options": ["bind"]}]}
        (directory / "cdi" / "a.json").write_text(json.dumps(spec({"w0": edits}, NAME)))
        self.config = directory / "config.json"
        self.configure()
        self.log = io.StringIO()
        self.daemon: Any = None

    def configure(self, **settings: Any) -> None:
        names = ("plugin_dir", "registry_dir", "run_dir", "state_dir", "inventory", "pod_resources")
        paths = {name: str(self.directory / name) for name in names}
        document = {"version": 1, "spec_dirs": [str(self.directory / "cdi")], **paths, **settings}
        self.config.write_text(json.dumps(document))

    @property
    def devices(self) -> dict[str, bool]:
        """What the resource's list says: device -> whether it is Healthy."""
        node = self.daemon._node
        served = node.served.get(NAME) if node else None
        return {one.id: one.healthy for one in served.roster.advertised} if served else {}

    async def until(self, condition: Callable[[], Any]) -> None:
        for _turn in range(DEADLINE * 100):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"it did not come within {DEADLINE} s\n{self.log.getvalue()}")

    def play(self, scene: Callable[[], Any]) -> None:
        async def whole() -> None:
            self.daemon = Daemon(str(self.config), "a", Log(self.log))
            running = asyncio.ensure_future(self.daemon.run())
            try:
                await scene()
                assert not running.done()
            finally:
                self.daemon.end.set()
                await asyncio.wait_for(running, DEADLINE)

        asyncio.run(whole())


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_device_that_goes_between_the_first_look_and_its_being_watched(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Viewer.look

    def look_and_lose(viewer: Viewer) -> NodeView:
        found = look(viewer)
        stage.file.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Viewer, "look", look_and_lose)

    async def scene() -> None:
        await stage.until(lambda: stage.devices == {"w0": False})

    stage.play(scene)


def test_a_configuration_that_changes_while_the_daemon_starts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    enter = instance_status.InstanceEntry.enter

    def meanwhile(instance: instance_status.InstanceEntry) -> Any:
        stage.configure(resources={NAME: {"replicas": 2}})
        return enter(instance)

    monkeypatch.setattr(instance_status.InstanceEntry, "enter", meanwhile)

    async def scene() -> None:
        await stage.until(lambda: len(stage.devices) == 2)

    stage.play(scene)


def test_a_signal_to_reload_before_there_is_anything_to_reload(stage: Stage) -> None:
    """Whoever writes the configuration and sends it knows nothing of how far the process has come."""
    (stage.directory / "run_dir").touch()  # so that it ends, later on, by itself
    program = (
        "import os, signal, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon import daemon\n"
        "daemon.import_module = lambda _name: os.kill(os.getpid(), signal.SIGHUP)\n"
        "daemon.run(sys.argv[2])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, IMPORTS, str(stage.config)], check=False, capture_output=True, text=True
    )
    assert done.returncode != -signal.SIGHUP
    assert "run_dir" in done.stderr


def test_a_host_on_which_nothing_happens_is_looked_at_twice(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time because of what may have happened before it was watched; then when something does."""
    looks: list[int] = []
    look = Viewer.look
    monkeypatch.setattr(Viewer, "look", lambda viewer: looks.append(1) or look(viewer))
    monkeypatch.setattr(Events, "start", lambda _events: "this machine may have events of its own")
    settle()

    async def scene() -> None:
        await stage.until(lambda: len(looks) == 2)
        await asyncio.sleep(1.0)
        assert len(looks) == 2
        stage.file.unlink()
        await stage.until(lambda: stage.devices == {"w0": False})

    stage.play(scene)


def test_what_a_registration_depends_on_begins_anew_and_what_an_instance_is_stays(stage: Stage) -> None:
    async def scene() -> None:
        await stage.until(lambda: stage.devices)
        before = stage.daemon._node
        stage.configure(grace=20)
        await stage.until(lambda: stage.daemon._node.site.settings.grace == 20)
        assert stage.daemon._node is before
        stage.configure(plugin_dir=str(stage.directory / "elsewhere"), run_dir=str(stage.directory / "elsewhere"))
        await stage.until(lambda: stage.devices and stage.daemon._node is not before)
        assert before.served == {}, "what was there is ended"
        await stage.until(lambda: "event=warning" in stage.log.getvalue())

    stage.play(scene)
    assert "until this instance is started again" in stage.log.getvalue()


def test_what_a_kubelet_left_out_of_its_list_counts_no_more_when_another_one_comes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgot: list[int] = []
    monkeypatch.setattr(Reclaimer, "forget", lambda _reclaimer: forgot.append(1))
    (stage.directory / "plugin_dir").mkdir()

    async def scene() -> None:
        await stage.until(lambda: stage.devices)
        before = len(forgot)
        (stage.directory / "plugin_dir" / "kubelet.sock").touch()
        await stage.until(lambda: len(forgot) > before)

    stage.play(scene)


def test_a_look_that_hangs_is_said_until_it_is_over(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONG", 0.1)
    look, end = Viewer.look, threading.Event()

    def hang(viewer: Viewer) -> NodeView:
        end.wait(DEADLINE)
        return look(viewer)

    monkeypatch.setattr(Viewer, "look", hang)

    def warnings() -> Any:
        path = stage.directory / "run_dir" / "a.json"
        return json.loads(path.read_text())["warnings"] if path.exists() else None

    async def scene() -> None:
        await stage.until(warnings)
        assert "a look at the host has taken more than 0.1 s" in warnings()[0]
        end.set()
        await stage.until(lambda: warnings() == [])

    stage.play(scene)
    assert 'reason="a look at the host' in stage.log.getvalue().partition("event=warning-over")[2]


def test_a_runtime_that_hangs_does_not_keep_the_process(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, end = threading.Event(), threading.Event()
    over: list[bool] = []

    def hang(_root: str) -> Any:
        asked.set()
        over.append(end.wait(600))
        return ()

    monkeypatch.setattr(module.delivery, "readers", hang)
    (stage.directory / "plugin_dir").mkdir()
    monkeypatch.chdir(stage.directory / "plugin_dir")

    async def scene() -> None:
        with socket.socket(socket.AF_UNIX) as kubelet:
            kubelet.bind("kubelet.sock")
            await stage.until(asked.is_set)

    try:
        stage.play(scene)
        assert not over
    finally:
        end.set()


def test_what_pods_have_is_asked_for_however_long_the_grace_is(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that forgets a device which a pod has, a day before it hears of the pod, would be wrong."""
    monkeypatch.setattr(module, "PODS", 0.1)
    stage.configure(grace=86400)
    asked = []

    async def reclaim(_node: ServedNode, _pool: Any) -> bool:
        asked.append(1)
        return False

    monkeypatch.setattr(ServedNode, "reclaim", reclaim)

    async def scene() -> None:
        await stage.until(lambda: len(asked) > 2)

    stage.play(scene)


@pytest.mark.parametrize("work", ["look", "reclaim", "doubt"])
def test_a_defect_is_said_once_and_ends_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    for pause in ("SETTLE", "PODS", "DOUBT"):
        monkeypatch.setattr(module, pause, 0.01)
    calls = []

    def fail(*_given: Any) -> Any:
        calls.append(1)
        stage.daemon._soon()
        raise ZeroDivisionError("a defect")

    async def later(*_given: Any) -> Any:
        fail()

    monkeypatch.setattr(Viewer if work == "look" else ServedNode, work, fail if work == "look" else later)

    async def scene() -> None:
        await stage.until(lambda: len(calls) > 3)

    stage.play(scene)
    assert stage.log.getvalue().count("event=defect") == 1
    assert "a defect" in stage.log.getvalue()


def test_nothing_is_begun_when_it_has_ended(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The status was to be written when the loop had no threads any more: a traceback was the last that it said."""
    written: list[bool] = []
    stopped: list[ServedNode] = []
    monkeypatch.setattr(instance_status.InstanceEntry, "write", lambda _self, _document: written.append(bool(stopped)))
    stop = ServedNode.stop

    async def stop_and_tell(node: ServedNode) -> None:
        await stop(node)
        stopped.append(node)
        node.site.changed()

    monkeypatch.setattr(ServedNode, "stop", stop_and_tell)

    async def whole() -> None:
        stage.daemon = Daemon(str(stage.config), "a", Log(stage.log))
        running = asyncio.ensure_future(stage.daemon.run())
        await stage.until(lambda: written)
        stage.daemon.end.set()
        await running
        await asyncio.sleep(0.5)

    asyncio.run(whole())
    assert stopped and not any(written)
