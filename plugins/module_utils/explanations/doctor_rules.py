# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of `fleet-cdi doctor`, by cause. The next step of each rule is in converge/doctor, and not here again."""

from __future__ import annotations

from .explanation import Explanation

DOCTOR = "fleet-cdi doctor"

EXPLANATIONS = (
    Explanation(
        id="FC3001",
        title="The installed release is damaged",
        messages=(),
        means=(
            "A file of the code under /opt/cdi is missing or is not the one that was installed, or the command's "
            "link is."
        ),
        why=(
            "Root runs this code. The answer of a changed doctor can't be trusted either, so its exit code is 2. "
            "A link that is gone or changed does no harm: then it is 1."
        ),
        do="",
        more="ls -l /opt/cdi/lib",
        rules=(
            "release-damaged",
            "command-link-gone",
            "command-link-changed",
        ),
    ),
    Explanation(
        id="FC3002",
        title="The disk is full or read-only",
        messages=(),
        means="fleet.cdi can't write where its files are.",
        why="No grant and no spec can be written, and a device that comes or goes has no effect.",
        do="",
        more="df -h",
        rules=("disk-full", "read-only"),
    ),
    Explanation(
        id="FC3003",
        title="The memory of this host is damaged",
        messages=(),
        means=(
            "The manifest, or the list of devices out of service, is missing, or does not have what fleet.cdi wrote. "
            "Or a directory or a link is in the place of a lock, a note, the inventory or a pool."
        ),
        why="Without it nobody knows which files are ours and which devices must not be used.",
        do="",
        more="ls -l /var/lib/cdi",
        rules=(
            "manifest-damaged",
            "manifest-gone",
            "manifest-changed",
            "irregular-file",
            "untrusted-directory",
            "ended-claims-lost",
            "unused-claims-damaged",
            "device-state-damaged",
            "device-state-gone",
            "device-state-changed",
        ),
    ),
    Explanation(
        id="FC3004",
        title="The ledger can't be trusted",
        messages=(),
        means="The store of grants is missing, damaged or changed by another program, or may lack grants.",
        why="A device that looks free may be in use.",
        do="",
        more="fleet-cdi grants list",
        rules=(
            "ledger-gone",
            "ledger-lost",
            "ledger-damaged",
            "ledger-unusable",
            "ledger-incomplete",
            "ledger-changed",
        ),
    ),
    Explanation(
        id="FC3005",
        title="A granted device is gone or withheld",
        messages=(),
        means=(
            "A grant has a device that is not on this host any more, or a device could not be torn down after its "
            "last use."
        ),
        why="The container fails, or the next user could find what the last one left.",
        do="",
        more="fleet-cdi grants list",
        rules=("grant-lost", "withheld"),
    ),
    Explanation(
        id="FC3006",
        title="A systemd unit of fleet.cdi does not work",
        messages=(),
        means=(
            "A unit that refreshes the devices, restores claims or runs the device plugin is masked, failed, "
            "stopped or old."
        ),
        why="After a reboot or a change of hardware, specs and inventory stay old.",
        do="",
        more="systemctl list-units 'fleet-cdi-*' --all",
        rules=(
            "unit-masked",
            "unit-unknown",
            "unit-failed",
            "unit-outdated",
            "unit-disabled",
            "unit-stopped",
            "unit-gone",
            "unit-changed",
        ),
    ),
    Explanation(
        id="FC3007",
        title="A container runtime has no CDI, or can't be asked",
        messages=(),
        means="The runtime is older than CDI, does not tell its version, has CDI switched off, or does not answer.",
        why="A container of this runtime gets no device by a CDI name.",
        do="",
        more=DOCTOR,
        rules=(
            "unknown-runtime",
            "no-cdi",
            "runtime-off",
            "restart-pending",
            "runtime-silent",
        ),
    ),
    Explanation(
        id="FC3008",
        title="The configuration of a runtime is not the wanted one",
        messages=(),
        means="The file of a runtime can't be read, or a key that fleet.cdi set has another value.",
        why="Another tool, an upgrade or an editor changed it. The runtime may not read our specs.",
        do="",
        more=DOCTOR,
        rules=(
            "runtime-config-damaged",
            "runtime-key-damaged",
            "runtime-key-changed",
        ),
    ),
    Explanation(
        id="FC3009",
        title="A runtime does not read a spec correctly",
        messages=("To have these specs read, ",),
        means="A spec is too new for a runtime, makes it crash, or lies in a directory that it does not read.",
        why="The runtime ignores the file, or starts no container with devices at all.",
        do="",
        more="fleet-cdi validate",
        rules=(
            "too-new",
            "not-every-runtime",
            "runtime-crash",
            "directory-unread",
            "directory-not-searched",
        ),
    ),
    Explanation(
        id="FC3010",
        title="Compose files lose their devices",
        messages=(),
        means="A note. An installed release of docker-compose or podman-compose drops CDI devices without a word.",
        why="The container starts, and has no device.",
        do="",
        more="podman compose version",
        rules=("compose-drops-cdi",),
    ),
    Explanation(
        id="FC3011",
        title="An executable can't grant",
        messages=(),
        means=(
            "The configuration of an executable has a fault, its program is missing, or its pool of devices is not "
            "of this boot."
        ),
        why="Claims and other callers get no device.",
        do="",
        more="fleet-cdi claim check",
        rules=(
            "configuration-invalid",
            "program-missing",
            "pool-unusable",
            "pool-gone",
            "pool-changed",
        ),
    ),
    Explanation(
        id="FC3012",
        title="The device plugin is unwell",
        messages=(),
        means="Its configuration or its status can't be read, or it has a problem with a resource.",
        why="The kubelet does not see devices, or sees old ones.",
        do="",
        more="fleet-cdi plugin status",
        rules=(
            "plugin-config-damaged",
            "plugin-status-damaged",
            "plugin-unwell",
        ),
    ),
    Explanation(
        id="FC3013",
        title="The inventory is not usable",
        messages=(),
        means="The list of devices of this boot is missing, damaged or of an earlier boot, or was changed.",
        why="Executables and the device plugin read it, and refuse one of another boot.",
        do="",
        more="fleet-cdi devices",
        rules=(
            "inventory-unusable",
            "inventory-gone",
            "inventory-changed",
        ),
    ),
    Explanation(
        id="FC3014",
        title="A spec does not resolve",
        messages=(),
        means="A spec breaks a rule, or two specs define the same name, or a file hides another one.",
        why="Runtimes resolve no name that is defined twice, and skip a file with a fault.",
        do="",
        more="fleet-cdi specs",
        rules=(
            "invalid",
            "conflict",
            "shadowed",
            "kind-unresolved",
        ),
    ),
    Explanation(
        id="FC3015",
        title="A spec is stale",
        messages=(),
        means=(
            "The spec says one thing and the host has another: a node, a library, a hook, a network interface or a "
            "device."
        ),
        why="Containers do not start, or get another device. A driver upgrade is the most frequent cause.",
        do="",
        more="fleet-cdi report",
        rules=(
            "node-missing",
            "node-type",
            "node-number",
            "mount-missing",
            "library-missing",
            "driver-version",
            "hook-missing",
            "hook-not-executable",
            "interface-missing",
            "device-gone",
            "device-new",
        ),
    ),
    Explanation(
        id="FC3016",
        title="An image could run code on the host",
        messages=(),
        means="A hook in a spec has no environment of its own, and a runtime of this host gives it that of the image.",
        why=(
            "LD_PRELOAD of the image then loads code of the image into a program of root on the host (as in "
            "CVE-2025-23266)."
        ),
        do="",
        more="runc --version",
        rules=("hook-environment",),
    ),
    Explanation(
        id="FC3017",
        title="A device is not handed out",
        messages=(),
        means=(
            "A device has a fault, is in use by a process without a grant, was dropped by the settings while it was "
            "held, or was taken out of service."
        ),
        why="A job that gets it would fail, or would disturb the other user.",
        do="",
        more="fleet-cdi devices",
        rules=(
            "unhealthy",
            "occupied",
            "device-leaving",
            "disabled",
        ),
    ),
    Explanation(
        id="FC3018",
        title="A link in /dev/char is missing or wrong",
        messages=(),
        means="In /dev/char each device node has a link with its number. By this link systemd finds the node.",
        why="Without the link, running containers lose the device at the next `systemctl daemon-reload`.",
        do="",
        more="ls -l /dev/char",
        rules=(
            "device-link-missing",
            "device-link-of-udev",
            "device-link-wrong",
        ),
    ),
    Explanation(
        id="FC3019",
        title="A file of fleet.cdi is gone or changed",
        messages=(),
        means="A file that fleet.cdi wrote was removed, or another program changed its content, its mode or its owner.",
        why=(
            "fleet.cdi keeps the change of another program until you decide. A user who owns the file, or may write "
            "it, can change what programs of root trust."
        ),
        do="",
        more="fleet-cdi undo --check",
        rules=(
            "spec-gone",
            "spec-changed",
            "file-gone",
            "file-changed",
            "file-rights",
        ),
    ),
    Explanation(
        id="FC3020",
        title="SELinux keeps a device from containers of ordinary users",
        messages=(),
        means=(
            "A note. SELinux enforces its policy on this host, and does not let processes of a container open (or map) "
            "a device node of the host. Containers of root get nodes of their own, which open. A container in a user "
            "namespace, as of rootless podman, gets the host's node with its label."
        ),
        why=(
            "The node is in the container, with the right mode, and opening it ends with `Permission denied`. Often no "
            "line of the audit log says so."
        ),
        do="",
        more="ls -Z /dev",
        rules=(
            "selinux-devices-off",
            "selinux-denied",
            "selinux-map-denied",
        ),
    ),
    Explanation(
        id="FC3021",
        title="A file of fleet.cdi has a wrong label of SELinux",
        messages=(),
        means="SELinux enforces its policy on this host, and a file has another label than the policy wants.",
        why=(
            "By the label systemd chooses what a program may do. A unit whose program has a wrong label may do less "
            "than it needs. Files get one when they are copied or restored without labels."
        ),
        do="",
        more="ls -Z /opt/cdi/bin/",
        rules=("selinux-label",),
    ),
    Explanation(
        id="FC3022",
        title="A claim is damaged or does not agree with this host",
        messages=(),
        means=(
            "The file of a claim or its spec is missing, damaged or changed, or the ledger, a device node or the spec "
            "of a device does not have what the claim says. `fleet-cdi claim check` finds the same."
        ),
        why="A container that asks for the claim does not start, or another claim could get the device.",
        do="",
        more="fleet-cdi claim check",
        rules=(
            "claims-unread",
            "claim-damaged",
            "pod-damaged",
            "claim-over",
            "claim-lost",
            "claim-outdated",
            "claim-user-damaged",
        ),
    ),
    Explanation(
        id="FC3023",
        title="The memory of this host is for root alone",
        messages=(),
        means=(
            "This user may not read the manifest, or the list of devices out of service. Both may be well: only root "
            "can tell."
        ),
        why="Without both, most findings are missing, and a device out of service looks as if it were in service.",
        do="",
        more="ls -l /var/lib/cdi",
        rules=("manifest-unread", "device-state-unread"),
    ),
)
