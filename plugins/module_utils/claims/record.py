# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a claim: what was asked, what was granted, and how far it has come.

The states: `asked` before the first ADD, and again while it is undone; `granted`. A granted claim is shown as `idle` if
its container stopped (users.py). A claim that is over has no record.
"""

from __future__ import annotations

import json
from binascii import crc32
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .. import documents
from ..protocol import grammar
from ..records import CdiError, Node, as_document
from .device_name import qualified_name

ASKED, GRANTED = STATES = ("asked", "granted")
IDLE = "idle"  # never stored
VERSION = 1


class WantedClaim(NamedTuple):
    """The request of a claim."""

    id: str
    amounts: Mapping[str, int]  # resource-spec -> amount: {"gpu": 2, "gpu-memory": 8192, "tty": 1}
    near: tuple[int, ...] = ()  # NUMA nodes
    release_on_stop: bool = False  # free it when its container stops; it does not survive a reboot either
    for_user: str = ""  # the name of the ordinary user whose containers use it; "": those of root
    keep: bool = False  # only `claim del` frees it, not the end of its containers
    only: tuple[str, ...] = ()  # device nodes of the devices that the caller chose; (): the plugins choose
    job: str = ""  # the run of a job of a workload manager, which alone ends it: "Slurm job 42, restart 0"

    @property
    def types(self) -> dict[str, dict[str, int]]:
        """Return resource-type -> its part of the amounts, in the order in which plugins are asked."""
        found: dict[str, dict[str, int]] = {}
        for spec, amount in sorted(self.amounts.items()):
            found.setdefault(spec.partition("-")[0], {})[spec] = amount
        return found

    def __str__(self) -> str:
        """Show the request for people: "gpu:2, tty:1 near NUMA node 0"."""
        text = ", ".join(f"{spec}:{amount}" for spec, amount in sorted(self.amounts.items()))
        near = f" near NUMA node {','.join(map(str, self.near))}" if self.near else ""
        user = f" for {self.for_user}" if self.for_user else ""
        only = f" with {', '.join(self.only)}" if self.only else ""
        job = f", for {self.job}" if self.job else ""
        ends = ", released on stop" * self.release_on_stop + ", kept until it is given back" * self.keep
        return f"{text}{only}{near}{user}{ends}{job}"


class ClaimPart(NamedTuple):
    """What one configuration granted to a claim."""

    configuration: str  # path
    nodes: tuple[Node, ...] = ()  # of the host; () while it is not known whether it granted anything


class NodeAccess(NamedTuple):
    """A node to which a claim gives its user access, by an entry in the node's access list."""

    node: Node
    before: int = (
        -1
    )  # what the user's entry gave before the claim (rights of system/access_list.py); -1: there was none
    given: bool = True  # False: was taken back, and a process may still have the node open
    boot_id: str = ""  # of the boot in which it was planned


