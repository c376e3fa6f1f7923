# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""examples/awx with the modules of awx.awx: what it makes in an AWX, in check mode, at first and again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import other_collections  # tests/harness
import pytest
import typed  # tests/harness
import yaml
from fake_awx import Store, serve

CHECKOUT = Path(__file__).resolve().parents[2]
EXAMPLE = CHECKOUT / "examples/awx"
OBJECTS = yaml.safe_load((EXAMPLE / "objects.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def collections():
    """Where Ansible finds awx.awx."""
    try:
        return other_collections.place(CHECKOUT / "build")
    except OSError as error:
        pytest.skip(f"awx.awx could not be had: {error}")


@pytest.fixture
def awx():
    """An AWX that has what the example needs; its objects."""
    store = Store()
    organization = store.add("organizations", {"name": "Default"})["id"]
    store.add("inventories", {"name": "Fleet", "organization": organization})
    store.add("credentials", {"name": "Fleet SSH key", "organization": organization})
    with ExitStack() as stack:
        store.address = stack.enter_context(serve(store))
        yield store


@pytest.fixture
def apply(awx, collections):
    """Run the playbook: apply(*options) -> how many tasks changed something, and what it said."""

    def run(*options, status=0):
        more = {
            "ANSIBLE_COLLECTIONS_PATH": f"{os.environ['ANSIBLE_COLLECTIONS_PATH']}:{collections}",
            "CONTROLLER_HOST": awx.address,
            "CONTROLLER_OAUTH_TOKEN": "token",
            "ANSIBLE_NOCOLOR": "1",
        }
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        done = subprocess.run(
            [program, "-i", "localhost,", str(EXAMPLE / "apply.yml"), *options],
            env={**os.environ, **more, "ANSIBLE_STDOUT_CALLBACK": "default"},
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == status, said
        return int(re.search(r"changed=(\d+)", said)[1]), said

    return run


def by_name(store, endpoint, field="name"):
    return {one[field]: one for one in store.objects.get(endpoint, {}).values()}


@pytest.fixture
def type_page(awx, collections, tmp_path, ansible_environment):
    """Type the commands of docs/fleet.md#awx. Galaxy is not asked: awx.awx is there, and is listed."""
    (block,) = (one for one in typed.blocks_of("docs/fleet.md") if "CONTROLLER_HOST" in one.text)
    environment = {
        **ansible_environment,
        "ANSIBLE_COLLECTIONS_PATH": f"{ansible_environment['ANSIBLE_COLLECTIONS_PATH']}:{collections}",
        "ANSIBLE_INVENTORY": "localhost,",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    replace = {
        "https://awx.example.org": awx.address,
        "TOKEN=...": "TOKEN=token",
        "collection install awx.awx": "collection list awx.awx",
    }
    before = f"cp --recursive {CHECKOUT}/examples ."
    return lambda: typed.run("docs/fleet.md", block, tmp_path, environment, replace, before)


@pytest.mark.skipif(os.geteuid() != 0, reason="types in a mount namespace: needs root")
def test_the_objects_are_made_once(awx, apply, type_page):
    assert type_page() == 4  # commands
    templates = by_name(awx, "job_templates")
    assert {name: (one["playbook"], one["job_slice_count"]) for name, one in templates.items()} == {
        "Fleet verify": ("verify.yml", 4),
        "Fleet provision": ("provision.yml", 4),
        "Fleet upgrade": ("upgrade.yml", 1),
        "Fleet report": ("report.yml", 1),
    }
    asked = awx.related["job_templates", templates["Fleet provision"]["id"], "survey_spec"]
    assert asked == json.loads((EXAMPLE / "survey.json").read_text(encoding="utf-8"))
    nodes = by_name(awx, "workflow_job_template_nodes", "identifier")
    after = {
        name: awx.related.get(("workflow_job_template_nodes", one["id"], "always_nodes")) or []
        for name, one in nodes.items()
    }
    assert after == {
        "Fleet verify": [nodes["Fleet provision"]["id"]],
        "Fleet provision": [nodes["Fleet report"]["id"]],
        "Fleet report": [],
    }
    (schedule,) = awx.objects["schedules"].values()
    assert schedule["unified_job_template"] == by_name(awx, "workflow_job_templates")["Fleet, every night"]["id"]
    before = repr(awx.objects)
    assert apply()[0] == 0 and repr(awx.objects) == before
    assert apply("-e", '{"fleet_awx_inventory": "Fleet", "fleet_awx_credentials": []}')[0] == 1


def test_each_template_has_its_playbook():
    playbooks = {one["playbook"] for one in OBJECTS["fleet_awx_job_templates"].values()}
    assert playbooks <= {path.name for path in (EXAMPLE / "project").glob("*.yml")}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ('{"fleet_awx_survey_for": ["Fleet provison"]}', "found Fleet provison"),
        ('{"fleet_awx_organization": "Nobody"}', "Nobody"),
        ('{"fleet_awx_credentials": ["No key"]}', "No key"),
    ],
)
def test_a_wrong_name_is_said(apply, change, error):
    assert error in apply("-e", change, status=2)[1]
