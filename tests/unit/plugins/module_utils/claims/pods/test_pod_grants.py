# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims of pods over the real executables: all or none, disjoint or shared, and given back by the last pod."""

from __future__ import annotations

import copy
import itertools
import json
import multiprocessing
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.claims.calls import Caller
from ansible_collections.fleet.cdi.plugins.module_utils.claims.check_claims import (
    GC,
    GIVE_BACK,
    POD_BY_HAND,
    check_claims,
)
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.collect_claims import collect_claims
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.users import users_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods import pod_grants, pod_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods.pod_grants import add_pods, delete_pods
from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods.pod_manifest import OPAQUE, REFERENCE
from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods.pod_record import pod_path, read_pods
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import ASKED
from ansible_collections.fleet.cdi.plugins.module_utils.claims.store import read_claim, read_claims, write_claim
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.claim_user import note_user
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.error import HookError
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.containers import ListedContainers
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import Host, config
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import gpus, ttys

from .manifests import RESOURCES, manifests
from .test_rewritten import EXCLUSIVE, NAMED, SHARED

BOOT = "boot-1"
GPUS = 8


class Pods:
    """A host with eight GPUs and eight consoles, and pods with claims."""

    def __init__(self, directory):
        trees = gpus((32768,) * GPUS), ttys(GPUS)
        self.host = Host(directory, {key: {**trees[1].get(key, {}), **trees[0][key]} for key in trees[0]})
        self.host.configure(config(), config("generic-tty", "tty", num_system_reserved=0))
        self.host.install()
        self.specs = directory / "cdi"
        self.caller = Caller(str(directory / "opt/bin"))
        places = str(directory / "etc"), self.host.root, str(directory / "opt"), (str(self.specs),)
        self.places = Layout(str(self.host.state), self.host.inventory, *places)

    def add(self, manifest, check=False, containers=(), trouble=()):
        """Add the pods; engines have these containers."""
        found = pod_manifest.read(manifest, RESOURCES)
        engines = ListedContainers(frozenset(containers), trouble)
        return add_pods(self.places, self.caller, BOOT, found, check, lambda: engines)

    def delete(self, *pods, check=False, force=False):
        return delete_pods(self.places, self.caller, BOOT, pods, check, force)

    def start_container(self, users, container="c"):
        """Do what the hook of a claim does at the start of a container. Raises HookError."""
        state = Path(self.places.state_dir, "container")
        state.write_text(json.dumps({"id": container, "pid": os.getpid()}))
        note_user(users, str(state))

    def users(self, id_):
        """The directory in the hook of the claim, which a container's configuration has from its start on."""
        return users_path(self.places.state_dir, read_claim(self.places.state_dir, id_))

    def granted(self):
        """What specs give: claim id -> device nodes. Other processes may remove specs meanwhile."""
        found = {}
        for path in sorted(self.specs.glob("*.json")) if self.specs.exists() else ():
            try:
                text = path.read_text()
            except FileNotFoundError:
                continue
            for device in json.loads(text)["devices"]:
                found[device["name"]] = {node["path"] for node in device["containerEdits"]["deviceNodes"]}
        return found

    def assert_all_free(self):
        """Ask the executables for all devices: an executable that lost one can't grant them."""
        assert read_claims(self.places.state_dir) == ((), {})
        assert (read_pods(self.places.state_dir), self.granted()) == ({}, {})
        for conf in (config(), config("generic-tty", "tty", num_system_reserved=0)):
            self.host.add(conf, f"{conf['type']}:{GPUS}", "probe")
            assert self.host.ask("DEL", conf, request_id="probe")[0] == 0


@pytest.fixture
def pods(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    return Pods(tmp_path)


def a_pod(name, *shared, **own):
    """A pod with one container."""
    requests = {f"{OPAQUE}{spec}": amount for spec, amount in own.items()}
    asked = {"requests": requests, "shared": [{REFERENCE: one} for one in shared]}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "resources": asked}]}}


def a_request(name, **amounts):
    requests = {f"{OPAQUE}{spec}": amount for spec, amount in amounts.items()}
    return {"kind": "ResourceRequest", "metadata": {"name": name}, "spec": {"resources": {"requests": requests}}}


