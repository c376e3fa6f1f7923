# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the spec of a kind from its device records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ...layout import USUAL
from ...records import CdiError, ContainerEdits, Device, Hook, Kind, Node, joined
from ...spec import model, names, versions
from ...spec.validate import WARNING, validate

UNTIL = ("field-until",)  # not an error before the version is known: the newest version lacks enableCMT and enableMBM
TOLD = ("not-every-runtime", "hook-environment")  # rules that content may break; plan_spec warns about them
HOOK = f"{USUAL.prefix}/bin/cdi-hook"  # where a release is installed by default
# The environment of a hook without an own one. Without env, runc before 1.3.0 gives a hook the container's, and
# with it the image's LD_PRELOAD: code of the image would run on the host as root (runtimes/oci_runtimes.py).
HOOK_ENV = ("PATH=/usr/sbin:/usr/bin:/sbin:/bin",)


def spec_of(kind: Kind, devices: Sequence[Device], program: str = HOOK) -> Optional[dict[str, Any]]:
    """Return the spec that offers `devices`, each under all its names, and the aggregates `all` and `none`.

    Without devices return None: no devices means no file. Unhealthy devices are left out. Device numbers are left out
    unless the kind wants them, so that a runtime reads them at each start of a container. `program` is the path of
    cdi-hook. Raises CdiError for an aggregate that is not possible.
    """
    kind, healthy = _with_one_hook(kind, [device for device in devices if device.health.is_usable], program)
    offered = [(name, device.edits) for device in healthy for name in device.names]
    if offered and kind.all:
        offered.append(("all", _together(kind, healthy)))
    if offered and kind.none:
        offered.append(("none", ContainerEdits(env=kind.none)))
    if not offered:
        return None
    content: dict[str, Any] = {
        "devices": [{"name": name, "containerEdits": _edits(edits, kind)} for name, edits in offered]
    }
    shared = _edits(kind.edits, kind)
    return complete(kind.name, {**content, **({"containerEdits": shared} if shared else {})})


def with_hook_env(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return `content` with an environment for each hook. Older releases of ours wrote hooks without one."""

    def edits(found: Mapping[str, Any]) -> dict[str, Any]:
        hooks = [{**hook, "env": hook.get("env") or list(HOOK_ENV)} for hook in found.get("hooks") or ()]
        return {**found, **({"hooks": hooks} if hooks else {})}

    devices = [{**device, "containerEdits": edits(device["containerEdits"])} for device in content["devices"]]
    shared = content.get("containerEdits")
    return {**content, "devices": devices, **({"containerEdits": edits(shared)} if shared else {})}


def _with_one_hook(kind: Kind, devices: Sequence[Device], program: str) -> tuple[Kind, list[Device]]:
    """Merge all our hooks into one hook of the kind, because a container waits for the process of each hook."""
    edits = (kind.edits, *(device.edits for device in devices))
    ours = [hook for one in edits for hook in one.hooks if not hook.path]
    words = dict.fromkeys(word for hook in ours for word in hook.args[2:])
    one = [Hook(hook.name, program, (*hook.args[:2], *words)) for hook in ours[:1]]
    hooks = (*_of_others(kind.edits.hooks), *one)
    others = [device._replace(hooks=_of_others(device.hooks)) for device in devices]
    return kind._replace(edits=kind.edits._replace(hooks=hooks)), others


def _of_others(hooks: Sequence[Hook]) -> tuple[Hook, ...]:
    return tuple(hook for hook in hooks if hook.path)


def complete(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    """Return the whole spec of `kind` with this content: devices, containerEdits, annotations, perhaps cdiVersion.

    Without cdiVersion the spec gets the lowest version that its content fits. Raises CdiError with all findings,
    warnings included, as we can write a better spec. Only the rules in TOLD pass; `plan_spec` warns of them.
    """
    names.split_kind(kind)
    spec = {"cdiVersion": model.VERSIONS[-1], **content, "kind": kind}
    findings = validate(spec)
    if "cdiVersion" not in content and all(
        finding.rule in UNTIL or finding.severity == WARNING for finding in findings
    ):
        spec["cdiVersion"] = versions.lowest_version(spec)
        findings = validate(spec)
    wrong = [str(finding) for finding in findings if finding.rule not in TOLD]
    if wrong:
        raise CdiError(f"the spec of {kind}: " + "; ".join(wrong))
    return spec


def _together(kind: Kind, devices: Sequence[Device]) -> ContainerEdits:
    """Join the edits of all `devices`. A variable with different values is left out: no value would be right."""
    edits = joined(device.edits for device in devices)
    names = Counter(text.partition("=")[0] for text in edits.env)
    places = Counter(node.container_path or node.path for node in edits.nodes)
    twice = sorted(place for place, times in places.items() if times > 1)
    if twice:
        raise CdiError(
            f"the spec of {kind.name}: device 'all' would have several nodes at {twice[0]}; set all: false, or use "
            "{index} or {sysname} in container_path"
        )
    return edits._replace(env=tuple(text for text in edits.env if names[text.partition("=")[0]] == 1))


def _edits(edits: ContainerEdits, kind: Kind) -> dict[str, Any]:
    """Return container edits as they stand in a spec (CDI SPEC.md, "CDI JSON Specification"), without empty fields."""
    document = {
        "env": list(edits.env),
        "deviceNodes": [_node(node, kind.device_numbers) for node in edits.nodes],
        "netDevices": [
            {"hostInterfaceName": device.host_interface, "name": device.name or device.host_interface}
            for device in edits.net_devices
        ],
        "mounts": [
            {
                "hostPath": mount.host_path,
                "containerPath": mount.container_path or mount.host_path,
                **({"options": list(mount.options)} if mount.options else {}),
                **({"type": mount.type} if mount.type else {}),
            }
            for mount in edits.mounts
        ],
        "hooks": [
            {
                "hookName": hook.name,
                "path": hook.path,
                **({"args": list(hook.args)} if hook.args else {}),
                "env": list(hook.env or HOOK_ENV),
            }
            for hook in edits.hooks
        ],
        "additionalGids": list(edits.additional_gids),
    }
    return {key: value for key, value in document.items() if value}


def _node(node: Node, numbers: bool) -> dict[str, Any]:
    where = node.container_path or node.path
    document: dict[str, Any] = {"path": where} if where == node.path else {"path": where, "hostPath": node.path}
    return {**document, **({"type": node.type, "major": node.major, "minor": node.minor} if numbers else {})}
