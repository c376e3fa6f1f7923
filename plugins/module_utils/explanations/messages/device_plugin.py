# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages of the kubelet's device plugin."""

from __future__ import annotations

from ..explanation import Explanation

EXPLANATIONS = (
    Explanation(
        id="FC1651",
        title="The device plugin has no configuration that it can use",
        messages=(
            "expected the device plugin's configuration, of which the least is",
            "is gone; what it said stays in force until this instance is started again",
            "has not taken it: *. It goes on with what it had",
            "is in a spec directory, where container runtimes would take it for a spec",
        ),
        means=(
            "The file is missing, was removed, is at a wrong place, or has a fault. A running instance goes on with "
            "the last valid one."
        ),
        why="A fault in a new file must not take devices from running pods.",
        do="Let role fleet.cdi.cdi_device_plugin write it, or correct the field that the message names.",
        more="fleet-cdi plugin check",
    ),
    Explanation(
        id="FC1652",
        title="gRPC is not installed",
        messages=("Install python3-grpcio (Debian, Ubuntu",),
        means="The kubelet speaks gRPC, and Python has no package for it on this host.",
        why="fleet.cdi brings no compiled code: it uses the package of the distribution.",
        do="Install python3-grpcio. On EL it is in EPEL.",
        more="python3 -c 'import grpc'",
    ),
    Explanation(
        id="FC1653",
        title="Another instance runs",
        messages=(
            "runs already; stop it, or choose another --instance",
            "runs; stop it first, and drain the node",
            "can't lock it: *; choose another run_dir",
            "another process answers there; expected this instance",
        ),
        means="Two instances of the device plugin would serve the same resources, or one has to end first.",
        why="The kubelet uses the one that registered last, and forgets the other.",
        do="Stop the other one. To run two on purpose, give each another name with `--instance`.",
        more="fleet-cdi plugin status",
    ),
    Explanation(
        id="FC1654",
        title="The kubelet can't be reached",
        messages=(
            "is a kubelet running?",
            "No kubelet runs on this host",
            "is not a socket; expected the kubelet's for podresources",
            "no answer within * s",
            "no answer in time",
            "and no ListAndWatch came within",
            "ListAndWatch came, and was ended at once",
            "the kubelet was restarted while it registered the resource",
            "the socket was removed before a stream came",
            "has no * of podresources v1",
            "was made anew, and is read-only for this process",
            "the kubelet answers *",
        ),
        means="The kubelet does not run, has another directory, or is too old.",
        why="Only the kubelet can tell pods about devices. The device plugin waits and tries again.",
        do="Start the kubelet. If its directory is not /var/lib/kubelet, set it in the configuration.",
        more="systemctl status kubelet",
    ),
    Explanation(
        id="FC1655",
        title="A socket can't be served",
        messages=(
            "can't serve * there: *",
            "leaves no room for a socket's name",
            "metrics: can't listen on",
            "metrics: found *; expected host:port",
            "`journalctl -u 'fleet-cdi-openers@*'` may say why",
        ),
        means="The device plugin could not open a socket for the kubelet or for metrics.",
        why="Without the socket nothing can ask it.",
        do="Check that the directory exists and is root's, and that no other program uses the address.",
        more="ss -lnp",
    ),
    Explanation(
        id="FC1656",
        title="Something is not offered",
        messages=(
            "its name can't be a resource's name; expected",
            "group * is not offered: *",
            "is not offered: expected *",
            "more are not offered, for such reasons",
            ": not offered: *",
        ),
        means="A warning. A kind or a device of the specs can't become a resource of Kubernetes.",
        why="Names of resources have stricter rules than names of CDI. A unit has to be one piece of hardware.",
        do="Name a resource for the kind in `resources` of the configuration.",
        more="fleet-cdi plugin check",
    ),
    Explanation(
        id="FC1657",
        title="The kubelet asks for devices that can't be given",
        messages=(
            "expected one that this resource has now",
            "found no device*; expected one or more",
            "twice*; expected each once",
            "expected each device in one container",
            "this node's runtime reads no CDI, and * can't be given without",
            "has not been looked at yet; ask again",
            "this instance of the device plugin ends",
            "nobody waits for its devices any more",
            "found the device *; expected printable text",
        ),
        means="An Allocate of the kubelet was refused: a device is gone, is named twice, or can't be delivered.",
        why="A pod gets its devices completely, or fails with a reason.",
        do=(
            "Most of these end by themselves: the kubelet tries again. If the runtime reads no CDI, configure it "
            "(role fleet.cdi.cdi_host)."
        ),
        more="fleet-cdi plugin status",
    ),
    Explanation(
        id="FC1658",
        title="The helper that looks for open devices is not for people",
        messages=("plugin openers: found *; expected one line of JSON",),
        means="The device plugin starts this program with a question. You started it by hand.",
        why="It runs as root and answers one kind of question.",
        do="Use `fleet-cdi grants list --open`.",
        more="fleet-cdi grants list --open",
    ),
    Explanation(
        id="FC1659",
        title="The new instance does not take over",
        messages=(
            "did not take over within",
            "it does not answer",
            "The one that ran before goes on serving",
            "It is tried again by systemd",
        ),
        means=(
            "After a change, a new instance of the device plugin was started and did not serve its resources in time."
        ),
        why="The instance before goes on, so that pods keep getting devices.",
        do="Read its last words in the message. Check its configuration, then run again.",
        more="journalctl -u 'fleet-cdi-device-plugin@*'",
    ),
    Explanation(
        id="FC1660",
        title="A call of the kubelet took too long",
        messages=("; look for what keeps * busy",),
        means="The device plugin has to answer within a limit, and a device or a setup command did not.",
        why="The kubelet starts no other pod meanwhile.",
        do="Look at the device that the message names, and at the setup commands in the configuration.",
        more="fleet-cdi plugin status",
    ),
    Explanation(
        id="FC1661",
        title="The kubelet refuses the resource",
        messages=("the kubelet refuses Register: *", "the kubelet does not register it: *"),
        means="The kubelet answered, and does not take the resource. Its reason is in the message.",
        why="The name may be invalid, or this kubelet speaks another version of the API.",
        do="Read the kubelet's reason. Correct the name in `resources` of the configuration.",
        more="journalctl -u kubelet",
    ),
    Explanation(
        id="FC1662",
        title="A look at the host hangs",
        messages=("a look at the host has taken more than * s",),
        means=(
            "A warning. The device plugin reads specs and device nodes again and again. The current look does not end."
        ),
        why=(
            "Until it ends, the kubelet has the state of the devices from before. A device that fails now still counts "
            "as healthy."
        ),
        do=(
            "Find the file system or the device that does not answer: a network file system below a spec directory, or "
            "a driver that hangs. `dmesg` often names it."
        ),
        more="dmesg",
    ),
    Explanation(
        id="FC1663",
        title="A DRA driver may offer the same resource",
        messages=("of dynamic resource allocation is registered on this node, too",),
        means=(
            "A warning. A driver of the same vendor gives out devices by ResourceClaims. A DeviceClass of the cluster "
            "may have the name of the resource in `extendedResourceName`."
        ),
        why="Kubernetes then gives pods the devices of that driver, and not those of the device plugin.",
        do="Remove `extendedResourceName` from the DeviceClass, or do not offer the resource on this node.",
        more="fleet-cdi plugin status",
    ),
    Explanation(
        id="FC1664",
        title="Devices stay held after the device plugin is removed",
        messages=(
            "the devices held for Kubernetes stay held: *",
            "devices stay held for Kubernetes (*",
        ),
        means="A warning. Pods may still use devices of this host, so the ledger keeps their holds.",
        why="If the holds were dropped, another request could get a device that a pod has open.",
        do="Drain the node. Then run `fleet-cdi plugin forget`.",
        more="fleet-cdi grants list",
    ),
    Explanation(
        id="FC1665",
        title="The device plugin is not ready",
        messages=(
            "Not ready after * s: *",
            "it is still looking at the devices",
            "the kubelet does not watch * there yet",
        ),
        means=(
            "The service runs, and the kubelet does not list its devices yet. The message has the reason for each "
            "resource."
        ),
        why="Pods that ask for the resource stay pending.",
        do=(
            "If the reason is time, for example a slow driver, raise `cdi_device_plugin_wait`. Otherwise do what the "
            "reason says, and run the role again."
        ),
        more="fleet-cdi plugin status",
    ),
    Explanation(
        id="FC1666",
        title="A device can't go to a container now",
        messages=(
            "no spec gives * any more, or several do",
            ": needs *, found *",
            "claim * of DRA driver * has *",
            "gives other device nodes than a moment ago",
            "is not the device of a moment ago",
            "and the kubelet takes it for free",
            "a defect of the device plugin: *",
            "Allocate: *",
            "PreStartContainer: *",
        ),
        means=(
            "The device has a fault, or a claim of a DRA driver has it. The message names the device, and what was "
            "found there."
        ),
        why="A pod with this device would not start, or would share it with a process that does not know of the pod.",
        do=(
            "Repair the device, or wait until its holder is gone. The kubelet gets the device back by itself when the "
            "fault is over."
        ),
        more="fleet-cdi plugin check",
    ),
    Explanation(
        id="FC1667",
        title="Another plugin has the resource",
        messages=("another plugin has it: *. Remove it, or set takeover.",),
        means="Another device plugin of this node serves the resource, and the kubelet lists its devices.",
        why="A kubelet gives a resource to the plugin that registers last. Two plugins would take it from each other.",
        do=(
            "Remove the other plugin from this node, or set `takeover` in the configuration if ours is to serve the "
            "resource."
        ),
        more="fleet-cdi plugin status",
    ),
    Explanation(
        id="FC1668",
        title="A setup or teardown command failed",
        messages=(": failed (*); it said *",),
        means=(
            "The configuration names a command for devices of this resource or plugin. It ended with an exit status "
            "that is not 0. The message has the last words of the command."
        ),
        why="A device that is not set up, or was not cleaned after its last user, is not given to a container.",
        do=(
            "Read the words of the command. Run it by hand as root with the same device, and correct it. A device that "
            "is withheld meanwhile is freed by `fleet-cdi grants release DEVICE`."
        ),
        more="fleet-cdi grants list",
    ),
)
