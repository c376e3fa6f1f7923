# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the device plugin: one daemon for all resources of a node.

It looks at the host after each change, tells the kubelet the result, and continues without devices, a kubelet, inotify
or a readable configuration.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from typing import Any, Optional

from ... import file_state
from ...allocation.ledger.ledger import Ledger
from ...discovery import inventory
from ...explanations.shown import with_id
from ...records import CdiError
from ...safe_text import one_line
from ...system import openers
from ..allocate import delivery, reclaim
from ..allocate.allocate import Allocator
from ..allocate.delivery_decision import Readers
from ..allocate.dra_keeper import Keeper
from ..config import in_force
from ..config.configuration import PluginSettings
from ..health.occupied_units import Lookout
from ..health.probe import numa_nodes
from ..kubelet import api, unix_sockets
from ..kubelet.register_call import Site
from ..offer import udev_events
from ..offer.resources import Offer
from ..process import instance_status, openers_service, waiting, watch, watchdog
from ..process.log import Log
from ..process.metrics import Metrics
from . import status_document
from .observer import Viewer
from .publisher import Teller
from .served_node import ServedNode, same_site
from .served_resource import Hands

SETTLE = 0.1  # seconds to wait for more events of the same change
PERIOD = 30.0  # seconds between two looks without events
LONG = 30.0  # seconds that a look may take before a warning
DOUBT = 5.0  # seconds between two checks of our directories and, after others came or went, of the kubelet's list
PODS = 10.0  # seconds at most between two looks at the devices of pods
END = 4.0  # seconds for everything to end
# Seconds that another thread may keep Python's lock while the event loop waits for it, after each system call. With the
# default, 0.005, a turn of the loop with ten calls waits 50 ms in sum during a look.
SWITCH = 0.0005
# Libraries of the loop. Import them at the start: an import in the loop takes long during a look at many devices.
LIBRARIES = ("google.protobuf.descriptor_pb2", "google.protobuf.message_factory", "grpc.aio")


