# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare four truths of one device: wanted (settings), written (specs), promised (ledger), real (kernel).

Pure. A rule compares only truths that are known: an unknown truth is never a disagreement, and never agreement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Callable, NamedTuple, Optional

from ..records import Device

UNKNOWN = "unknown"
# wanted: OFFERED in a spec; POOLED: only an executable grants it; WITHDRAWN by an operator; SPARE: nobody asks for it
OFFERED, POOLED, WITHDRAWN, SPARE = "offered", "pooled", "withdrawn", "spare"
IN_SPEC, IN_NO_SPEC = "yes", "no"  # written
FREE, HELD, WITHHELD = "free", "held", "withheld"  # promised
HEALTHY, UNHEALTHY, RESERVED, GONE = "healthy", "unhealthy", "reserved", "gone"  # real

REFRESH = "`fleet-cdi refresh`"


class Truth(NamedTuple):
    """One truth of a device: its state, and a text that explains it, for example why it is unknown."""

    state: str
    text: str = ""


class Promise(NamedTuple):
    """One hold of the ledger on a device."""

    who: str
    owner: str  # kubernetes, claims or external
    request: str  # request-id
    state: str  # of the grant's part: pending, active, withheld
    since: int  # seconds since the epoch
    unique: str  # uuid or serial number of the card that was granted; "" if it has none


class DeviceTruth(NamedTuple):
    """One device with its four truths."""

    device: Device
    wanted: Truth
    written: Truth
    files: tuple[str, ...]  # the specs that offer it
    promised: Truth
    promises: tuple[Promise, ...]
    real: Truth
    openers: Optional[tuple[dict[str, Any], ...]]  # processes that have a node of it open; None: unknown

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return the names of the truths that are unknown."""
        states = {"wanted": self.wanted, "written": self.written, "promised": self.promised, "real": self.real}
        silent = () if self.openers is not None or self.real.state == GONE else ("openers",)
        return (*(name for name, truth in states.items() if truth.state == UNKNOWN), *silent)


class Disagreement(NamedTuple):
    """A rule that two truths of a device can break, and the next step."""

    name: str
    breaks: Callable[[DeviceTruth], str]  # the problem, or "" if the truths agree
    next: str
    said_by: tuple[str, ...] = ()  # rules of `fleet-cdi doctor` that say the same of a device, with more words


def _gone(one: DeviceTruth) -> str:
    if one.real.state != GONE or one.wanted.state not in (OFFERED, POOLED):
        return ""
    return "the settings offer it, and the kernel does not have it"


def _unhealthy(one: DeviceTruth) -> str:
    bad = one.real.state == UNHEALTHY and one.wanted.state in (OFFERED, POOLED)
    return f"the settings offer it, and it is unhealthy: {one.real.text or 'no reason is known'}" if bad else ""


def _not_written(one: DeviceTruth) -> str:
    agrees = one.wanted.state != OFFERED or one.real.state != HEALTHY or one.written.state != IN_NO_SPEC
    return "" if agrees else "the settings offer it, the kernel has it, and no spec has it"


def _written_alone(one: DeviceTruth) -> str:
    bad = one.written.state == IN_SPEC and one.real.state == GONE and one.wanted.state in (SPARE, WITHDRAWN)
    return "a spec has it, and the kernel does not have it" if bad else ""


def _written_withdrawn(one: DeviceTruth) -> str:
    bad = one.wanted.state == WITHDRAWN and one.written.state == IN_SPEC and one.promised.state == FREE
    return "an operator took it out of service, and a spec still offers it" if bad else ""


def _promised_gone(one: DeviceTruth) -> str:
    bad = one.promised.state == HELD and one.real.state == GONE
    return f"{one.promises[0].who} holds it, and the kernel does not have it" if bad else ""


def _swapped(one: DeviceTruth) -> str:
    here = one.device.unique
    other = [hold for hold in one.promises if hold.unique and here and hold.unique != here]
    if not other or one.real.state == GONE:
        return ""
    return f"{other[0].who} was granted the card {other[0].unique}, and the kernel has the card {here}"


DISAGREEMENTS = (
    Disagreement(
        "wanted-gone",
        _gone,
        "look at the device; `fleet-cdi refresh --drop` gives it up",
        ("device-gone", "node-missing", "unhealthy"),
    ),
    Disagreement(
        "wanted-unhealthy",
        _unhealthy,
        f"repair what the reason names; then {REFRESH}",
        ("device-gone", "node-missing", "node-type", "node-number", "unhealthy"),
    ),
    Disagreement(
        "wanted-not-written",
        _not_written,
        f"{REFRESH}; it says why a device can't be offered",
        (
            "device-new",
            "conflict",
            "invalid",
            "kind-unresolved",
            "spec-gone",
            "spec-changed",
            "disk-full",
            "read-only",
        ),
    ),
    Disagreement(
        "written-gone",
        _written_alone,
        f"{REFRESH}; `fleet-cdi specs` shows who wrote the spec",
        ("device-gone", "node-missing"),
    ),
    Disagreement("written-withdrawn", _written_withdrawn, REFRESH, ("device-gone",)),
    Disagreement(
        "promised-gone", _promised_gone, "bring the device back; or end what holds it", ("grant-lost", "withheld")
    ),
    Disagreement("promised-swapped", _swapped, "end what holds it: it was given another card"),
)


def disagreements(one: DeviceTruth, said: Collection[str] = ()) -> Iterator[tuple[Disagreement, str]]:
    """Yield (rule, problem) for each rule that the truths of a device break, and that no rule in `said` covers."""
    for rule in DISAGREEMENTS:
        problem = rule.breaks(one)
        if problem and set(said).isdisjoint(rule.said_by):
            yield rule, problem
