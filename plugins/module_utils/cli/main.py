# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi, the command line of a host.

Each verb is a file of this directory with `run(arguments, paths) -> int`, imported at its use, and an entry in VERBS.
Exit codes: 0 all is well, 1 there are findings, 2 the command failed (one line on stderr tells why).
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from ..layout import Layout
from ..records import CdiError
from .terminal import complain

if TYPE_CHECKING:
    import argparse


class Operand(NamedTuple):
    """An operand of a verb: its name, its number (argparse's nargs), its help."""

    metavar: str
    nargs: Optional[str]
    help: str


class Verb(NamedTuple):
    """One verb of fleet-cdi: its help, its switches and options with theirs, and its operands."""

    help: str
    switches: dict[str, str]
    operands: Mapping[str, Operand] = {}
    options: Mapping[str, Operand] = {}  # with a value, or None if not given


JSON = {"--json": "print one JSON document instead of text"}

VERBS = {
    "claim": Verb(
        "give devices to a container, job or service by a name, and take them back; exit code 1 if something is wrong",
        {
            "--release-on-stop": "add: free them when the container stops; by default a stopped container keeps them",
            "--reuse": "add: the id ended in this boot, and is meant again",
            **JSON,
        },
        {
            "action": Operand("add|del|list|check|gc|restore", None, "what to do; restore is for the boot"),
            "what": Operand("WHAT", "*", "add: an ID, then TYPE:AMOUNT or TYPE-PROPERTY:AMOUNT; del: an ID"),
        },
        {
            "--near": Operand("NODES", None, "add: prefer devices close to these NUMA nodes: 0 or 0,1"),
            "--token": Operand(
                "TOKEN", None, "del: only if the claim has this token: a later one with the same id has another"
            ),
        },
    ),
    "device": Verb(
        "take a device out of service, or back; who holds it keeps it",
        {"--check": "say what would be done, and do nothing", **JSON},
        {
            "action": Operand("disable|enable", None, "what to do"),
            "name": Operand("DEVICE", None, "its id, a name, its PCI address, uuid or serial, or /dev/..."),
        },
        {
            "--reason": Operand("TEXT", None, "why, for the next operator; needed to disable"),
            "--until": Operand("TIME", None, "2026-12-01, 2026-12-01T18:00Z, or from now: 90m, 12h, 3d"),
        },
    ),
    "devices": Verb(
        "show the devices of this host",
        {
            "--scan": "discover them now, with the defaults of every profile, instead of reading the inventory",
            "--free": "only those that may be handed out now: well, in service, and held by none",
            **JSON,
        },
        options={"--kind": Operand("KIND", None, "only those of this kind: vendor/class")},
    ),
    "doctor": Verb(
        "find what keeps containers from their devices, and say what to do next; exit code 1 if there is anything", JSON
    ),
    "functions": Verb(
        "make virtual functions of PCI devices with SR-IOV that have none; exit code 1 if some can't be made",
        {"--check": "say what would be done, and do nothing", **JSON},
        {"wanted": Operand("DEVICE=COUNT", "+", "a PCI address or a network interface, and how many it is to have")},
    ),
    "grants": Verb(
        "show who holds which devices, and free, release or give them; exit code 1 if something is wrong with a grant",
        {
            "--open": "list: also which devices processes have open, held or not",
            "--force": "gc: take an empty list to mean that nothing is valid",
            "--complete": "gc: the list has the requests of all callers, so a damaged store may grant again",
            **JSON,
        },
        {
            "action": Operand("list|gc|release|accept-loss|give|migrate", None, "what to do"),
            "what": Operand("WHAT", "*", "gc: a FILE of valid requests; release: a DEVICE; give: a KIND and OWNERS"),
        },
    ),
    "inject": Verb(
        "print an OCI runtime spec with the edits of devices, all or none; exit code 2 if one can't be had",
        {"--json": "if a device can't be had, also print why as one JSON document"},
        {
            "oci_spec": Operand("OCI-SPEC", None, "the file, as config.json of a bundle; - for standard input"),
            "name": Operand(
                "NAME", "+", "a qualified name: vendor/class=device; or the device's name alone, or its /dev/..."
            ),
        },
    ),
    "plugin": Verb(
        "run the kubelet's device plugin, look at it, or see what it would offer; exit code 1 if something is wrong",
        JSON,
        {"action": Operand("run|status|check|forget", None, "what to do; forget frees what pods held")},
        {
            "--config": Operand("FILE", None, "its configuration (/etc/fleet-cdi/device-plugin.json)"),
            "--instance": Operand("NAME", None, "run: tells this instance from another one that runs beside it"),
        },
    ),
    "refresh": Verb(
        "discover again what this host was told to offer, and write what differs; exit code 1 if devices are missing",
        {
            "--check": "say what would be done, and do nothing; nothing is waited for",
            "--make-nodes": "first make the control nodes that NVIDIA's driver leaves to programs",
            "--drop": "give up devices that are gone now, without waiting or a grace period, unless they are granted",
            **JSON,
        },
        options={
            "--timeout": Operand("SECONDS", None, "how long to wait for devices that are missing (0)"),
            "--grace": Operand("SECONDS", None, "how long devices that are gone stay in their specs (600)"),
        },
    ),
    "specs": Verb(
        "show the CDI specs as a container runtime sees them; exit code 1 for errors, conflicts and stale specs", JSON
    ),
    "transform": Verb(
        "print a spec with its paths below another root directory, of the host or of the container",
        {},
        {"path": Operand("SPEC", None, "the file; - for standard input")},
        {
            "--from": Operand("DIR", None, "the root directory that its paths are below now (/)"),
            "--to": Operand("DIR", None, "the one that they are to be below (/)"),
            "--relative-to": Operand("host|container", None, "whose paths are meant (host)"),
        },
    ),
    "undo": Verb(
        "take back every file that fleet.cdi wrote; exit code 1 if some are kept",
        {
            "--check": "say what would be done, and do nothing",
            "--force": "also take back files that others changed since",
            **JSON,
        },
    ),
    "validate": Verb(
        "check CDI specs by the rules of the reference library and of SPEC.md; exit code 1 if one is invalid",
        JSON,
        {"path": Operand("PATH", "*", "a spec, - for standard input; without any, every one in the spec directories")},
    ),
}


