# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a pod manifest again, so that those who start pods today understand what it asks for.

podman reads CDI names in the limits of a container (podman-kube-play(1), since 5.4). A kubelet with a device plugin
reads extended resources. A cluster with dynamic resource allocation reads ResourceClaims (resource.k8s.io/v1).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ...protocol import grammar
from ...records import CdiError
from .field import LABEL, PodField
from .pod_manifest import CONTAINER, PARTS, POD, Owner, PodClaim, PodManifest, containers, is_device, user

Claims = Sequence[PodClaim]
INSTEAD = "Rewrite the manifest for ResourceClaims (target: resource_claims)."
CAPACITY = "device.capacity[device.driver]"  # in CEL
CLAIM_API = "resource.k8s.io/v1"


def for_podman(manifest: PodManifest, resources: Mapping[str, str], names: Callable[[str], str]) -> list[Any]:
    """Return the documents for `podman kube play`; `names` returns the qualified CDI name of a claim id."""

    def change(_pod: dict[str, Any], container: dict[str, Any], claims: Claims) -> None:
        limits = container["resources"].setdefault("limits", {})
        limits.update((names(claim.owner.id), 1) for claim in claims)

    return _documents(manifest, resources, change)


def for_device_plugin(manifest: PodManifest, resources: Mapping[str, str]) -> list[Any]:
    """Return the documents for a kubelet with a device plugin: extended resources in limits.

    Raises CdiError for shared devices and for sub-resources, which extended resources can't express.
    """
    extended = {spec: name for name, spec in sorted(resources.items(), reverse=True)}

    def change(pod: dict[str, Any], container: dict[str, Any], claims: Claims) -> None:
        limits = container["resources"].setdefault("limits", {})
        where = f"Pod {pod['metadata']['name']!r}, container {container['name']!r}"
        for claim in claims:
            if claim.owner.sort != CONTAINER:
                raise CdiError(
                    f"{where}: shares devices, and a device plugin gives each container devices of its own. {INSTEAD}"
                )
            for spec, amount in claim.amounts.items():
                if "-" in spec:
                    raise CdiError(
                        f"{where}: asks for {spec}, and a device plugin counts devices, not their properties. {INSTEAD}"
                    )
                if spec not in extended:
                    raise CdiError(f"{where}: asks for {spec}; expected an extended resource for {spec} in `resources`")
                limits[extended[spec]] = amount

    return _documents(manifest, resources, change)


def for_resource_claims(manifest: PodManifest, resources: Mapping[str, str], classes: Mapping[str, str]) -> list[Any]:
    """Return the documents for a cluster with DRA: a ResourceClaim for each claim, before the pods that use it.

    `classes` maps each resource-type to its DeviceClass. Raises CdiError for a type without one, for a share of a
    device, for names that Kubernetes does not take, and for claims of another form in a pod.
    """
    for document in manifest.documents:
        if document.value["kind"] == "Pod":
            _check_claims(document)
    names: dict[str, Owner] = {}

    def change(pod: dict[str, Any], container: dict[str, Any], claims: Claims) -> None:
        of_pod = pod["spec"]["resourceClaims"] = pod["spec"].get("resourceClaims") or []
        used = container["resources"]["claims"] = container["resources"].get("claims") or []
        for claim in claims:
            name = _object_name(claim.owner)
            entry = {"name": name, "resourceClaimName": name}
            if entry not in of_pod:
                if any(other.get("name") == name for other in of_pod):
                    raise _taken(name)
                of_pod.append(entry)
            used.append({"name": name})

    objects = []
    for claim in manifest.claims:
        name = _object_name(claim.owner)
        key = f"{claim.owner.namespace}/{name}"
        if names.setdefault(key, claim.owner) != claim.owner:
            raise _taken(name)
        objects.append(_resource_claim(name, claim, classes))
    return objects + _documents(manifest, resources, change)


def _check_claims(pod: PodField) -> None:
    """Raise CdiError unless the ResourceClaims that a pod has already are lists, those of the pod of mappings."""
    for claim in pod.get("spec").get("resourceClaims").items():
        if not isinstance(claim.value, dict):
            raise claim.refused("a mapping")
    for container in containers(pod):
        list(container.get("resources").get("claims").items())


