# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manifests written again for podman, for a device plugin and for ResourceClaims."""

from __future__ import annotations

import copy
import json

import pytest
import yaml
from hypothesis import given

from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods import pod_manifest as pod
from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods.rewritten import (
    for_device_plugin,
    for_podman,
    for_resource_claims,
)
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

from .manifests import RESOURCES, manifests
from .test_pod_manifest import CASES

EXCLUSIVE, SHARED, NAMED = (list(yaml.safe_load_all(case["manifest"])) for case in CASES["proposal"])
CLASSES = {"gpu": "gpu.example.com", "tty": "tty.example.com"}
NATIVE = {"cpu": "1000m", "memory": "12Gi"}


def name(id_):
    return f"fleet.cdi/claim={id_}"


def podman(manifest, resources=()):
    return for_podman(pod.read(manifest, dict(resources)), dict(resources), name)


def resources(document):
    return {one["name"]: one.get("resources") for one in document["spec"]["containers"]}


def names(*ids):
    return {"limits": {name(f"pod_default_{id_}"): 1 for id_ in ids}}


class TestPodman:
    def test_the_proposals_examples(self):
        (document,) = podman(EXCLUSIVE)
        limits = {**NATIVE, name("pod_default_exclusive_compute"): 1}
        assert resources(document) == {"compute": {"requests": NATIVE, "limits": limits}}
        (document,) = podman(SHARED)
        assert "resources" not in document["spec"]
        assert resources(document) == {
            "preprocessor": names("sharing_preprocessor", "sharing__gpu"),
            "analyst": names("sharing_analyst", "sharing__gpu"),
        }
        (document,) = podman(NAMED)
        assert resources(document) == {
            "preprocessor": names("sharing_preprocessor", "_shared-gpus-8g"),
            "analyst": names("_shared-gpus-8g", "_shared-gpus-2x4g"),
            "postprocessor": names("_shared-gpus-2x4g"),
        }

    def test_all_else_stays_and_the_manifest_too(self):
        before = copy.deepcopy(SHARED)
        (document,) = podman(SHARED)
        assert before == SHARED
        assert document["metadata"] == before[0]["metadata"]
        assert [one["image"] for one in document["spec"]["containers"]] == ["preprocess-app:v1", "compute-app:v1"]

    def test_other_objects_stay(self):
        other = {"kind": "ConfigMap", "data": {"a": "b"}}
        assert podman([other, None, {"kind": "List", "items": [other]}]) == [other, other]

    @given(manifests())
    def test_of_any_manifest(self, manifest):
        found = pod.read(manifest, RESOURCES)
        documents = for_podman(found, RESOURCES, name)
        assert [one["kind"] for one in documents] == ["Pod"] * len(found.pods)
        for document, whole in zip(documents, found.pods):
            for container in document["spec"]["containers"]:
                limits = container.get("resources", {}).get("limits", {})
                used = {claim.owner.id for claim in found.claims if f"{whole}/{container['name']}" in claim.users}
                assert limits == {name(id_): 1 for id_ in used}
        left = json.dumps(documents)
        assert not any(word in left for word in (pod.OPAQUE, pod.REFERENCE, "acme.com", "shared"))


class TestDevicePlugin:
    def test_whole_devices_of_a_container(self):
        manifest = {"kind": "Pod", "metadata": {"name": "p"}}
        asked = {f"{pod.OPAQUE}gpu": 2, "cpu": 1}
        manifest["spec"] = {"containers": [{"name": "c", "resources": {"requests": asked}}, {"name": "d"}]}
        mapping = {"acme.com/gpu": "gpu"}
        (document,) = for_device_plugin(pod.read(manifest, mapping), mapping)
        assert resources(document) == {"c": {"requests": {"cpu": 1}, "limits": {"acme.com/gpu": 2}}, "d": None}

    @pytest.mark.parametrize(
        ("manifest", "words"),
        [
            (SHARED, "Pod 'sharing', container 'preprocessor': asks for gpu-memory"),
            ([*NAMED[:2], {**NAMED[2], "spec": {"containers": NAMED[2]["spec"]["containers"][1:]}}],
             "Pod 'sharing', container 'analyst': shares devices, and a device plugin gives each"),
        ],
    )  # fmt: skip
    def test_what_it_cannot_say(self, manifest, words):
        mapping = {"acme.com/gpu": "gpu"}
        with pytest.raises(CdiError, match=words) as error:
            for_device_plugin(pod.read(manifest, mapping), mapping)
        assert "Rewrite the manifest for ResourceClaims (target: resource_claims)." in str(error.value)

    def test_a_resource_without_a_name(self):
        asked = {"requests": {f"{pod.OPAQUE}gpu": 1}}
        manifest = {
            "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "resources": asked}]},
        }
        with pytest.raises(CdiError, match="asks for gpu; expected an extended resource for gpu in `resources`"):
            for_device_plugin(pod.read(manifest, {}), {})


