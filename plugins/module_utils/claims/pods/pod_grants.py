# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the claims of pods, all or none, and give them back when the last pod that uses them is gone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Callable, NamedTuple, Optional

from ...layout import Layout
from ...records import CdiError
from ...runtimes.containers import ListedContainers, list_containers
from ..add_claim import add_claim, check_wanted, refuse_excess, same_claim
from ..calls import Caller
from ..delete_claim import delete_claim
from ..ended import ended_containers
from ..lifetime.users import refuse_running
from ..record import ASKED, ClaimRecord, WantedClaim
from ..store import read_claim
from .pod_manifest import PodClaim, PodManifest
from .pod_record import PodRecord, alone_with_pods, read_pods, remove_pod, write_pod

# A pod's claims may have the names of claims that ended in this boot: the same manifest again is the usual case. An
# engine resolves the names at each start, so `_refuse_former` sees that no container of the former claims is left.
REUSE = True


class PodsOutcome(NamedTuple):
    """The pods before and after, and what changes."""

    before: dict[str, PodRecord]
    after: dict[str, PodRecord]
    claims: dict[str, ClaimRecord]  # of the pods that are wanted; with `check`, those that are there
    changed: tuple[str, ...]  # ids of claims that are made or given back, or have another pod


def add_pods(
    places: Layout,
    caller: Caller,
    boot_id: str,
    manifest: PodManifest,
    check: bool = False,
    listed: Callable[[], ListedContainers] = list_containers,
) -> PodsOutcome:
    """Make all claims of the manifest; with `check`, only look what would change. `listed` asks the engines.

    Raises CdiError if a pod has other claims than the manifest asks for, if a container of a former claim still exists,
    or if a claim can't be made. Then this call leaves no claim behind that it made, or the error names it.
    """
    records = {record.pod: record for record in _records(manifest) if record.containers}
    with nullcontext() if check else alone_with_pods(places.state_dir):
        before = read_pods(places.state_dir)
        for pod in manifest.pods:
            _check_unedited(pod, before.get(pod), records.get(pod))
        claims = {}
        for one in manifest.claims:
            with _where(one):
                claim = read_claim(places.state_dir, one.owner.id)
                if claim and claim.state != ASKED:
                    claims[claim.id] = same_claim(claim, _wanted(one), boot_id)
                else:
                    configurations = check_wanted(places, boot_id, _wanted(one), REUSE)
                    if check:
                        refuse_excess(caller, configurations, _wanted(one))
        _refuse_former(places, boot_id, {one.owner.id for one in manifest.claims} - set(claims), listed)
        new = {pod: record for pod, record in records.items() if pod not in before}
        changed = {id_ for record in new.values() for id_ in record.claims}
        changed |= {one.owner.id for one in manifest.claims} - set(claims)
        if not check:
            for record in new.values():
                write_pod(places.state_dir, record)
            claims = _all_or_none(places, caller, boot_id, manifest.claims, tuple(new))
        return PodsOutcome(before, {**before, **new}, claims, tuple(sorted(changed)))


def delete_pods(
    places: Layout, caller: Caller, boot_id: str, pods: Collection[str], check: bool = False, force: bool = False
) -> PodsOutcome:
    """Give back the claims that only these pods have; with `check`, only look what would change.

    What a pod was granted counts, and not its manifest. Raises CdiError if a container runs with one of the claims,
    unless `force` is set: then all of them stay. Raises CdiError with the errors of all claims that could not be given
    back; their pods stay.
    """
    before = read_pods(places.state_dir)
    gone = {pod for pod in pods if pod in before}
    if check or not gone:
        _refuse_running(places, before, () if force else gone)
        return _without(before, gone)
    errors: list[str] = []
    with alone_with_pods(places.state_dir):
        before = left = read_pods(places.state_dir)
        gone &= set(before)
        _refuse_running(places, before, () if force else gone)
        for pod in sorted(gone):
            rest = {name: record for name, record in left.items() if name != pod}
            kept = _give_back(places, caller, boot_id, before[pod].claims - _in_use(rest), force)
            if not kept:
                remove_pod(places.state_dir, pod)
                left = rest
            errors += kept
    if errors:
        raise CdiError("; ".join(errors))
    return _without(before, gone)


