# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the claims that a pod manifest asks for, and the containers that use each.

CDI proposal 2017, "Kubernetes Pod Spec examples": a container has devices of its own (`resources.requests`), and shares
those of its pod or of a named ResourceRequest with other containers (`resources.shared`). No device is in two claims,
so a container's own devices are never those that it shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Optional

from ...protocol import grammar
from ...records import CdiError
from ...safe_text import one_line
from .field import LABEL, SHOWN, SUBDOMAIN, PodField

OPAQUE = "pod.alpha.kubernetes.io/opaque-int-resource-"  # before a resource-spec (proposal, "Motivation")
REFERENCE = "resourceRequestRef"
CONTAINERS = ("initContainers", "containers")  # all hold their devices as long as the pod

PARTS = ("requests", "limits")  # of resources; for devices they mean the same

CONTAINER, POD, REQUEST = "container", "pod", "request"

# Whose claim it is -> its id, from a namespace and names. These have no "_", so two claims never have one id.
IDS = {CONTAINER: "pod_{}_{}_{}", POD: "pod_{}_{}__{}", REQUEST: "pod_{}__{}"}


class Owner(NamedTuple):
    """Whose claim it is: a container's own, that of a pod for one resource-type, or that of a ResourceRequest."""

    sort: str  # CONTAINER, POD or REQUEST
    namespace: str
    names: tuple[str, ...]  # (pod, container), (pod, resource-type) or (ResourceRequest,)

    @property
    def id(self) -> str:
        """Return the id of the claim, such as pod_default_sharing_analyst."""
        return IDS[self.sort].format(self.namespace, *self.names)


class PodClaim(NamedTuple):
    """A claim that a manifest asks for."""

    owner: Owner
    amounts: dict[str, int]  # resource-spec -> amount; memory is in MiB
    where: str  # the document and the field that ask for it
    users: tuple[str, ...] = ()  # its containers: <namespace>/<pod>/<container>


class PodManifest(NamedTuple):
    """A manifest that was read: its documents, those of a List one by one, and its claims in the order of need."""

    documents: tuple[PodField, ...]
    pods: tuple[str, ...]  # <namespace>/<pod>
    claims: tuple[PodClaim, ...]


def read(manifest: Any, resources: Mapping[str, str]) -> PodManifest:
    """Return the claims of a manifest: one document or a list of documents, as a YAML parser returns them.

    `resources` maps names of extended resources (`nvidia.com/gpu`) to resource-specs (`gpu`). Raises CdiError, which
    names document, field, found and expected.
    """
    for name, spec in resources.items():
        if not isinstance(spec, str) or not grammar.is_resource_spec(spec):
            raise CdiError(f"resources: {name}: found {spec!r}; expected a resource-spec, such as gpu or gpu-memory")
    documents = tuple(_documents(manifest))
    named: dict[tuple[str, str], PodClaim] = {}
    for document in documents:
        if document.get("kind").value == "ResourceRequest":
            key = _name(document)
            if key in named:
                raise document.get("metadata").get("name").refused("a name that no other ResourceRequest has")
            named[key] = _request(document, key, resources)
        elif document.get("kind").value != "Pod":
            _without_devices(document, resources)
    claims: dict[Owner, PodClaim] = {}
    pods = []
    for document in documents:
        if document.get("kind").value == "Pod":
            pod = "/".join(_name(document))
            if pod in pods:
                raise document.get("metadata").get("name").refused("a name that no other pod has")
            pods.append(pod)
            for who, claim in _uses(document, named, resources):
                before = claims.get(claim.owner, claim)
                claims[claim.owner] = before._replace(users=(*before.users, who))
    return PodManifest(documents, tuple(pods), tuple(claims.values()))


def pods_in(manifest: Any) -> tuple[str, ...]:
    """Return the pods of a manifest, <namespace>/<pod>, and read nothing else of it: what was granted counts.

    Raises CdiError for a document without kind, or a pod without name.
    """
    return tuple("/".join(_name(one)) for one in _documents(manifest) if one.get("kind").value == "Pod")


def user(pod: str, container: str) -> str:
    """Return how a claim calls a container of `pod` (<namespace>/<pod>)."""
    return f"{pod}/{container}"