class Daemon:
    """One instance. Make it in the running loop; `run` serves until `end` is set."""

    def __init__(
        self,
        path: str,
        instance: str = "",
        log: Optional[Log] = None,
        dog: Optional[watchdog.Watchdog] = None,
        look: openers_service.Look = openers.look,
    ) -> None:
        self._log = log or Log()
        self._metrics = Metrics()
        self._config = in_force.load(path)
        self._instance = instance_status.InstanceEntry(in_force.run_dir(path), instance or os.urandom(4).hex())
        self._watch = watch.Watch(self._log)
        self._udev = udev_events.Events(self._soon)
        self._watchdog = dog
        self._openers = look
        self._writable: frozenset[str] = frozenset()  # directories that were writable at the start
        self._node: Optional[ServedNode] = None
        self._former: dict[str, set[str]] = {}
        self._began = (time.time(), time.clock_gettime(time.CLOCK_BOOTTIME))
        self._news, self._pods, self.end = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._offer: Optional[Offer] = None
        self._applying = asyncio.Lock()
        self._defect: Optional[BaseException] = None
        self._tasks: set[asyncio.Future[None]] = set()
        self._tell = Teller(self._instance, self._log, self._document, self._later)
        self._choosing = ThreadPoolExecutor(1, "choose")
        self._looking = ThreadPoolExecutor(1, "look")
        self._reclaiming = ThreadPoolExecutor(1, "reclaim")
        self._asking = ThreadPoolExecutor(1, "ask")

    async def run(self) -> None:
        """Serve until `end` is set. Raises CdiError if the daemon can't start, or has to start again."""
        for seen in self._instance.enter():
            for name, found in seen.document["resources"].items():
                self._former.setdefault(name, set()).update(found.get("devices", ()))
        release = status_document.release()
        self._log.info("started", instance=self._instance.name, release=release or None, config=self._config.path)
        self._later(self._beats())
        if self._watchdog is not None:
            self._later(self._watchdog.feed())
        try:
            self._watch.start()
            why = self._udev.start()
            if why:
                self._log.info("no-udev-events", reason=why)
            self._watch.follow("config", [watch.Subject(self._config.path)], self.reload)
            self.reload()  # for changes since the first read
            await self._apply()
            for work in (self._looks, self._reclaims, self._doubts):
                self._later(work())
            await self.end.wait()
        finally:
            await self._stop()
        if self._defect is not None:
            raise self._defect

    # Configuration

    def reload(self) -> None:
        """Read the configuration again. If it is invalid, log the reason and keep the one in force."""
        found = in_force.load(self._config.path, self._config)
        if found == self._config:
            return
        old, self._config = self._config, found
        self._metrics.count("reloads_total", result="error" if found.error else "ok")
        if not found.error:
            self._log.over("config")
            self._log.info("config", path=found.path, sha256=found.sha256 or None)
        if found.error or found.settings != old.settings:
            self._later(self._apply())
        self._tell.soon()

    async def _apply(self) -> None:
        """Apply the settings in force. Resources whose own settings did not change keep their streams."""
        async with self._applying:
            if self._config.error:
                self._log.change("config", self._config.error, "config-error", reason=self._config.error)
            settings = self._config.settings
            if settings is None:
                await self._tell.write()
                return
            if settings.run_dir != self._instance.run_dir:
                text = f"run_dir stays {self._instance.run_dir} until this instance is started again"
                self._log.change("run_dir", settings.run_dir, "warning", reason=text)
            if self._node is not None and not same_site(self._node.site.settings, settings):
                await self._node.stop()
                self._node = None
            before = self._node
            self._node = self._make(settings, before)
            if before is None:
                self._writable = frozenset(path for path in _directories(settings) if not _is_read_only(path))
                self._follow(settings)
                self._watch.follow("host", self._node.viewer.subjects(), self._soon)
            await self._tell.metrics_at(settings.metrics, self._text, self._lacking)
        self._news.set()

    def _make(self, settings: PluginSettings, before: Optional[ServedNode]) -> ServedNode:
        """Return the node for these settings. It is `before`, if given, so that its resources stay served."""
        boot = inventory.boot_id()
        if before is not None:
            before.site.settings = settings
            before.viewer = Viewer(settings, before.hands.ledger, before.viewer.keeper, before.hands.lookout)
            before.reclaimer = reclaim.Reclaimer(before.hands.ledger, settings.grace, settings.resources)
            return before
        ledger = Ledger(settings.state_dir, boot, keep=True)
        peers = instance_status.Peers(self._instance.run_dir, self._instance.name, self._began[1])
        site = Site(settings, peers, self._log, self._metrics, self._tell.soon)
        hands = Hands(
            ledger,
            Allocator(ledger, settings.root),
            self._choosing,
            Readers(lambda: delivery.readers(settings.root), self._asking),
            numa_nodes(settings.root),
            self._soon,
            Lookout(settings.root, self._openers),
        )
        reclaimer = reclaim.Reclaimer(ledger, settings.grace, settings.resources)
        return ServedNode(site, hands, Viewer(settings, ledger, Keeper(ledger), hands.lookout), reclaimer)

    def _follow(self, settings: PluginSettings) -> None:
        """Watch the sockets of kubelets and plugins; remove those that former starts left."""
        socket = watch.Subject(os.path.join(settings.plugin_dir, api.KUBELET_SOCKET), urgent=True)
        self._watch.follow("kubelet", [socket], self._kubelet_changed)
        directories = (settings.plugin_dir, settings.registry_dir)
        self._watch.follow(
            "sockets", [watch.Subject(one, file_state.entries) for one in directories], self._look_at_sockets
        )
        for directory in directories:
            for path in unix_sockets.remove_stale(directory):
                self._log.info("removed-stale-socket", path=path)

    def _text(self) -> str:
        served = self._node.served.values() if self._node else ()
        process = status_document.of_process(self._began[0], self._watch.polling, bool(self._config.error))
        return self._metrics.render((*status_document.gauges(served), *process))

    def _lacking(self) -> str:
        return status_document.lacking(self._config.error, self._node)

    # Work that goes on

    async def _beats(self) -> None:
        """Show other instances that the event loop runs."""
        while True:
            self._instance.beat()
            await asyncio.sleep(instance_status.BEAT)

    async def _looks(self) -> None:
        """Look at the host after each event, and when something is due."""
        loop = asyncio.get_running_loop()
        while True:
            self._news.clear()
            due = await self._safely("a look at the host", self._look())
            wait = PERIOD if due is None else min(max(due - loop.time(), 0), PERIOD)
            await waiting.within(self._news, wait)
            await asyncio.sleep(SETTLE)

    async def _look(self) -> Optional[float]:
        """Look once, and act on the result. Return when something is due, in the loop's time."""
        node = self._node
        if node is None:
            return None
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        late = loop.call_later(LONG, node.late, LONG)
        try:
            view = await loop.run_in_executor(self._looking, node.viewer.look)
            is_new = view.offer is not self._offer
            noise = udev_events.noise
            ignored = await loop.run_in_executor(self._looking, noise, view.offer.resources) if is_new else None
        finally:
            late.cancel()
        self._metrics.observe("look_seconds", time.monotonic() - began)
        async with self._applying:
            if node is not self._node:  # the configuration changed meanwhile
                return None
            due = await node.take(view, self._former)
            if view.offer is not self._offer:  # pods may have devices of it that are not held yet
                self._offer = view.offer
                self._udev.noise = ignored or self._udev.noise
                self._pods.set()
            if self._watch.follow("host", node.viewer.subjects(view), self._soon):
                self._soon()  # for changes since the look
            await self._tell.write()  # other instances see what this one serves before the kubelet does
            node.start()
            return due

    async def _reclaims(self) -> None:
        """Release the devices that no pod has any more."""
        while True:
            seconds = min(self._node.site.settings.grace / 3, PODS) if self._node else PODS
            await waiting.within(self._pods, seconds)
            self._pods.clear()
            # Not in the thread of the looks: a teardown may take long.
            if self._node and await self._safely("a look at the pods", self._node.reclaim(self._reclaiming)):
                self._soon()

    async def _doubts(self) -> None:
        """Check that the kubelet lists the registered resources."""
        while True:
            await asyncio.sleep(DOUBT)
            self._look_at_directories()
            if self._node:
                await self._safely("a look at what the kubelet lists", self._node.doubt())

    async def _safely(self, what: str, work: Awaitable[Any]) -> Any:
        """Return the result of `work`, or None after a defect, which is logged once. The daemon continues to serve."""
        try:
            found = await work
        except Exception as error:
            self._log.change(what, repr(error), "defect", reason=f"{what} failed: {error!r}")
            return None
        self._log.over(what)
        return found

    def _soon(self) -> None:
        """Look at the host soon: it may have changed."""
        self._news.set()

    def _kubelet_changed(self) -> None:
        if self._node is not None:
            self._node.reclaimer.forget()
        self._look_at_sockets()

    def _look_at_sockets(self) -> None:
        self._look_at_directories()
        if self._node is not None:
            self._node.look()

    def _look_at_directories(self) -> None:
        """End the daemon if one of our directories was removed and created again: the sandbox has the old one.

        A service may write only to directories that existed when systemd started it (ReadWritePaths). systemd starts
        the daemon again at once, with the new directory.
        """
        anew = next((path for path in sorted(self._writable) if _is_read_only(path)), None)
        if anew is not None and self._defect is None:
            self._defect = CdiError(f"{anew}: was made anew, and is read-only for this process; it starts again")
            self.end.set()

    # Status

    def _document(self) -> dict[str, Any]:
        own = {"instance": self._instance.name, "config": self._config.document, "polling": self._watch.polling}
        return {**own, **status_document.document(*self._began, self._node)}

    # End

    def _later(self, work: Any) -> None:
        """Run a coroutine as a task. A defect in it ends the daemon, so that the service manager sees it."""
        if self.end.is_set():
            work.close()
            return
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._defect = task.exception()
            self.end.set()

    async def _stop(self) -> None:
        """Stop everything. Only the status document stays."""
        self.end.set()
        self._watch.stop()
        self._udev.stop()
        for task in self._tasks:
            task.cancel()
        self._tell.close()
        if self._node is not None:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._node.stop(), END)
        self._instance.leave()
        self._log.info("stopped", instance=self._instance.name)
        for pool in (self._choosing, self._looking, self._reclaiming, self._asking):
            pool.shutdown(wait=False)


