# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runtimes see, beside ten releases of the reference library: of one file, of directories, and beside our own.

Most files are ones that only one side takes: the strict reader or the lenient one, this release or that.

SEEN=100000 SEED=7 make conformance    as many other files as wanted
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from random import Random
from typing import NamedTuple

import judge
import pytest
import spec_cases
from spec_documents import ANYWHERE, DOCUMENT
from spec_grammar import good_spec

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import build_spec, foreign, plan_spec
from ansible_collections.fleet.cdi.plugins.module_utils.directories import resolved
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import Manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec, registry
from ansible_collections.fleet.cdi.plugins.module_utils.spec.seen import releases, seen
from ansible_collections.fleet.cdi.plugins.module_utils.spec.seen.linked import Linked, by_release
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.spec.seen.test_seen import TABLE, as_file

FILES = int(os.environ.get("SEEN", "3000"))  # of each test
SEED = int(os.environ.get("SEED", "1"))
BATCH = 1000
KINDS = ("vendor.com/gpu", "vendor.com/nic", "a/gpu", "vendor.com/g.p")
VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "v0.5.0", "0.5.0", "0.6.0", "0.7.0", "1.0.0", "1.1.0", "1.2.0")
ROWS = {release: releases.row(release) for release in judge.RELEASES}


@pytest.fixture(scope="module")
def judges():
    running = {release: judge.Judge(release) for release in judge.RELEASES}
    yield running
    for one in running.values():
        one.__exit__()


def ask(judges, requests):
    """Release -> its answers to all of `requests`."""
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(judges, pool.map(lambda one: one.ask_all(requests), judges.values())))


def test_every_row_of_releases_has_a_judge():
    assert set(ROWS.values()) == set(releases.NAMES) - {"0.3.0"}  # whose source has no go.sum any more


def names_in(sight, row):
    """What release `row` finds in a file, as the judge says it."""
    for one in sight.taken:
        if row in one.by:
            return one.spec["kind"], sorted(device["name"] for device in one.spec["devices"])
    return None


def difference(sight, row, answer):
    """What of a release's answer is not as `sight` says; "" if all is."""
    found = (answer["kind"], answer["devices"]) if answer["accept"] and answer.get("devices") else None
    if sight.unclear:  # then whatever it may be is to be stopped for
        return "" if found is None or sight.unclear.may_define(found[0]) else f"may not be {found[0]}"
    if row in sight.crashes:
        return ""  # it may crash
    if answer.get("crash"):
        return f"a crash that is not foreseen: {answer['error']}"
    return "" if names_in(sight, row) == found else f"{names_in(sight, row)}, by the library {found} {answer}"


def test_what_each_release_takes_a_file_for(judges, capsys):
    figures, wrong, cases = Counter(), [], spec_cases.generate(FILES, SEED)
    while batch := list(islice(cases, BATCH)):
        answers = ask(judges, [judge.reading(case.name, case.content) for case in batch])
        for index, case in enumerate(batch):
            reading = codec.read(case.content, case.name)
            sight = seen.read_sight(case.content, case.name, reading)
            accepting = [release for release in judges if answers[release][index]["accept"]]
            figures["files"] += 1
            figures["strictly accepted"] += reading.spec is not None
            figures["strictly accepted, and refused by all releases"] += reading.spec is not None and not accepting
            figures["strictly refused, and read by some release"] += reading.spec is None and bool(accepting)
            figures["read by some releases and not by others"] += 0 < len(accepting) < len(judges)
            figures["unclear"] += sight.unclear is not None
            figures["some release may crash"] += bool(sight.crashes)
            for release, row in ROWS.items():
                answer = answers[release][index]
                figures["said to crash, and did not"] += row in sight.crashes and not answer.get("crash", False)
                problem = difference(sight, row, answer)
                if problem:
                    wrong.append(f"{release}: {case.made} ({case.name}): {problem}\n{case.content[:600]!r}")
    figures["wrong"] = len(wrong)
    with capsys.disabled():
        print(f"\n{json.dumps({'seed': SEED, **figures}, indent=1)}")
    assert not wrong, "\n\n".join(wrong[:8])
    assert figures["strictly accepted, and refused by all releases"] == 0
    assert figures["strictly refused, and read by some release"] > FILES // 20
    assert figures["read by some releases and not by others"] > FILES // 4
    assert figures["unclear"] < FILES // 5


def test_the_cases_of_the_unit_tests_are_true(judges):
    """Their table says what each release takes a file for; here the releases say it themselves."""
    made = {name: as_file(case) for name, case in TABLE["cases"].items()}
    answers = ask(judges, [judge.reading(*one) for one in made.values()])
    wrong = []
    for index, (case, (name, content)) in enumerate(made.items()):
        sight = seen.read_sight(content, name)
        found = {release: difference(sight, row, answers[release][index]) for release, row in ROWS.items()}
        wrong += [f"{release}: {case}: {problem}" for release, problem in found.items() if problem]
        wrong += [
            f"{release}: {case}: no crash"
            for release, row in ROWS.items()
            if row in sight.crashes and not answers[release][index].get("crash")
        ]
    assert not wrong, "\n".join(wrong)


