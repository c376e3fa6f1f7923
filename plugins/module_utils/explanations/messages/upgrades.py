# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages of playbook fleet.cdi.upgrade."""

from __future__ import annotations

from ..explanation import Explanation

EXPLANATIONS = (
    Explanation(
        id="FC1801",
        title="The pods of a node did not end in time",
        messages=("(fleet_cdi_upgrade_drain_timeout). Pods on it: *",),
        means=(
            "The playbook asked Kubernetes to move the pods of this node away. Some of them are still there after the "
            "time in `fleet_cdi_upgrade_drain_timeout`."
        ),
        why=(
            "A pod that uses a device must not lose it in the middle of its work. A PodDisruptionBudget may forbid "
            "that the pod ends."
        ),
        do="Look at the pods that the message names. End them, or raise the time, and run the playbook again.",
        more="fleet-cdi grants list",
    ),
    Explanation(
        id="FC1802",
        title="Devices are still in use after the time of the drain",
        messages=("(fleet_cdi_upgrade_drain_timeout) these devices are still in use: *",),
        means=(
            "The host is out of service, and jobs or containers still have devices. The message names each device and "
            "who has it."
        ),
        why="A new driver or release under a running job would break the job.",
        do=(
            "Wait for the jobs, or end them. Then run the playbook again, if needed with a longer "
            "`fleet_cdi_upgrade_drain_timeout`."
        ),
        more="fleet-cdi grants list --open",
    ),
    Explanation(
        id="FC1803",
        title="The upgrade of a host failed",
        messages=(
            "Nothing was changed, and what the run had taken out of service is back.",
            "The host stays out of service.",
            "It has no device in service.",
            "it has no earlier release to go back to",
        ),
        means=(
            "A step of the upgrade failed. The first sentence of the message says which, and the end says in which "
            "state the host is."
        ),
        why="A host that is half upgraded gets no new work until a person has looked at it.",
        do=(
            "Repair what the first sentence names, and run the playbook again. The message has the command that goes "
            "back to the release before, if there is one."
        ),
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1804",
        title="The host is not well after the upgrade",
        messages=("The host is not well after the upgrade: *",),
        means=(
            "The upgrade is done, and the check after it found faults: the lines of playbook fleet.cdi.verify for this "
            "host."
        ),
        why=(
            "A host with a fault would fail the next jobs. So it stays out of service, and the run stops after this "
            "batch."
        ),
        do=(
            "Do what the lines say, and run the playbook again. `fleet_cdi_upgrade_accept` names verdicts that are "
            "accepted."
        ),
        more="fleet-cdi doctor",
    ),
)
