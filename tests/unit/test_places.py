# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A unit test lies at the path of the code that it tests, and has the name of the file; places.yml lists the others."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
TESTS, PLUGINS = CHECKOUT / "tests/unit/plugins", CHECKOUT / "plugins"
LISTED = yaml.safe_load(Path(__file__).with_name("places.yml").read_text(encoding="utf-8"))
FILES = sorted(path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))


def subjects(folder: Path) -> set[str]:
    """Return the names that a test in this folder may have: of the files and folders there, and of the folder."""
    place = PLUGINS / folder
    return {path.stem for path in place.glob("*") if path.suffix == ".py" or path.is_dir()} | {place.name}


def has_place(test: Path) -> bool:
    """Check that `test_NAME.py`, or `test_NAME_SUBJECT.py`, lies where NAME is."""
    words = test.stem.split("_")[1:]
    return not subjects(test.parent).isdisjoint("_".join(words[:count]) for count in range(1, len(words) + 1))


@pytest.mark.parametrize("test", FILES, ids=str)
def test_lies_where_its_code_is(test: Path) -> None:
    """Move the test to the path of its code, or list it in places.yml with the reason."""
    assert has_place(test) != (str(test) in LISTED)


def test_what_is_listed_is_there() -> None:
    """A line of places.yml goes with its test."""
    assert {name for name in LISTED if Path(name) not in FILES} == set()


@pytest.mark.parametrize(
    ("test", "place"),
    [
        ("module_utils/test_layout.py", True),
        ("module_utils/spec/test_spec.py", True),  # the folder as a whole
        ("module_utils/device_plugin/kubelet/test_registration_rivals.py", True),  # one subject of a file
        ("module_utils/device_plugin/test_registration.py", False),
        ("module_utils/spec/test_attic.py", False),
        ("module_utils/attic/test_spec.py", False),
    ],
)
def test_the_rule_itself(test: str, place: bool) -> None:
    """Names that have a place, and names that have none."""
    assert has_place(Path(test)) == place
