# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Specs fitted to what runtimes read: what goes, what stays, what is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import cap, model, validate, versions

FAIL = json.loads(json.dumps(cap.FAIL))  # as a module gets it
CASES = yaml.safe_load((Path(__file__).parent / "cap.yml").read_text())
LEVEL = model.VERSIONS.index


def build(parts):
    """The spec of a case, valid and at its lowest version unless it declares one."""
    edits = {"env": ["A=1"], **parts.get("edits", {})}
    device = {"name": "dev0", **parts.get("device", {}), "containerEdits": edits}
    devices = [device, *({**device, "name": f"dev{number}"} for number in range(1, parts.get("count", 1)))]
    spec = {"cdiVersion": "0.3.0", "kind": "vendor.com/tool", **parts.get("spec", {}), "devices": devices}
    if "cdiVersion" not in parts.get("spec", {}):
        spec["cdiVersion"] = versions.minimum_version(spec)
    return spec


def readers_of(case):
    words = [text.split() for text in case["readers"]]
    return [cap.SpecReader(name, version, "" if reads == "none" else reads) for name, version, reads in words]


def test_an_empty_field_needs_its_version_as_older_libraries_refuse_it():
    for edits, version in (({"additionalGids": []}, "0.7.0"), ({"netDevices": []}, "1.1.0")):
        spec = build({"edits": edits})
        assert (versions.minimum_version(spec), versions.lowest_version(spec)) == ("0.3.0", version)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
class TestCases:
    def test_drop(self, case):
        spec, readers = build(case), readers_of(case)
        before = copy.deepcopy(spec)
        if "refuses" in case:
            with pytest.raises(CdiError, match=r"^the spec of vendor\.com/tool") as caught:
                cap.fit(spec, readers)
            assert case["refuses"] in str(caught.value)
        else:
            fitted = cap.fit(spec, readers)
            wanted = build({**case, **case.get("gives", {})})
            assert fitted.spec == {**wanted, "cdiVersion": case["version"]}
            assert len(fitted.warnings) == len(case.get("drops", ()))
            for warning, text in zip(fitted.warnings, case.get("drops", ())):
                assert warning.startswith(f"the spec of {spec['kind']}: {text}")
        assert spec == before

    def test_fail(self, case):
        spec, readers = build(case), readers_of(case)
        if "refuses" in case or "drops" in case:
            with pytest.raises(CdiError) as caught:
                cap.fit(spec, readers, FAIL)
            for text in (*case.get("drops", ()), case.get("refuses", "")):
                assert text.replace("it is left out", "on_unsupported=drop leaves it out") in str(caught.value)
        else:
            assert cap.fit(spec, readers, FAIL) == cap.fit(spec, readers)


def test_one_line_for_any_number_of_devices():
    spec = build({"device": {"annotations": {"a": "b"}}})
    spec["devices"] = [{**spec["devices"][0], "name": f"dev{number}"} for number in range(1000)]
    fitted = cap.fit(spec, [cap.SpecReader("podman", "4.3.1", "0.5.0")])
    assert len(fitted.warnings) == 1
    assert "/devices/0/annotations and 999 more: new in CDI 0.6.0" in fitted.warnings[0]


def tables(table=model.SPEC):
    """The tables of the model, outermost first."""
    yield table
    for field in table.fields.values():
        if isinstance(field.type, model.FieldTable):
            yield from tables(field.type)


def test_the_table_has_every_field_that_some_version_lacks_and_no_other():
    lacking = {
        (table.name, key)
        for table in tables()
        for key, field in table.fields.items()
        if field.since != model.VERSIONS[0] or field.until
    }
    assert set(cap.FIELDS) == lacking


# Specs that use any of it, each part now and then.
WORDS = st.sampled_from(["", "a", "bb"])
ANNOTATIONS = st.dictionaries(st.sampled_from(["a", "b.c/d"]), WORDS, max_size=2)
RDT = st.fixed_dictionaries(
    {},
    optional={
        "closID": st.just("a"),
        "schemata": st.lists(st.just("MB:0=10"), max_size=1),
        "enableMonitoring": st.booleans(),
        "enableCMT": st.booleans(),
        "enableMBM": st.booleans(),
    },
)
MOUNT = st.fixed_dictionaries(
    {"hostPath": st.just("/a"), "containerPath": st.just("/b")},
    optional={
        "type": st.sampled_from(["", "bind", "none", "tmpfs"]),
        "options": st.lists(st.sampled_from(["ro", "bind", "rbind"]), max_size=2),
    },
)
NODE = st.fixed_dictionaries({"path": st.just("/dev/a")}, optional={"hostPath": st.sampled_from(["/dev/a", "/dev/b"])})
EDITS = st.fixed_dictionaries(
    {},
    optional={
        "env": st.lists(st.just("A=1"), max_size=1),
        "deviceNodes": st.lists(NODE, max_size=2),
        "mounts": st.lists(MOUNT, max_size=2),
        "intelRdt": RDT,
        "additionalGids": st.lists(st.integers(1, 9), max_size=2),
        "netDevices": st.lists(st.just({"hostInterfaceName": "eth1", "name": "eth0"}), max_size=1),
    },
)
DEVICE = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "bb", "c-1", "0"]), "containerEdits": EDITS}, optional={"annotations": ANNOTATIONS}
)
PARTS = st.fixed_dictionaries(
    {
        "cdiVersion": st.sampled_from(model.VERSIONS),
        "kind": st.sampled_from(["vendor.com/tool", "vendor.com/tool", "vendor.com/tool.x"]),
        "devices": st.lists(DEVICE, min_size=1, max_size=3, unique_by=lambda device: device["name"]),
    },
    optional={"annotations": ANNOTATIONS, "containerEdits": EDITS},
)


