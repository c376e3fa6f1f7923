# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workflows of a forge and hooks of git run targets of the Makefile alone; `make help` names every target."""

from __future__ import annotations

import re
import subprocess
from itertools import product
from pathlib import Path

import parts  # tests/harness
import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((CHECKOUT / ".github/workflows").glob("*.yml"))
TARGETS = {
    word
    for line in re.findall(r"^\.PHONY: (.*)", (CHECKOUT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for word in line.split()
}
PINNED = re.compile(r"actions/[a-z-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+")
COMMAND = re.compile(r"(?:sudo )?make ([a-z0-9-]+)((?: [A-Z]+=(?:[\w/.]+|\"[\w ]+\"))*)")
INSTALLS = re.compile(r"(counterparts|conformance)\.py install")
INSTALL_NOTHING = {
    "world",
    "test-all",
    "again",
    "coverage",
}  # simulated hosts need nothing; the others run other targets


def commands(job):
    """The commands of a job, for each row of its matrix."""
    matrix = job.get("strategy", {}).get("matrix", {})
    for values in product(*matrix.values()):
        for step in job["steps"]:
            command = step.get("run")
            for name, value in zip(matrix, values):
                command = command and command.replace(f"${{{{ matrix.{name} }}}}", value)
            if command:
                yield command


def refused(text):
    """What is wrong with the text of a workflow."""
    workflow = yaml.safe_load(text)
    found = []
    if workflow["permissions"] != {"contents": "read"}:
        found.append("permissions")
    found += [line for line in re.findall(r"uses: (.*)", text) if not PINNED.fullmatch(line)]
    for job in workflow["jobs"].values():
        if "permissions" in job or "timeout-minutes" not in job:
            found.append("a job has permissions of its own, or no limit of time")
        if len({command.startswith("sudo ") for command in commands(job)}) > 1:
            found.append("a job runs targets as root and as a user, who can't write to what root made")
        for command in commands(job):
            match = COMMAND.fullmatch(command)
            if not match or match[1] not in TARGETS:
                found.append(command)
    return found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_pinned_actions_and_targets_of_the_makefile(path):
    assert refused(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("contents: read", "contents: write", "permissions"),
        ("3d3c42e5aac5ba805825da76410c181273ba90b1  # v7.0.1", "v7", "actions/checkout@v7"),
        (
            "make docs-site",
            "sudo make docs-site",
            "a job runs targets as root and as a user, who can't write to what root made",
        ),
        ("sudo make test-all", "sudo make nothing", "sudo make nothing INSTALL=1"),
        ("sudo make test-all INSTALL=1", "curl https://example.com | sh", "curl https://example.com | sh"),
    ],
)
def test_the_check_sees_it(old, new, told):
    text = (CHECKOUT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    assert old in text and told in refused(text.replace(old, new))


def test_ci_runs_every_part():
    """Each change has a fragment, all parts of `make test-all`, and each version of tests/matrix.yml."""
    jobs = yaml.safe_load((CHECKOUT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    run = {COMMAND.fullmatch(command)[1] for job in jobs.values() for command in commands(job)}
    made_by_others = {"setup", "style"}  # `make lint` runs style, and each target makes what it needs
    assert run == {"changelog", "matrix", *parts.PARTS} - made_by_others
    table = yaml.safe_load((CHECKOUT / "tests/matrix.yml").read_text(encoding="utf-8"))
    versions = [*(row["core"] for row in table["cores"]), *table["hosts"]]
    assert jobs["version"]["strategy"]["matrix"]["row"] == versions


def test_each_part_is_repeated_alone_and_beside_busy_loops():
    jobs = yaml.safe_load((CHECKOUT / ".github/workflows/weekly.yml").read_text(encoding="utf-8"))["jobs"]
    matrix = jobs["again"]["strategy"]["matrix"]
    assert set(matrix["part"]) == {*parts.PARTS} - {"setup"} and matrix["loops"] == ["0", "2"]


def test_what_a_workflow_installs_counterparts_for_does_install_them():
    """A target that forgets it is red on a new machine, or skips what it is for."""
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values():
            for target in {COMMAND.fullmatch(command)[1] for command in commands(job) if "INSTALL=1" in command}:
                if target not in INSTALL_NOTHING:
                    command = ["make", "-C", CHECKOUT, "-n", target, "INSTALL=1"]
                    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                    assert INSTALLS.search(said), target


def test_the_hook_of_git_is_the_same_check():
    (repo,) = yaml.safe_load((CHECKOUT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert repo["repo"] == "local"
    assert [COMMAND.fullmatch(hook["entry"])[1] for hook in repo["hooks"]] == ["style"]


def test_help_names_every_target():
    said = subprocess.run(["make", "-C", str(CHECKOUT), "help"], capture_output=True, text=True, check=True).stdout
    assert {target for target in TARGETS if not re.search(rf"(?<![\w-]){target}(?![\w-])", said)} == set()
