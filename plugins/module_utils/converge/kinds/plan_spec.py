# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to change on one host so that a kind's spec, or another file, is as wanted. Private API of fleet.cdi.

Pure, but for `read`, through which the files come in.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from ...files import canonical, read
from ...manifest import Manifest
from ...records import CdiError, ContainerEdits, Device, Hook, Kind, Node, joined
from ...spec import codec, model, names, versions
from ...spec.registry import Registry, SpecFile, resolve
from ...spec.seen import seen
from ...spec.seen.seen import Unclear
from ...spec.validate import WARNING, validate
from .libraries import ANY, Linked, named, with_future

UNTIL = ("field-until",)  # no error before the version is known: enableCMT and enableMBM are gone in the newest one
TOLD = ("not-every-runtime", "hook-environment")  # what content may have; plan_spec warns of it
OR_FORCE = "or set force to replace it (undo then puts it back)."  # what else to do about a file of somebody else's
MODE = 0o644  # a rootless runtime has to read it
HOOK = "/opt/cdi/bin/cdi-hook"  # where a release is installed by default
# The environment of a hook that has none of its own. Without env, runc before 1.3.0 gives a hook the container's, and
# with it the image's LD_PRELOAD: code of the image would run on the host as root (runtimes/oci_runtimes.py).
HOOK_ENV = ("PATH=/usr/sbin:/usr/bin:/sbin:/bin",)


class Change(NamedTuple):
    """One file that is to become something else; None stands for no file."""

    path: str
    kind: str  # whose spec it is; "" for the inventory
    before: Optional[bytes]
    after: Optional[bytes]
    by: str = ""  # who asked for it, for the manifest


class Plan(NamedTuple):
    """All that is to be done for one kind, and what the user should know of it."""

    path: str
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]
    kinds: Mapping[str, Optional[dict[str, Any]]] = {}  # what the manifest is to remember; None: it forgets the kind