class TestResourceClaims:
    def test_the_proposals_examples(self):
        for manifest, claims in (
            (EXCLUSIVE, {"exclusive-compute": ["compute"]}),
            (
                SHARED,
                {
                    "sharing-preprocessor": ["preprocessor"],
                    "sharing-pod-gpu": ["preprocessor", "analyst"],
                    "sharing-analyst": ["analyst"],
                },
            ),
            (
                NAMED,
                {
                    "sharing-preprocessor": ["preprocessor"],
                    "shared-gpus-8g": ["preprocessor", "analyst"],
                    "shared-gpus-2x4g": ["analyst", "postprocessor"],
                },
            ),
        ):
            *objects, document = for_resource_claims(pod.read(manifest, {}), {}, CLASSES)
            assert {one["kind"] for one in objects} == {"ResourceClaim"}
            assert [one["metadata"]["name"] for one in objects] == list(claims)
            used = [{"name": one, "resourceClaimName": one} for one in claims]
            assert document["spec"]["resourceClaims"] == used
            for one, users in claims.items():
                found = [
                    container["name"]
                    for container in document["spec"]["containers"]
                    if {"name": one} in container["resources"]["claims"]
                ]
                assert found == users

    def test_amounts(self):
        first, *_others = for_resource_claims(pod.read(NAMED, {}), {}, CLASSES)
        assert first["metadata"] == {"name": "sharing-preprocessor", "namespace": "default"}
        expression = (
            '"memory" in device.capacity[device.driver]'
            ' && device.capacity[device.driver]["memory"].compareTo(quantity("16384Mi")) >= 0'
        )
        request = {
            "deviceClassName": "gpu.example.com",
            "allocationMode": "ExactCount",
            "count": 2,
            "selectors": [{"cel": {"expression": expression}}],
        }
        assert first["spec"] == {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}
        assert first["apiVersion"] == "resource.k8s.io/v1"

    def test_claims_that_the_pod_has_stay(self):
        manifest = copy.deepcopy(EXCLUSIVE)
        other = {"name": "nic", "resourceClaimName": "my-nic"}
        manifest[0]["spec"]["resourceClaims"] = [other]
        manifest[0]["spec"]["containers"][0]["resources"]["claims"] = [{"name": "nic"}]
        _claim, document = for_resource_claims(pod.read(manifest, {}), {}, CLASSES)
        assert document["spec"]["resourceClaims"][0] == other
        (container,) = document["spec"]["containers"]
        assert container["resources"]["claims"] == [{"name": "nic"}, {"name": "exclusive-compute"}]
        manifest[0]["spec"]["resourceClaims"][0]["name"] = "exclusive-compute"
        with pytest.raises(CdiError, match="ResourceClaim 'exclusive-compute': two claims would have this name"):
            for_resource_claims(pod.read(manifest, {}), {}, CLASSES)

    def test_no_claims_that_the_pod_has(self):
        manifest = copy.deepcopy(EXCLUSIVE)
        manifest[0]["spec"]["resourceClaims"] = None
        manifest[0]["spec"]["containers"][0]["resources"]["claims"] = None
        _claim, document = for_resource_claims(pod.read(manifest, {}), {}, CLASSES)
        assert document["spec"]["containers"][0]["resources"]["claims"] == [{"name": "exclusive-compute"}]

    @pytest.mark.parametrize(
        ("of_pod", "of_container", "words"),
        [
            ("nic", [], r"spec\.resourceClaims: found 'nic'; expected a list"),
            (["nic"], [], r"spec\.resourceClaims\[0\]: found 'nic'; expected a mapping"),
            ([None], [], r"spec\.resourceClaims\[0\]: found nothing; expected a mapping"),
            ([], {"name": "nic"}, r"spec\.containers\[0\]\.resources\.claims: found .*; expected a list"),
        ],
    )
    def test_claims_of_another_form(self, of_pod, of_container, words):
        manifest = copy.deepcopy(EXCLUSIVE)
        manifest[0]["spec"]["resourceClaims"] = of_pod
        manifest[0]["spec"]["containers"][0]["resources"]["claims"] = of_container
        with pytest.raises(CdiError, match=words):
            for_resource_claims(pod.read(manifest, {}), {}, CLASSES)

    @pytest.mark.parametrize(
        ("pods", "words"),
        [
            ({"p": {"c": {"tty": 1}}}, "device_classes: found no tty; expected the DeviceClass of tty in the cluster"),
            ({"p": {"c": {"gpu-memory": 1}}}, r"'p-c': would be a share of a device \(gpu-memory without gpu"),
            ({"p" * 62: {"c": {"gpu": 1}}}, "found a name of 64 characters; expected at most 63"),
            ({"a.b": {"c": {"gpu": 1}}}, "expected at most 63 lower-case letters, digits and '-'"),
            ({"a": {"b-c": {"gpu": 1}}, "a-b": {"c": {"gpu": 1}}}, "'a-b-c': two claims would have this name"),
        ],
    )
    def test_refusals(self, pods, words):
        def container(one, asked):
            requests = {f"{pod.OPAQUE}{spec}": amount for spec, amount in asked.items()}
            return {"name": one, "resources": {"requests": requests}}

        def a_pod(one, has):
            return {
                "kind": "Pod",
                "metadata": {"name": one},
                "spec": {"containers": [container(*item) for item in has]},
            }

        manifest = [a_pod(one, has.items()) for one, has in pods.items()]
        with pytest.raises(CdiError, match=words):
            for_resource_claims(pod.read(manifest, {}), {}, {"gpu": "gpu.example.com"})
