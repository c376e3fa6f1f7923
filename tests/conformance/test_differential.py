# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading and checking specs beside the reference library: never laxer, stricter only where rules.yml says why.

CASES=500000 SEED=7 make conformance    as many other cases as wanted
"""

from __future__ import annotations

import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Optional

import judge
import pytest
import spec_cases
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec
from ansible_collections.fleet.cdi.plugins.module_utils.spec.validate import ERROR
from ansible_collections.fleet.cdi.plugins.module_utils.spec.versions import minimum_version

CASES = int(os.environ.get("CASES", "20000"))
SEED = int(os.environ.get("SEED", "1"))
BATCH = 2000
RULES = yaml.safe_load(Path(__file__).with_name("rules.yml").read_text(encoding="utf-8"))
ALL_RULES = {*RULES["same"], *RULES["stricter"], *RULES["warnings"]}
EITHER_WAY = "not-every-runtime"  # the warning for what one of the two libraries refuses


class Verdict(NamedTuple):
    """What the two libraries say to one file."""

    judge: dict[str, Any]  # of the version that the file declares
    other: dict[str, Any]

    @property
    def accepting(self) -> Optional[dict[str, Any]]:
        return next((answer for answer in self if answer["accept"]), None)


def verdict(answers: dict[str, dict[str, Any]]) -> Verdict:
    """The judge is the newest release where either library reads 1.1.0 as the declared version, else 0.8."""
    declared = {(answer.get("parsed") or {}).get("cdiVersion", "").removeprefix("v") for answer in answers.values()}
    judge_, other = ("newest", "0.8") if "1.1.0" in declared else ("0.8", "newest")
    return Verdict(answers[judge_], answers[other])


def without_empty(value: Any) -> Any:
    """A document as Go writes it with omitempty, whichever fields have that."""
    if isinstance(value, dict):
        items = {key: without_empty(item) for key, item in value.items()}
        return {key: item for key, item in items.items() if item not in (None, "", 0, [], {})}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


def disagreement(ours: codec.SpecReading, theirs: Verdict) -> str:
    """What is not as it must be; "" if all is."""
    rules = {finding.rule for finding in ours.findings}
    if not rules <= ALL_RULES:
        return f"rules that rules.yml doesn't list: {rules - ALL_RULES}"
    if ours.spec is None:
        errors = {finding.rule for finding in ours.findings if finding.severity == ERROR}
        unlisted = theirs.judge["accept"] and not errors & set(RULES["stricter"])
        return f"refused by {errors}, which the judge accepts" if unlisted else ""
    accepting = theirs.accepting
    if accepting is None or not (theirs.judge["accept"] or EITHER_WAY in rules):
        return f"accepted, but the judge says: {theirs.judge['error']}"
    if not theirs.other["accept"] and "1.1.0" not in ours.spec["cdiVersion"] and EITHER_WAY not in rules:
        return f"accepted without the warning that the other library says: {theirs.other['error']}"
    if without_empty(accepting["parsed"]) != without_empty(ours.spec):
        return f"read as {ours.spec}, by the library as {accepting['parsed']}"
    if accepting["devices"] != [device["name"] for device in ours.spec["devices"]]:
        return f"other devices: {accepting['devices']}"
    minimum, counted = minimum_version(ours.spec), minimum_version(as_the_library_counts(ours.spec))
    return "" if accepting["minimum"] == counted <= minimum else f"minimum version {minimum}, {accepting['minimum']}"


def as_the_library_counts(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec without what the libraries miss when they look for the minimum version (rules.yml, minimum-version)."""
    devices = json.loads(json.dumps(spec["devices"]))  # without what aliases share
    for device in devices[:-1]:
        edits = device["containerEdits"]
        for item in (*(edits.get("deviceNodes") or ()), *(edits.get("mounts") or ())):
            item.pop("hostPath", None)
            if "containerPath" in item:
                item.pop("type", None)
    return {**spec, "devices": devices}


@pytest.fixture(scope="module")
def libraries():
    with judge.Judge("newest") as newest, judge.Judge("0.8") as old:
        yield {"newest": newest, "0.8": old}


def ask(libraries, cases):
    """Both libraries' answers to (name, content), in order."""
    requests = [judge.reading(name, content) for name, content in cases]
    with ThreadPoolExecutor() as pool:
        running = {name: pool.submit(library.ask_all, requests) for name, library in libraries.items()}
        answers = {name: future.result() for name, future in running.items()}
    return [{name: answers[name][index] for name in answers} for index in range(len(requests))]


