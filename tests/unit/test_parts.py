# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make test` with parts that pass, fail, hang and leave something: order, blame, exit status, and what is printed."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import footprint  # tests/harness
import parts
import pytest
import report
from parts import Part
from report import Result

# In place of make: what each part of these tests does. $PLACE is where nothing may be left. What is to run beside
# another part waits for it: a busy machine may take long to start either.
MAKE = r"""#!/bin/sh
for part; do :; done
echo "$part starts" >> "$ORDER"
case "$*" in *QUICK=1*) echo "$part" >> "$ORDER.quick";; esac
case $part in
broken) seq 1 100; echo "1 failed, 2 passed in 0.1s"; exit 1;;
hanging) echo "waits for nothing"; sleep 1000;;
stubborn) trap '' INT; echo "hears nothing"; sleep 1000 & wait; sleep 1000;;
leaving) echo x > "$PLACE/left.json"; sleep 0.5;;
beside) until test -e "$PLACE/left.json"; do sleep 0.05; done; sleep 1;;
visiting) echo x > "$PLACE/visit.json"; sleep 1; rm "$PLACE/visit.json";;
slow*) until grep -qv "^$part " "$ORDER"; do sleep 0.05; done; sleep 1;;
esac
echo "SKIPPED [2] tests/unit/test_x.py:7: needs cgroup v2"
echo "3 passed, 2 skipped in 0.1s"
echo "$part ends" >> "$ORDER"
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run these parts as `make test` does: run(name=Part(...)) -> exit status, what was printed."""
    make, place = tmp_path / "make", tmp_path / "place"
    make.write_text(MAKE)
    make.chmod(0o755)
    place.mkdir()
    for name, value in {"MAKE": make, "PLACE": place, "ORDER": tmp_path / "order"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(parts, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(parts, "LOOK_S", 0.1)
    monkeypatch.setattr(parts, "LAST_WORDS_S", 1.0)
    monkeypatch.setattr(parts, "limit", lambda part: part.minutes * 60)
    monkeypatch.setattr(footprint, "PLACES", (str(place),))

    def run(*arguments, **table):
        monkeypatch.setattr(parts, "PARTS", table)
        status = parts.main(list(arguments))
        return status, capfd.readouterr().out

    return run


def order(tmp_path):
    return (tmp_path / "order").read_text().splitlines()


def row(said, name):
    """The row of the closing table."""
    (found,) = re.findall(rf"^{name} .*", said[said.rindex("\npart ") :], re.MULTILINE)
    return found.split()


def test_all_passed(run):
    status, said = run(one=Part(1, 1), two=Part(1, 1))
    assert status == 0
    assert [row(said, name)[1] for name in ("one", "two")] == ["passed", "passed"]
    assert row(said, "one")[-2:] == ["3", "2"]
    assert "  2 in one, 2 in two: needs cgroup v2" in said
    assert "\nparts: 2 passed, 0 failed\n" in said


def test_a_part_that_passed_is_a_line_and_its_output_a_file(run, tmp_path):
    _status, said = run(one=Part(1, 1))
    assert re.search(r"^\d\d:\d\d:\d\d  one starts$", said, re.MULTILINE)
    assert re.search(r"^\d\d:\d\d:\d\d  one passed in \d+\.\d min, 3 passed, 2 skipped$", said, re.MULTILINE)
    assert "test_x.py" not in said
    assert "test_x.py:7" in (tmp_path / "logs/one.log").read_text()


def test_a_failed_part_hides_no_other_and_its_last_lines_come_again(run):
    status, said = run(broken=Part(1, 1), one=Part(1, 1))
    assert status == 1
    assert (row(said, "broken")[1], row(said, "one")[1]) == ("FAILED", "passed")
    block = said[said.index("===== broken: its output") : said.index("===== end of broken")]
    assert "\n1\n2\n3\n" in block
    again = said[said.index("===== broken FAILED; its last lines") :]
    assert "\n100\n1 failed, 2 passed in 0.1s\n" in again
    assert "\n40\n" not in again
    assert "parts: 1 passed, 1 failed" in said


def test_two_parts_run_side_by_side_and_their_output_is_not_mixed(run, tmp_path):
    run(slow1=Part(1, 1), slow2=Part(1, 1), one=Part(1, 1))
    assert order(tmp_path)[:2] in (["slow1 starts", "slow2 starts"], ["slow2 starts", "slow1 starts"])
    assert order(tmp_path).index("one starts") > 2  # a lane came free


def test_of_those_that_work_with_the_host_one_runs_at_a_time(run, tmp_path):
    run(slow1=Part(1, 1, host=True), slow2=Part(1, 1, host=True), one=Part(1, 1))
    lines = order(tmp_path)
    assert lines.index("one starts") < lines.index("slow1 ends") < lines.index("slow2 starts")


def test_nothing_runs_without_what_all_need(run, tmp_path):
    status, said = run(broken=Part(1, 1, alone=True), one=Part(1, 1))
    assert status == 1
    assert order(tmp_path) == ["broken starts"]
    assert row(said, "one")[1:3] == ["NOT", "RUN"]
    assert "parts: 0 passed, 1 failed, 1 not run" in said


@pytest.mark.parametrize("name", ["hanging", "stubborn"])
def test_a_part_that_hangs_is_ended_and_has_failed(run, name):
    start = time.monotonic()
    status, said = run(**{name: Part(0.02, 0.02), "one": Part(1, 1)})
    assert status == 1
    assert time.monotonic() - start < 300  # it hangs for 1,000
    assert (row(said, name)[1], row(said, "one")[1]) == ("FAILED", "passed")
    assert "it hangs" in said[said.index("its last lines") :]


def test_what_setup_installs_is_not_left(run):
    status, _said = run(leaving=Part(1, 1, alone=True), one=Part(1, 1))
    assert status == 0


def test_who_left_something(run, tmp_path):
    status, said = run(leaving=Part(1, 1, host=True), one=Part(1, 1, host=True))
    assert status == 1
    assert (row(said, "leaving")[1], row(said, "one")[1]) == ("FAILED", "passed")
    line = f"leaving left this host other than it was: {tmp_path}/place/left.json: is new"
    assert said.count(line) == 2  # at once, and before the table


def test_of_two_that_ran_side_by_side_both_are_named(run):
    status, said = run(leaving=Part(1, 1, host=True), beside=Part(1, 1), one=Part(1, 1, host=True))
    assert status == 1
    assert "beside or leaving left this host other than it was" in said
    assert "run `make beside` alone to see which" in said
    assert row(said, "one")[1] == "passed"


def test_what_was_there_for_a_while_was_not_left(run):
    status, _said = run(visiting=Part(1, 1, host=True), one=Part(1, 1))
    assert status == 0


def test_a_part_over_its_budget_is_said_and_has_not_failed():
    said = report.table({"one": Result(0, 90, 60, "")}, {"one": 1}, 90, 1)
    assert "OVER BUDGET" in said
    assert "parts: 1 passed, 0 failed" in said


LINES = {
    "12 passed in 3.21s": (12, 0),
    "1 failed, 5 passed, 2 skipped, 1 warning in 63.00s (0:01:03)": (5, 2),
    "===== 3 passed, 1 deselected in 0.5s =====": (3, 0),
    "lint: 12 passed": (12, 0),
    "7 skipped in 0.1s": (0, 7),
    "tests/x.py::test_1 passed": (0, 0),
    "they say 12 passed": (0, 0),
}


@pytest.mark.parametrize("line", LINES)
def test_tests_are_counted_from_closing_lines(line):
    found = report.tests(f"....\n{line}\n")
    assert (found["passed"], found["skipped"]) == LINES[line]


REASONS = {
    "SKIPPED [3] tests/unit/test_x.py:12: set FLEET_CDI_DATA to: a folder": {"set FLEET_CDI_DATA to: a folder": 3},
    "SKIPPED in lint, sanity: checks (missing package x)": {"checks (missing package x)": 0},
    "SKIPPED all scenarios: needs root": {"all scenarios: needs root": 0},
    "SKIPPED: family images: needs root": {"family images: needs root": 0},
    "nothing SKIPPED": {},
}


@pytest.mark.parametrize("line", REASONS)
def test_reasons_of_skipped_tests(line):
    assert report.skips(f"...\n{line}\n") == REASONS[line]


def test_a_quick_run_does_less_and_says_of_what(run, tmp_path):
    _status, said = run(one=Part(1, 1), two=Part(2, 1), three=Part(1))
    assert sorted((tmp_path / "order.quick").read_text().split()) == ["one", "two"]
    assert said.endswith("`make test-all` runs more of: two, three\n")


def test_a_whole_run_leaves_nothing_out(run, tmp_path):
    status, said = run("all", one=Part(1, 1), two=Part(2, 1), three=Part(1))
    assert status == 0
    assert not (tmp_path / "order.quick").exists()
    assert said.endswith("parts: 3 passed, 0 failed\n")


def test_the_parts_fit_into_their_minutes():
    assert parts.planned(parts.chosen(quick=True)) <= parts.TEST
    assert parts.planned(parts.chosen(quick=False)) <= parts.TEST_ALL


def test_each_part_is_a_target_of_the_makefile_and_in_the_table_of_contributing():
    targets = re.findall(r"^([a-z-]+):", (parts.CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    rows = re.findall(r"^\| `make ([a-z-]+)", Path(parts.CHECKOUT, "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert set(parts.PARTS) <= set(targets) & set(rows)


def test_what_came_of_the_parts_is_known_with_their_files_alone(monkeypatch, tmp_path):
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", "-C", str(tmp_path)]
    (tmp_path / "file").write_text("x")
    (tmp_path / ".gitignore").write_text("build/")
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=x"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr(parts, "CHECKOUT", tmp_path)
    monkeypatch.setattr(parts, "LOGS", tmp_path / "build/logs")
    assert parts.kept([]) == ("", {})

    parts.keep({"unit": Result(1, 3.2, 5.0, "2 passed, 1 skipped in 3s\n")})
    date, found = parts.kept([])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)
    assert found == {"unit": {"status": 1, "seconds": 3, "cpu": 5, "passed": 2, "skipped": 1}}

    (tmp_path / "page").write_text("made of the results")
    assert (parts.kept([]), parts.kept(["page"])) == (("", {}), (date, found))
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message=y"], check=True)
    assert parts.kept(["page"]) == (date, found)
    (tmp_path / "file").write_text("y")
    assert parts.kept(["page"]) == ("", {})
    parts.keep({"unit": Result(0, 3.2, 5.0, "")})  # with changes that no commit has
    assert parts.kept(["page"]) == ("", {})
