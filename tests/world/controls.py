# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defects that the product once had, put back one at a time: worlds must find each, without a hint.

A control that is not found means that the oracle is blind. `said` begins the promise that the defect breaks.
"""

from __future__ import annotations

import json
import os
import time
from binascii import crc32
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

from oracle import Broken
from programs import patched
from world import World

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import collect, pod_holds
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import add, devices, grants, valid_requests
from ansible_collections.fleet.cdi.plugins.module_utils.claims import delete_claim
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime import collect_claims, users
from ansible_collections.fleet.cdi.plugins.module_utils.converge.holders.granted import GrantedDevices
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import keep_lost, plan_kind
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon import observer
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer import resources
from ansible_collections.fleet.cdi.plugins.module_utils.slurm import job_claim
from ansible_collections.fleet.cdi.plugins.module_utils.spec.same_nodes import SameNodes, StrangeNodes

LIFE = 100  # days of one world
MOST = 120  # worlds in which a control must be found


class Control(NamedTuple):
    """A defect: what it was, how to put it back (owner, name, value), and what the oracle has to say."""

    what: str
    patches: tuple[tuple[Any, str, Any], ...]
    said: tuple[str, ...]
    seed: int = 1  # of the first world that found it, from 1 on: where `make world` looks first


class _WallClock:
    """GC compared the time of day of the grant with that of the list."""

    listed = 0.0

    def stamp(self, boot_id: str, now: float) -> str:
        self.listed = time.time()
        return valid_requests.stamp(boot_id, now)

    def invalid(self, held: Any, listed: Any, _boot_id: str, _as_of: float) -> Any:
        unlisted = [
            one for one in held if not pod_holds.is_kept(one.key) and listed.isdisjoint(collect._requests(one.key))
        ]
        young = [one for one in unlisted if any(part.made >= self.listed for part in one.parts)]
        return [one for one in unlisted if one not in young], young


def _milliseconds(boot_id: str, now: float) -> str:
    return f"{valid_requests.MARK} {int(now * 1000) / 1000:.3f} in boot {boot_id}"


def _insert(tables: Any, ledger: Any, key: Any, hold: Any, state: str, boot_id: str) -> str:
    """Each hold of a unit had the same token."""
    token = f"{crc32(key.request_id.encode()):016x}"
    part = pod_holds.GrantPart(
        token, pod_holds.KUBERNETES, state, {key.plugin: 1}, (hold,), boot_id, time.time(), ledger.now()
    )
    tables.insert(key, part)
    return token


def _known(holds: Sequence[Any], pool: Any) -> list[Any]:
    """Another card in the slot passed for the one that was granted."""
    held = {hold.device: hold for hold in holds}
    found = devices.named(pool, held)
    if {device.id for device in found} != set(held):
        raise add.ProtocolError(add.errors.UNFULFILLED, "gone")
    return found


def _end_use(state_dir: str, claim: Any, gone: Any) -> bool:
    """GC removed the notes of containers first, so a killed one left a claim that looked like a new one."""
    with users.locked(users.users_path(state_dir, claim)):
        found = users.read_users(state_dir, claim)
        if any(user.runs or user.container not in gone for user in found):
            return False
        for user in found:
            files.remove(os.path.join(users.users_path(state_dir, claim), user.container))
    return True


def _fixed(_found: Any, offered: Mapping[str, Any], _lost: Any) -> dict[str, Any]:
    return dict(offered)


def _offer(settings: Any, registry: Any, inventory: Any, _complete: bool) -> Any:
    """Where no inventory told which hardware a spec's nodes are, they passed for hardware of their own."""
    return resources.offer(settings, registry, inventory)


