# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tags of the command line that a playbook does not take."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ansible_collections.fleet.cdi.plugins.filter import check_tags as module
from ansible_collections.fleet.cdi.plugins.filter.check_tags import check_tags

PARTS = "driver, specs, runtimes, plugins, refresh, device_plugin"
WHOLE = "does all of a host; fleet.cdi.provision takes tags of parts [FC1101]"
ALL = ["all"]  # what Ansible sets without --tags


@pytest.fixture
def warnings(monkeypatch):
    said = []
    monkeypatch.setattr(module, "Display", lambda: SimpleNamespace(warning=said.append))
    return said


@pytest.mark.parametrize(
    ("playbook", "chosen", "skipped"),
    [
        ("provision", ALL, []),
        ("provision", ["settings"], []),
        ("provision", ["specs", "device_plugin"], ["refresh"]),
        ("provision", ["tagged"], ["never"]),
        ("provision", ["always"], ["untagged"]),
        ("remove", ALL, []),
        ("upgrade", ALL, ["never"]),
        ("upgrade", ALL, ["web"]),  # of another play: all of ours is done
        ("provision", ALL, ["web"]),
    ],
)
def test_tags_that_are_taken(playbook, chosen, skipped, warnings):
    assert check_tags(chosen, skipped, playbook) == warnings == []


@pytest.mark.parametrize("playbook", ["provision", "remove", "upgrade"])
def test_a_tag_may_be_of_another_play_of_a_playbook(playbook, warnings):
    assert check_tags(["web", "db"], [], playbook) == []
    text = f"--tags: found web, db; expected a tag of another play: fleet.cdi.{playbook} has none of it [FC1101]"
    assert warnings == [text]


@pytest.mark.parametrize(
    ("playbook", "chosen", "skipped", "said"),
    [
        (
            "provision",
            ["spces"],
            [],
            f"--tags: found spces; expected settings, {PARTS}; did you mean 'specs'? [FC1101]",
        ),
        ("provision", ["untagged"], [], f"--tags: found untagged; expected settings, {PARTS} [FC1101]"),
        (
            "provision",
            ALL,
            ["runtime"],
            f"--skip-tags: found runtime; expected {PARTS}; did you mean 'runtimes'? [FC1101]",
        ),
        ("provision", ALL, ["all"], f"--skip-tags: found all; expected {PARTS} [FC1101]"),
        (
            "provision",
            ["specs", "runtimes"],
            ["specs"],
            "--skip-tags: found specs, which --tags has, too; expected each tag in one of them [FC1101]",
        ),
        ("remove", ["specs", "all"], [], f"--tags: found specs; expected no tag, because fleet.cdi.remove {WHOLE}"),
        ("remove", ["always"], [], f"--tags: found always; expected no tag, because fleet.cdi.remove {WHOLE}"),
        ("upgrade", ["tagged"], [], f"--tags: found tagged; expected no tag, because fleet.cdi.upgrade {WHOLE}"),
        (
            "upgrade",
            ALL,
            ["spec", "all"],
            f"--skip-tags: found spec, all; expected no tag, because fleet.cdi.upgrade {WHOLE}",
        ),
    ],
)
def test_tags_that_would_do_nothing_or_too_much(playbook, chosen, skipped, said):
    assert check_tags(chosen, skipped, playbook) == [said]


def test_each_option_is_told():
    first, second = check_tags(["setting"], ["driverr"], "provision")
    assert first.startswith("--tags: found setting;") and second.startswith("--skip-tags: found driverr;")