class ClaimRecord(NamedTuple):
    """A stored claim."""

    wanted: WantedClaim
    state: str = ASKED
    parts: tuple[ClaimPart, ...] = ()  # of those that granted; while it is asked, of all that may have
    names: tuple[str, ...] = ()  # qualified names of the CDI devices whose edits it has
    numa_locality: tuple[int, ...] = ()
    boot_id: str = ""  # of the numbers in `nodes`
    token: str = ""  # tells this claim from a later one with the same id
    reason: str = ""  # why it could not be undone
    uid: int = 0  # of wanted.for_user
    access: tuple[NodeAccess, ...] = ()  # on disk before it is given
    spec: str = ""  # the path of its spec
    of_pods: bool = False  # containers of pods have it, and the records of these pods end it

    @property
    def id(self) -> str:
        """Return the id."""
        return self.wanted.id

    @property
    def configurations(self) -> tuple[str, ...]:
        """Return the paths of the configurations that granted; while it is asked, of all that may have."""
        return tuple(part.configuration for part in self.parts)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return the granted nodes, each once."""
        return tuple({node.path: node for part in self.parts for node in part.nodes}.values())

    @property
    def device(self) -> str:
        """Return the qualified name for containers."""
        return qualified_name(self.wanted.id)

    def ended_by_reboot(self, boot_id: str) -> bool:
        """Return True if it is of another boot than `boot_id` and does not survive a reboot."""
        return (self.wanted.release_on_stop or bool(self.wanted.job)) and self.boot_id != boot_id

    @property
    def document(self) -> dict[str, Any]:
        """Return the claim for people and programs, as `--json` and the modules show it."""
        hidden = ("wanted", "parts", "access", "spec", "of_pods")
        fields = {name: value for name, value in as_document(self).items() if name not in hidden}
        nodes = [{"path": one.path, "type": one.type, "major": one.major, "minor": one.minor} for one in self.nodes]
        own = {"device": self.device, "configurations": [*self.configurations], "nodes": nodes}
        return {**as_document(self.wanted), **fields, **own}


def parse_amounts(words: Sequence[str]) -> dict[str, int]:
    """Parse TYPE[-PROPERTY]:AMOUNT, several of them in a word with commas (CDI proposal 2017, "ADD").

    Raises CdiError.
    """
    found: dict[str, int] = {}
    for part in ",".join(words).split(","):
        spec, colon, text = part.strip().rpartition(":")
        if not colon or not grammar.is_resource_spec(spec):
            raise CdiError(f"claim: found {part!r}; expected TYPE:AMOUNT or TYPE-PROPERTY:AMOUNT, such as gpu:1")
        amount = grammar.amount(spec, text)
        if not amount or amount > grammar.LARGEST:
            raise CdiError(f"claim: found {part!r}, with the amount {text!r}; expected an integer from 1 to 2^63-1")
        if spec in found:
            raise CdiError(f"claim: found {spec} twice; expected each resource once, with the sum")
        found[spec] = amount
    return found


def is_amount(word: str) -> bool:
    """Return True if the word is TYPE:AMOUNT and not an id."""
    spec, colon, text = word.partition(",")[0].strip().rpartition(":")
    return bool(colon) and grammar.is_resource_spec(spec) and grammar.amount(spec, text) is not None


def parse_near(text: str) -> tuple[int, ...]:
    """Parse NUMA nodes with commas between them, sorted. Raises CdiError."""
    words = [word for word in text.split(",") if word]
    if not all(word.isascii() and word.isdigit() and len(word) < 6 for word in words):
        raise CdiError(f"near: found {text!r}; expected numbers of NUMA nodes, such as 0 or 0,1")
    return tuple(sorted({int(word) for word in words}))


def render_claim(claim: ClaimRecord) -> bytes:
    """Return the content of the claim's file."""
    return sealed({"version": VERSION, **as_document(claim)})


def parse_claim(content: bytes, path: str) -> ClaimRecord:
    """Return the claim in the content of the file `path`. Ignores fields of a newer release. Raises CdiError."""
    document = documents.parse(content, path)
    try:
        if document["version"] != VERSION:
            raise documents.other_version(path, document["version"], VERSION)
        check_seal(document)
        wanted = _record(WantedClaim, document["wanted"])
        parts = tuple(
            ClaimPart(part["configuration"], tuple(_record(Node, node) for node in part["nodes"]))
            for part in document["parts"]
        )
        access = tuple(
            _record(NodeAccess, {**one, "node": _record(Node, one["node"])}) for one in document.get("access", ())
        )
        fields = {**document, "wanted": wanted, "parts": parts, "access": access}
        claim: ClaimRecord = _record(ClaimRecord, fields)
        if claim.state not in STATES or not all(amount > 0 for amount in wanted.amounts.values()):
            raise ValueError("its state or an amount is wrong")
        return claim
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CdiError(
            f"{path}: is damaged ({documents.misfit(error)}); expected the claim that fleet-cdi wrote. Restore it, or "
            "move it away and free its devices (fleet-cdi grants gc FILE)."
        ) from None


def sealed(document: Mapping[str, Any]) -> bytes:
    """Return the content of a record's file, with a checksum: else a changed digit would be another device."""
    return (json.dumps({**document, "checksum": _checksum(document)}, indent=2, sort_keys=True) + "\n").encode("ascii")


def check_seal(document: Mapping[str, Any]) -> None:
    """Raise ValueError if a record is not as `sealed` wrote it. Older releases wrote no checksum."""
    rest = {name: value for name, value in document.items() if name != "checksum"}
    if "checksum" in document and document["checksum"] != _checksum(rest):
        raise ValueError("its checksum is wrong: it was changed")


def _checksum(document: Mapping[str, Any]) -> str:
    return f"{crc32(json.dumps(document, sort_keys=True).encode('ascii')):08x}"


def _record(type_: Any, fields: Mapping[str, Any]) -> Any:
    known = {name: fields[name] for name in type_._fields if name in fields}
    return type_(**{name: tuple(value) if isinstance(value, list) else value for name, value in known.items()})