def containers(pod: PodField) -> Iterator[PodField]:
    """Yield the containers of a Pod."""
    for sort in CONTAINERS:
        yield from pod.get("spec").get(sort).items()


def is_device(name: str, resources: Mapping[str, str]) -> bool:
    """Return whether `name` of a resource stands for devices."""
    return name in resources or name.startswith(OPAQUE)


def _documents(manifest: Any) -> Iterator[PodField]:
    """Yield the documents of a manifest, those of a List one by one."""
    several = isinstance(manifest, (list, tuple))
    for number, value in enumerate(manifest if several else (manifest,), 1):
        if value is None:  # between two `---`
            continue
        document = _document(value, f"document {number}")
        if document.get("kind").value != "List":
            yield document
            continue
        for index, item in enumerate(document.get("items").items()):
            inner = _document(item.value, f"document {number}, items[{index}]")
            if inner.get("kind").value == "List":
                raise inner.get("kind").refused("no List in a List")
            yield inner


def _document(value: Any, where: str) -> PodField:
    document = PodField(value, where)
    kind = document.get("kind")
    if not isinstance(kind.value, str) or not kind.value:
        raise kind.refused("the kind of an object, such as Pod")
    name = document.get("metadata").get("name").value
    called = f" {name[:SHOWN]!r}" if isinstance(name, str) else ""
    return PodField(value, f"{where} ({one_line(kind.value[:SHOWN])}{called})")


def _name(document: PodField) -> tuple[str, str]:
    """Return namespace and name of an object."""
    metadata = document.get("metadata")
    name = metadata.get("name").text(SUBDOMAIN, "a name of lower-case letters, digits, '-' and '.'")
    namespace = metadata.get("namespace")
    if namespace.value is None:
        return "default", name
    return namespace.text(LABEL, "a name of up to 63 lower-case letters, digits and '-'"), name


def _request(document: PodField, key: tuple[str, str], resources: Mapping[str, str]) -> PodClaim:
    """Return the claim that a ResourceRequest, `key`, asks for."""
    whole = document.get("spec").get("resources")
    if whole.get("shared").value is not None:
        raise whole.get("shared").refused("no shared: a ResourceRequest refers to no other, so no cycle can arise")
    amounts = _amounts(whole, resources)
    if not amounts:
        raise whole.get("requests").refused(f"an amount of a resource, such as {OPAQUE}gpu: 1")
    return PodClaim(Owner(REQUEST, key[0], (key[1],)), amounts, whole.where)


def _uses(
    document: PodField, named: Mapping[tuple[str, str], PodClaim], resources: Mapping[str, str]
) -> Iterator[tuple[str, PodClaim]]:
    """Yield each user and claim of this Pod, in the order of its containers."""
    namespace, name = _name(document)
    whole = document.get("spec").get("resources")
    if whole.get("shared").value is not None:
        raise whole.get("shared").refused("shared in containers only")
    of_pod = _amounts(whole, resources)
    seen, shared_types = set(), set()
    for container in containers(document):
        label = container.get("name")
        called = label.text(LABEL, "a name of up to 63 lower-case letters, digits and '-'")
        if called in seen:
            raise label.refused("a name that no other container of the pod has")
        seen.add(called)
        who = user(f"{namespace}/{name}", called)
        asked = container.get("resources")
        own = _amounts(asked, resources)
        if own:
            yield who, PodClaim(Owner(CONTAINER, namespace, (name, called)), own, asked.where)
        for type_ in _types_of_pod(asked.get("shared"), of_pod, resources):
            shared_types.add(type_)
            amounts = {spec: amount for spec, amount in of_pod.items() if _type(spec) == type_}
            yield who, PodClaim(Owner(POD, namespace, (name, type_)), amounts, whole.where)
        for referred in _references(asked.get("shared")):
            claim = named.get((namespace, referred.value))
            if claim is None:
                has = ", ".join(sorted(one for space, one in named if space == namespace)) or "which has none"
                raise referred.refused(f"a ResourceRequest of namespace {namespace} in the manifest: {has}")
            yield who, claim
    for part in PARTS:
        for key, field in whole.get(part).fields():
            spec = resources.get(key) or key[len(OPAQUE) :]
            if is_device(key, resources) and spec in of_pod and _type(spec) not in shared_types:
                raise field.refused("a container that has the resource in its resources.shared; none has")


