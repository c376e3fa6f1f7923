# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter fleet.cdi.check_tags."""

from __future__ import annotations

DOCUMENTATION = r"""
name: check_tags
short_description: Find tags of the command line that a playbook does not take
version_added: 0.1.0
author:
  - fleet.cdi contributors (@fleet-cdi)
description:
  - Ansible takes every tag, and ends green if it chooses no task. The playbooks of this collection use this filter to
    refuse such a run before they contact a host.
  - A tag that is not similar to one of ours may be of another play of a site's playbook. With C(--tags) it is a
    warning.
options:
  _input:
    description:
      - The tags of C(--tags), C(ansible_run_tags).
    type: list
    elements: str
    required: true
  _skipped:
    description:
      - The tags of C(--skip-tags), C(ansible_skip_tags).
    type: list
    elements: str
    required: true
  _playbook:
    description:
      - The playbook.
    type: str
    choices: [provision, remove, upgrade]
    required: true
positional: _skipped, _playbook
"""

EXAMPLES = r"""
- name: Check the tags of the command line
  ansible.builtin.assert:
    that: faults == []
    fail_msg: "{{ faults }}"
  vars:
    faults: "{{ ansible_run_tags | fleet.cdi.check_tags(ansible_skip_tags, 'provision') }}"
  tags: always
"""

RETURN = r"""
_value:
  description: The faults, one for each option of the command line, and one for a tag in both. Empty if there are none.
  type: list
  elements: str
  sample:
    - >-
      --tags: found spces; expected settings, driver, specs, runtimes, plugins, refresh, device_plugin; did you mean
      'specs'? [FC1101]
"""

from collections.abc import Sequence
from typing import Callable, NamedTuple

from ansible.utils.display import Display

from ansible_collections.fleet.cdi.plugins.module_utils.converge.host.cdi_host import PARTS
from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import with_id
from ansible_collections.fleet.cdi.plugins.module_utils.schema import did_you_mean


class TakenTags(NamedTuple):
    """The tags that an option may have: those of a user, and those of Ansible that choose the same tasks as none do."""

    ours: Sequence[str]
    of_ansible: Sequence[str]


OURS = ("settings", *PARTS)
OF_ANSIBLE = ("all", "always", "never", "tagged", "untagged")
WHOLE = {"--tags": TakenTags((), ("all",)), "--skip-tags": TakenTags((), ("never",))}

# Playbook -> option -> tags. All tasks of provision have tags, so `tagged` chooses all of them.
TAKEN = {
    "provision": {
        "--tags": TakenTags(OURS, ("all", "always", "tagged")),
        "--skip-tags": TakenTags(PARTS, ("never", "untagged")),
    },
    "remove": WHOLE,
    "upgrade": WHOLE,
}


def check_tags(chosen: Sequence[str], skipped: Sequence[str], playbook: str) -> list[str]:
    """Return the faults in the tags of the command line of a run of `playbook`.

    Warns of tags of --tags that no task of the playbook has, and that may be of other plays.
    """
    others = [tag for tag in chosen if not _is_meant(tag)]
    if others:
        text = f"--tags: found {', '.join(others)}; expected a tag of another play: fleet.cdi.{playbook} has none of it"
        Display().warning(with_id(text))
    found = zip(TAKEN[playbook].items(), (chosen, skipped))
    faults = [_fault(option, taken, tags, playbook) for (option, taken), tags in found]
    both = [tag for tag in skipped if tag in chosen and tag in TAKEN[playbook]["--skip-tags"].ours]
    if both:
        faults.append(f"--skip-tags: found {', '.join(both)}, which --tags has, too; expected each tag in one of them")
    return [with_id(text) for text in faults if text]


def _is_meant(tag: str) -> bool:
    """Tell if a tag is one of ours or of Ansible's, or similar to one of ours."""
    return tag in (*OURS, *OF_ANSIBLE) or bool(did_you_mean(tag, OURS))


def _fault(option: str, taken: TakenTags, tags: Sequence[str], playbook: str) -> str:
    """Return the fault in the tags of an option; "" without one."""
    wrong = [tag for tag in tags if tag not in (*taken.ours, *taken.of_ansible) and _is_meant(tag)]
    if not wrong:
        return ""
    if not taken.ours:
        why = f"fleet.cdi.{playbook} does all of a host; fleet.cdi.provision takes tags of parts"
        return f"{option}: found {', '.join(wrong)}; expected no tag, because {why}"
    return f"{option}: found {', '.join(wrong)}; expected {', '.join(taken.ours)}{did_you_mean(wrong[0], taken.ours)}"


class FilterModule:
    """The class by which Ansible finds the filter."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        return {"check_tags": check_tags}