def _directories(settings: PluginSettings) -> tuple[str, ...]:
    return settings.state_dir, settings.plugin_dir, settings.registry_dir


def _is_read_only(path: str) -> bool:
    """Tell whether a directory exists and is read-only for this process."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def run(path: str, instance: str = "") -> int:
    """Serve by the configuration at `path` until SIGTERM or SIGINT; SIGHUP reads it again. Raises CdiError."""
    sys.setswitchinterval(SWITCH)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # before the first read there is nothing to reload
    dog = watchdog.asked_for(os.environ)
    # gRPC reads its settings at the first import. Its own lines are not logfmt, and the daemon logs each failure.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # children exec at once; its fork handlers would block
    try:
        for name in LIBRARIES:
            if dog is not None:
                dog.tell()  # systemd has waited since the start of the process, and a slow host needs long for each
            import_module(name)
    except ImportError as error:
        raise CdiError(
            f"plugin run: {error}. Install python3-grpcio (Debian, Ubuntu: apt-get install python3-grpcio; "
            "EL: dnf install python3-grpcio, from EPEL)"
        ) from None

    async def serve_until_told() -> None:
        daemon, loop = Daemon(path, instance, dog=dog, look=openers_service.Channel().look), asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, daemon.reload)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, daemon.end.set)
        await daemon.run()

    try:
        asyncio.run(serve_until_told())
    except Exception as error:
        if threading.active_count() > 1:  # a thread that hangs must not keep the process alive
            if isinstance(error, CdiError):
                sys.stderr.write(f"fleet-cdi: {with_id(one_line(str(error)))}\n")
            else:
                sys.excepthook(*sys.exc_info())
            os._exit(1)
        raise
    if threading.active_count() > 1:
        os._exit(0)
    return 0