def spec_of(kind: Kind, devices: Sequence[Device], program: str = HOOK) -> Optional[dict[str, Any]]:
    """The spec that offers `devices`, each under every name it has, and the kind's aggregates; None without devices.

    No devices means no file. Unhealthy devices are left out. So are device numbers unless the kind wants them: a
    runtime then reads them anew whenever a container starts. `program` is the path of cdi-hook. Raises CdiError for an
    aggregate that can't be.
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
    """`content`, every hook of it with an environment: entries that are kept may be of a release that wrote none."""

    def edits(found: Mapping[str, Any]) -> dict[str, Any]:
        hooks = [{**hook, "env": hook.get("env") or list(HOOK_ENV)} for hook in found.get("hooks") or ()]
        return {**found, **({"hooks": hooks} if hooks else {})}

    devices = [{**device, "containerEdits": edits(device["containerEdits"])} for device in content["devices"]]
    shared = content.get("containerEdits")
    return {**content, "devices": devices, **({"containerEdits": edits(shared)} if shared else {})}


def _with_one_hook(kind: Kind, devices: Sequence[Device], program: str) -> tuple[Kind, list[Device]]:
    """Both with all hooks of ours as one of the kind: a container waits for every process that a hook starts."""
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
    """`content` (devices, containerEdits, annotations; cdiVersion if it must be that one) as a whole spec of `kind`.

    Without cdiVersion it is the lowest that the content fits. Raises CdiError with everything that is wrong, warnings
    too: whoever writes can write better. The rules of TOLD are not wrong; `plan_spec` warns of them.
    """
    names.split_kind(kind)
    spec = {"cdiVersion": model.VERSIONS[-1], **content, "kind": kind}
    findings = validate(spec)
    if "cdiVersion" not in content and all(
        finding.rule in UNTIL or finding.severity == WARNING for finding in findings
    ):
        spec["cdiVersion"] = versions.minimum_version(spec)
        findings = validate(spec)
    wrong = [str(finding) for finding in findings if finding.rule not in TOLD]
    if wrong:
        raise CdiError(f"the spec of {kind}: " + "; ".join(wrong))
    return spec


def plan_spec(
    kind: str,
    spec: Optional[dict[str, Any]],
    directory: str,
    registry: Registry,
    manifest: Manifest,
    force: bool = False,
    libraries: Callable[[], Sequence[Linked]] = lambda: ANY,
) -> Plan:
    """What makes `spec` the spec of `kind` in `directory` (None: there is to be none).

    `libraries` says what reads the specs of this host; it is asked only where others' files make a difference. Raises
    CdiError where a foreign file would be touched without `force`, or where a runtime could not find our devices.
    """
    path = os.path.join(directory, names.file_name(kind))
    content = None if spec is None else codec.encode(spec)
    live = read(path)
    before = live.content if live else None
    recorded = manifest.kind_of(path) is not None
    if live is not None and before != content and not recorded and not force:
        raise _not_ours(path, "Move it away, choose another kind or directory, " + OR_FORCE)
    changes, warnings = [], []
    adopted = live is not None and before == content and not recorded  # its record was lost: it becomes ours again
    if before != content or adopted or (live is not None and recorded and live.mode != MODE):
        changes.append(Change(path, kind, before, content))
    # A spec of this kind that we wrote into another directory, before the settings changed, would be read as well.
    moved = [other for other in manifest.files if other != canonical(path) and manifest.kind_of(other) == kind]
    for other in moved:
        found = read(other)
        if found is not None and manifest.owns(other):
            changes.append(Change(other, kind, found.content, None))
        elif found is not None:
            warnings.append(f"{other}: was changed by somebody else since fleet.cdi wrote it; it is left there")
    if spec is not None:
        ours = SpecFile(path, registry.directories.index(directory), spec, path)
        ours = ours._replace(taken=seen.read(codec.encode(spec), path, codec.Reading(spec, [])).taken)
        warnings += _clashes(ours, registry, {path, *(change.path for change in changes)}, libraries)
        warnings += [f"{path}: {finding}" for finding in validate(spec)]  # those of TOLD
    return Plan(path, tuple(changes), tuple(warnings))


def plan_file(
    path: str,
    after: Optional[bytes],
    manifest: Manifest,
    by: str = "",
    force: bool = False,
    advice: str = "Move it away.",
) -> tuple[Change, ...]:
    """What makes `after` (None: no file) the file at `path`, which is no spec; one that is there already becomes ours.

    Raises CdiError, which ends with `advice`, for one that is none of ours, unless `force`.
    """
    path = canonical(path)
    live = read(path)
    before = live.content if live else None
    recorded = manifest.record(path) is not None
    if before == after and (recorded or after is None):
        return ()
    if before not in (None, after) and not recorded and not force:
        raise _not_ours(path, advice)
    return (Change(path, "", before, after, by),)


def _not_ours(path: str, advice: str) -> CdiError:
    return CdiError(f"{path}: is not ours: fleet.cdi has no record of writing it. It stays as it is. {advice}")


def _clashes(
    ours: SpecFile, registry: Registry, gone: set[str], libraries: Callable[[], Sequence[Linked]]
) -> list[str]:
    """Warnings for foreign names that `ours` overrules, and for what a runtime of the future would not resolve.

    Raises CdiError where some runtime of this host would resolve one of our names to another file, or not at all.
    """
    _refuse_unclear(ours, {path: one for path, one in registry.unclear.items() if path not in gone}, libraries)
    others = _beside(ours, registry, gone)
    unread = [one for one in registry.unread if ours.priority in one.priorities]
    crashes = {path: names for path, names in registry.crashes.items() if path not in gone}
    if not others and not unread and not crashes:
        return []
    linked = with_future(libraries())
    _refuse_crashes(ours, crashes, [one for one in linked if one.is_here])
    warnings = [
        f"{ours.path}: {who} will not find it: {one.path} {one.why}"
        for one in unread
        for who in [named((reader for reader in linked if reader.is_here and not reader.follows_links), one.releases)]
        if who and linked[0] is not ANY[0]
    ]
    problems: dict[_Problem, list[Linked]] = {}
    for reader in linked:
        if reader.release in ours.seen_by:
            for problem in _problems(ours, resolve(registry.directories, [*others, ours], {}, [reader.release])):
                problems.setdefault(problem, []).append(reader)
    for problem, readers in problems.items():
        here = [one for one in readers if one.is_here]
        text = f"{ours.path}: {problem.text(named(here or readers, [one.release for one in readers]))}"
        if problem.sort != OVERRULES and here:
            raise CdiError(text)
        warnings.append(text)
    return warnings


OVERRULES = "overrules"


class _Problem(NamedTuple):
    """What keeps a name of ours, or with OVERRULES one of another file, from being found."""

    sort: str
    name: str
    paths: tuple[str, ...]  # of the other files

    def text(self, who: str) -> str:
        """In words, where `who` is to read it."""
        if self.sort == "conflict":
            clash = ", ".join(self.paths)
            return f"{self.name} is also in {clash}: {who} would resolve neither. Remove or rename one."
        if self.sort == OVERRULES:
            return f"{self.name} takes the place of the one in {self.paths[0]}"
        return (
            f"{self.name} would have no effect: {self.paths[0]} defines it in a directory of higher priority, from "
            f"which {who} takes it. Remove it there, or write to {os.path.dirname(self.paths[0])}."
        )


def _problems(ours: SpecFile, after: Registry) -> Iterator[_Problem]:
    """What is wrong with our names for one release of the library."""
    for name in ours.qualified_names:
        if name in after.conflicts:
            yield _Problem("conflict", name, tuple(path for path in after.conflicts[name] if path != ours.path))
        elif after.devices[name] != ours.path:
            yield _Problem("overruled", name, (after.devices[name],))
        elif name in after.shadowed:
            yield _Problem(OVERRULES, name, after.shadowed[name])


def _refuse_unclear(ours: SpecFile, unclear: Mapping[str, Unclear], libraries: Callable[[], Sequence[Linked]]) -> None:
    kind, linked = ours.spec["kind"], libraries() if unclear else ()
    here = [reader.release for reader in linked] if linked is not ANY else []
    for path, one in unclear.items():
        if one.may_define(kind) or one.may_crash(here):
            what = (
                f"which devices of {kind} {path} defines" if one.may_define(kind) else f"what {path} does to runtimes"
            )
            raise CdiError(
                f"{ours.path}: can't tell {what}: {one.why.removeprefix(path + ': ')}. Expected a file that every "
                f"runtime reads alike, or none. Repair or remove it (`fleet-cdi validate {path}` says what is wrong), "
                "then run this again."
            )


def _refuse_crashes(ours: SpecFile, crashes: Mapping[str, frozenset[str]], linked: Sequence[Linked]) -> None:
    for path, names_ in crashes.items():
        who = named(linked, names_)
        if who:
            raise CdiError(
                f"{ours.path}: {path} makes the CDI library of {who} crash, which then resolves no device at all. "
                f"Repair or remove it (`fleet-cdi validate {path}` says what is wrong), then run this again."
            )


def _beside(ours: SpecFile, registry: Registry, gone: set[str]) -> list[SpecFile]:
    """The files of our kind that are there when `ours` is, and the files in `gone` are not.

    A symlink to our file offers what is in it from now on, and one to a file that goes offers nothing.
    """
    links = [path for path, target in registry.targets.items() if target == ours.path and path != ours.path]
    links += [file.path for file in registry.specs if file.target == ours.path and file.path != ours.path]
    directories = {path: at for at, path in enumerate(registry.directories)}
    return [
        *(
            file
            for file in registry.specs
            if ours.spec["kind"] in file.kinds and not {file.path, file.target} & gone and file.path not in links
        ),
        *(ours._replace(path=path, priority=directories[os.path.dirname(path)]) for path in links if path not in gone),
    ]


def _together(kind: Kind, devices: Sequence[Device]) -> ContainerEdits:
    """The edits of all `devices`. A variable of which they disagree is left out, as no value of it would be right."""
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
    """Container edits as they stand in a spec (CDI SPEC.md, "CDI JSON Specification"), without what is empty."""
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
