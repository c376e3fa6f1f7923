# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about the words of a command line."""

from __future__ import annotations

from ..explanation import Explanation

EXPLANATIONS = (
    Explanation(
        id="FC1151",
        title="The command has words that it does not take",
        messages=(
            "; expected nothing behind it",
            "found * operands; expected",
            "expected an id and what it is for: claim add",
            "expected a command: claim exec",
            "expected add or del, and a manifest: claim pod",
            "found --json, and the output is the command's",
            "; expected it with * alone",
            "found * with *; expected one of them",
            "claim: found *; expected *",
            "claim pod: *: found *; expected each name once",
            "device: found *; expected disable or enable",
            "grants: found *; expected",
            "plugin: found *; expected",
            "slurm: found *; expected",
            "completion: found *; expected",
            "explain: found *; expected",
            "--target: found *; expected",
            "--relative-to: found *; expected",
            "--check: found it without --output",
            "--settings: is missing; name a file",
            "--reason: found none; expected one line",
            "give: found nothing; expected a kind and its owners",
            "give: found no owner of *; expected kubernetes, claims, external, or several of them",
            "give: found --any and *; expected one of them",
        ),
        means="A word is missing, is one too many, or belongs to another action of the verb.",
        why="A command that guesses could free or give other devices than you mean.",
        do="Correct the command. The help of the verb shows its words.",
        more="fleet-cdi --help",
    ),
    Explanation(
        id="FC1152",
        title="The output can't go there",
        messages=(
            "--output: found -; expected a file: standard output has other text",
            "expected a name with .prom: node_exporter reads no other",
            "found TERM=dumb; expected a terminal that moves its cursor",
        ),
        means="The command writes a file or controls a terminal, and the place can't take it.",
        why="The reader of that place would see nothing, or would see bytes that it can't show.",
        do="Name a file with the ending that the message wants. For `top` in a plain terminal use `--once`.",
        more="fleet-cdi top --once",
    ),
    Explanation(
        id="FC1153",
        title="A number of seconds is not understood",
        messages=(
            "expected seconds, 0 or more",
            "expected 0 or more seconds",
            "--timeout: found *; expected seconds",
        ),
        means="The option takes a number of seconds, without a unit.",
        why="`10m` could mean minutes or a typing error.",
        do="Write a number: 600 for ten minutes.",
        more="fleet-cdi refresh --help",
    ),
    Explanation(
        id="FC1154",
        title="No device has this name",
        messages=(
            "which this host does not have; expected",
            "no spec defines a device of that name; expected vendor/class=name",
            "of which there is no device; expected",
        ),
        means="The name is spelled wrong, or the device is not on this host now.",
        why="A command about a device needs exactly one device.",
        do=(
            "Copy the name from the list of devices. If the device should be there, discover again: `fleet-cdi "
            "refresh`."
        ),
        more="fleet-cdi devices",
    ),
    Explanation(
        id="FC1155",
        title="The name means several devices",
        messages=("is one of *; expected a name of one device. Name one.",),
        means="Devices of several kinds share this short name.",
        why="The command is for one device, and fleet.cdi does not choose.",
        do="Write the qualified name (vendor/class=name), or the id of the device.",
        more="fleet-cdi devices",
    ),
    Explanation(
        id="FC1156",
        title="Nobody knows which devices are free",
        messages=(
            "nothing tells which devices are free",
            "nothing tells who holds which device",
            "so nobody can tell who holds devices",
        ),
        means="The ledger, which knows who holds devices, can't be read.",
        why="A device that looks free could be in use.",
        do="Repair the ledger: the message names its fault. Run as root, because the ledger is root's.",
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1157",
        title="The input is not an OCI spec",
        messages=(
            "expected an OCI spec, as config.json of a bundle",
            "is nested too deep for an OCI spec",
            "the OCI spec: found *; expected an object, as in config.json",
            "the OCI spec: *: found *; expected",
        ),
        means=(
            "`inject` reads the configuration of a container (config.json of an OCI bundle) and got another document."
        ),
        why="Edits can be applied only to a document with the known structure.",
        do="Give the config.json of a bundle: `runc spec` writes an example.",
        more="fleet-cdi inject --help",
    ),
    Explanation(
        id="FC1158",
        title="Paths in arguments of hooks stay",
        messages=("the arguments of hooks may name paths in the container; they stay",),
        means=(
            "A warning. `transform` changes the paths of a spec, and can't know which arguments of a hook are paths."
        ),
        why="An argument is any text. A wrong change would break the hook.",
        do="Look at the hooks in the output, and correct their arguments if they name paths.",
        more="fleet-cdi transform --help",
    ),
    Explanation(
        id="FC1159",
        title="The list of valid requests is not a new, complete list",
        messages=(
            "expected as first line the stamp that `fleet-cdi grants list",
            "found a second stamp; expected one list, not several in one file",
            "expected a request-id, or <resource-type>/<plugin> and a request-id",
            "is not valid UTF-8 (byte *); nothing was freed",
            "; nothing was freed",
            "(--force)",
        ),
        means=(
            "`grants gc` frees every grant that the list does not name. The list has no stamp of this boot, is "
            "empty, or has a line that is not a request."
        ),
        why="An old or cut list would free devices of containers that still run.",
        do=(
            "Make the list again. Print the stamp first (`fleet-cdi grants list | head -n 1`), then ask your "
            "orchestrator for all its requests. If nothing at all is valid, use `--force`."
        ),
        more="fleet-cdi grants list",
    ),
    Explanation(
        id="FC1160",
        title="The device is not withheld",
        messages=(
            "is not withheld; `fleet-cdi grants list` shows the withheld devices",
            "expected a withheld device. Delete the request, or the pod that has it",
        ),
        means="`grants release` frees a device whose teardown failed. This one is free, or a request holds it.",
        why="A held device must not go to another user.",
        do="Look at who holds it. End that request or pod instead.",
        more="fleet-cdi grants list",
    ),
    Explanation(
        id="FC1161",
        title="Nothing tells which card is in this place",
        messages=("expected an inventory, which tells if that card is still there",),
        means=(
            "The device is out of service already, as one card. The inventory is missing, damaged or of another boot. "
            "So nothing tells if the same card is there now."
        ),
        why=(
            "A decision about a device is about one card. Another card in its place would stay in service, and the "
            "command would have said otherwise."
        ),
        do="Discover again, and repeat the command. If the discovery fails, its message says why.",
        more="fleet-cdi refresh",
    ),
    Explanation(
        id="FC1162",
        title="The command line is wrong",
        messages=("wrong use: *",),
        means="A verb, an option or an operand is unknown, missing or one too many.",
        why="A command that guesses could change another thing than the one that is meant.",
        do="Read the usage in the lines above the message. Each verb has its own help, as `fleet-cdi claim --help`.",
        more="fleet-cdi --help",
    ),
    Explanation(
        id="FC1163",
        title="The kernel does not keep a command from other devices",
        messages=(
            "can be opened, so the kernel does not keep the command from devices that it was not granted",
            "; expected that the kernel refuses it",
        ),
        means=(
            "`claim exec` opens a device that was not granted before it starts the command. The kernel must refuse "
            "that. It did not, or the device is not there to try."
        ),
        why="The command could use devices of others, and the claim would be worth nothing.",
        do=(
            "Run the command in a container with the claim. In a container without rights over its cgroup, the limit "
            "of systemd has no effect."
        ),
        more="systemctl --version",
    ),
    Explanation(
        id="FC1164",
        title="The command of claim exec does not start",
        messages=(": is not a program of this host", ": can't be started: *"),
        means="The claim was granted, and its command could not be started. The claim was given back.",
        why="There is nothing to run.",
        do="Give a program with its path, or one on the PATH of root. It must be executable.",
        more="fleet-cdi claim list",
    ),
)