def _records(manifest: PodManifest) -> Iterator[PodRecord]:
    for pod in manifest.pods:
        containers: dict[str, list[str]] = {}
        for claim in manifest.claims:
            for one in claim.users:
                if one.rpartition("/")[0] == pod:
                    containers.setdefault(one.rpartition("/")[2], []).append(claim.owner.id)
        yield PodRecord(pod, {name: tuple(sorted(ids)) for name, ids in sorted(containers.items())})


def _check_unedited(pod: str, before: Optional[PodRecord], wanted: Optional[PodRecord]) -> None:
    """Raise CdiError if the containers of the pod have other claims than are wanted."""
    if before is None or before == wanted:
        return
    asked = wanted.containers if wanted else {}
    name = next(name for name in (*before.containers, *asked) if before.containers.get(name) != asked.get(name))
    has, asks = (", ".join(one.get(name, ())) or "no claim" for one in (before.containers, asked))
    raise CdiError(
        f"pod {pod}: container {name} has {has}; the manifest asks for {asks}. A running container can't get other "
        "devices: end the pod and give its claims back (state: absent) first."
    )


def _refuse_former(places: Layout, boot_id: str, ids: Collection[str], listed: Callable[[], ListedContainers]) -> None:
    """Raise CdiError if an engine has a container that was started with a former claim of one of these names.

    At its next start it would get the devices of the new claim.
    """
    former = {id_: ended_containers(places.ended_claims, boot_id, id_) for id_ in sorted(ids)}
    engines = listed() if any(former.values()) else ListedContainers()
    for id_, containers in former.items():
        left = sorted(containers & engines.ids)
        if left or (containers and engines.trouble):
            shown = ", ".join(one[:12] for one in left) or f"it is not known if one does ({'; '.join(engines.trouble)})"
            raise CdiError(
                f"claim {id_}: containers of the former pod still exist, and would get the new devices at their next "
                f"start: {shown}. Remove the former pod first (podman kube down, podman pod rm)."
            )


def _all_or_none(
    places: Layout, caller: Caller, boot_id: str, wanted: Sequence[PodClaim], new: Collection[str]
) -> dict[str, ClaimRecord]:
    """Make the claims; if one fails, give back those that were made, and forget the `new` pods. Raises CdiError."""
    claims: dict[str, ClaimRecord] = {}
    made: list[str] = []
    try:
        for one in wanted:
            with _where(one):
                added = add_claim(places, caller, boot_id, _wanted(one), REUSE, of_pods=True)
            claims[added.claim.id] = added.claim
            made += [added.claim.id] if added.changed else []
        return claims
    except CdiError as error:
        errors = [str(error), *_give_back(places, caller, boot_id, reversed(made))]
        if len(errors) == 1:
            for pod in new:
                remove_pod(places.state_dir, pod)
        raise CdiError("; then ".join(errors)) from None


def _wanted(claim: PodClaim) -> WantedClaim:
    return WantedClaim(claim.owner.id, claim.amounts)


@contextmanager
def _where(claim: PodClaim) -> Iterator[None]:
    """Let an error say which field of the manifest asks for the claim, and for what."""
    try:
        yield
    except CdiError as error:
        raise CdiError(f"{claim.where}: asks for {_wanted(claim)}: {error}") from None


def _refuse_running(places: Layout, pods: Mapping[str, PodRecord], gone: Collection[str]) -> None:
    """Raise CdiError if a container runs with a claim that ends with the pods in `gone`."""
    rest = _in_use({pod: record for pod, record in pods.items() if pod not in gone})
    for pod in sorted(gone):
        for id_ in sorted(pods[pod].claims - rest):
            claim = read_claim(places.state_dir, id_)
            if claim:
                try:
                    refuse_running(places.state_dir, claim)
                except CdiError as error:
                    raise CdiError(f"pod {pod}: {error}") from None


def _give_back(places: Layout, caller: Caller, boot_id: str, ids: Iterable[str], force: bool = False) -> list[str]:
    """Give claims back; return the errors."""
    errors = []
    for id_ in ids:
        try:
            delete_claim(places, caller, boot_id, id_, force=force)
        except CdiError as error:
            errors.append(str(error))
    return errors


def _without(before: Mapping[str, PodRecord], gone: Collection[str]) -> PodsOutcome:
    after = {pod: record for pod, record in before.items() if pod not in gone}
    changed = {id_ for pod in gone for id_ in before[pod].claims}
    return PodsOutcome(dict(before), after, {}, tuple(sorted(changed)))


def _in_use(pods: Mapping[str, PodRecord]) -> set[str]:
    return {id_ for record in pods.values() for id_ in record.claims}
