# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Give pods their devices, or rewrite their manifest for a kubelet that gives them (module pod_devices)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...layout import Layout
from ...records import CdiError
from ...release.needed_by import check_host
from ..calls import Caller
from ..device_name import qualified_name
from ..ended import this_boot
from ..record import ClaimRecord
from .field import check_values
from .pod_grants import PodsOutcome, add_pods, delete_pods
from .pod_manifest import pods_in, read
from .pod_record import PodRecord
from .rewritten import for_device_plugin, for_podman, for_resource_claims


def answer(options: dict[str, Any], check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of the module for its `options`. Raises CdiError."""
    if options["state"] != "absent":  # then nothing but the names of pods is read: what was granted counts
        check_values(options["manifest"], "manifest")
    warnings = check_host(options, check) if _has_claims(options) else []
    places = Layout(
        options["state_dir"],
        options["device_list"],
        options["config_dir"],
        prefix=options["prefix"],
        spec_dirs=tuple(options["spec_dirs"]),
    )
    caller = Caller(os.path.join(options["prefix"], "bin"), options["timeout"])
    return converge_pods(places, caller, options, check), warnings


def converge_pods(places: Layout, caller: Caller, wanted: Mapping[str, Any], check: bool = False) -> dict[str, Any]:
    """Make or give back the claims of pods, or rewrite their manifest for a kubelet; return the result of the module.

    `wanted`: the options `manifest`, `state`, `target`, `resources`, `device_classes` and `force` of the module. The
    manifest is one that `check_values` takes, so that what was claimed for it can be told; not for the state absent.
    Raises CdiError.
    """
    manifest, resources = wanted["manifest"], wanted["resources"] or {}
    if not _has_claims(wanted):
        found = read(manifest, resources)
        if wanted["target"] == "device_plugin":
            return _result(for_device_plugin(found, resources))
        return _result(for_resource_claims(found, resources, wanted["device_classes"] or {}))
    if wanted["state"] == "absent":
        outcome = delete_pods(places, caller, this_boot(places), pods_in(manifest), check, wanted["force"])
        return {**_result([]), **_changes(outcome)}
    found = read(manifest, resources)
    if not found.pods:
        raise CdiError("manifest: found no Pod; expected at least one, beside ResourceRequests and other objects")
    outcome = add_pods(places, caller, this_boot(places), found, check)
    containers = [one for pod in found.pods if pod in outcome.after for one in _containers(outcome, outcome.after[pod])]
    rewritten = for_podman(found, resources, qualified_name)
    return {**_result(rewritten), "containers": containers, **_changes(outcome)}


def _has_claims(wanted: Mapping[str, Any]) -> bool:
    """Tell if this makes or gives back claims; for the other targets a kubelet chooses the devices."""
    return bool(wanted["state"] == "absent" or wanted["target"] == "podman")


def _result(manifest: list[Any]) -> dict[str, Any]:
    return {"changed": False, "containers": [], "claims": [], "manifest": manifest}


def _changes(outcome: PodsOutcome) -> dict[str, Any]:
    before, after = (
        {pod: one.containers for pod, one in sorted(pods.items())} for pods in (outcome.before, outcome.after)
    )
    diff = {"before_header": "claims of pods", "after_header": "claims of pods", "before": before, "after": after}
    return {"changed": bool(outcome.changed), "claims": list(outcome.changed), "diff": [diff]}


def _containers(outcome: PodsOutcome, pod: PodRecord) -> list[dict[str, Any]]:
    """Return what each container of the pod has; without device nodes for claims that check mode did not make."""
    return [
        {
            "pod": pod.pod,
            "container": container,
            "claims": list(ids),
            "cdi_devices": [qualified_name(id_) for id_ in ids],
            "devices": _paths(outcome.claims, ids),
        }
        for container, ids in pod.containers.items()
    ]


def _paths(claims: Mapping[str, ClaimRecord], ids: tuple[str, ...]) -> list[str]:
    return [node.path for id_ in ids if id_ in claims for node in claims[id_].nodes]