class TestProposal:
    @pytest.mark.parametrize(
        ("manifest", "cards"),
        [
            (EXCLUSIVE, {"pod_default_exclusive_compute": 1}),
            (SHARED, {"pod_default_sharing_preprocessor": 2, "pod_default_sharing__gpu": 1,
                      "pod_default_sharing_analyst": 1}),
            (NAMED, {"pod_default_sharing_preprocessor": 2, "pod_default__shared-gpus-8g": 1,
                     "pod_default__shared-gpus-2x4g": 2}),
        ],
        ids=["exclusive", "shared", "named"],
    )  # fmt: skip
    def test_the_examples(self, pods, manifest, cards):
        first = pods.add(manifest)
        assert first.changed == tuple(sorted(cards))
        granted = pods.granted()
        assert {id_: len([path for path in paths if "card" in path]) for id_, paths in granted.items()} == cards
        assert {id_: {node.path for node in claim.nodes} for id_, claim in first.claims.items()} == granted
        assert not any(one & other for one, other in itertools.combinations(granted.values(), 2))
        second = pods.add(manifest)
        assert (second.changed, second.claims, second.before) == ((), first.claims, first.after)
        (pod,) = first.after
        assert pods.delete(pod).changed == tuple(sorted(cards))
        assert pods.delete(pod).changed == ()
        pods.assert_all_free()


class TestAllOrNone:
    def test_an_amount_that_no_host_has(self, pods):
        where = (
            r"document 2 \(Pod 'b'\): spec.containers\[0\].resources: asks for gpu:8: claim pod_default_b_c: Request"
        )
        with pytest.raises(CdiError, match=where):
            pods.add([a_pod("a", gpu=1, tty=1), a_pod("b", gpu=GPUS)])
        pods.assert_all_free()

    def test_an_amount_that_no_host_has_is_refused_in_check_mode(self, pods):
        with pytest.raises(CdiError, match=f"claim pod_default_b_c: gpu: found {GPUS + 1}; expected {GPUS} at most"):
            pods.add([a_pod("a", gpu=1), a_pod("b", gpu=GPUS + 1)], check=True)
        pods.assert_all_free()

    def test_a_type_that_the_host_has_not(self, pods):
        for check in (True, False):
            with pytest.raises(CdiError, match=r"fpga.d in .* has no configuration"):
                pods.add([a_pod("a", gpu=1), a_pod("b", fpga=1)], check)
        pods.assert_all_free()

    def test_what_others_were_granted_before_stays(self, pods):
        pods.add([a_pod("a", gpu=2)])
        with pytest.raises(CdiError, match="cannot be fulfilled"):
            pods.add([a_pod("a", gpu=2), a_pod("b", gpu=GPUS)])
        assert list(read_pods(pods.places.state_dir)) == ["default/a"]
        assert list(pods.granted()) == ["pod_default_a_c"]

    @pytest.mark.parametrize("after", ["add", "delete"])
    def test_a_killed_call_is_completed_or_given_back(self, pods, monkeypatch, after):
        add_claim, calls = pod_grants.add_claim, []

        def killed_at_the_second(*arguments, **options):
            calls.append(arguments)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return add_claim(*arguments, **options)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(pod_grants, "add_claim", killed_at_the_second)
            pods.add(NAMED)
        assert len(pods.granted()) == 1
        if after == "add":
            pods.add(NAMED)
            assert len(pods.granted()) == 3
        pods.delete("default/sharing")
        pods.assert_all_free()


class TestCheckMode:
    def test_changes_nothing_and_tells_the_same(self, pods):
        told = pods.add(SHARED, check=True)
        assert not pods.specs.exists() and not os.path.exists(os.path.join(pods.places.state_dir, "pods"))
        done = pods.add(SHARED)
        assert (told.changed, told.after) == (done.changed, done.after)
        assert pods.add(SHARED, check=True).changed == ()
        told = pods.delete("default/sharing", check=True)
        assert len(pods.granted()) == 3
        assert told == pods.delete("default/sharing")


