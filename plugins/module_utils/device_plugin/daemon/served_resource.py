# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serve one resource: its list of devices, its answers to the kubelet, its registration."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from heapq import nsmallest
from typing import Any, Callable, NamedTuple, Optional

from ...allocation.ledger.ledger import Ledger
from ...records import REFUSE, WARN, CdiError
from ...spec.registry import Registry
from ...system.occupied import Occupied
from ..allocate.allocate import AllocateFailed, Allocator, longest
from ..allocate.delivery_decision import DeliveryDecision, Readers
from ..allocate.prefer import preferred
from ..config.faults import class_of, reason, some
from ..health.device_list import Roster, UnitEvent
from ..health.occupied_units import Lookout, choice
from ..health.probe import look
from ..kubelet import api
from ..kubelet.register_call import RegisteredResource, Site
from ..kubelet.registration import Registrar
from ..kubelet.server import LONGEST, Answers, CallRefused, Server
from ..kubelet.stream import Feed, Stream
from ..offer.resources import OfferedUnit, Resource, units_of
from ..process import garbage, instance_status, waiting

ALLOCATE = 5.0  # seconds, without the operator's commands. The kubelet admits no pod meanwhile, and has no time limit
ALLOCATIONS = 8  # at a time
PREFER = 0.5  # seconds; after them, answer with the first devices that fit
HELD = ("device", "reserved", "taken")  # classes that don't stop the start of a container that holds the devices
AGAIN = 1.0  # seconds until a registration starts again after a defect
AFTER = 0.05  # seconds from an answer to a look at processes, so that the look does not delay it
MOST_LINES = 16  # for units that changed in the same way at one time


class Hands(NamedTuple):
    """The objects that all resources of a daemon share."""

    ledger: Ledger
    allocator: Allocator
    choosing: ThreadPoolExecutor
    readers: Readers
    numa_nodes: Optional[frozenset[int]]
    look_again: Callable[[], None]
    lookout: Lookout


