# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep one resource registered at the kubelet: serve, register, wait for ListAndWatch, and repeat when it is lost.

deviceplugin/v1beta1 defines Register, and pluginregistration/v1 how a kubelet finds plugins. The real behaviour of
kubelets decides the rest: a successful Register proves nothing before ListAndWatch arrives; a kubelet never reopens a
stream that it ended; a kubelet that starts removes every socket; of two plugins it keeps the last one.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Coroutine
from typing import Any, Optional

from ...records import CdiError
from ..process import instance_status, waiting
from . import api, other_plugins, unix_sockets
from .register_call import FINAL, RegisteredResource, RegisterFailed, RegisterRefused, Site, UnknownRegister, call
from .server import Server
from .stream import Stream

REGISTER, WATCHER, AUTO = "register", "watcher", "auto"

FIRST, LAST = 0.2, 10.0  # seconds between two tries
SOON = 1.0  # seconds at most before the next try after a successful one
STEADY = 5.0  # seconds after which a registration counts as stable
ARRIVAL = 5.0  # seconds from Register, or from when a live kubelet can see the socket, to ListAndWatch
LOOK = 1.0  # seconds between two looks, also without events
SHORT = 0.1  # seconds between two looks during a short wait
HEAD_START = 0.5  # seconds for a younger instance to register at a kubelet that starts, and to write so
SURE = 1.0  # seconds at most that a kubelet lists devices after their stream ended: it may notice the end late
COURTESY = 6.0  # seconds for a plugin that had the resource to register at a kubelet that starts: some look every 5

_RESTARTED = "the kubelet was restarted while it registered the resource"
_REMOVED = "the socket was removed before a stream came"


