# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a task comes to a host: by a real sshd with a banner, and real sudo, su and doas, with and without a password.

Each way gives the same answer. Where the way passes standard input, the installed release answers. Elsewhere Ansible's
module does, which leaves a directory in the home of the user, because these runs have no pipelining.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import other_collections  # tests/harness
import pytest
import ssh_host

CHECKOUT = Path(__file__).resolve().parents[2]
SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "example.com/null",
    "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/null"}]}}],
}
DOAS = "community.general.doas"
RELEASE, MODULE = "release", "module"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="makes a root directory and enters it: needs root"),
    pytest.mark.counterpart("mmdebstrap"),
]

# User, become method, variables, lines that the login script of the user has, what answers.
WAYS = {
    "as root": ("root", "sudo", {}, "", RELEASE),
    "sudo without a password": ("free", "sudo", {}, "", RELEASE),
    "sudo with a password": ("asks", "sudo", {}, "", RELEASE),
    "a login script that greets": ("asks", "sudo", {}, "echo 'Welcome! {}'", RELEASE),
    "a login script that asks nothing and reads nothing": ("free", "sudo", {}, "echo; printf '\\033[1m'", RELEASE),
    "sudo that needs a terminal": ("terminal", "sudo", {}, "", MODULE),
    "su with a password": ("asks", "su", {}, "", MODULE),
    "doas without a password": ("free", DOAS, {}, "", MODULE),
    # The plugin of community.general says that doas passes no input, whatever the site sets.
    "doas where the site sets pipelining": ("free", DOAS, {"ansible_pipelining": True}, "", MODULE),
    "doas with a password": ("asks", DOAS, {}, "", MODULE),
}


@pytest.fixture(scope="module")
def collections():
    """Where Ansible finds ours, and the become plugin doas."""
    try:
        more = other_collections.place(CHECKOUT / "build")
    except OSError as error:
        pytest.skip(f"the become plugin doas could not be had: {error}")
    return f"{CHECKOUT / 'build/pythonpath'}:{more}"


@pytest.fixture(scope="module")
def ansible(collections, tmp_path_factory):
    """Run a program of Ansible: ansible(program, *options) -> what it printed."""
    home = tmp_path_factory.mktemp("ansible")
    with tempfile.TemporaryDirectory(prefix="cp-", dir="/tmp", ignore_cleanup_errors=True) as sockets:  # short paths
        yield runner(home, collections, sockets)


def runner(home, collections, sockets):
    """Return the function that runs programs of Ansible, whose connections of ssh have their sockets in `sockets`."""
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": collections,
        "ANSIBLE_HOME": str(home),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets,
    }

    def run(program, *options):
        command = [str(Path(sys.executable).with_name(program)), *map(str, options)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="module")
def host(ansible, tmp_path_factory):
    """A host with our release and one spec."""
    directory = tmp_path_factory.mktemp("host")
    try:
        found = ssh_host.SshHost(directory)
    except OSError as error:
        pytest.skip(str(error))
    (found.root / "etc/cdi").mkdir()
    found.write("etc/cdi/null.json", json.dumps(SPEC))
    said = ask(ansible, found, "root", "sudo", {}, "host_release")
    assert said["changed"] and (found.root / "opt/cdi/bin/fleet-cdi").exists()
    shutil.rmtree(found.root / "root/.ansible")
    return found


def ask(ansible, host, user, method, variables, module):
    """Run a module on the host; return its result."""
    inventory = host.root.parent / "hosts.json"
    known = {"here": host.variables(user, method, **variables)}
    inventory.write_text(json.dumps({"all": {"hosts": known}}))
    said = ansible("ansible", "-i", inventory, "here", "-m", f"fleet.cdi.{module}")
    assert "SUCCESS => " in said or "CHANGED => " in said, said
    return json.JSONDecoder().raw_decode(said.partition(" => ")[2])[0]


@pytest.mark.parametrize("name", WAYS)
def test_each_way_gives_the_answer(ansible, host, name):
    user, method, variables, login, expected = WAYS[name]
    home = host.root / ("root" if user == "root" else f"home/{user}")
    (home / ".bashrc").write_text(f"{login}\n")
    answer = ask(ansible, host, user, method, variables, "spec_info")
    assert [one["path"] for one in answer["specs"]] == ["/etc/cdi/null.json"]
    sent = [path for path in (home / ".ansible", host.root / "root/.ansible") if path.exists()]
    for path in sent:
        shutil.rmtree(path)
    assert (MODULE if sent else RELEASE) == expected


def test_a_task_that_is_delegated_asks_the_other_host(ansible, host, tmp_path):
    """Its connection, its user and its way to root are those of the host that it is delegated to."""
    known = {"box": {"ansible_connection": "network_cli"}, "here": host.variables("asks")}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": known}}))
    task = {"fleet.cdi.spec_info": None, "delegate_to": "here", "register": "found"}
    shown = {"ansible.builtin.debug": {"msg": "{{ found.specs | map(attribute='path') | list | to_json }}"}}
    play = {"hosts": "box", "gather_facts": False, "tasks": [task, {**shown, "delegate_to": "localhost"}]}
    (tmp_path / "play.json").write_text(json.dumps([play]))
    said = ansible("ansible-playbook", "-i", tmp_path / "hosts.json", tmp_path / "play.json")
    assert "/etc/cdi/null.json" in said and "failed=0" in said, said
    assert not (host.root / "home/asks/.ansible").exists()