def _types_of_pod(shared: PodField, of_pod: Mapping[str, int], resources: Mapping[str, str]) -> list[str]:
    """Return the resource-types of the pod's own requests that a container shares."""
    types: dict[str, None] = {}
    seen = set()
    for entry in shared.items():
        if isinstance(entry.value, dict):
            continue
        known = isinstance(entry.value, str) and is_device(entry.value, resources)
        spec = _spec(entry, entry.value, resources) if known else ""
        if spec not in of_pod:
            has = ", ".join(of_pod) or "nothing"
            raise entry.refused(f"a resource in spec.resources.requests of the pod, which asks for {has}")
        if spec in seen:
            raise entry.refused("each resource once")
        seen.add(spec)
        types[_type(spec)] = None
    return list(types)


def _references(shared: PodField) -> Iterator[PodField]:
    """Yield the names of ResourceRequests that a container shares."""
    seen = set()
    for entry in shared.items():
        if isinstance(entry.value, dict):
            name = entry.get(REFERENCE)
            if list(entry.value) != [REFERENCE] or not isinstance(name.value, str):
                raise entry.refused(f"the name of a resource, or {REFERENCE} and the name of a ResourceRequest")
            if name.value in seen:
                raise name.refused("each ResourceRequest once")
            seen.add(name.value)
            yield name


def _amounts(whole: PodField, resources: Mapping[str, str]) -> dict[str, int]:
    """Return resource-spec -> amount of `requests` and `limits`, without zeros."""
    found: dict[str, tuple[str, int]] = {}
    for part in PARTS:
        for name, field in whole.get(part).fields():
            if _is_native(name):
                continue
            spec = _spec(field, name, resources)
            amount = _amount(field, spec)
            before = found.setdefault(spec, (name, amount))
            if before[0] != name:
                raise field.refused(f"each resource once: {before[0]} is {spec}, too", name)
            if before[1] != amount:
                raise field.refused(f"{before[1]}, as in requests")
    return {spec: amount for spec, (_name, amount) in found.items() if amount}


def _spec(field: PodField, name: str, resources: Mapping[str, str]) -> str:
    """Return the resource-spec that the resource `name` stands for. Raises CdiError for none."""
    spec = resources.get(name) or name[len(OPAQUE) :]
    if not is_device(name, resources):
        if "=" in name:
            raise field.refused("the manifest as it was before its claims were named in it", name)
        known = ", ".join(sorted(resources)) or "which is empty"
        raise field.refused(f"{OPAQUE}<resource-spec>, or a name in `resources`: {known}", name)
    if not grammar.is_resource_spec(spec):
        raise field.refused(f"a resource-spec after {OPAQUE}, such as gpu or gpu-memory", name)
    return spec


def _amount(field: PodField, spec: str) -> int:
    """Return an amount. Raises CdiError unless it is an integer of 0 to 2^63-1."""
    value = field.value
    amount: Optional[int] = None
    if isinstance(value, str):
        amount = grammar.amount(spec, value)
    elif isinstance(value, int) and not isinstance(value, bool):
        amount = value
    if amount is None or not 0 <= amount <= grammar.LARGEST:
        of_memory = " of MiB, or a text with a suffix (8Gi)" if grammar.is_memory(spec) else ""
        raise field.refused(f"an integer of 0 to 2^63-1{of_memory}")
    return amount


def _type(spec: str) -> str:
    return spec.partition("-")[0]


def _is_native(name: str) -> bool:
    """Return whether a resource is Kubernetes' own, such as cpu, memory or hugepages-2Mi, and no device."""
    return "/" not in name or name.partition("/")[0] == "kubernetes.io"


def _without_devices(document: PodField, resources: Mapping[str, str]) -> None:
    """Raise CdiError if an object other than a Pod asks for devices, as the template of a Deployment may."""
    for key, field in document.inside():
        if key == REFERENCE or (key and is_device(key, resources)):
            kind = one_line(document.get("kind").value[:SHOWN])
            raise field.refused(
                f"devices in a Pod: a {kind} makes pods whose number and names are not in the manifest", key
            )