class Registrar:
    """Keep one resource registered. `state` and `reason` are those of the registration, `mode` is its way."""

    def __init__(self, part: RegisteredResource, site: Site) -> None:
        self._part = part
        self._site = site
        self.state = instance_status.WAITING
        self.reason = ""
        self.mode = REGISTER if site.settings.registration == AUTO else site.settings.registration
        self.server: Optional[Server] = None
        self._wake = asyncio.Event()
        self._fresh = False  # the next try needs a socket that the kubelet has not seen
        self._no_register: unix_sockets.Identity = None  # the kubelet that does not implement Register
        self._lacking: Optional[float] = None  # since when a live kubelet has no kubelet.sock
        self._notice: Optional[str] = None  # the kubelet's error in watcher mode
        self._asked: unix_sockets.Identity = None  # the kubelet of the last try
        self._free: Optional[tuple[unix_sockets.Identity, float]] = (
            None  # this kubelet hears no younger instance, since when
        )
        self._rival = False  # another plugin had the resource when we last looked
        self.kubelet: Optional[tuple[int, ...]] = None  # of the last registration; () if it found the socket
        self._doubt = ""  # evidence that the kubelet ignores our open stream
        self._closing: set[Any] = set()  # closing servers with calls in progress

    @property
    def _kubelet_socket(self) -> str:
        return os.path.join(self._site.settings.plugin_dir, api.KUBELET_SOCKET)

    @property
    def _kubelet(self) -> unix_sockets.Identity:
        return unix_sockets.identity(self._kubelet_socket)

    def look(self) -> None:
        """Check sockets and other instances again: they may have changed."""
        self._wake.set()

    def doubt(self, reason: str) -> None:
        """Register again, because of this evidence that the kubelet has forgotten a stream without ending it."""
        self._doubt = reason
        self.look()

    def notified(self, registered: bool, error: str) -> None:
        """Take the result from a kubelet in watcher mode."""
        self._notice = None if registered else error or "the kubelet gives no reason"
        self.look()

    async def run(self) -> None:
        """Register, and again after each loss, until cancelled."""
        delay = FIRST
        while True:
            try:
                stream, since = await self._register()
            except RegisterRefused as error:
                self._site.metrics.count("registration_failures_total", resource=self._part.name, reason="final")
                self._enter(instance_status.REFUSED, str(error))
                await self._sleep(None, self._asked)
                delay = FIRST
                continue
            except (RegisterFailed, CdiError) as error:
                failed = error if isinstance(error, RegisterFailed) else RegisterFailed("serve", str(error))
                self._site.metrics.count("registration_failures_total", resource=self._part.name, reason=failed.label)
                self._enter(failed.state, str(failed), failed.label)
                delay = FIRST if await self._sleep(delay, self._asked) else min(2 * delay, LAST)
                continue
            lost = await self._until_lost(stream, since)
            self._free = None
            self._site.log.warning("lost", resource=self._part.name, reason=lost)
            # Slow down after a registration that is lost at once, but not for a new kubelet.
            if self._now() - since[1] >= STEADY or await self._sleep(min(delay, SOON), since[0]):
                delay = FIRST
            else:
                delay = min(2 * delay, SOON)

    async def _register(self) -> tuple[Stream, tuple[unix_sockets.Identity, float]]:
        """Wait for our turn, and try once. Return the stream, and the kubelet with the time."""
        name, site = self._part.name, self._site
        kubelet = self._asked = await self._turn()
        if not site.settings.takeover and (self._doubt or not self._part.feed.streams):
            await self._at(kubelet, self._no_rival())
        began = self._now()
        self._enter(instance_status.REGISTERING, "")
        await self._part.prepare()
        self._notice = None
        arrived = self._part.feed.arrived  # before it serves: a kubelet may find the socket at once
        server = await self._serve()
        if self.mode == REGISTER:
            try:
                await self._at(kubelet, call(self._kubelet_socket, server), server)
            except UnknownRegister:
                self._no_register = kubelet
                raise
        stream = await self._arrival(server, arrived, kubelet)
        self._doubt = ""
        self.kubelet = (kubelet or ()) if self.mode == REGISTER else ()
        seconds = self._now() - began
        site.metrics.count("registrations_total", resource=name)
        site.metrics.observe("register_seconds", seconds, resource=name)
        self._enter(instance_status.REGISTERED, "")
        site.log.info("registered", resource=name, mode=self.mode, socket=server.path, seconds=seconds)
        return stream, (kubelet, self._now())

    async def _until_lost(self, stream: Stream, since: tuple[unix_sockets.Identity, float]) -> str:
        """Wait until the kubelet no longer hears us, and return the evidence."""
        while True:
            if stream.over.is_set():
                return f"the stream was {stream.why}"
            if self._doubt:
                self._fresh = True  # this kubelet knows the socket, and may ignore its second stream
                return self._doubt
            if self.server is None or not self.server.intact:
                return "the socket is gone, or another one"
            if self.mode == REGISTER and self._kubelet not in (None, since[0]):
                return "kubelet.sock is another one"
            other = self._heard_younger(since[0])
            if other:
                self._fresh = True  # kubelets that listen to both know this socket, and may ignore it
                return f"instance {other} is younger and serves it"
            await self._woken(LOOK)

    async def _kubelet_there(self) -> None:
        """Wait for the directory of the socket and, to register, for the kubelet's socket."""
        settings = self._site.settings
        while True:
            if settings.registration == AUTO:
                self.mode = await self._way()
            directory = settings.plugin_dir if self.mode == REGISTER else settings.registry_dir
            if not os.path.isdir(directory):
                self._enter(instance_status.WAITING, f"{directory}: no such directory")
            elif self.mode == REGISTER and self._kubelet is None:
                self._enter(instance_status.WAITING, f"{self._kubelet_socket}: no such socket")
            else:
                return
            await self._woken(LOOK)

    async def _way(self) -> str:
        """Return REGISTER if kubelet.sock exists: it answers at once, gives reasons, and renews a lost stream fastest.

        WATCHER is for kubelets without kubelet.sock, or without Register.
        """
        settings = self._site.settings
        kubelet = self._kubelet
        if kubelet is not None:
            self._lacking = None
            unable = kubelet == self._no_register and os.path.isdir(settings.registry_dir)
            return WATCHER if unable else REGISTER
        if not os.path.isdir(settings.registry_dir) or not await unix_sockets.heard(settings.pod_resources):
            self._lacking = None
            return REGISTER
        self._lacking = self._now() if self._lacking is None else self._lacking
        return WATCHER if self._now() - self._lacking >= ARRIVAL else REGISTER

    async def _kubelet_lives(self) -> bool:
        """Tell whether a kubelet listens at kubelet.sock or podresources."""
        return await unix_sockets.heard(self._site.settings.pod_resources) or await unix_sockets.heard(
            self._kubelet_socket
        )

    def _heard_younger(self, kubelet: unix_sockets.Identity) -> str:
        """Return the name of a younger instance that this kubelet hears, "" for none."""
        return self._site.peers.heard(self._part.name, (kubelet or ()) if self.mode == REGISTER else ())

    async def _turn(self) -> unix_sockets.Identity:
        """Wait for a kubelet that hears no younger instance, and return its identity.

        A younger instance registers first at a kubelet that starts, and may be the reason why the kubelet ended our
        stream. After HEAD_START it has lost its turn: the kubelet must not stay without devices because of it.
        """
        while True:
            await self._kubelet_there()
            kubelet = self._kubelet
            if kubelet is None and self.mode == REGISTER:
                continue
            other = self._heard_younger(kubelet)
            if other:
                self._free = None
                self._enter(instance_status.STANDBY, f"instance {other} is younger and has it")
                await self._woken(LOOK)
                continue
            if self._free is None or self._free[0] != kubelet:
                self._free = (kubelet, self._now())
            if self._now() - self._free[1] >= HEAD_START or not self._site.peers.hopeful(self._part.name):
                return kubelet
            await self._woken(SHORT)

    async def _no_rival(self) -> None:
        """Check that no other plugin has the resource. Raises RegisterFailed if one has it."""
        name, pod_resources = self._part.name, self._site.settings.pod_resources
        believed = self._now() + (0 if self._rival else SURE)  # from then on, listed devices prove a rival
        gone = self._free[1] + COURTESY if self._rival and self._free else 0  # from then on, an empty list counts
        while not self._site.peers.serve(name):
            found = await other_plugins.rival(name, pod_resources, self._part.offered, bool(self._part.feed.streams))
            if found and self._now() >= believed:
                self._rival = True
                text = f"another plugin has it: {found}. Remove it, or set takeover."
                raise RegisterFailed("conflict", text, instance_status.CONFLICT)
            if not found and self._now() >= gone:
                break
            await self._woken(LOOK / 4)
        self._rival = False

    async def _at(
        self, kubelet: unix_sockets.Identity, work: Coroutine[Any, Any, None], server: Optional[Server] = None
    ) -> None:
        """Do work that waits for an answer of this kubelet. Raises its errors, and RegisterFailed if none can come.

        A kubelet that hangs accepts the call and never answers, while a new kubelet in its place waits for us.
        """
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda _task: self._wake.set())
        try:
            while not task.done():
                if self._kubelet not in (None, kubelet):
                    raise RegisterFailed("restart", _RESTARTED)
                if server is not None and not server.intact:
                    raise RegisterFailed("socket", _REMOVED)
                await self._woken(LOOK)
            return task.result()
        finally:
            await waiting.ended(task)
            if not task.cancelled():
                task.exception()  # read it, so that asyncio does not log it

    async def _serve(self) -> Server:
        """Return the open server, or a new one if its socket is gone, must be fresh, or is in the wrong directory."""
        settings = self._site.settings
        directory = settings.plugin_dir if self.mode == REGISTER else settings.registry_dir
        if self.server is not None:
            if self.server.intact and not self._fresh and os.path.dirname(self.server.path) == directory:
                return self.server
            await self.close()
        path = os.path.join(directory, unix_sockets.name(self._part.name, os.urandom(4).hex(), directory))
        self.server = self._part.server(path)  # set it before it is open, so that `close` always ends it
        self._fresh = self.mode == WATCHER  # a kubelet in watcher mode looks at each socket once
        await self.server.open()
        self._site.changed()
        return self.server

    async def close(self) -> None:
        """Unlink the socket and end the streams now; calls in progress may take a little longer."""
        if self.server is not None:
            server, self.server = self.server, None
            closing = asyncio.ensure_future(server.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            await asyncio.sleep(0)  # let it begin

    async def closed(self) -> None:
        """Wait for calls in progress on closed servers."""
        if self._closing:
            await asyncio.wait(self._closing)

    async def _arrival(self, server: Server, arrived: int, kubelet: unix_sockets.Identity) -> Stream:
        """Wait for the stream that a kubelet opens after Register, or after it found the socket.

        `arrived`: the number of streams before. Raises RegisterFailed, RegisterRefused.
        """
        feed, end = self._part.feed, None
        while True:
            stream = feed.first_after(arrived)
            if stream:
                return stream
            if not server.intact:
                raise RegisterFailed("socket", _REMOVED)
            if self._notice:
                text = f"the kubelet does not register it: {self._notice}"
                raise RegisterRefused(text) if FINAL.search(text) else RegisterFailed("notified", text)
            if self.mode == REGISTER and self._kubelet not in (None, kubelet):
                raise RegisterFailed("restart", _RESTARTED)
            if feed.arrived > arrived:
                raise RegisterFailed("stream", "ListAndWatch came, and was ended at once")
            if self.mode == REGISTER or await self._kubelet_lives():
                end = end or self._now() + ARRIVAL
                if self._now() >= end:
                    break
            else:
                end = None
                self._enter(instance_status.WAITING, f"no kubelet looks into {self._site.settings.registry_dir} now")
            await self._woken(LOOK)
        if self.mode == REGISTER and feed.streams:  # a kubelet may ignore a second Register of a socket
            return feed.streams[-1]
        self._fresh = True
        did = "called GetInfo" if server.info_asked.is_set() else "did not look at the socket"
        did = "took Register" if self.mode == REGISTER else did
        raise RegisterFailed("arrival", f"the kubelet {did}, and no ListAndWatch came within {ARRIVAL:g} s")

    def _enter(self, state: str, reason: str, label: str = "") -> None:
        """Enter a state, and log changes that matter. With a `label`, another wording of the reason is not a change."""
        if (state, reason) == (self.state, self.reason):
            return
        self.state, self.reason = state, reason
        if state not in (instance_status.REGISTERING, instance_status.REGISTERED):
            level = "info" if state in (instance_status.WAITING, instance_status.STANDBY) else "warning"
            self._site.log.change(
                self._part.name, (state, label or reason), state, level, resource=self._part.name, reason=reason
            )
        elif state == instance_status.REGISTERED:
            self._site.log.over(self._part.name)
        self._site.changed()

    async def _sleep(self, seconds: Optional[float], kubelet: unix_sockets.Identity) -> bool:
        """Wait, with jitter; None: for ever. Return True if another kubelet came and ended the wait early."""
        end = None if seconds is None else self._now() + seconds * random.uniform(0.75, 1.25)
        while True:
            if self._kubelet not in (None, kubelet):
                return True
            left = LOOK if end is None else end - self._now()
            if left <= 0:
                return False
            await self._woken(min(left, LOOK))

    async def _woken(self, seconds: float) -> None:
        """Wait until `look` or another event wakes us, at most `seconds`."""
        await waiting.within(self._wake, seconds)
        self._wake.clear()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
