# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about claims: devices by a name of the caller's own."""

from __future__ import annotations

from ..explanation import Explanation

EXPLANATIONS = (
    Explanation(
        id="FC1551",
        title="The claim exists already",
        messages=(
            "is there already, for *; found a request for",
            "is there already; choose another id, or none",
            "ended in this boot, and a container may still ask for it by this name",
        ),
        means="The id is in use, or was in use since the last boot.",
        why="A container that still has the old name would get the devices of the new claim.",
        do="Choose another id. If the same id is meant, give the claim back first, or add `--reuse`.",
        more="fleet-cdi claim list",
    ),
    Explanation(
        id="FC1552",
        title="The words of the claim are not understood",
        messages=(
            "expected TYPE:AMOUNT or TYPE-PROPERTY:AMOUNT",
            "with the amount *; expected an integer from 1 to 2^63-1",
            "twice; expected each resource once, with the sum",
            "expected numbers of NUMA nodes",
            "found an empty id; expected a text",
            "makes a device name of * characters; expected at most",
        ),
        means="A claim is an id and what it is for, such as `job-42 gpu:1`. A word has another form.",
        why="The id becomes the name of a CDI device, which has rules.",
        do="Correct the word that the message shows.",
        more="fleet-cdi claim --help",
    ),
    Explanation(
        id="FC1553",
        title="Nothing can grant such devices",
        messages=("has no configuration that can be used", "has no configuration. Module cdi_plugin writes one"),
        means="A claim asks an executable for devices. No configuration in TYPE.d is for this type.",
        why="The configuration says which devices may be granted.",
        do="Write one with module fleet.cdi.cdi_plugin (`cdi_host_plugins` of the role).",
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1554",
        title="The claim was not restored after the reboot",
        messages=(
            "was granted before the last reboot and has not been restored",
            "can't be restored: *",
            "is of another type than the device that was granted",
        ),
        means="Claims outlast a reboot. This one could not get its devices back.",
        why="After a reboot a device may have another number, or may be gone. The claim never gets another device.",
        do=(
            "Bring the device back, then run `fleet-cdi claim restore`. Or give the claim back: `fleet-cdi claim "
            "del ID`."
        ),
        more="fleet-cdi claim check",
    ),
    Explanation(
        id="FC1555",
        title="The claim is in use",
        messages=(
            "containers or commands that use it still run",
            "expected that nobody uses it. End that process, then give it back",
            "its job is over, and container * still has its devices",
            "containers of the former pod still exist, and would get the new devices",
        ),
        means="A container or a process still has the devices of the claim.",
        why="The next claim would get devices that are in use.",
        do="Stop the container or end the process, then give the claim back. `--force` gives it back nevertheless.",
        more="fleet-cdi claim list",
    ),
    Explanation(
        id="FC1556",
        title="The claim could not be given back",
        messages=("could not be given back: *",),
        means="The plugin refused to take the devices back, or its teardown failed. The claim stays listed.",
        why="A device whose teardown failed may still have data or settings of its last user.",
        do="Remove the cause that the message names. Then run `fleet-cdi claim gc`.",
        more="fleet-cdi claim check",
    ),
    Explanation(
        id="FC1557",
        title="The devices do not fit into one container",
        messages=(
            "have the same path in a container, *, so one would hide the other",
            "was granted, and *; expected a device node",
        ),
        means="Two devices want one path in the container, or a granted path is not a device node.",
        why="One would hide the other.",
        do="Claim them apart, or change `container_path` in the settings.",
        more="fleet-cdi claim list --json",
    ),
    Explanation(
        id="FC1558",
        title="A command of the host can't have this claim",
        messages=(
            "and only a container can have them",
            "the claim has a * at * that is * on the host",
            "systemd does not run this host, and nothing else here can keep a command from other devices",
            "can be opened here, so it can't be seen that other devices are refused",
            "its processes can't be ended (exit status",
        ),
        means="`claim exec` runs a command with some devices and no others. This claim, or this host, can't do that.",
        why="Mounts, hooks and other paths exist only in containers, and systemd has to refuse the other devices.",
        do="Start a container with the claim: `fleet-cdi claim add`, then `podman run --device fleet.cdi/claim=ID`.",
        more="fleet-cdi claim --help",
    ),
    Explanation(
        id="FC1559",
        title="The claim can't be for this user",
        messages=(
            "for_user: found *, who is root",
            "for_user: found *, and this host has no such user",
            "has another user id than the claim",
            "can't open it, although its access list says so",
            "can't ask the kernel what user * may open",
            "its file system has no access lists",
        ),
        means=(
            "A claim for an ordinary user gives that user the right to open the device nodes. That is not possible "
            "here."
        ),
        why="A rootless container opens devices with the rights of its user.",
        do="Check the name of the user, and the file system of /dev (`getfacl NODE`). Root needs no `--for`.",
        more="getfacl /dev/NODE",
    ),
    Explanation(
        id="FC1560",
        title="A claim does not agree with this host",
        messages=(
            "; restore the file, or move it away",
            "is the spec of a claim that is over",
            "; give it back (fleet-cdi claim del ID)",
            "; run `fleet-cdi claim gc`",
            "; run `fleet-cdi claim restore`",
            "; remove the file that is not the claim's",
            "; if it does not, remove the file, and give the claim back if nothing else uses it",
            "for it any more",
        ),
        means=(
            "`fleet-cdi claim check` compares each claim with the ledger, the device nodes and the spec. Something is "
            "missing, is another one, or was left by a process that was killed."
        ),
        why="A container that asks for the claim would not start, or would not get what the claim says.",
        do=(
            "Run the command at the end of the message. `claim gc` ends claims that are over, `claim restore` writes "
            "missing files again, and `claim del` gives the claim back."
        ),
        more="fleet-cdi claim check",
    ),
    Explanation(
        id="FC1561",
        title="The ledger is gone, and claims have devices by it",
        messages=("has devices by it, which this one could get",),
        means="All files of the ledger were removed from the state directory, and a claim of this host is still there.",
        why="A new ledger would have its devices free, so that two claims could get one device.",
        do=(
            "Restore the files `ledger.*` from a backup of this boot. Without one, give the claims back: `fleet-cdi "
            "claim del ID`. Then make them again."
        ),
        more="fleet-cdi doctor",
    ),
)