def main(argv: Sequence[str], release: str, defaults: Mapping[str, Any]) -> int:
    """Run `argv`; the launcher gives `release` and `defaults` (state_dir, inventory, spec_dirs, prefix)."""
    if argv[:1] == ["call"]:  # the host's half of a module; not for people, so not a verb
        call = import_module("ansible_collections.fleet.cdi.plugins.module_utils.cli.call")
        return int(call.main(*argv[1:]))
    given = _parser(release, defaults).parse_args(_operands_last(argv))
    chosen = vars(given)
    paths = Layout(
        chosen.get("state_dir", defaults["state_dir"]),
        chosen.get("inventory", defaults["inventory"]),
        prefix=defaults["prefix"],
        spec_dirs=tuple(chosen.get("spec_dir", defaults["spec_dirs"])),
        path=os.environ.get("PATH", ""),
    )
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name may not be valid text
    try:
        verb = import_module(f"ansible_collections.fleet.cdi.plugins.module_utils.cli.{given.verb}")
        status = int(verb.run(given, paths))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe (| head)
        status = 0
    except (CdiError, OSError) as error:
        complain(" ".join(str(error).split()))
        status = 2
    except KeyboardInterrupt:
        status = 130  # the shells' status for SIGINT
    try:
        sys.stdout.flush()
    except OSError:  # Python must not flush again at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _operands_last(argv: Sequence[str]) -> list[str]:
    """Return the command with the words between its operands moved before them.

    argparse takes the first run of operands for all of them: it would refuse the file in `grants gc --force FILE`.
    """
    words = list(argv)
    place = next((index for index, word in enumerate(words) if word in VERBS), None)
    if place is None:
        return words
    valued = ("--state-dir", "--inventory", "--spec-dir", *VERBS[words[place]].options)
    options, operands = words[: place + 1], []
    rest = words[place + 1 :]
    while rest and rest[0] != "--":
        word = rest.pop(0)
        if word == "-" or not word.startswith("-"):
            operands.append(word)
        else:
            options.append(word)
            if rest and len(word) > 2 and any(option.startswith(word) for option in valued):
                options.append(rest.pop(0))
    return [*options, *operands, *rest]


def _parser(release: str, defaults: Mapping[str, Any]) -> argparse.ArgumentParser:
    import argparse  # here, because it takes longer than the rest of a call

    # Suppressed defaults: a verb's parser must not reset options before the verb.
    everywhere = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    everywhere.add_argument("--state-dir", metavar="DIR", help=f"where the manifest is ({defaults['state_dir']})")
    everywhere.add_argument("--inventory", metavar="FILE", help=f"the devices of this boot ({defaults['inventory']})")
    everywhere.add_argument(
        "--spec-dir",
        metavar="DIR",
        action="append",
        help=f"a spec directory, lowest priority first; repeat it for more ({' '.join(defaults['spec_dirs'])})",
    )
    parser = argparse.ArgumentParser(
        prog="fleet-cdi",
        parents=[everywhere],
        description="CDI devices of this host.",
        epilog="Exit codes: 0 all is well, 1 there are findings, 2 it could not be done.",
    )
    parser.add_argument("--version", action="version", version=f"fleet-cdi {release}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, verb in VERBS.items():
        one = verbs.add_parser(name, parents=[everywhere], help=verb.help, description=verb.help)
        for switch, text in verb.switches.items():
            one.add_argument(switch, action="store_true", help=text)
        for name, option in verb.options.items():
            # "from" is a keyword of Python, so it can't be an attribute.
            place = {"--from": "old_root", "--to": "new_root"}.get(name)
            one.add_argument(name, dest=place, metavar=option.metavar, nargs=option.nargs, help=option.help)
        for key, operand in verb.operands.items():
            one.add_argument(key, metavar=operand.metavar, nargs=operand.nargs, help=operand.help)
    return parser