_wall = _WallClock()
CONTROLS = {
    "gc by the time of day": Control(
        "part 9: the clock goes back, and GC frees grants that are younger than the list",
        ((grants, "stamp", _wall.stamp), (collect, "_invalid", _wall.invalid)),
        ("gc freed a live grant", "gc: kept", "granted twice", "grant lost"),
        7,
    ),
    "a stamp in milliseconds": Control(
        "part 9: a grant made in the same millisecond as the list counted as younger than it",
        ((grants, "stamp", _milliseconds),),
        ("gc: kept",),
        48,
    ),
    "one token for all holds of a unit": Control(
        "the late release of a pod's hold frees that of the next pod",
        ((pod_holds, "_insert", _insert),),
        ("grant lost", "granted twice"),
        2,
    ),
    "an epilog ends any run": Control(
        "the late epilog of a requeued job gives back the devices of its next run",
        ((job_claim, "_run_of", lambda _variables: "Slurm job"),),
        ("late DEL", "grant lost", "granted twice"),
        2,
    ),
    "another card in the slot": Control(
        "restore and a repeated ADD take another card in the slot for the one that was granted",
        ((add, "_known", _known),),
        ("swapped",),
        2,
    ),
    "a setup that never ends": Control(
        "part 9: a repeated ADD whose device is late after a reboot leaves its request in its setup for good",
        ((add, "_see_granted", lambda *_all: None),),
        ("tuned-",),
        40,
    ),
    "given back while it runs": Control(
        "a claim was given back while its container ran",
        (
            (users, "refuse_running", lambda *_all: None),
            (delete_claim, "refuse_running", lambda *_all: None),
        ),
        ("box-", "claim gc"),
        3,
    ),
    "gc that was killed": Control(
        "a claim whose gc was killed on the way stays for good",
        (
            (collect_claims, "end_use", _end_use),
            (collect_claims, "write_claim", lambda *_all: None),
        ),
        ("claim lost", "claim gc", "not restored", "claim without a spec"),
        87,
    ),
    "an ADD that sees no claim of DRA": Control(
        "part 9: an ADD grants what a claim of a DRA driver has, before the device plugin has seen it",
        ((add, "_may_be_claims", lambda _directories: False),),
        ("granted twice",),
        6,
    ),
    "one path for each device": Control(
        "part 9: a device that a DRA driver's spec names by another path goes out twice",
        ((StrangeNodes, "look", lambda _self, _at: SameNodes()),),
        ("granted twice", "offered"),
        3,
    ),
    "a refresh that drops what is held": Control(
        "part 8: a device that someone has goes from its spec",
        ((GrantedDevices, "__call__", lambda _self, _device: False),),
        ("dropped",),
        2,
    ),
    "an entry whose node another device has": Control(
        "found by the world: after a reboot the kept entry of a missing device gives another one",
        ((plan_kind, "find_replaced", lambda kept, *_others: kept),),
        ("spec untrue", "swapped"),
    ),
    "the name of the card before": Control(
        "found by the world: another card in a slot kept the names that the card before said",
        ((keep_lost, "_fixed", _fixed),),
        ("spec untrue", "refresh"),
        2,
    ),
    "no refresh in this boot": Control(
        "found by the world: pods get what was granted before the boot, and a refresh makes a second unit of it",
        ((observer, "offer", _offer), (observer, "_unrefreshed", lambda *_all: {})),
        ("granted twice", "grant lost", "offered", "device lost"),
        17,
    ),
}


def find(name: str, base: Path, seed: int, most: int) -> Optional[dict[str, Any]]:
    """Run at most `most` worlds from `seed` on with the defect put back. Return how it was found; None if not."""
    control = CONTROLS[name]
    for number in range(most):
        world = World(seed + number, base / "host")
        try:
            with patched(control.patches):
                world.live(LIFE)
        except Broken as broken:
            found = str(broken)
            return {
                "control": name,
                "worlds": number + 1,
                "seed": seed + number,
                "days": round(world.kernel.ever / 86400, 1),
                "promise": found,
                "expected": found.startswith(control.said),
            }
    return None


def check_controls(base: Path) -> int:
    """Find each control, first in the world that found it before. Returns the number of those that are not found.

    Chance plays other worlds after each change of the product: the one of `seed` may be clean then, and others tell.
    """
    found = {}
    for name, control in CONTROLS.items():
        before = find(name, base, control.seed, 1)
        found[name] = before if before and before["expected"] else find(name, base, 1, MOST)
    lost = [name for name, one in found.items() if not (one and one["expected"])]
    moved = {name: one["seed"] for name, one in found.items() if one and one["seed"] != CONTROLS[name].seed}
    told = {"controls": len(found), "found": len(found) - len(lost), "not found": lost, "found by another seed": moved}
    print(json.dumps(told), flush=True)
    return len(lost)


def run_controls(base: Path, seed: int, names: Sequence[str] = (), most: int = MOST) -> int:
    """Find each control, and print how as a line of JSON. Returns 1 if one is not found."""
    failed = 0
    for name in names or CONTROLS:
        found = find(name, base, seed, most) or {"control": name, "worlds": most, "expected": False}
        failed += not found["expected"]
        print(json.dumps(found), flush=True)
    return int(failed > 0)
