# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serve the resources of a node, and update them after each look and each new configuration."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Optional

from ...records import CdiError
from ..allocate.reclaim import HoldEvent, Reclaimer
from ..config.configuration import PluginSettings
from ..kubelet.podresources import InUse, Unavailable, allocatable, in_use
from ..kubelet.register_call import Site
from ..offer.resources import Resource
from ..process import instance_status
from .observer import NodeView, Viewer
from .served_resource import Hands, Served

# Settings on which registrations and holds depend. If one changes, every resource starts again.
SITE = ("plugin_dir", "registry_dir", "pod_resources", "registration", "state_dir", "root")


def same_site(a: PluginSettings, b: PluginSettings) -> bool:
    """Tell whether resources can stay registered when one configuration replaces the other."""
    return all(getattr(a, name) == getattr(b, name) for name in SITE)


WARY = 15.0  # seconds to check the kubelet's list, after other plugins or instances may have come or gone
AT_ONCE = 1.0  # seconds for the kubelet to say what pods have, while a list waits for it
DOUBTS = 2  # times in a row without devices of a resource in the kubelet's list, before its stream is doubted


class ServedNode:
    """The served resources of one node. `viewer` looks at it, `reclaimer` releases devices that no pod has any more."""

    def __init__(self, site: Site, hands: Hands, viewer: Viewer, reclaimer: Reclaimer) -> None:
        self.site = site
        self.hands = hands
        self.viewer = viewer
        self.reclaimer = reclaimer
        self.served: dict[str, Served] = {}
        self.refused: Mapping[str, str] = {}
        self.warnings: tuple[str, ...] = ()
        self.in_use: Optional[InUse] = None
        self._misses = 0  # calls of podresources in a row that failed
        self._others: frozenset[str] = frozenset()  # resources that other instances of ours serve, too
        self._wary_until = 0.0  # in the loop's time
        self.looked = False  # a look has set the resources

    async def take(self, view: NodeView, former: Mapping[str, Collection[str]]) -> Optional[float]:
        """Serve the resources of a look. Return when to look again without events, in the loop's time."""
        self._say(view)
        offered = {resource.name: resource for resource in view.offer.resources}
        for name in [name for name in self.served if name not in offered]:
            # Remove a lost kind in steps: its devices become Unhealthy, then leave the list, then the resource ends.
            one = self.served[name]
            if name in view.offer.refused or not self.site.settings.wants(name) or not one.roster.advertised:
                await self.drop(name)
            else:
                offered[name] = one.resource._replace(units=())
        if any(self._is_other(resource) for resource in offered.values()):
            with suppress(Unavailable):  # the replicas of devices that pods have by now may have another number
                self.in_use = await in_use(self.site.settings.pod_resources, AT_ONCE)
        for name, resource in sorted(offered.items()):
            known = self.served.get(name)
            if known and known.resource.settings.pre_start != resource.settings.pre_start:
                await self.drop(name)  # the kubelet knows the options only from a registration
            if name not in self.served:
                self.served[name] = Served(resource, self.site, self.hands, former.get(name, ()))
            one = self.served[name]
            one.overlaps = name in view.overlapping
            await one.update(resource, view.registry, view.troubles.get(name, {}), self._used(one.resource))
        self.looked = True
        self.site.changed()
        dues = [one.roster.due for one in self.served.values() if one.roster.due is not None]
        return min(dues, default=None)

    def _is_other(self, resource: Resource) -> bool:
        """Return whether a resource is new, or has other settings."""
        known = self.served.get(resource.name)
        return known is None or known.resource.settings != resource.settings

    def late(self, seconds: float) -> None:
        """Warn of a look that takes too long, until it ends."""
        text = (
            f"a look at the host has taken more than {seconds:g} s, and the known state of the devices is as old; "
            "find the file system, or the device, that hangs"
        )
        self.warnings = (*self.warnings, text)
        self.site.log.change(("look", text), True, "warning", reason=text)
        self.site.changed()

    async def doubt(self) -> None:
        """Check the kubelet's list, after others may have come or gone: it may have forgotten our stream.

        If another plugin registers a resource of ours and dies, the kubelet drops the devices (seen with 1.36.3,
        1.30.14 and 1.20.2). Only podresources shows it, from 1.21 on. Each registration changes the kubelet's
        directory: a new socket appears, and the kubelet writes its checkpoint.
        """
        registered = {name: one for name, one in self.served.items() if one.state == instance_status.REGISTERED}
        others, self._others = self._others, frozenset(filter(self.site.peers.serve, registered))
        if others - self._others:
            self._wary()
        if not registered or asyncio.get_running_loop().time() >= self._wary_until:
            return
        try:
            listed = await allocatable(self.site.settings.pod_resources)
        except Unavailable:
            return
        for name, one in registered.items():
            ours = [device.id for device in one.roster.advertised if device.healthy]
            missed = bool(ours) and not any(device in listed.get(name, ()) for device in ours)
            one.missed = one.missed + 1 if missed else 0
            if one.missed == DOUBTS and one.state == instance_status.REGISTERED:
                one.missed = 0
                one.registrar.doubt("the kubelet lists none of its devices any more, and has not ended the stream")

    async def reclaim(self, pool: Executor) -> bool:
        """Release devices that no pod has any more. Return whether a hold, a claim or the devices in use changed."""
        log, settings, before = self.site.log, self.site.settings, self.in_use
        try:
            self.in_use = await in_use(settings.pod_resources)
            self._misses = 0
            log.over("pods", "podresources")
        except Unavailable as error:
            self.in_use = None
            heard = any(one.state == instance_status.REGISTERED for one in self.served.values())
            self._misses = self._misses + 1 if heard else 0
            if self._misses > 1:  # each restart of the kubelet may cause one
                log.change("pods", error.cause, "no-podresources", reason=error)
        loop = asyncio.get_running_loop()
        try:
            step = partial(self._give_back, list(self.resources), self.in_use, time.monotonic())
            events, claims = await loop.run_in_executor(pool, step)
        except (CdiError, OSError) as error:
            log.change("reclaim", str(error), "warning", reason=error)
            return False
        log.over("reclaim")
        for event in events:
            say = log.warning if event.reason else log.info
            say(event.what, resource=event.resource, device=event.unit, reason=event.reason or None)
            if event.what == "released":
                self.site.metrics.count("released_total", resource=event.resource)
        self._say_claims()
        return bool(events) or claims or (self.in_use is not None and self.in_use != before)

    def _give_back(
        self, resources: Sequence[Resource], in_use: Optional[InUse], now: float
    ) -> tuple[Sequence[HoldEvent], bool]:
        """Return (events of the holds of pods, whether claims changed). Claims come last: they may wait for holds."""
        events = self.reclaimer.step(resources, in_use, now)
        keeper = self.viewer.keeper
        return events, bool(keeper and keeper.step(in_use, now, self.site.settings.grace))

    def _say_claims(self) -> None:
        events = self.viewer.keeper.events if self.viewer.keeper else None
        while events:
            event = events.popleft()
            self.site.log.info(event.what, driver=event.driver, claim=event.claim)

    def start(self) -> None:
        """Start the resources that have their first devices."""
        for one in self.served.values():
            if not one.started and one.roster.advertised:
                one.start()

    def look(self) -> None:
        """Check sockets and other instances again: they may have changed."""
        self._wary()
        for one in self.served.values():
            one.registrar.look()

    async def drop(self, name: str) -> None:
        """Stop serving a resource."""
        one = self.served.pop(name)
        await one.stop()
        self.site.log.info("dropped", resource=name)
        self.site.metrics.forget(name)
        self.site.changed()

    async def stop(self) -> None:
        """Stop serving all resources."""
        await asyncio.gather(*(one.stop() for one in self.served.values()))
        self.served.clear()

    def _wary(self) -> None:
        """Let `doubt` check the kubelet's list for a while, because others may have come or gone."""
        self._wary_until = asyncio.get_running_loop().time() + WARY

    @property
    def resources(self) -> Iterable[Resource]:
        """The served resources."""
        return [one.resource for one in self.served.values()]

    def _used(self, resource: Resource) -> Optional[Collection[str]]:
        """Return the device IDs that pods have of it, also those no longer offered; None if unknown."""
        if self.in_use is None:
            return None
        return {device_id for name, device_id in self.in_use.devices if name == resource.name}

    def _say(self, view: NodeView) -> None:
        """Log each problem of the look once, and again when it ends."""
        log = self.site.log
        self._say_claims()
        self.warnings = (*view.offer.warnings, *view.problems.values(), *view.warnings)
        found = {("look", text): text for text in self.warnings}
        for subject, text in found.items():
            log.change(subject, True, "warning", reason=text)
        for subject in [one for one in log.subjects("look") if one not in found]:
            log.over(subject, "warning-over", reason=subject[1])
        for text in view.offer.absent:
            log.change(("absent", text), True, "absent", "info", reason=text)
        for subject in [one for one in log.subjects("absent") if one[1] not in view.offer.absent]:
            log.over(subject)
        self.refused = view.offer.refused
        for name, why in self.refused.items():
            log.change(("refused", name), why, "refused", resource=name, reason=why)
        for subject in [one for one in log.subjects("refused") if one[1] not in self.refused]:
            log.over(subject)
