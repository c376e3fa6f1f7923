# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Specs of claims, read by releases of the reference library: each has one device, which gives the edits of its parts.

QUICK=1 asks two releases, else all of judge.RELEASES are asked which device they find.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from random import Random

import judge
import pytest
from test_inject import NODES, encoded, specs

from ansible_collections.fleet.cdi.plugins.module_utils.claims.claim_spec import claim_spec
from ansible_collections.fleet.cdi.plugins.module_utils.claims.device_name import (
    KIND,
    device_name,
    qualified_name,
    spec_file,
)
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Node
from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec, inject, registry
from ansible_collections.fleet.cdi.plugins.module_utils.spec.seen import releases
from ansible_collections.fleet.cdi.plugins.module_utils.system import device_nodes

CLAIMS = int(os.environ.get("CLAIMS", "600"))
IDS = ("job-42", "web@1.service", "team/a", "-x", "all", "a", "9", "é", "..", "id::2dx", ":41", "a b", "\n", "x" * 200)
LETTERS = "abzAZ09-_.:/@ %é\n\udcff"
HOOK = {
    "hookName": "createRuntime",
    "path": "/bin/sh",
    "args": ["cdi-hook", "use-claim", "--directory=/x"],
    "env": ["PATH=/bin"],
}

NUMBERS = ("type", "major", "minor")
RUN = {key: value for key, value in HOOK.items() if key != "hookName"}


def an_id(rng):
    return rng.choice(IDS) if rng.random() < 0.3 else "".join(rng.choices(LETTERS, k=rng.randint(1, 40)))


def claims(count):
    """Yield (id, content of its spec, names of its parts, its own nodes, registry of these parts)."""
    rng, made = Random(5), 0
    while made < count:
        files = specs(rng)
        found = [
            registry.SpecFile(name, 0, codec.decode(encoded(spec), name)) for name, spec in list(files.items())[:1]
        ]
        known = registry.resolve([os.path.dirname(found[0].path)], found, {})
        names = rng.sample(sorted(known.devices), rng.randint(0, len(known.devices)))
        nodes = [Node(path, *device_nodes.read(path)) for path in rng.sample(NODES, rng.randint(0, 3))]
        id_ = an_id(rng)
        try:
            content = claim_spec(id_, nodes, names, known, [HOOK])
            parts = inject.inject({}, names, known)
        except CdiError:  # the name of a file that is not there, or edits that no claim may have
            continue
        made += 1
        yield id_, content, parts, nodes


@pytest.fixture(scope="module")
def varied():
    found = list(claims(CLAIMS))
    versions = Counter(json.loads(content)["cdiVersion"] for _id, content, _parts, _nodes in found)
    assert len(versions) > 2 and len({id_ for id_, *_rest in found}) > CLAIMS // 2, versions
    return found


def shown(oci):
    """What a container gets, without the order of things that have a name each."""
    linux, process = oci.get("linux") or {}, oci.get("process") or {}
    hooks = [(stage, one) for stage, some in (oci.get("hooks") or {}).items() for one in some if one != RUN]
    return {
        "env": dict(one.partition("=")[::2] for one in process.get("env") or ()),
        "gids": sorted((process.get("user") or {}).get("additionalGids") or ()),
        "mounts": {one["destination"]: one for one in oci.get("mounts") or ()},
        "hooks": sorted({json.dumps(one, sort_keys=True) for one in hooks}),
        "devices": {one["path"]: tuple(map(one.get, NUMBERS)) for one in linux.get("devices") or ()},
        "net": linux.get("netDevices"),
    }


@pytest.mark.parametrize("library", judge.PINS)
def test_the_one_device_gives_the_edits_of_the_parts(library, varied):
    counts = Counter()
    with judge.Judge(library) as running:
        files = [(spec_file(id_), content) for id_, content, _parts, _nodes in varied]
        readings = running.ask_all(judge.reading(*file) for file in files)
        injected = running.ask_all(
            judge.injecting([(f"run/{name}", content)], [qualified_name(one[0])], {})
            for (name, content), one in zip(files, varied)
        )
    for (id_, content, parts, nodes), reading, answer in zip(varied, readings, injected):
        if json.loads(content)["cdiVersion"] > "0.8.0" and library == "0.8":
            assert not reading["accept"]
            counts["too new"] += 1
            continue
        assert reading["accept"] and reading["devices"] == [device_name(id_)], (id_, reading)
        if not answer["accept"]:  # a node of an edit is not there, so no container starts
            assert "failed to inject devices" in answer["error"], (id_, content, answer)
            counts["refused"] += 1
            continue
        got, wanted = shown(answer["oci"]), shown(parts)
        assert {**got, "devices": 0} == {**wanted, "devices": 0}, (id_, content)
        assert set(got["devices"]) >= set(wanted["devices"]), (id_, content)
        # A node may have another path in the container.
        numbers = {(one.type, one.major, one.minor) for one in nodes}
        assert numbers <= set(got["devices"].values()), (id_, content)
        assert RUN in answer["oci"]["hooks"]["createRuntime"]
        counts["same"] += 1
    assert counts["same"] > CLAIMS // 2, counts


@pytest.mark.skipif(bool(os.environ.get("QUICK")), reason="QUICK=1 builds no more releases of the library")
@pytest.mark.parametrize("release", judge.RELEASES)
def test_each_release_that_reads_the_version_finds_the_one_device(release, varied):
    reads = tuple(map(int, releases.BY_NAME[releases.row(release)].reads.split(".")))
    with judge.Judge(release) as running:
        answers = running.ask_all(judge.reading(spec_file(id_), content) for id_, content, *_rest in varied)
    counts = Counter()
    for (id_, content, *_rest), answer in zip(varied, answers):
        version = tuple(map(int, json.loads(content)["cdiVersion"].split(".")))
        expected = (KIND, [device_name(id_)]) if version <= reads else (None, None)
        assert (answer.get("kind"), answer.get("devices")) == expected, (id_, content, answer)
        counts[version <= reads] += 1
    assert counts[True] > CLAIMS // 100, counts