def _documents(
    manifest: PodManifest,
    resources: Mapping[str, str],
    change: Callable[[dict[str, Any], dict[str, Any], Claims], None],
) -> list[Any]:
    """Return the documents without what the proposal added, and with a `change` in each container with claims."""
    found = []
    for document in manifest.documents:
        kind = document.value["kind"]
        if kind == "ResourceRequest":
            continue
        value = copy.deepcopy(document.value)
        if kind == "Pod":
            pod = PodField(value, document.document)
            whole = "/".join((value["metadata"].get("namespace") or "default", value["metadata"]["name"]))
            _clean(value.get("spec") or {}, resources)
            for container in containers(pod):
                _clean(container.value, resources)
                who = user(whole, container.value["name"])
                claims = [claim for claim in manifest.claims if who in claim.users]
                if claims:
                    container.value["resources"] = container.value.get("resources") or {}
                    change(value, container.value, claims)
        found.append(value)
    return found


def _clean(holder: dict[str, Any], resources: Mapping[str, str]) -> None:
    """Remove devices and `shared` from the resources of a pod or a container, and then empty parts."""
    asked = holder.get("resources") or {}
    asked.pop("shared", None)
    for part in PARTS:
        kept = {
            name: amount for name, amount in (asked.pop(part, None) or {}).items() if not is_device(name, resources)
        }
        if kept:
            asked[part] = kept
    if "resources" in holder and not asked:
        del holder["resources"]


def _resource_claim(name: str, claim: PodClaim, classes: Mapping[str, str]) -> dict[str, Any]:
    requests = []
    for type_ in dict.fromkeys(spec.partition("-")[0] for spec in claim.amounts):
        if type_ not in classes:
            raise CdiError(f"device_classes: found no {type_}; expected the DeviceClass of {type_} in the cluster")
        if type_ not in claim.amounts:
            raise CdiError(
                f"ResourceClaim {name!r}: would be a share of a device ({', '.join(claim.amounts)} without {type_}); "
                f"{CLAIM_API} gives whole devices. Ask for {type_}, too."
            )
        exactly: dict[str, Any] = {
            "deviceClassName": classes[type_],
            "allocationMode": "ExactCount",
            "count": claim.amounts[type_],
        }
        least = {spec: amount for spec, amount in claim.amounts.items() if spec.startswith(f"{type_}-")}
        if least:
            exactly["selectors"] = [{"cel": {"expression": _at_least(*one)}} for one in least.items()]
        requests.append({"name": type_.lower(), "exactly": exactly})
    metadata = {"name": name, "namespace": claim.owner.namespace}
    spec = {"devices": {"requests": requests}}
    return {"apiVersion": CLAIM_API, "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


def _at_least(spec: str, amount: int) -> str:
    """Return the CEL expression for a device that has this much of a sub-resource. A missing key would be an error."""
    quantity = f"{amount}Mi" if grammar.is_memory(spec) else str(amount)
    name = spec.partition("-")[2]
    return f'"{name}" in {CAPACITY} && {CAPACITY}["{name}"].compareTo(quantity("{quantity}")) >= 0'


def _object_name(owner: Owner) -> str:
    """Return the name of the ResourceClaim, in the cluster and in its pods. Raises CdiError if it is too long."""
    name = "-".join(owner.names).lower() if owner.sort != POD else f"{owner.names[0]}-pod-{owner.names[1].lower()}"
    if not LABEL.match(name):
        raise CdiError(
            f"ResourceClaim {name[:80]!r}: found a name of {len(name)} characters; expected at most 63 lower-case "
            "letters, digits and '-', because a pod refers to it by that name. Choose shorter names."
        )
    return name


def _taken(name: str) -> CdiError:
    return CdiError(
        f"ResourceClaim {name!r}: two claims would have this name; expected names of pods, containers and "
        "ResourceRequests that differ when they are joined by '-'"
    )
