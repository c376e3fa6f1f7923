# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about pod manifests and the claims of their containers."""

from __future__ import annotations

from ..explanation import Explanation

EXPLANATIONS = (
    Explanation(
        id="FC1601",
        title="The manifest has no pod, or a field of another form",
        messages=(
            "manifest: found no Pod; expected at least one",
            "is larger than * MiB; expected a pod manifest",
            "resources: *: found *; expected a resource-spec",
        ),
        means=(
            "`claim pod` and module pod_devices read Kubernetes manifests with pods. This one has none, or is "
            "another file."
        ),
        why="Devices are claimed for the containers of a pod.",
        do="Give a manifest with `kind: Pod`. docs/claims.md has an example.",
        more="fleet-cdi claim --help",
    ),
    Explanation(
        id="FC1602",
        title="The pod runs with other devices",
        messages=("A running container can't get other devices: end the pod",),
        means="The manifest was changed since the pod got its devices.",
        why="A running container keeps the devices that it started with.",
        do="End the pod, give its claims back (`fleet-cdi claim pod del FILE`), then add them again.",
        more="fleet-cdi claim list",
    ),
    Explanation(
        id="FC1603",
        title="The target can't express what the manifest asks for",
        messages=(
            "shares devices, and a device plugin gives each container devices of its own",
            "and a device plugin counts devices, not their properties",
            "expected an extended resource for * in `resources`",
            "expected the DeviceClass of * in the cluster",
            "would be a share of a device (",
        ),
        means="The manifest shares devices or asks for properties, and the chosen target has no such thing.",
        why="A device plugin of Kubernetes only counts whole devices.",
        do="Rewrite it for another target (`--target resource_claims`), or name the missing resource or class.",
        more="fleet-cdi claim --help",
    ),
    Explanation(
        id="FC1604",
        title="A ResourceClaim would have no valid name",
        messages=("two claims would have this name", "because a pod refers to it by that name. Choose shorter names"),
        means="The name is made of the names of pod, container and request. It is too long, or there twice.",
        why="Kubernetes refuses it.",
        do="Choose shorter or other names in the manifest.",
        more="fleet-cdi claim --help",
    ),
)
