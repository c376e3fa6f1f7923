# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about calls of executables of the 2017 protocol, as `details` of a reply or to their callers."""

from __future__ import annotations

from ..explanation import Explanation

EXPLANATIONS = (
    Explanation(
        id="FC1501",
        title="The request asks for something that there is not",
        messages=(
            "at most, because no configuration of * has more",
            "Unsupported resource-spec: *",
            "CDI_REQUEST has *; expected <resource-spec>",
            "CDI_REQUEST names * twice; expected each resource-spec once",
            "CDI_REQUEST is not set; expected <resource-spec>",
            "the amount of * is *; expected",
            "CDI_REQUEST_NUMA_LOCALITY is *; expected a comma separated list",
            "CDI_REQUEST_DEVICES: found *; expected paths below /dev",
            "CDI_REQUEST_ID is *; expected 1 to 64 letters",
        ),
        means=(
            "A variable of the environment (CDI_REQUEST and so on) has another form than the protocol says, or "
            "names a resource that this plugin does not have."
        ),
        why="An executable grants exactly what was asked for, or nothing.",
        do="Correct the call. INFO lists the resources: docs/executables.md shows calls of each command.",
        more="ansible-doc -t module fleet.cdi.cdi_plugin_info",
    ),
    Explanation(
        id="FC1502",
        title="There are not enough free devices",
        messages=(
            "asked for * devices; *",
            "asked for * devices that include * given ones",
            "asked to include *, which is not free or has less left than is needed",
            "*: has * *; asked for *",
        ),
        means="Fewer devices are free than were asked for, or the free ones lack what was asked for.",
        why="A request gets all its devices, or none.",
        do=(
            "Wait until others give devices back, ask for less, or add devices. Devices out of service count as not "
            "free."
        ),
        more="fleet-cdi devices --free",
    ),
    Explanation(
        id="FC1503",
        title="A granted device is not there any more",
        messages=(
            "was granted to this request and can't be used any more; DEL it, then ADD again",
            "is not the card that was granted (*) any more",
            "this plugin knows no device on it",
            "then it could not be undone: *",
            "got *, and nobody held it",
        ),
        means="The device of the grant is gone, was replaced by another card, or can't be undone.",
        why="Another card in the same slot is another device. A container must not get it unasked.",
        do="Bring the device back, or DEL the request and ADD it again.",
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1504",
        title="The configuration of the executable is not valid",
        messages=(
            "config: found *; expected a JSON struct",
            "config: is larger than * MiB; expected a JSON struct",
            "config: can't be read (",
            "config: cdiVersion is *",
            "config: 'type' is *",
            "config: 'plugin' is *",
            "config: 'args' is *; expected a struct",
            "config: * is *; expected text",
            "config: args has * and *, which mean the same",
            ": is what a plugin that delegates passes; expected no such arg; leave it out",
            "is missing; expected the kind of its devices, because * is not a kind",
            "expected the name of a plugin, without a path",
            "The configuration is there, and its executable can grant nothing until that is put right",
            "The configuration would be there, and its executable can grant nothing until that is put right",
        ),
        means="The JSON that the executable got on standard input, or the file in TYPE.d, breaks the protocol.",
        why="The configuration says which devices the plugin may grant.",
        do="Let module fleet.cdi.cdi_plugin write it. By hand: correct the field that the message names.",
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1505",
        title="The chain of plugins is not valid",
        messages=(
            "config: args.delegate is not a struct",
            "config: args.delegate has the unknown field",
            "config: the delegates come back to *; expected no loop",
            "plugins in one chain; expected fewer",
            "which comes back to *",
            "plugins; expected fewer than",
            "args.picked: * holds no such devices for request",
        ),
        means=(
            "A plugin may pass a request on to another one. The chain has a loop, is too long, or its parts do not fit."
        ),
        why="A loop would never end.",
        do="Correct `args.delegate` of the configurations: docs/chain-loading.md has examples.",
        more="ansible-doc -t module fleet.cdi.cdi_plugin",
    ),
    Explanation(
        id="FC1506",
        title="Another plugin does not answer by the protocol",
        messages=(
            "there is no such plugin; install it, or name another delegate",
            "ended with exit status * and no error",
            "replied no list of devices",
            "printed more than * MiB; expected one JSON struct",
            "which is not a reply",
            "it has no cdiVersion",
            "was not run: *",
            "can't be started *",
            "supportedVersions is *; expected an array of strings",
            "it says nothing of *",
            "is *; expected an integer from 0 to 2^63-1",
            "it offers *; expected * and what starts with it",
            "; expected 0 and a list of paths",
            "numa_locality is *; expected a list of integers",
            "; expected devices with *",
            "; expected paths below /dev, without",
            "and no error; expected 0, or an error",
            "without a reply",
            "exit status 0 with the error *; expected another exit status",
            "; expected *, as in the call",
            "cdiVersion is *; the plugin speaks",
        ),
        means=(
            "fleet.cdi called a plugin, and the plugin is missing, can't be run, or gave an answer that breaks the "
            "protocol."
        ),
        why="Devices are given only from an answer that can be understood completely.",
        do="Call the plugin by hand with CDI_COMMAND=VERSION and INFO, and look at what it prints. Tell its author.",
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1507",
        title="The executable was called without a configuration",
        messages=(
            "stdin: no end of the config within",
            "stdin: can't be read (*); expected a config",
            "Unsupported command: *",
        ),
        means=(
            "An executable reads its configuration on standard input and its command from CDI_COMMAND. One of them "
            "is missing."
        ),
        why="The executables are for container runtimes and callers of the protocol, not for a shell.",
        do="Give it a file (`< CONFIG`) and set CDI_COMMAND. docs/executables.md shows how.",
        more="fleet-cdi claim --help",
    ),
    Explanation(
        id="FC1508",
        title="Who has devices open can't be told for sure",
        messages=(
            "who has devices open can't be told for sure",
            "it would take more than * s",
            "new processes start faster than they can be looked at",
        ),
        means="A warning. Some processes could not be looked at.",
        why="A device that a process without a grant has open is not granted.",
        do="Run as root on the host itself: a container sees only its own processes.",
        more="fleet-cdi grants list --open",
    ),
    Explanation(
        id="FC1509",
        title="What a claim of a DRA driver has is not known",
        messages=("what this claim of a DRA driver has is not known", "What claims of DRA drivers have is not known."),
        means=(
            "A file with the name of a claim's spec can't be read, or a spec directory can't be listed. If the system "
            "refuses it, as for an error of the disk, the request is refused. A file that is not a spec is only told, "
            "because it must not keep devices from others for good."
        ),
        why="Such a claim may have any device of the host. A device never goes to two holders at the same time.",
        do="Look at the kernel's log for errors of the disk, and at the file. Then ask again.",
        more="fleet-cdi specs",
    ),
)