class TestSharedByPods:
    REQUEST = a_request("r", gpu=1)

    def test_the_last_pod_frees(self, pods):
        pods.add([self.REQUEST, a_pod("a", "r", tty=1)])
        before = pods.granted()["pod_default__r"]
        assert pods.add([self.REQUEST, a_pod("b", "r")]).changed == ("pod_default__r",)
        assert pods.granted()["pod_default__r"] == before
        pods.delete("default/a")
        assert pods.granted() == {"pod_default__r": before}
        pods.delete("default/b", "default/a", "default/unknown")
        pods.assert_all_free()

    def test_pods_that_come_and_go_at_once(self, pods):
        def live(name):
            for _time in range(2):
                pods.add([self.REQUEST, a_pod(name, "r", tty=1)])
                assert pods.granted().keys() >= {"pod_default__r", f"pod_default_{name}_c"}
                pods.delete(f"default/{name}")

        processes = [multiprocessing.get_context("fork").Process(target=live, args=(name,)) for name in "abcde"]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0] * len(processes)
        pods.assert_all_free()

    def test_another_amount_than_the_other_pod_has(self, pods):
        pods.add([self.REQUEST, a_pod("a", "r")])
        for check in (True, False):
            with pytest.raises(CdiError, match="claim pod_default__r: is there already, for gpu:1; found .* gpu:2"):
                pods.add([a_request("r", gpu=2), a_pod("b", "r")], check)
        assert list(read_pods(pods.places.state_dir)) == ["default/a"]


class TestEditedBetweenAddAndDelete:
    def test_another_manifest_is_refused_and_what_was_granted_is_given_back(self, pods):
        pods.add(NAMED)
        for change in ("add", "drop", "none"):
            edited = copy.deepcopy(NAMED)
            containers = edited[2]["spec"]["containers"]
            if change == "add":
                containers[2]["resources"]["requests"] = {f"{OPAQUE}tty": 1}
            elif change == "drop":
                containers.pop()
            else:
                edited[2]["spec"]["containers"] = [{"name": "other"}]
            for check in (True, False):
                with pytest.raises(CdiError, match="pod default/sharing: container .* has .*; the manifest asks for"):
                    pods.add(edited, check)
            assert len(pods.granted()) == 3
        pods.delete(*pod_manifest.pods_in(edited))
        pods.assert_all_free()

    def test_another_order_is_no_change(self, pods):
        pods.add(NAMED)
        turned = copy.deepcopy(NAMED[::-1])
        turned[0]["spec"]["containers"].reverse()
        assert pods.add(turned).changed == ()

    def test_another_amount(self, pods):
        pods.add([a_pod("a", gpu=1)])
        with pytest.raises(CdiError, match="claim pod_default_a_c: is there already, for gpu:1; found .* gpu:2"):
            pods.add([a_pod("a", gpu=2)])


class TestRecord:
    @pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 1, "pod": "x/y", "containers": {"c": ["i"]}}',
                                         '{"version": 1, "pod": "default/a", "containers": {"c": [1]}}'])  # fmt: skip
    def test_a_damaged_one_stops_all_because_it_may_be_a_user(self, pods, content):
        pods.add([a_pod("a", gpu=1), a_pod("b", gpu=1)])
        Path(pods.places.state_dir, "pods/default_a.json").write_text(content)
        with pytest.raises(CdiError, match=r"pods/default_a.json"):
            pods.delete("default/b")
        assert len(pods.granted()) == 2

    @pytest.mark.parametrize("content", [None, "{"])
    def test_one_that_is_gone_or_damaged_is_told_and_its_claims_stay(self, pods, content):
        pods.add(a_pod("a", gpu=1))
        path = Path(pod_path(pods.places.state_dir, "default/a"))
        path.write_text(content) if content else path.unlink()
        (found,) = check_claims(pods.places, BOOT).faults
        if content:
            assert (found.id, found.advice) == (str(path), POD_BY_HAND)
            with pytest.raises(CdiError, match=str(path)):
                collect_claims(pods.places, pods.caller, BOOT, listed=ListedContainers)
        else:
            assert (found.id, found.advice) == ("pod_default_a_c", GIVE_BACK) and str(path.parent) in found.fault
        assert list(pods.granted()) == ["pod_default_a_c"]

    def test_a_claim_that_is_only_asked_for_is_told_once(self, pods):
        pods.add(a_pod("a", gpu=1))
        Path(pod_path(pods.places.state_dir, "default/a")).unlink()
        claim = read_claim(pods.places.state_dir, "pod_default_a_c")
        write_claim(pods.places.state_dir, claim._replace(state=ASKED))
        assert [one.advice for one in check_claims(pods.places, BOOT).faults] == [GC]

    def test_a_claim_that_cannot_be_given_back_keeps_its_pod(self, pods):
        pods.add([a_pod("a", gpu=1), a_pod("b", tty=1)])
        (path,) = Path(pods.host.directory, "etc/gpu.d").iterdir()
        path.rename(path.with_suffix(".away"))
        with pytest.raises(CdiError, match="claim pod_default_a_c: could not be given back"):
            pods.delete("default/a", "default/b")
        assert list(read_pods(pods.places.state_dir)) == ["default/a"]
        path.with_suffix(".away").rename(path)
        pods.delete("default/a")
        pods.assert_all_free()


