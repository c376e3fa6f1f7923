# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module's diff shows of files and units."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge import module_diff
from ansible_collections.fleet.cdi.plugins.module_utils.converge.change import Change
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services.refresh_service import UnitsState
from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec
from ansible_collections.fleet.cdi.tests.unit import builders

HEADERS = {"before_header": "/etc/a", "after_header": "/etc/a"}


@pytest.mark.parametrize(
    ("before", "after", "as_text", "as_document"),
    [
        (None, b'{"a": 1}\n', ("", '{"a": 1}\n'), ("", {"a": 1})),
        (b'{"a": 1}\n', None, ('{"a": 1}\n', ""), ({"a": 1}, "")),
        (b"\xff{", b"[]", ("\ufffd{", "[]"), ("\ufffd{", [])),
    ],
)
def test_files(before, after, as_text, as_document):
    change = Change("/etc/a", "", before, after)
    assert module_diff.text(change) == {**HEADERS, "before": as_text[0], "after": as_text[1]}
    assert module_diff.document(change) == {**HEADERS, "before": as_document[0], "after": as_document[1]}


@pytest.mark.parametrize(("ours", "told"), [(True, module_diff.TAKEN_OVER), (False, module_diff.CORRECTED)])
@pytest.mark.parametrize("show", [module_diff.text, module_diff.document])
def test_a_file_that_stays_the_same_is_no_difference(show, ours, told):
    part = show(Change("/etc/a", "a.com/tty", codec.encode(spec("a")), codec.encode(spec("a")), ours=ours))
    assert module_diff.brief(part) == part == {**HEADERS, "prepared": told}


def test_units():
    off, on = UnitsState((), ()), UnitsState(("a.service",), ("a.path",))
    assert module_diff.units(on, on) == []
    (one,) = module_diff.units(off, on)
    assert (one["before"], one["after"]) == (off._asdict(), on._asdict())


def spec(*names, kind="a.com/tty", version="0.3.0", **more):
    return builders.spec({name: builders.nodes(f"/dev/{name}") for name in names}, kind, version, **more)


def listing(*names, health="healthy", kind="a.com/tty"):
    return {
        "devices": [{"id": f"tty:{name}", "kind": kind, "names": [name], "health": {"state": health}} for name in names]
    }


CHANGED = spec("a", "b")
CHANGED["devices"][0]["containerEdits"] = {"deviceNodes": [{"path": "/dev/c"}], "env": ["A=1"]}
MANY = [f"tty{number}" for number in range(100)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", spec("a", "b"), "a.com/tty: + a, + b (/etc/a)\n"),
        (spec("a", "b"), "", "a.com/tty: - a, - b (/etc/a)\n"),
        (spec("tty60", "x"), spec("x", "tty61"), "a.com/tty: + tty61, - tty60 (/etc/a)\n"),
        (spec("a", "b"), CHANGED, "a.com/tty: ~ a: deviceNodes and env (/etc/a)\n"),
        (spec("a"), spec("a", version="0.5.0"), "a.com/tty: ~ whole spec: cdiVersion (/etc/a)\n"),
        (spec("a"), spec("a", containerEdits={"env": ["A=1"]}), "a.com/tty: ~ whole spec: env (/etc/a)\n"),
        (spec("a"), spec("a", kind="b.com/c"), "a.com/tty: - a (/etc/a)\nb.com/c: + a (/etc/a)\n"),
        ({}, spec("a"), "a.com/tty: + a (/etc/a)\n"),
        ("no JSON", spec("a"), "a.com/tty: + a (/etc/a)\n"),
        (listing("a"), listing("a", health="unhealthy"), "a.com/tty: ~ a: health (/etc/a)\n"),
        (listing("a"), listing("a", "b"), "a.com/tty: + b (/etc/a)\n"),
        (spec("a", "b"), spec("b", "a"), "only how it is written (/etc/a)\n"),
        (spec(), spec(*MANY), f"a.com/tty: {', '.join(f'+ {name}' for name in MANY[:10])}, + 90 more (/etc/a)\n"),
    ],
)
def test_a_short_diff_says_which_devices_change(before, after, expected):
    assert module_diff.brief(module_diff.diff("/etc/a", before, after)) == {**HEADERS, "prepared": expected}


@pytest.mark.parametrize(
    "part", [module_diff.diff("/etc/a", "a\n", "b\n"), module_diff.diff("/etc/a", {"a": 1}, {"a": 2})]
)
def test_what_is_not_about_devices_stays_whole(part):
    assert module_diff.brief(part) == part


def test_a_file_of_others_may_hold_anything():
    strange = {"kind": 5, "devices": ["x", {}, {"names": 5}, {"containerEdits": 1}, {"names": [], "id": None}]}
    assert "a.com/tty: + a (/etc/a)\n" in module_diff.brief(module_diff.diff("/etc/a", strange, spec("a")))["prepared"]


def test_a_program_that_comes_or_goes_is_its_number_of_lines():
    """Nobody reads the whole text of all programs of a first run to find the lines that matter."""
    before = {"release": "a", "launchers": {"drm": ["one", "old"], "rule": ["one"]}}
    after = {"release": "b", "launchers": {"drm": ["one", "new"], "sriov": ["one", "two"]}}
    assert module_diff.brief({**HEADERS, "before": before, "after": after}) == {
        **HEADERS,
        "before": {"release": "a", "launchers": {"drm": ["one", "old"], "rule": "lines: 1"}},
        "after": {"release": "b", "launchers": {"drm": ["one", "new"], "sriov": "lines: 2"}},
    }
