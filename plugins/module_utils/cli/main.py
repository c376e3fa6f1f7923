# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi, the command line of a host.

Each verb is a file of this directory with `run(arguments, paths) -> int`, imported at its use, and an entry in VERBS.
VERBS and EVERYWHERE also make the man page (man.py) and the completion of shells (complete.py), and tell which action
takes which option (taken_options.py).
Exit codes: 0 all is well, 1 there are findings, 2 the command failed (one line on stderr tells why).
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from ..layout import Layout
from ..records import CdiError
from .plain_command import attribute, read_plain
from .terminal import complain

if TYPE_CHECKING:
    import argparse
    from typing import NoReturn


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
    overrules: Mapping[str, Sequence[str]] = {}  # switch -> options that have no effect beside it


JSON = {"--json": "print one JSON document instead of text"}

# Options that stand before or after the verb. `{state_dir}` and so on: the defaults that the launcher gives.
EVERYWHERE = {
    "--state-dir": Operand("DIR", None, "where the manifest is ({state_dir})"),
    "--inventory": Operand("FILE", None, "the devices of this boot ({inventory})"),
    "--spec-dir": Operand("DIR", None, "a spec directory, lowest priority first; repeat it for more ({spec_dirs})"),
}
REPEATED = ("--spec-dir",)

DESCRIPTION = "CDI devices of this host."
EXIT_CODES = "Exit codes: 0 all is well, 1 there are findings, 2 it could not be done."

