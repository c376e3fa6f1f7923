# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a ledger of whole devices answers if one call comes after another: the specification of histories.py."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, Optional

from linearizable import Operation

REFUSED = "refused"
BUSY = "waited too long"  # for others: an error that changes nothing


class Held(NamedTuple):
    """What one caller holds: a request-id, or a pod's unit with the token of its hold."""

    holder: str
    token: str
    devices: frozenset[str]


class Grants(NamedTuple):
    """All devices, and who holds which."""

    pool: frozenset[str]
    held: frozenset[Held] = frozenset()

    @property
    def free(self) -> frozenset[str]:
        """The devices that nobody holds."""
        return self.pool.difference(*(one.devices for one in self.held))

    def of(self, holder: str) -> Optional[Held]:
        """What `holder` has."""
        return next((one for one in self.held if one.holder == holder), None)


def step(state: Grants, call: Operation) -> Optional[Grants]:
    """Return the state after the call, or None if it can't have this reply. Raises KeyError for an unknown call."""
    return state if call.answer == BUSY else STEPS[call.name](state, call.asked, call.answer)


def _add(state: Grants, asked: tuple[Hashable, ...], answer: Hashable) -> Optional[Grants]:
    """ADD(request-id, amount): free devices, or the same ones again. Refused only if too few are free."""
    holder, amount = str(asked[0]), asked[1]
    has = state.of(holder)
    if has is not None:
        right = has.devices if len(has.devices) == amount else REFUSED
        return state if answer == right else None
    if answer == REFUSED:
        return state if len(state.free) < int(str(amount)) else None
    given = answer if isinstance(answer, frozenset) else frozenset[str]()
    if len(given) != amount or not given <= state.free:
        return None
    return state._replace(held=state.held | {Held(holder, "", given)})


def _delete(state: Grants, asked: tuple[Hashable, ...], answer: Hashable) -> Optional[Grants]:
    """DEL(request-id): True if the id held something."""
    has = state.of(str(asked[0]))
    if answer != (has is not None):
        return None
    return state._replace(held=state.held - {has})


def _take(state: Grants, asked: tuple[Hashable, ...], answer: Hashable) -> Optional[Grants]:
    """TAKE(unit): a pod gets this device, and the token of its hold; refused if another holder than a pod has it."""
    device = str(asked[0])
    before = state.of(pod(device))
    if answer == REFUSED:
        return state if before is None and device not in state.free else None
    if before is None and device not in state.free:
        return None
    return state._replace(held=state.held - {before} | {Held(pod(device), str(answer), frozenset([device]))})


def _give_back(state: Grants, asked: tuple[Hashable, ...], answer: Hashable) -> Optional[Grants]:
    """BACK(unit, token): True if the pod's hold is still that one."""
    has = state.of(pod(str(asked[0])))
    current = has is not None and has.token == asked[1]
    if answer != current:
        return None
    return state._replace(held=state.held - {has}) if current else state


def _list(state: Grants, _asked: tuple[Hashable, ...], answer: Hashable) -> Optional[Grants]:
    """LIST: exactly what is held at one moment."""
    return state if answer == state.held else None


STEPS = {"ADD": _add, "DEL": _delete, "TAKE": _take, "BACK": _give_back, "LIST": _list}


def pod(device: str) -> str:
    """Return the holder that a pod's unit is."""
    return f"pod {device}"
