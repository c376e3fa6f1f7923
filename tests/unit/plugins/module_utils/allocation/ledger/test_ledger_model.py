# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger against a dictionary: after thousands of random calls both hold the same (level L0).

The dictionary knows hardware as sets of atoms and shares no code with the ledger's locks.
"""

from __future__ import annotations

import os
import random

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.collect import gc
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.report import check_grant, info
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import errors
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold, Key
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger

STEPS = 1_000_000 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 10_000

# Device -> its hardware, and how the ledger is told of it. A GPU with two partitions, one in a VFIO group with its
# audio function, a network card with two virtual functions, a console.
HARDWARE = {
    "gpu0": {"g0a", "g0b", "g0"},
    "mig0": {"g0a"},
    "mig1": {"g0b"},
    "gpu1": {"g1"},
    "audio1": {"a1"},
    "group1": {"g1", "a1"},
    "pf": {"v0", "v1", "pf"},
    "vf0": {"v0"},
    "vf1": {"v1"},
    "tty13": {"t13"},
}
CAPACITY = {"gpu0": 10, "mig0": 4, "mig1": 4, "gpu1": 10, "group1": 10}
PART_OF = {"mig0": ("gpu0",), "mig1": ("gpu0",), "vf0": ("pf",), "vf1": ("pf",)}
CONSISTS_OF = {"group1": ("gpu1", "audio1")}
KIND = {"mig0": "v/mig", "mig1": "v/mig", "group1": "v/vfio", "pf": "v/nic", "vf0": "v/nic", "vf1": "v/nic"}

CONFIGURATIONS = (("gpu", "drm", "external"), ("gpu", "rule", "claims"), ("nic", "sriov", "kubernetes"))
OWNERS = ("kubernetes", "claims", "external")


def hold(device, amount=0):
    amounts = {"memory": amount} if amount else {}
    capacity = {"memory": CAPACITY[device]} if amount else {}
    kind, part_of, consists_of = KIND.get(device, "v/gpu"), PART_OF.get(device, ()), CONSISTS_OF.get(device, ())
    return Hold(device, kind, f"uuid-{device}", part_of, consists_of, amounts, capacity)


class Model:
    """Key -> parts, each {"owner", "state", "wanted", "holds", "boot", "since"}."""

    def __init__(self):
        self.grants = {}
        self.owners = {}
        self.boot = 0
        self.clock = 0.0

    def held(self):
        return [item for parts in self.grants.values() for part in parts for item in part["holds"]]

    def legal(self, holds):
        """Whether `holds` can exist together."""
        for number, one in enumerate(holds):
            together = 0
            for other in holds[:number] + holds[number + 1 :]:
                if not HARDWARE[one.device] & HARDWARE[other.device]:
                    continue
                if one.device != other.device or not one.amounts or not other.amounts:
                    return False
                together += other.amounts["memory"]
            if one.amounts and one.amounts["memory"] + together > CAPACITY[one.device]:
                return False
        return True

    def users(self, kind):
        """Owners that hold devices of `kind`."""
        parts = [part for parts in self.grants.values() for part in parts]
        return {part["owner"] for part in parts for item in part["holds"] if item.kind == kind}

    def add(self, key, owner, wanted, picked, pending):
        """The error that the ledger has to raise, or None after doing the same."""
        parts = self.grants.get(key, [])
        if any(part["state"] == "withheld" for part in parts):
            return errors.Unfinished
        asked = [part for part in parts if part["wanted"].keys() & wanted.keys()]
        for part in asked:
            if any(part["wanted"][spec] != wanted[spec] for spec in part["wanted"].keys() & wanted.keys()):
                return errors.Different
        if any(part["state"] == "pending" and part["boot"] == self.boot for part in asked):
            return errors.Unfinished
        state = "pending" if pending else "active"
        fresh = {spec: wanted[spec] for spec in wanted if not any(spec in part["wanted"] for part in asked)}
        if fresh:
            for kind in {item.kind for item in picked}:
                given = self.owners.get(kind)
                if (given and owner not in given) or (not given and self.users(kind) - {owner}):
                    return errors.Owned
            if not picked or not self.legal(self.held() + picked):
                return errors.DevicesTaken
        for part in asked:
            if part["boot"] != self.boot:
                part.update(boot=self.boot, state=state, since=self.clock)
        if fresh:
            part = dict(owner=owner, state=state, wanted=fresh, holds=picked, boot=self.boot, since=self.clock)
            self.grants.setdefault(key, []).append(part)
        return None

    def drop(self, key, keep=()):
        """Forget the grant but for the devices in `keep`, which are withheld; whether there was anything."""
        parts = self.grants.pop(key, [])
        for part in parts:
            kept = [item for item in part["holds"] if item.device in keep]
            if kept:
                self.grants.setdefault(key, []).append({**part, "holds": kept, "state": "withheld"})
        return bool(parts)


def seen(ledger):
    """What the ledger has, in the model's words."""
    return {
        grant.key: [
            dict(
                owner=part.owner,
                state=part.state,
                wanted=dict(part.wanted),
                holds=list(part.holds),
                boot=int(part.boot_id),
                since=part.since,
            )
            for part in grant.parts
        ]
        for grant in ledger.grants()
    }