VERBS = {
    "bundle": Verb(
        "make an archive for a support case: the state of this host and its devices, without secrets",
        {"--list": "say what would be in it and what not, and write nothing", **JSON},
        options={
            "--output": Operand("FILE", None, "a new file, - for standard output (fleet-cdi-bundle-TIME.tar.gz)"),
        },
    ),
    "claim": Verb(
        "give devices to a container, job or service by a name, and take them back; exit code 1 if something is wrong",
        {
            "--release-on-stop": "add: free them when the container stops; by default a stopped container keeps them",
            "--keep": "add: only del gives it back, also if its containers are gone",
            "--reuse": "add, exec: the id ended in this boot, and is meant again",
            "--force": "del, pod del: also if a container that was started with the claim still runs",
            "--check": "del, gc: say what would be given back, and do nothing",
            **JSON,
        },
        {
            "action": Operand("add|del|list|check|gc|restore|exec|pod", None, "what to do; restore is for the boot"),
            "what": Operand(
                "WHAT",
                "*",
                "add: an ID, then TYPE:AMOUNT or TYPE-PROPERTY:AMOUNT; del: an ID; exec: as add, or without ID, then "
                "-- and a COMMAND, which gets these devices and no others; pod: add or del, and a FILE, a pod manifest",
            ),
        },
        {
            "--for": Operand("USER", None, "add: for the rootless containers of this ordinary user"),
            "--idle-for": Operand(
                "SECONDS", None, "gc: how long the containers of a claim have to be gone; 0 by default"
            ),
            "--near": Operand("NODES", None, "add, exec: prefer devices close to these NUMA nodes: 0 or 0,1"),
            "--target": Operand(
                "NAME", None, "pod: who starts the pods: podman (default), device_plugin or resource_claims"
            ),
            "--resources": Operand("NAME=SPEC,...", None, "pod: extended resources that stand for devices"),
            "--device-classes": Operand("TYPE=CLASS,...", None, "pod: the DeviceClass of each resource-type"),
            "--token": Operand(
                "TOKEN", None, "del: only if the claim has this token: a later one with the same id has another"
            ),
        },
    ),
    "completion": Verb(
        "print the script that makes a shell complete fleet-cdi",
        {},
        {"shell": Operand("bash|zsh", None, "the shell")},
    ),
    "converge": Verb(
        "bring this host to the state of a file of settings; exit code 1 if a part of it could not be done",
        {
            "--check": "say what would be done, and do nothing; nothing is waited for",
            "--diff": "also print what changes",
            **JSON,
        },
        options={
            "--settings": Operand("FILE", None, "the settings of this host, JSON or YAML; - for standard input"),
            "--part": Operand("NAME,...", None, "only these: driver, specs, runtimes, plugins, refresh, device_plugin"),
        },
    ),
    "device": Verb(
        "take devices out of service, or back; what runs keeps its device, and nobody else gets it",
        {"--check": "say what would be done, and do nothing", **JSON},
        {
            "action": Operand("disable|enable", None, "what to do"),
            "name": Operand("DEVICE", "+", "its id, a name, its PCI address, uuid or serial, or /dev/..."),
        },
        {
            "--reason": Operand("TEXT", None, "disable: why, for the next operator; it has to be given"),
            "--until": Operand("TIME", None, "disable: 2026-12-01, 2026-12-01T18:00Z, or from now: 90m, 12h, 3d"),
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
        "find what keeps containers from their devices, and say what to do next; exit code 1 if there are findings",
        JSON,
    ),
    "explain": Verb(
        "tell what a message means, why, and what to do: messages have an id such as FC1001 at their end",
        JSON,
        {
            "what": Operand(
                "ID",
                "*",
                "an id, the name of a rule of doctor or validate, an error code of an executable, or a whole message "
                "in quotes; without any, the list of all",
            )
        },
    ),
    "features": Verb(
        "print labels of the devices for Kubernetes' Node Feature Discovery, or keep a file of them",
        {"--check": "say what would be done, and do nothing", **JSON},
        options={
            "--output": Operand(
                "FILE",
                None,
                "keep this file; `undo` removes it, and so does a run with another FILE. An empty FILE removes it and "
                "writes none",
            ),
        },
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
            "--check": "gc: say what would be freed, and free nothing",
            "--complete": "gc: the list has the requests of all callers, so a damaged store may grant again",
            "--any": "give: take the kind from its owners; then it belongs to the owner that holds devices of it",
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
    "man": Verb("print the manual page, in roff", {}),
    "metrics": Verb(
        "print the state of this host for Prometheus, or replace a file that node_exporter reads",
        {},
        options={"--output": Operand("FILE", None, "the file, NAME.prom, in a directory that is there")},
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
            "--no-claims": "do not restore claims; `claim restore` does that",
            "--drop": "give up devices that are gone now, without waiting or a grace period, unless they are granted",
            **JSON,
        },
        options={
            "--timeout": Operand("SECONDS", None, "how long to wait for devices that are missing (0)"),
            "--grace": Operand("SECONDS", None, "how long devices that are gone stay in their specs (600)"),
        },
        overrules={"--drop": ("--timeout", "--grace")},
    ),
    "report": Verb(
        "compare the wanted, written, promised and real state of each device; exit code 1 if something disagrees", JSON
    ),
    "slurm": Verb(
        "claim what Slurm gives to a job, withhold devices from Slurm, print the lines of gres.conf",
        JSON,
        {
            "action": Operand(
                "job|withhold|return|gres",
                None,
                "job: Prolog and Epilog, by bin/slurm-job; withhold, return: setup and teardown of a configuration",
            )
        },
    ),
    "specs": Verb(
        "show the CDI specs as a container runtime sees them; exit code 1 for errors, conflicts and stale specs", JSON
    ),
    "top": Verb(
        "show devices, their health, who holds them and which processes have them open, again and again; q ends it",
        {"--once": "print one frame and end; this is the default without a terminal", **JSON},
        options={"--interval": Operand("SECONDS", None, "between two looks (2)")},
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
            "--force": "also end all claims, those in use too, forget all other grants, take back specs that running "
            "containers have, and remove files that were changed since",
            **JSON,
        },
    ),
    "validate": Verb(
        "check CDI specs by the rules of the reference library and of SPEC.md; exit code 1 if one is invalid",
        JSON,
        {"path": Operand("PATH", "*", "a spec, - for standard input; without any, every one in the spec directories")},
    ),
    "version": Verb(
        "show the release of this host and its git commit; exit code 1 if --verify finds a difference",
        {"--verify": "compare each file with what was released, also byte code with its source", **JSON},
    ),
}

# What they change belongs to the records of this host. `undo` takes back what any manifest records.
OF_THE_HOST = ("claim", "converge", "device", "refresh")
WITH_COMMAND = {"claim": "exec"}  # verb -> its action that runs the command behind `--`


def main(argv: Sequence[str], release: str, defaults: Mapping[str, Any]) -> int:
    """Run `argv`; the launcher gives `release` and `defaults` (state_dir, inventory, spec_dirs, prefix)."""
    if argv[:1] == ["call"]:  # the host's half of a module; not for people, so not a verb
        call = _file("call")
        return int(call.main(*argv[1:]))
    if argv[:1] == ["complete"]:  # for the scripts of `completion`, so not a verb
        complete = _file("complete")
        return int(complete.main(argv[1:], release, defaults))
    if argv[:1] == ["pages"]:  # for the installation of a release, so not a verb
        pages = _file("pages")
        return int(pages.main(_layout({}, defaults)))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name may not be valid text
    status = 0
    try:
        given = _given(argv, release, defaults)
        status = 1  # until the verb is done
        paths = _layout(vars(given), defaults)
        if given.verb in OF_THE_HOST and paths.state_dir != defaults["state_dir"]:
            from ..release.needed_by import check_state_dir  # here, because it is rare

            check_state_dir(paths.state_dir, paths.prefix, paths.inventory)
        status = int(_file(given.verb).run(given, paths))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe (| head)
        pass
    except (CdiError, OSError) as error:
        complain(" ".join(str(error).split()))
        status = 2
    except KeyboardInterrupt:
        status = 130  # the shells' status for SIGINT
    finally:
        _give_up_output()
    return status


