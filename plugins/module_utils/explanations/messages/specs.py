# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about CDI specs."""

from __future__ import annotations

from ..explanation import Explanation

EXPLANATIONS = (
    Explanation(
        id="FC1301",
        title="The name of a kind or device breaks the rules of CDI",
        messages=(
            "found no '/'; expected vendor/class",
            "found no '='; expected vendor/class=device",
            "found the device name *; expected",
            "; expected 2 or more *",
        ),
        means="A kind is `vendor/class`, and a qualified name is `vendor/class=device`.",
        why="Container runtimes ignore or refuse a spec with another name.",
        do="Correct the name in the settings or in the command.",
        more="fleet-cdi specs",
    ),
    Explanation(
        id="FC1302",
        title="The spec is not valid",
        messages=(
            "is not a valid spec: *",
            "is not a valid spec, so its secrets can't be found",
            "its spec would not be valid",
        ),
        means="The file breaks a rule of CDI specs. The name of the rule is in brackets.",
        why="Some runtimes refuse the file, and some read another device from it.",
        do="Correct the place that the message names. `fleet-cdi explain RULE` explains a rule.",
        more="fleet-cdi validate FILE",
    ),
    Explanation(
        id="FC1303",
        title="Not every runtime of this host reads the spec",
        messages=("is not for every runtime of this host: *. Change it, upgrade the runtime, or name in",),
        means="The spec needs a version of CDI that one of the installed runtimes does not read.",
        why="That runtime would see no device, or would ignore part of the spec.",
        do="Upgrade the runtime. Or name in `runtime_versions` only those that are to read the spec.",
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1304",
        title="Another tool provides the kind",
        messages=(
            "it is already provided by *. Let on_foreign_kind be",
            "fleet.cdi wrote this, but * does not know it",
            "fleet.cdi wrote this, and * does not know it any more. It is taken over",
            "makes room for ours. To keep it away:",
            "is provided by * (*); no spec of ours is written",
            "is provided again by *, which made room before; no spec of ours is written",
        ),
        means="A file of another tool (such as nvidia-ctk), or of another fleet.cdi, has devices of this kind.",
        why="Two specs of one kind conflict: a runtime then resolves no device that both define.",
        do=(
            "Choose: `on_foreign_kind: use` serves the other file, `replace` puts ours in its place. Or choose "
            "another kind. A file that is taken over needs nothing: its manifest was lost, and it is in the new one."
        ),
        more="fleet-cdi specs",
    ),
    Explanation(
        id="FC1305",
        title="A spec of another tool breaks the runtimes",
        messages=(
            "makes the CDI library of * crash, which then resolves no device at all",
            "Expected a file that every runtime reads alike, or none.",
        ),
        means="A file in a spec directory makes a runtime crash, or runtimes read different things in it.",
        why="A runtime that crashes there starts no container with any device, also not with those of our spec.",
        do="Repair or remove the file, then run again. Tell the author of the tool that wrote it.",
        more="fleet-cdi validate FILE",
    ),
    Explanation(
        id="FC1306",
        title="Devices are held",
        messages=(
            "Give the devices back (`fleet-cdi claim del ID` for claims; DEL, or `fleet-cdi grants gc FILE`) and",
            "Give the devices back first, or let on_held be",
            "Remove them, or let on_held be 'keep' or 'drop'",
            "; it stays in the spec under this name, though the settings no longer say so",
            "; out of service all the same: what runs keeps its device",
            "for one of another tool that does not offer this name, so that a container with it can't be started again",
            "name files that do not exist: *",
        ),
        means=(
            "The change would take away a spec, a pool or a runtime's configuration while containers or grants use "
            "the devices."
        ),
        why="A container whose spec is gone can't be started again, and its devices could be given to another one.",
        do=(
            "End the containers and give the devices back. `on_held: keep` drops each device when it becomes free, "
            "`on_held: drop` drops it now. `fleet-cdi device enable NAME` puts a device back that is out of service."
        ),
        more="fleet-cdi grants list",
    ),
    Explanation(
        id="FC1307",
        title="The entries of a spec have several kinds",
        messages=("expected only devices of kind *. Set its kind, or give it a spec of its own",),
        means="A spec has one kind. A device in the list has another one.",
        why="The format of CDI has one `kind` for each file.",
        do="Set `kind` of the device, or write a second spec.",
        more="ansible-doc -t module fleet.cdi.spec",
    ),
    Explanation(
        id="FC1308",
        title="Files that a device needs are missing",
        messages=(
            "Restore the missing files, or write the spec again",
            "found no device node; expected one, or its type and major in the spec",
            "found a node of type *; expected *, as the spec says",
        ),
        means="The spec names a device node, a library or a program that this host does not have.",
        why="The runtime would refuse to start the container, or start it without the device.",
        do=(
            "If the driver was upgraded or a card was moved, write the spec again: `fleet-cdi refresh`. If the "
            "device is lost, look at its driver."
        ),
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1309",
        title="No spec has this device",
        messages=(
            "can't be resolved: * both define it; remove it from one",
            "no spec in * is of the kind *; found",
            "no spec defines this device; of its kind there is",
            "* does not resolve it, only",
            "* takes it from *, not from",
        ),
        means="A qualified name is in no valid spec of this host, or only in one that not every runtime reads.",
        why="All devices of a request are given, or none.",
        do="Look for a spelling error, an invalid spec, or two specs with the same name.",
        more="fleet-cdi specs",
    ),
    Explanation(
        id="FC1310",
        title="The program of a hook is missing",
        messages=(
            "no container with such a device would start. Install it first",
            "(check mode: a release that is installed before brings it)",
        ),
        means="The spec would name a hook of fleet.cdi, and the program of the hook is not installed on this host.",
        why="A runtime starts no container whose hook it can't run.",
        do=(
            "Install it with roles fleet.cdi.cdi_host and fleet.cdi.cdi_runtime_hooks. Or do without: `hooks: []` "
            "in the entry."
        ),
        more="ls -l /opt/cdi/bin",
    ),
    Explanation(
        id="FC1311",
        title="A runtime does not read the spec of another tool",
        messages=("does not read it; `fleet-cdi validate *` may say why",),
        means="Another tool provides the kind, and a container runtime of this host can not read that file.",
        why=(
            "With `on_foreign_kind: use`, fleet.cdi writes no spec of its own. Containers of that runtime get no "
            "device."
        ),
        do="Correct the file or its tool. Or let fleet.cdi write the spec: `cdi_host_on_foreign_kind: replace`.",
        more="fleet-cdi validate",
    ),
    Explanation(
        id="FC1312",
        title="Another file defines the same name",
        messages=(
            "is also in *: * would resolve neither",
            "would have no effect: * defines it in a directory of higher priority",
            "takes the place of the one in *",
            "is in *: * would resolve neither",
        ),
        means=(
            "A spec of another tool has a device with the name that fleet.cdi would write, or two specs of other tools "
            "that are used have one name. As an error: nothing was written. As a warning: the name means another "
            "device from now on, or no device."
        ),
        why="Runtimes refuse a name that two files of one directory define. Of two directories, the later one counts.",
        do=(
            "Remove the device from the other file, or give ours another kind or other names. `fleet-cdi specs` shows "
            "who wrote which."
        ),
        more="fleet-cdi specs",
    ),
    Explanation(
        id="FC1313",
        title="A runtime reads nothing in the directory of the specs",
        messages=(
            "would not find it: *, then run this again",
            "may not find it: *",
            "*, so that * reads nothing there",
        ),
        means=(
            "Some releases of the CDI library read no spec in a directory that is a symlink, or behind one that is "
            "missing or can't be listed. A runtime of this host has such a release."
        ),
        why="That runtime would resolve no device of the spec.",
        do=(
            "Make the directory that the message names a real one: `mkdir`, or `mount --bind` for another place. Or "
            "upgrade the runtime. Or let `cdi_host_spec_dir` and `spec_dirs` of the runtimes name the place itself."
        ),
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1314",
        title="No runtime finds a device in the specs of another tool",
        messages=("Until then no container gets a device of",),
        means=(
            "Another tool provides the kind, and `on_foreign_kind: use` leaves it to that tool. But no container "
            "runtime of this host resolves a name in those files. The text behind it says why. Nothing was changed."
        ),
        why="Containers would get no device of the kind, and the run would say that all is well.",
        do=(
            "Remove one of two files with the same names. Repair a file that makes runtimes crash. Make a directory "
            "that is a symlink a real one. Where only their own files are at fault, fleet.cdi can write the spec: "
            "`cdi_host_on_foreign_kind: replace`."
        ),
        more="fleet-cdi specs",
    ),
)