ID = "pod_default_one_c"


class TestContainersOfPods:
    """What containers of a pod that ended can still do."""

    def test_devices_that_a_container_uses_are_not_given_back(self, pods):
        pods.add([a_pod("one", "screen", gpu=1), a_pod("two", "screen", gpu=1), a_request("screen", tty=1)])
        pods.start_container(pods.users(ID), "runs")
        pods.start_container(pods.users("pod_default__screen"), "shares")
        for check in (True, False):
            with pytest.raises(CdiError, match=r"pod default/one: claim pod_default__screen: .* still run: shares"):
                pods.delete("default/two", "default/one", check=check)
        assert len(pods.granted()) == 3 and len(read_pods(pods.places.state_dir)) == 2
        assert pods.delete("default/two").changed  # `screen` stays with pod one
        pods.delete("default/one", force=True)
        pods.assert_all_free()

    def test_a_container_of_the_former_pod_gets_no_device_of_the_new_one(self, pods):
        """It was about to start with the former spec: the token in its hook is another one."""
        pods.add(a_pod("one", gpu=1))
        former = pods.users(ID)
        pods.delete("default/one")
        pods.add(a_pod("one", gpu=1))
        assert former != pods.users(ID)
        with pytest.raises(HookError, match="the claim is over"):
            pods.start_container(former)
        pods.start_container(pods.users(ID))

    def test_the_same_pod_again_waits_for_the_end_of_the_former_containers(self, pods):
        """An engine that still has one would resolve the name anew at its start."""
        pods.add(a_pod("one", gpu=1))
        pods.start_container(pods.users(ID), "0123456789abcdef")
        pods.delete("default/one", force=True)
        for check in (True, False):
            with pytest.raises(CdiError, match=r"still exist, .* next start: 0123456789ab\. Remove the former pod"):
                pods.add(a_pod("one", gpu=1), check, containers=["0123456789abcdef", "other"])
            with pytest.raises(CdiError, match=r"not known if one does \(docker: off\)"):
                pods.add(a_pod("one", gpu=1), check, trouble=("docker: off",))
        pods.assert_all_free()
        assert pods.add(a_pod("one", gpu=1), containers=["other"]).changed == (ID,)

    def test_without_former_containers_no_engine_is_asked(self, pods):
        for _time in range(2):
            pods.add(a_pod("one", gpu=1), trouble=("docker: off",))
            pods.delete("default/one")


@given(manifests(most_pods=2), st.randoms(use_true_random=False))
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_of_any_pods(manifest, random):
    """Disjoint where they must be, shared where they must be; the last user frees; then nothing is left."""
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    with tempfile.TemporaryDirectory() as directory:
        host = Pods(Path(directory))
        try:
            outcome = host.add(manifest)
        except CdiError:  # more than the host has
            host.assert_all_free()
            return
        granted = host.granted()
        assert set(granted) == {claim.owner.id for claim in pod_manifest.read(manifest, RESOURCES).claims}
        assert not any(one & other for one, other in itertools.combinations(granted.values(), 2))
        left = dict(outcome.after)
        for pod in random.sample(sorted(left), len(left)):
            del left[pod]
            host.delete(pod)
            assert set(host.granted()) == {id_ for record in left.values() for id_ in record.claims}
            assert all(host.granted()[id_] == granted[id_] for id_ in host.granted())
        host.assert_all_free()
