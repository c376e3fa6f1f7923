# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of `fleet-cdi report` and of playbooks report and verify that doctor does not have, by cause."""

from __future__ import annotations

from .explanation import Explanation

REPORT = "fleet-cdi report"
VERIFY = "ansible-playbook fleet.cdi.verify"

EXPLANATIONS = (
    Explanation(
        id="FC3101",
        title="A wanted device is gone or unhealthy",
        messages=(),
        means="The settings offer the device. The kernel does not have it now, or the device has a fault.",
        why="A container that asks for it fails, and a job waits for a device that does not come.",
        do=(
            "Look at the card, its driver and `dmesg`. When it is repaired, run `fleet-cdi refresh`. If it is gone for "
            "good, `fleet-cdi refresh --drop` gives it up."
        ),
        more=REPORT,
        rules=("wanted-gone", "wanted-unhealthy"),
    ),
    Explanation(
        id="FC3102",
        title="Settings, specs and kernel disagree about a device",
        messages=(),
        means=(
            "A device is wanted and healthy, and no spec has it. Or a spec offers a device that is gone or withdrawn."
        ),
        why="Containers start by the specs. A spec that is behind gives too little, or gives what it should not.",
        do=(
            "Run `fleet-cdi refresh`: it writes the specs again, or says why it can't. `fleet-cdi specs` shows who "
            "wrote which."
        ),
        more=REPORT,
        rules=("wanted-not-written", "written-gone", "written-withdrawn"),
    ),
    Explanation(
        id="FC3103",
        title="A grant has a device that is gone, or is another card now",
        messages=(),
        means=(
            "A request, a pod or a claim holds a device. The kernel does not have it, or another card is in its place."
        ),
        why="The job has lost its device, and the ledger still keeps the device from others.",
        do=(
            "Bring the device back, or end the job that holds it. Then nothing holds the device, and it can be granted "
            "again."
        ),
        more="fleet-cdi grants list",
        rules=("promised-gone", "promised-swapped"),
    ),
    Explanation(
        id="FC3104",
        title="The clock of the host is wrong",
        messages=(),
        means="The clocks of host and controller differ by more than two minutes.",
        why="Times in reports and logs of several hosts could not be compared, and certificates may count as expired.",
        do="Turn on time synchronization: `timedatectl` shows its state. If the controller is wrong, correct that one.",
        more="timedatectl",
        rules=("clock-wrong",),
    ),
    Explanation(
        id="FC3105",
        title="The host has another release than the controller",
        messages=(),
        means="The code under /opt/cdi is of another version than the collection of this controller.",
        why="Answers of different releases may differ in what they know.",
        do=(
            "Run playbook fleet.cdi.upgrade or fleet.cdi.provision for this host. If the host is newer, use the newer "
            "controller."
        ),
        more="fleet-cdi --version",
        rules=("other-release",),
    ),
    Explanation(
        id="FC3106",
        title="Two names of the inventory are one machine",
        messages=(),
        means="Two hosts of the inventory have the same boot and the same devices.",
        why="Each of its devices counts twice in the report, and two runs would change the machine at the same time.",
        do="Leave one of its names in the inventory.",
        more="ansible-inventory --graph",
        rules=("same-machine",),
    ),
    Explanation(
        id="FC3107",
        title="The host was never provisioned to the end",
        messages=(),
        means="The settings of the host ask for devices, and the host remembers none of them.",
        why="No spec was written, so no container gets a device there.",
        do="Run playbook fleet.cdi.provision for this host, and read where it stops.",
        more="fleet-cdi doctor",
        rules=("not-provisioned",),
    ),
    Explanation(
        id="FC3108",
        title="The host gave no answer",
        messages=(),
        means="The host can't be reached, or fleet.cdi is not installed there, or its answer ended early.",
        why="Nothing is known about such a host. So it never counts as well.",
        do="Check that `ansible HOST -m ping` works. If it does, run playbook fleet.cdi.provision for this host.",
        more="ansible HOST -m ping",
        rules=("no-answer",),
    ),
    Explanation(
        id="FC3109",
        title="A truth of a device is unknown",
        messages=(),
        means=(
            "Part of the host could not be read, for example the processes of other users, or a damaged ledger. The "
            "message names the truths that are unknown."
        ),
        why="What nobody knows is never reported as good.",
        do="Run as root on the host itself, and not in a container. `fleet-cdi doctor` names files that are damaged.",
        more="fleet-cdi report",
        rules=("unknown",),
    ),
    Explanation(
        id="FC3110",
        title="The settings would change the host",
        messages=(),
        means="A run of provision would change something on this host: the message names the parts.",
        why="The settings were changed since the last run, or a person or another tool changed the host.",
        do=(
            "See what would change: `ansible-playbook fleet.cdi.provision --check --diff`. Then run it without "
            "`--check`."
        ),
        more="ansible-playbook fleet.cdi.provision --check --diff",
        rules=("settings",),
    ),
    Explanation(
        id="FC3111",
        title="The host could not be compared with its settings",
        messages=(),
        means="Module cdi_host gave no result in check mode. The message ends with what it said.",
        why="It is not known if the host is as its settings say.",
        do="Run `ansible-playbook fleet.cdi.provision --check` for this host, and do what its message says.",
        more=VERIFY,
        rules=("no-check",),
    ),
)