class Served:
    """One resource, from its first device until it leaves the configuration."""

    def __init__(self, resource: Resource, site: Site, hands: Hands, former: Collection[str]) -> None:
        self.resource = resource
        self.decision = DeliveryDecision(site, hands.readers)
        self.feed = Feed(self._stream_changed)
        self.roster = Roster(hands.numa_nodes)
        self._site = site
        self._hands = hands
        self._former = frozenset(former)
        self._registry: Optional[Registry] = None
        self._troubles: dict[str, str] = {}
        self._listed: Optional[Resource] = None  # the one in the last list
        self._publishing = asyncio.Lock()
        # A pool for this resource only: calls that hang, perhaps for ever, must not take threads of other resources.
        self._allocating = ThreadPoolExecutor(ALLOCATIONS, "allocate")
        self._closing = False
        part = RegisteredResource(resource.name, self.feed, self._server, self._prepare, self._offered)
        self.registrar = Registrar(part, site)
        site.metrics.begin(resource.name)
        self.overlaps = False  # its holds make devices of other resources Unhealthy
        self.missed = 0  # times in a row without its devices in the kubelet's list
        self._task: Optional[asyncio.Task[None]] = None

    @property
    def started(self) -> bool:
        """Whether it registers: from its first device on."""
        return self._task is not None

    @property
    def state(self) -> str:
        """The state of its registration."""
        return self.registrar.state if self.started else instance_status.IDLE

    @property
    def name(self) -> str:
        """Its extended resource name."""
        return self.resource.name

    def start(self) -> None:
        """Begin to register."""
        self._task = asyncio.ensure_future(self.registrar.run())
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Refuse new calls, remove the socket, wait for calls in progress, and end the streams."""
        self._closing = True
        if self._task is not None:
            await waiting.ended(self._task)
        await self.registrar.close()
        await self.registrar.closed()
        self._allocating.shutdown(wait=False)

    async def update(
        self, resource: Resource, registry: Registry, troubles: Mapping[str, str], in_use: Optional[Collection[str]]
    ) -> None:
        """Take the result of a look, and tell the kubelet the changes."""
        moved = self._registry is not registry
        self.resource, self._registry, self._troubles = resource, registry, dict(troubles)
        await self._publish(in_use)
        if moved and self.decision.delivery is not None:  # new spec files may be outside the directories of the runtime
            self.decision.begin(resource, registry)

    async def _publish(self, in_use: Optional[Collection[str]] = None) -> None:
        """Send the list to the kubelet. A thread makes it, because it may have tens of thousands of devices."""
        async with self._publishing:
            loop = asyncio.get_running_loop()
            said = (self.resource, dict(self._troubles), loop.time(), in_use)
            groups, list_ = await loop.run_in_executor(None, self._list, *said)
            self._log(groups)
            if list_ is not None:
                self.feed.publish(list_)
                self._site.metrics.count("updates_total", resource=self.name)
                self._site.changed()

    @garbage.none()
    def _list(self, *said: Any) -> tuple[Sequence[Sequence[UnitEvent]], Optional[Any]]:
        """Return (groups of alike changes, the new message or None). Runs in a thread."""
        anew, self._listed = said[0] is not self._listed, said[0]
        changed, events = self.roster.update(*said)
        garbage.left(len(self.roster.advertised) if anew else len(events))
        alike: dict[tuple[str, str, str], list[UnitEvent]] = {}
        for event in events:
            alike.setdefault((event.before, event.after, class_of(event.reason)), []).append(event)
        return list(alike.values()), message(self.roster) if changed or self.feed.empty else None

    def _log(self, groups: Sequence[Sequence[UnitEvent]]) -> None:
        """Log a line for each unit, or one for many with the same change: a host may have tens of thousands."""
        for group in groups:
            many = len(group) > MOST_LINES
            for event in group[:1] if many else group:
                say = self._site.log.warning if event.after == "unhealthy" else self._site.log.info
                others = len(group) - 1 if many else None
                fields = {"device": event.unit, "others": others, "before": event.before or None}
                say(event.after, resource=self.name, **fields, reason=event.reason or None)

    def _offered(self) -> Collection[str]:
        return self._former.union(one.id for one in self.roster.advertised)

    def _server(self, path: str) -> Server:
        answers = Answers(self._prefer, self._allocate, self._start, self.registrar.notified)
        return Server(self.name, path, self.resource.settings.pre_start, self.feed, answers)

    async def _prepare(self) -> None:
        """Decide again how containers get their devices: a runtime may have been replaced since the last time.

        Wait only for the first decision. A later one must not delay the registration.
        """
        if self._registry is None:
            return
        deciding = self.decision.begin(self.resource, self._registry)
        if self.decision.delivery is None:
            await deciding

    async def _prefer(self, available: Sequence[str], must_include: Sequence[str], size: int) -> list[str]:
        began = time.monotonic()
        self._site.metrics.count("preferences_total", resource=self.name)
        try:
            chosen = await self._in(
                self._hands.choosing, PREFER, preferred, self.resource, available, must_include, size
            )
        except Exception as error:  # an error would reject the pod
            self._site.metrics.count("preference_fallbacks_total", resource=self.name)
            reason = "took too long" if isinstance(error, asyncio.TimeoutError) else repr(error)
            self._site.log.change(
                (self.name, "prefer"), reason, "preference-fallback", resource=self.name, reason=reason
            )
            rest = nsmallest(max(size - len(must_include), 0), set(available).difference(must_include))
            chosen = [*must_include, *rest][: max(size, 0)]
        self._site.metrics.observe("prefer_seconds", time.monotonic() - began, resource=self.name)
        return chosen

    async def _allocate(self, containers: Sequence[Sequence[str]]) -> Sequence[Any]:
        began, before = time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)
        resource = self.resource
        occupied = choice(resource, self._site.settings)
        device_ids = [one for ids in containers for one in ids]
        devices = some(device_ids, ",", MOST_LINES)[:LONGEST]
        try:
            way = self.decision.delivery
            if self._registry is None or way is None:
                raise CallRefused(f"Allocate: {self.name} has not been looked at yet; ask again", "UNAVAILABLE")
            allocate = self._hands.allocator.allocate
            asked = frozenset(device_ids)
            unhealthy = {one.id: one.reason for one in self.roster.advertised if one.id in asked and not one.healthy}
            work = partial(allocate, resource, containers, self._registry, way, unhealthy)
            if occupied == REFUSE:
                work = partial(work, check=partial(self._refuse_open, resource))
            answer = await self._within("Allocate", device_ids, work)
        except CallRefused as error:
            self._site.log.warning("refused", resource=self.name, devices=devices, reason=str(error))
            raise
        finally:
            self._site.metrics.observe("allocate_seconds", time.monotonic() - began, resource=self.name)
        if occupied == WARN:
            self._warn_of_open(resource, device_ids, before)
        delivery = "+".join(name for name in ("cdi", "annotations", "expanded") if getattr(way, name))
        self._site.metrics.count("allocations_total", len(containers), resource=self.name, delivery=delivery)
        if self.overlaps:
            self._hands.look_again()
        self._site.log.info("allocated", resource=self.name, devices=devices, seconds=time.monotonic() - began)
        return answer

    def _refuse_open(self, resource: Resource, units: Sequence[OfferedUnit]) -> None:
        """Raise AllocateFailed for occupied units. Blocks."""
        found = self._hands.lookout.now(_alone(units), self._site.settings)
        if found:
            texts = {name: _in_use(one) for name, one in sorted(found.items())}
            text = some([f"{name}: {why}" for name, why in texts.items()], "; ")
            raise AllocateFailed(
                f"{resource.name}: {text}", {name: reason("occupied", why) for name, why in texts.items()}
            )
        self._say_open(resource, {})

    def _warn_of_open(self, resource: Resource, device_ids: Sequence[str], before: float) -> None:
        """Look after the answer, and log openers of the units that began `before` the call (CLOCK_BOOTTIME)."""
        units = _alone(unit for unit in units_of(resource, device_ids).values() if unit is not None)
        tell = partial(self._say_open, resource)
        look_at = partial(self._hands.lookout.beside, units, self._site.settings, before, tell)
        asyncio.get_running_loop().call_later(AFTER, look_at)

    def _say_open(self, resource: Resource, found: Mapping[str, Occupied]) -> None:
        """Log the openers of units, and which processes can't be examined."""
        for name, one in found.items():
            self._site.log.warning("occupied", resource=resource.name, device=name, reason=_in_use(one))
        gaps = self._hands.lookout.gaps
        if gaps:
            self._site.log.change("processes", gaps, "processes-unseen", reason=gaps)

    async def _start(self, device_ids: Sequence[str]) -> None:
        await self._within("PreStartContainer", device_ids, partial(self._ready, self.resource, device_ids))

    def _ready(self, resource: Resource, device_ids: Sequence[str], abandoned: Callable[[], bool]) -> None:
        """Check that a container can start with its devices, then prepare them. Blocks. Raises AllocateFailed.

        Ignore the classes in HELD, because the container already has the devices.
        """
        units = [unit for unit in units_of(resource, device_ids).values() if unit is not None]
        found = look(resource, self._registry, self._site.settings.root, units=units) if self._registry else {}
        found = {name: why for name, why in found.items() if class_of(why) not in HELD}
        if found:
            raise AllocateFailed(some([f"{name}: {why}" for name, why in sorted(found.items())], "; "), found)
        self._hands.allocator.start(resource, device_ids, abandoned)

    async def _within(self, call: str, device_ids: Sequence[str], work: Callable[[Callable[[], bool]], Any]) -> Any:
        """Run blocking `work` within the time that the kubelet may wait, and return its result. Raises CallRefused.

        `work` gets a function that tells whether the call is over. Then the kubelet may give the devices to others.
        """
        seconds = ALLOCATE + longest(self.resource.settings, len(device_ids))
        over = threading.Event()
        reason, code = "", "FAILED_PRECONDITION"
        try:
            if self._closing:
                raise CallRefused(f"{call}: this instance of the device plugin ends", "UNAVAILABLE")
            return await self._in(self._allocating, seconds, work, over.is_set)
        except CallRefused:
            reason = "shutdown"
            raise
        except AllocateFailed as error:
            classes = {class_of(why) or "other" for why in error.troubles.values()}
            reason = classes.pop() if len(classes) == 1 else "several" if classes else "request"
            await self._take(error.troubles)
            text = str(error)
        except asyncio.TimeoutError:
            reason, code = "time", "DEADLINE_EXCEEDED"
            text = f"it took more than {seconds:g} s; look for what keeps {some(device_ids)} busy"
        except (CdiError, OSError) as error:
            reason, text = "error", str(error)
        except Exception as error:  # a defect must be logged
            reason, code, text = "defect", "INTERNAL", f"a defect of the device plugin: {error!r}"
        finally:
            over.set()
            if reason:
                self._site.metrics.count("allocation_failures_total", resource=self.name, reason=reason)
        raise CallRefused(f"{call}: {text}", code)

    async def _take(self, troubles: Mapping[str, str]) -> None:
        """Put these units on the list as Unhealthy before the call is refused, even if the call is cancelled."""
        if troubles:
            self._troubles.update(troubles)
            self._hands.look_again()
            await asyncio.shield(self._publish())

    @staticmethod
    async def _in(pool: ThreadPoolExecutor, seconds: float, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run work in a pool. Raises asyncio.TimeoutError; then work that began continues, other work never begins."""
        calm = garbage.none()(work)
        return await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(pool, calm, *arguments), seconds)

    def _stream_changed(self, stream: Stream) -> None:
        if stream.over.is_set() and not self._closing:
            self._site.metrics.count("stream_ends_total", resource=self.name)
        self.registrar.look()
        self._site.changed()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Log a registration that ended by a defect, and start it again."""
        if not task.cancelled() and task.exception() is not None:
            reason = repr(task.exception())
            self._site.log.change((self.name, "defect"), reason, "defect", resource=self.name, reason=reason)
            asyncio.get_running_loop().call_later(AGAIN, self._restart)

    def _restart(self) -> None:
        if not self._closing:
            self.start()


def _alone(units: Iterable[OfferedUnit]) -> list[OfferedUnit]:
    """Return the units without replicas. A shared unit may be open because another container has it."""
    return [unit for unit in units if unit.replicas == 1]


def _in_use(found: Occupied) -> str:
    return f"{found}, and the kubelet takes it for free"


def message(roster: Roster) -> Any:
    """Return the ListAndWatchResponse of a list."""
    answer = api.v1beta1.ListAndWatchResponse()
    for one in roster.advertised:
        device = answer.devices.add(ID=one.id, health=api.HEALTHY if one.healthy else api.UNHEALTHY)
        for node in one.numa_nodes:
            device.topology.nodes.add(ID=node)
    return answer