def compare(libraries, cases):
    """(figures, hits of each rule, what is not as it must be) over all `cases`."""
    hits: Counter[str] = Counter()
    figures: Counter[str] = Counter()
    wrong: list[str] = []
    while batch := list(islice(cases, BATCH)):
        for case, answers in zip(batch, ask(libraries, [(case.name, case.content) for case in batch])):
            ours, theirs = codec.read(case.content, case.name), verdict(answers)
            hits.update({finding.rule for finding in ours.findings})
            figures["cases"] += 1
            figures["valid for the judge"] += theirs.judge["accept"]
            figures["crashes of the library"] += any(answer.get("crash", False) for answer in answers.values())
            figures["accepted"] += ours.spec is not None
            figures["refused though valid, by a listed rule"] += ours.spec is None and theirs.judge["accept"]
            problem = disagreement(ours, theirs)
            if problem:
                wrong.append(f"{case.made} ({case.name}): {problem}\n{case.content[:600]!r}")
            elif ours.spec is not None:
                wrong += rewritten(case, ours.spec)
    figures["disagreements"] = len(wrong)
    return figures, hits, wrong


def test_never_laxer_and_stricter_only_as_listed(libraries, capsys):
    figures, hits, wrong = compare(libraries, spec_cases.generate(CASES, SEED))
    with capsys.disabled():
        print(f"\n{json.dumps({'seed': SEED, **figures, 'hits': dict(sorted(hits.items()))}, indent=1)}")
    assert not wrong, "\n\n".join(wrong[:10])
    assert figures["valid for the judge"] >= 0.3 * CASES
    scarce = {rule: hits[rule] for rule in ALL_RULES if hits[rule] < 100}
    assert not scarce or CASES < 20000, f"rules that too few cases hit: {scarce}"


def test_the_same_where_pyyaml_has_no_libyaml(libraries, monkeypatch):
    monkeypatch.delattr(yaml, "CSafeLoader")
    cases = (case for case in spec_cases.generate(CASES // 4, SEED + 1) if case.name.endswith(".yaml"))
    figures, _hits, wrong = compare(libraries, cases)
    assert not wrong, "\n\n".join(wrong[:10])
    assert figures["accepted"] > figures["cases"] // 10


def rewritten(case, spec):
    """Whether what we write of what we read is the same to us."""
    again = codec.read(codec.encode(spec), "again.json").spec
    return [] if again == spec else [f"{case.made}: written and read again it is {again}"]


EXAMPLES = [
    pytest.param(rule, section, example, id=f"{rule}-{number}")
    for section in ("stricter", "warnings")
    for rule, row in RULES[section].items()
    for number, example in enumerate(row["examples"])
]


def as_file(example):
    """Name and content of an example in rules.yml."""
    if "spec" in example:
        return "example.json", json.dumps({**RULES["defaults"], **example["spec"]}).encode()
    if "utf-16" in example:
        return "example.json", example["utf-16"].encode("utf-16")
    ending = "json" if "json" in example else "yaml"
    more = (
        "".join(example["repeated"].format(number) for number in range(example["times"]))
        if "repeated" in example
        else ""
    )
    return f"example.{ending}", (example[ending] + more).encode()


@pytest.mark.parametrize("rule, section, example", EXAMPLES)
def test_the_library_takes_or_dies_of_what_a_stricter_rule_stops(libraries, monkeypatch, rule, section, example):
    if example.get("without_libyaml"):
        monkeypatch.delattr(yaml, "CSafeLoader")
    name, content = as_file(example)
    ours, theirs = codec.read(content, name), verdict(ask(libraries, [(name, content)])[0])
    assert rule in {finding.rule for finding in ours.findings}
    assert (ours.spec is None) == (section == "stricter")
    assert theirs.judge["accept"] or theirs.judge.get("crash") or (rule == EITHER_WAY and theirs.other["accept"])


def test_what_we_write_every_library_reads_as_we_mean_it(libraries):
    """Characters that JSON allows and YAML parsers don't are escaped in what we write."""
    odd = "".join(map(chr, range(1, 0x100))) + "\u2028\u2029\ufeff\ufffe\uffff\U0001f600/\\"
    spec = {"cdiVersion": "0.3.0", **RULES["defaults"], "containerEdits": {"env": [f"A={odd}"]}}
    content = codec.encode(spec)
    for answer in ask(libraries, [("ours.json", content)])[0].values():
        assert answer["accept"], answer["error"]
        assert answer["parsed"]["containerEdits"] == spec["containerEdits"]
    assert codec.decode(content, "ours.json") == spec