def made_valid(spec):
    """The generated parts with what no version allows mended."""
    for edits in (spec.get("containerEdits", {}), *(device["containerEdits"] for device in spec["devices"])):
        rdt = edits.get("intelRdt", {})
        if spec["cdiVersion"] in ("1.0.0", "1.1.0") or {"schemata", "enableMonitoring"} & set(rdt):
            rdt.pop("enableCMT", None)
            rdt.pop("enableMBM", None)
    for device in spec["devices"]:
        if not any(device["containerEdits"].values()) and "intelRdt" not in device["containerEdits"]:
            device["containerEdits"]["env"] = ["A=1"]
    spec["cdiVersion"] = max(spec["cdiVersion"], versions.minimum_version(spec), key=LEVEL)
    return spec


READERS = st.lists(st.builds(cap.SpecReader, st.just("podman"), st.just("1"), st.sampled_from(["", *model.VERSIONS])))


def is_valid(spec):
    return not [finding for finding in validate.validate(spec) if finding.severity == validate.ERROR]


def fields(value, table=model.SPEC, pointer=""):
    """(pointer, table, key) of every field of a spec."""
    for key, found in value.items():
        at, field = f"{pointer}/{key}", table.fields[key]
        yield at, table, key
        if isinstance(field.type, model.FieldTable):
            for index, item in enumerate(found if field.many else [found]):
                yield from fields(item, field.type, f"{at}/{index}" if field.many else at)


def is_read(spec, reader):
    """Whether a library of that version reads it: the version by name, every field, every name."""
    known = LEVEL(spec["cdiVersion"]) <= LEVEL(reader.reads) and LEVEL(versions.minimum_version(spec)) <= LEVEL(
        reader.reads
    )
    return known and all(
        LEVEL(table.fields[key].since) <= LEVEL(reader.reads)
        and not (key in ("enableCMT", "enableMBM") and reader.reads == "1.1.0")
        for _pointer, table, key in fields(spec)
    )


SPEC = PARTS.map(made_valid).filter(is_valid)


class TestProperties:
    @given(SPEC, READERS)
    def test_every_reader_reads_the_result_and_only_listed_fields_are_gone(self, spec, readers):
        try:
            fitted = cap.fit(spec, readers)
        except CdiError:
            assert not all(is_read(spec, reader) for reader in readers if reader.reads)
            return
        assert is_valid(fitted.spec)
        assert all(is_read(fitted.spec, reader) for reader in readers if reader.reads)
        before, after = ({at: (table, key) for at, table, key in fields(item)} for item in (spec, fitted.spec))
        assert set(after) <= set(before)
        gone = set(before) - set(after)
        outermost = {at for at in gone if not any(at.startswith(f"{other}/") for other in gone)}
        assert {(before[at][0].name, before[at][1]) for at in outermost} <= {*cap.FIELDS, ("spec", "containerEdits")}
        assert fitted.spec["cdiVersion"] == spec["cdiVersion"] or LEVEL(fitted.spec["cdiVersion"]) < LEVEL(
            spec["cdiVersion"]
        )

    @given(SPEC, READERS)
    def test_what_all_read_stays_as_it_is(self, spec, readers):
        readers = [reader for reader in readers if not reader.reads or is_read(spec, reader)]
        assert cap.fit(spec, readers) == cap.fit(spec, readers, FAIL) == (spec, ())

    @given(SPEC, READERS)
    def test_fail_refuses_exactly_what_drop_warns_of_or_refuses(self, spec, readers):
        try:
            dropped = cap.fit(spec, readers)
        except CdiError:
            dropped = None
        if dropped and not dropped.warnings:
            assert cap.fit(spec, readers, FAIL) == dropped
        else:
            with pytest.raises(CdiError):
                cap.fit(spec, readers, FAIL)

    @given(SPEC, READERS)
    def test_fitting_again_changes_nothing(self, spec, readers):
        try:
            fitted = cap.fit(spec, readers)
        except CdiError:
            return
        assert cap.fit(fitted.spec, readers, FAIL) == (fitted.spec, ())