def _given(argv: Sequence[str], release: str, defaults: Mapping[str, Any]) -> Any:
    """Return the parsed command line. Raises SystemExit after a help text or a usage error, OSError if that is lost."""
    argv, command = _command(argv)
    try:
        plain = read_plain(argv, VERBS, EVERYWHERE, REPEATED)
        given: Any = plain or make_parser(release, defaults).parse_args(_operands_last(argv))
    except SystemExit:
        sys.stdout.flush()
        raise
    given.command = command
    return given


def _give_up_output() -> None:
    """Drop what could not be written: Python would try again at its exit, and end with a status of its own."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _file(name: str) -> Any:
    """Import a file of this folder; importlib would load module warnings for that."""
    path = f"{__package__}.{name}"
    __import__(path)
    return sys.modules[path]


def _command(argv: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the words before `--`, and the command behind it; elsewhere `--` ends the options, and the words stay."""
    if "--" not in argv:
        return argv, ()
    end = list(argv).index("--")
    verb = next((word for word in argv if word in VERBS), "")
    action = _sorted(argv[:end])[1][:1]
    return (argv[:end], argv[end + 1 :]) if action == [WITH_COMMAND.get(verb)] else (argv, ())


def _layout(chosen: Mapping[str, Any], defaults: Mapping[str, Any]) -> Layout:
    """Return the paths of this host: those that the command line names, else those of the launcher."""
    return Layout(
        chosen.get("state_dir", defaults["state_dir"]),
        chosen.get("inventory", defaults["inventory"]),
        prefix=defaults["prefix"],
        spec_dirs=tuple(chosen.get("spec_dir", defaults["spec_dirs"])),
        path=os.environ.get("PATH", ""),
    )


def _operands_last(argv: Sequence[str]) -> list[str]:
    """Return the command with the words between its operands moved before them.

    argparse takes the first run of operands for all of them: it would refuse the file in `grants gc --force FILE`.
    """
    options, operands, rest = _sorted(argv)
    return [*options, *operands, *rest]


def _sorted(argv: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the words of a command: the options with the verb, the operands, and all from `--` on."""
    words = list(argv)
    place = next((index for index, word in enumerate(words) if word in VERBS), None)
    if place is None:
        return words, [], []
    valued = (*EVERYWHERE, *VERBS[words[place]].options)
    options, operands = words[: place + 1], list[str]()
    rest = words[place + 1 :]
    while rest and rest[0] != "--":
        word = rest.pop(0)
        if word == "-" or not word.startswith("-"):
            operands.append(word)
        else:
            options.append(word)
            if rest and len(word) > 2 and any(option.startswith(word) for option in valued):
                options.append(rest.pop(0))
    return options, operands, rest


def help_of(option: Operand, defaults: Mapping[str, Any]) -> str:
    """Return the help of an option of EVERYWHERE with its default."""
    return option.help.format(**{**defaults, "spec_dirs": " ".join(defaults["spec_dirs"])})


def make_parser(release: str, defaults: Mapping[str, Any]) -> argparse.ArgumentParser:
    """Return the parser of EVERYWHERE and VERBS."""
    import argparse  # here, because it takes longer than the rest of a call

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            self.print_usage(sys.stderr)
            complain(": ".join([*self.prog.split()[1:], f"wrong use: {message}"]))
            self.exit(2)

    # Suppressed defaults: a verb's parser must not reset options before the verb.
    everywhere = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    for name, option in EVERYWHERE.items():
        action = "append" if name in REPEATED else "store"
        everywhere.add_argument(name, metavar=option.metavar, action=action, help=help_of(option, defaults))
    parser = Parser(prog="fleet-cdi", parents=[everywhere], description=DESCRIPTION, epilog=EXIT_CODES)
    parser.add_argument("--version", action="version", version=f"fleet-cdi {release}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, verb in VERBS.items():
        one = verbs.add_parser(name, parents=[everywhere], help=verb.help, description=verb.help)
        for switch, text in verb.switches.items():
            one.add_argument(switch, action="store_true", help=text)
        for name, option in verb.options.items():
            one.add_argument(name, dest=attribute(name), metavar=option.metavar, nargs=option.nargs, help=option.help)
        for key, operand in verb.operands.items():
            one.add_argument(key, metavar=operand.metavar, nargs=operand.nargs, help=operand.help)
    return parser