class Run:
    """One ledger and its model, driven by one seed. What calls return is compared at once."""

    def __init__(self, directory, seed):
        self.random = random.Random(seed)
        self.model = Model()
        self.directory = str(directory)
        self.ledger = Ledger(self.directory, "0", now=lambda: self.model.clock)
        self.outcomes = set()

    def step(self):
        self.model.clock += 1
        names, weights = zip(*ACTIONS.items())
        (name,) = self.random.choices(names, weights)
        self.outcomes.add((name, getattr(self, name)()))
        if self.random.random() < 0.3:  # what differs stays different, and reading all of it takes as long as a step
            assert seen(self.ledger) == self.model.grants, name

    def key(self):
        resource_type, plugin, _owner = configuration = self.random.choice(CONFIGURATIONS)
        return Key(resource_type, plugin, str(self.random.randrange(4))), configuration[2]

    def some(self, items, most=2):
        return self.random.sample(sorted(items), self.random.randint(0, min(most, len(items))))

    def add(self):
        key, owner = self.key()
        wanted = {spec: self.random.randint(1, 2) for spec in self.some(["gpu", "gpu-memory", "gpu-slice"]) or ["gpu"]}
        picked = [
            hold(device, self.random.randint(1, 6) if device in CAPACITY and self.random.random() < 0.4 else 0)
            for device in self.random.choices(sorted(HARDWARE), k=self.random.randint(0, 2))
        ]
        pending = self.random.random() < 0.3
        before = len(self.model.grants.get(key, []))
        wrong = self.model.add(key, owner, wanted, picked, pending)
        try:
            added = self.ledger.add(key, wanted, lambda _held: picked, owner, pending)
        except errors.Refused as error:
            assert wrong and error.name == wrong.name
            return error.name
        assert wrong is None
        assert added.repeated == (len(self.model.grants[key]) == before)
        assert wanted.keys() <= {spec for part in added.parts for spec in part.wanted}
        return "repeated" if added.repeated else "granted"

    def activate(self):
        key, _owner = self.key()
        grant = self.ledger.find(key)
        tokens = [part.token for part in grant.parts if part.state == "pending"] if grant else ["gone"]
        try:
            self.ledger.activate(key, tokens)
        except errors.GrantGone:
            assert not grant
            return "gone"
        for part in self.model.grants.get(key, []):
            part.update(state="active" if part["state"] == "pending" else part["state"])
        return "done"

    def withhold(self):
        key, _owner = self.key()
        grant = self.ledger.find(key)
        if grant:
            self.ledger.withhold(key, grant.tokens, "broken")
            for part in self.model.grants[key]:
                part.update(state="withheld")
        return bool(grant)

    def delete(self):
        key, _owner = self.key()
        keep = self.some(HARDWARE) if self.random.random() < 0.3 else []
        freed = self.ledger.delete(key, keep=dict.fromkeys(keep, "broken"))
        assert (freed is not None) == self.model.drop(key, keep)
        return freed is not None

    def stale_delete(self):
        """The token of another part frees nothing."""
        key, _owner = self.key()
        assert self.ledger.delete(key, ["0123456789abcdef"]) is None

    def release(self):
        device = self.random.choice(sorted(HARDWARE))
        for key, parts in self.model.grants.items():
            for part in parts:
                mine = [item for item in part["holds"] if item.device == device]
                if not mine or part["state"] != "withheld":
                    continue
                if any(item.device == device for item in self.model.held() if item not in part["holds"]):
                    return "shared"  # another share of it: which goes first is not the model's business
                assert self.ledger.release(device) == mine[0]
                part["holds"] = [item for item in part["holds"] if item.device != device]
                if not part["holds"]:
                    parts.remove(part)
                if not parts:
                    del self.model.grants[key]
                return "released"
        try:
            assert self.ledger.release(device) is None
        except errors.Refused:
            return "in use"
        return "free"

    def collect(self):
        valid = [(key[:2] if self.random.random() < 0.8 else None, key[2]) for key in self.some(self.model.grants, 9)]
        as_of = self.model.clock - self.random.choice((0, 5, 20))
        found = gc(self.ledger, valid, as_of)
        if not valid:
            assert found.refused and not found.freed
            return "refused"
        for key in [key for key in self.model.grants if (key[:2], key[2]) not in valid and (None, key[2]) not in valid]:
            parts = self.model.grants[key]
            if not any(part["boot"] == self.model.boot and part["since"] >= as_of for part in parts):
                assert key in [grant.key for grant in found.freed]
                self.model.drop(key)
        assert not found.errors
        return bool(found.freed)

    def give(self):
        kind, owners = self.random.choice(("v/gpu", "v/mig", "v/vfio", "v/nic")), self.some(OWNERS)
        try:
            self.ledger.set_owners(kind, owners)
        except errors.Refused:
            assert owners and self.model.users(kind) - set(owners)
            return "refused"
        assert not (owners and self.model.users(kind) - set(owners))
        self.model.owners[kind] = owners
        return bool(owners)

    def check(self):
        key, _owner = self.key()
        missing = self.random.choice(sorted(HARDWARE))
        present = {device: f"uuid-{device}" for device in HARDWARE if device != missing}
        parts = self.model.grants.get(key)
        grant = self.ledger.find(key)
        assert (grant is None) == (parts is None)
        expected = set()
        for part in parts or ():
            expected |= {part["state"]} - {"active"}
            expected |= {"boot"} if part["boot"] != self.model.boot else set()
            expected |= {"missing"} if any(item.device == missing for item in part["holds"]) else set()
        found = check_grant(grant, self.ledger.boot_id, present) if grant else ()
        assert {problem.code for problem in found} == expected
        return tuple(sorted(expected))

    def inform(self):
        told = info(self.ledger)
        assert told.grants == len(self.model.grants)
        assert sum(told.devices.values()) == len(self.model.held())
        assert {kind: set(names) for kind, names in told.owners.items()} == {
            kind: set(names) for kind, names in self.model.owners.items() if names
        }
        assert told.complete and not told.incidents

    def reboot(self):
        self.model.boot += 1
        self.ledger = Ledger(self.directory, str(self.model.boot), now=lambda: self.model.clock)


ACTIONS = dict(
    add=12,
    activate=2,
    withhold=0.5,
    delete=4,
    stale_delete=0.5,
    release=1,
    collect=0.5,
    give=0.7,
    check=1,
    inform=0.3,
    reboot=0.1,
)

# All that can come of a call; each has to have been seen, or the test proves less than it says.
OUTCOMES = {
    *(("add", name) for name in ("granted", "repeated", "taken", "owned", "different", "unfinished")),
    *(("activate", name) for name in ("done", "gone")),
    *(("release", name) for name in ("released", "in use", "free")),
    *(("collect", name) for name in ("refused", True, False)),
    *(("give", name) for name in ("refused", True, False)),
    *(("delete", name) for name in (True, False)),
}


def test_the_ledger_does_what_a_dictionary_does(volatile):
    outcomes = set()
    for seed in range(STEPS // 500):
        run = Run(volatile / str(seed), seed)
        for number in range(500):
            try:
                run.step()
            except Exception as error:
                raise AssertionError(f"seed {seed}, step {number}") from error
        assert seen(run.ledger) == run.model.grants
        assert not run.ledger.reports
        outcomes |= run.outcomes
    assert outcomes >= OUTCOMES