# -- directories


def a_file(rng, number):
    """A file of one of a few kinds with a few of a few names, so that many meet; mostly with something about it."""
    names = rng.sample(("x", "v1", "z2", "9w"), rng.randint(1, 3))
    spec = {
        "cdiVersion": rng.choice(VERSIONS),
        "kind": rng.choice(KINDS[:2] * 4 + KINDS),
        "devices": [{"name": name, "containerEdits": {"env": ["A=1"]}} for name in names],
    }
    edits = rng.choice([spec["devices"][0]["containerEdits"], spec.setdefault("containerEdits", {})])
    more = rng.choice(
        (
            *[{}] * 4,
            {"mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "tmpfs"}]},
            {"deviceNodes": [{"path": "/dev/null", "hostPath": "/dev/zero"}]},
            {"deviceNodes": [{"path": "/dev/null", "permissions": "none"}]},
            {"additionalGids": rng.choice(([], [5]))},
            {"intelRdt": {rng.choice(("enableCMT", "enableMonitoring")): True}},
            {"intelRdt": {"closID": "/"}},
            {"netDevices": [{"hostInterfaceName": "a", "name": "b"}]},
            {"future": 1},
        )
    )
    edits.update(more)
    if rng.random() < 0.1:
        rng.choice(list((DOCUMENT | ANYWHERE).values()))(rng, spec)
    if rng.random() < 0.6:
        name = rng.choice(("case.json", "case.yaml"))
        return spec_cases.Case(f"{number}", name, json.dumps(spec).encode())
    return spec_cases.changed(rng, spec, number)


def make(rng, root, number):
    """One or two directories with files, and links: (their paths, how many files)."""
    directories, count = [root / "0", root / "1"][: rng.randint(1, 2)], 0
    for directory in directories:
        state = rng.choice((*["there"] * 14, "missing", "a file", "a link"))
        other = root / rng.choice(("real", "real", "1" if directory.name == "0" else "0"))
        if directory.exists() or (state == "a link" and other.is_file()):  # the other one leads here, perhaps
            state = "there"
        if state == "a file":
            directory.write_text("no directory")
        elif state != "missing":
            if state == "a link":
                other.mkdir(exist_ok=True)
                directory.symlink_to(other.name)
            directory.mkdir(exist_ok=True)
            for stem in rng.sample("abcd", rng.randint(1, 3)):
                case = a_file(rng, number)
                (directory / f"{stem}{os.path.splitext(case.name)[1]}").write_bytes(case.content)
                count += 1
            if rng.random() < 0.1 and not os.path.lexists(directory / "l.json"):  # two links may lead to one directory
                (directory / "l.json").symlink_to(rng.choice(("a.json", "../0/b.json", "none", "vendor.com-gpu.json")))
    return [str(directory) for directory in directories], count


def sets(tmp_path, salt):
    """(root, directories, how many files) of as many directories as have FILES files, in batches."""
    rng, files_, number = Random(f"{SEED} {salt}"), 0, 0
    while files_ < FILES:
        batch = []
        while files_ < FILES and len(batch) < BATCH:
            root = tmp_path / str(number)
            root.mkdir()
            directories, count = make(rng, root, number)
            batch.append((rng, directories, count))
            files_, number = files_ + count, number + 1
        yield batch
        for path in tmp_path.iterdir():
            shutil.rmtree(path)


def test_which_file_each_release_finds_a_name_in(judges, tmp_path, capsys):
    figures, wrong = Counter(), []
    for batch in sets(tmp_path, "directories"):
        answers = ask(judges, [{"directories": directories} for _rng, directories, _count in batch])
        for index, (_rng, directories, count) in enumerate(batch):
            found = registry.load(directories)
            figures["files"] += count
            figures["sets"] += 1
            figures["with errors that some release reads"] += any(file.path in found.errors for file in found.specs)
            figures["with a file that is unclear"] += bool(found.unclear)
            views = set()
            for release, row in ROWS.items():
                answer = answers[release][index]
                if answer.get("crash"):
                    figures["crashes"] += 1
                    if not found.unclear and not any(row in one for one in found.crashes.values()):
                        wrong.append(f"{release}: a crash that is not foreseen: {answer['error']} {texts(directories)}")
                    continue
                ours = registry.seen_with(found, by_release([row])).devices
                theirs = answer.get("providers", {})
                odd = {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)}
                odd = {name for name in odd if not any(one.may_define(kind_of(name)) for one in found.unclear.values())}
                views.add(json.dumps(theirs, sort_keys=True))
                if odd and not any(row in one for one in found.crashes.values()):
                    wrong.append(f"{release}: {sorted(odd)}: {ours}, by the library {theirs}\n{texts(directories)}")
            figures["in which releases see different names"] += len(views) > 1
    figures["wrong"] = len(wrong)
    with capsys.disabled():
        print(f"\n{json.dumps({'seed': SEED, **figures}, indent=1)}")
    assert not wrong, "\n\n".join(wrong[:5])
    assert figures["in which releases see different names"] > figures["sets"] // 3
    assert figures["with errors that some release reads"] > figures["sets"] // 10


