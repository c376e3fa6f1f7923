# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pod manifests: the claims that they ask for, and the manifests that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given

from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods import pod_manifest as pod
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import grammar
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

from .manifests import RESOURCES, manifests

CASES = yaml.safe_load(Path(__file__).with_name("cases.yml").read_text().replace("{OPAQUE}", pod.OPAQUE))
EXTENDED = {"acme.com/gpu": "gpu"}
AMOUNT = "an integer of 0 to 2^63-1"


def by_name(part):
    return [pytest.param(case, id=case["name"]) for case in CASES[part]]


def read(text, resources=()):
    return pod.read(list(yaml.safe_load_all(text)), dict(resources))


def in_the_form_of_cases(found):
    return [
        {
            "id": claim.owner.id,
            "request": ",".join(f"{spec}:{amount}" for spec, amount in claim.amounts.items()),
            "users": list(claim.users),
        }
        for claim in found.claims
    ]


@pytest.mark.parametrize("case", [*by_name("proposal"), *by_name("others")])
def test_claims(case):
    assert in_the_form_of_cases(read(case["manifest"], case.get("resources", {}))) == case["claims"]


@pytest.mark.parametrize("case", by_name("refused"))
def test_refusal(case):
    limits = case.get("limits", {"acme.com/gpu": case.get("amount")})
    container = {"name": "c", "resources": {"limits": limits}}
    spec = case.get("pod", {"containers": [container]})
    whole = {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    manifest = list(yaml.safe_load_all(case["manifest"])) if "manifest" in case else whole
    with pytest.raises(CdiError) as error:
        pod.read(manifest, EXTENDED)
    where = "" if "manifest" in case else "document 1 (Pod 'p'): "
    found = "nothing" if case.get("amount") is None else repr(case["amount"])
    field = 'spec.containers[0].resources.limits["acme.com/gpu"]'
    assert str(error.value) == where + case.get("error", f"{field}: found {found}; expected {AMOUNT}")


def test_a_name_of_an_extended_resource_that_stands_for_none():
    with pytest.raises(CdiError, match="resources: a.com/b: found 'a.b'; expected a resource-spec"):
        pod.read([], {"a.com/b": "a.b"})


def test_a_document_that_contains_itself():
    endless: dict = {"kind": "Job"}
    endless["spec"] = endless
    with pytest.raises(CdiError, match="expected at most 64 values in each other"):
        pod.read(endless, {})
    endless = {"kind": "List"}
    endless["items"] = [endless]
    with pytest.raises(CdiError, match="no List in a List"):
        pod.read(endless, {})


def test_messages_have_no_control_characters_and_an_end():
    name = "\x1b[2Jacme.com/gpu" + "x" * 10000
    container = {"name": "c", "resources": {"limits": {name: 1}}}
    with pytest.raises(CdiError) as error:
        pod.read({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}, {})
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 600


@pytest.mark.parametrize("long", ["kind", "name", "key", "resource"])
def test_nor_those_about_other_objects(long):
    texts = {"kind": "Job", "name": "p", "key": "k", "resource": "acme.com/gpu"}
    texts[long] = ("\x1b[2J" if long != "key" else "k") + texts[long] + "x" * 10000
    inner = {"limits": {texts["resource"]: 1}, texts["key"]: {pod.REFERENCE: 1}}
    job = {"kind": texts["kind"], "metadata": {"name": texts["name"]}, "spec": inner}
    with pytest.raises(CdiError) as error:
        pod.read(job, {texts["resource"]: "gpu"})
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 600


@given(manifests())
def test_of_any_manifest(manifest):
    found = pod.read(manifest, RESOURCES)
    assert len({claim.owner.id for claim in found.claims}) == len(found.claims)
    assert found == pod.read(json.loads(json.dumps(manifest)), RESOURCES)
    assert pod.pods_in(manifest) == found.pods
    for claim in found.claims:
        assert claim.users and len(set(claim.users)) == len(claim.users)
        assert len(claim.users) == 1 or claim.owner.sort != pod.CONTAINER
        for user in claim.users:
            assert user.rpartition("/")[0] in found.pods
        assert claim.amounts and all(claim.amounts.values()) and all(map(grammar.is_resource_spec, claim.amounts))