def kind_of(name):
    return name.partition("=")[0]


def texts(directories):
    """What is in the files, for people."""
    return {
        os.path.join(directory, name): open(os.path.join(directory, name), "rb").read()[:300]
        for directory in directories
        if os.path.isdir(directory)
        for name in os.listdir(directory)
        if os.path.isfile(os.path.join(directory, name))
    }


# -- our own specs among them


def our_spec(rng):
    names = rng.sample(("x", "v1", "z2", "9w", "own1"), rng.randint(1, 3))
    devices = [{"name": name, "containerEdits": {"env": ["B=1"]}} for name in names]
    return build_spec.complete(rng.choice(KINDS[:2]), {"devices": devices})


def test_what_converge_writes_every_runtime_of_the_host_finds(judges, tmp_path, capsys):
    figures, wrong, useless = Counter(), [], []
    for batch in sets(tmp_path, "converge"):
        planned, wanted = [], {release: [] for release in judges}
        for rng, directories, count in batch:
            figures["files"] += count
            figures["sets"] += 1
            hosts = rng.sample(judge.RELEASES, rng.randint(1, 3))
            spec, directory = our_spec(rng), rng.choice(directories)
            outcome = written(spec, directory, directories, hosts, rng.choice((None, foreign.USE, foreign.REPLACE)))
            figures[outcome] += 1
            path = f"{directory}/{plan_spec.names.file_name(spec['kind'])}"
            planned.append(Planned(spec, path, directories, hosts, outcome, {}))
            for release in hosts:
                wanted[release].append((len(planned) - 1, directories))
        for release, asked in wanted.items():
            answers = judges[release].ask_all([{"directories": directories} for _index, directories in asked])
            for (index, _directories), answer in zip(asked, answers):
                planned[index].answers[release] = answer
        for one in planned:
            if one.outcome == "written":
                wrong += [f"{one.path}: {text}\n{texts(one.directories)}" for text in lost(one)]
            if one.outcome == "theirs is used" and not offers(one):
                useless.append(f"{one.spec['kind']}: {one.answers}\n{texts(one.directories)}")
    figures["names that a runtime resolves to another file or not at all"] = len(wrong)
    figures["specs of others that are used, and in which no runtime finds a name of the kind"] = len(useless)
    with capsys.disabled():
        print(f"\n{json.dumps({'seed': SEED, **figures}, indent=1)}")
    assert not wrong, "\n\n".join(wrong[:5])
    assert not useless, "\n\n".join(useless[:5])
    assert figures["written"] > figures["refused"] // 4
    assert figures["theirs is used"] > figures["sets"] // 50


class Planned(NamedTuple):
    """What converge was to write, and what each release of the host then resolves."""

    spec: dict
    path: str
    directories: list
    hosts: list  # releases
    outcome: str
    answers: dict  # release -> what the library says


def lost(one):
    """For each release of the host, the names that it does not resolve to our file."""
    names = [f"{one.spec['kind']}={device['name']}" for device in one.spec["devices"]]
    by = seen.read_sight(codec.encode(one.spec), one.path).by  # of others the version cap keeps it from being written
    for release, answer in one.answers.items():
        files_ = {name: os.path.realpath(path) for name, path in answer.get("providers", {}).items()}
        gone = [name for name in names if files_.get(name) != os.path.realpath(one.path)]
        if gone and ROWS[release] in by:
            yield f"{release}: {gone}: {answer}"


def offers(one):
    """Whether a release of the host resolves a name of the kind."""
    found = [name for answer in one.answers.values() for name in answer.get("providers", {})]
    return any(kind_of(name) == one.spec["kind"] for name in found)


def written(spec, directory, directories, hosts, choice):
    """Write `spec` as converge does beside what is there, on a host with these releases, and say what was done.

    `choice` is what to do where other tools provide the kind; None writes beside theirs.
    """
    linked = [Linked(f"runtime {release}", ROWS[release]) for release in hosts]
    if not os.path.isdir(directory):
        return "no directory to write to"
    known = registry.load(list(map(resolved, directories)))._replace(unread=registry.hidden(directories))
    directory, manifest = resolved(directory), Manifest("", {})
    found = foreign.providers(spec["kind"], known, manifest) if choice else ()
    try:
        if found:
            place = (directory, known, manifest, True, lambda: linked)
            done = foreign.plan_foreign(spec["kind"], spec, choice, found, *place)
        else:
            done = plan_spec.plan_spec(spec["kind"], spec, directory, known, manifest, True, lambda: linked)
    except CdiError:
        return "refused"
    for change in done.changes:
        if change.after is None:
            os.unlink(change.path)
        else:
            files.replace(change.path, change.after)
    return "theirs is used" if found and choice == foreign.USE else "written"


def test_the_short_way_for_valid_specs_says_what_the_long_one_does():
    rng = Random(SEED)
    for _time in range(200):
        spec = good_spec(rng)
        content = codec.encode(spec) if codec.read(json.dumps(spec).encode(), "a.json").spec else b""
        if content:
            assert seen.read_sight(content, "a.json", codec.read(content, "a.json")) == seen.read_sight(
                content, "a.json"
            )
