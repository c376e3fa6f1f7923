# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Single blocks of the documentation, typed on this machine in directories of its own: rows `here` of tests/blocks.yml.

The host is provisioned by the real ansible-playbook with two consoles, as the examples of docs/cli.md say.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import apart  # tests/harness
import pytest
import typed  # tests/harness
import yaml

LOCAL = {
    "ansible_connection": "local",
    "ansible_become": False,
    "ansible_python_interpreter": sys.executable,
    "cdi_host_python": sys.executable,
    "cdi_host_install_packages": False,
    "cdi_host_refresh": False,
    "cdi_host_command_link": False,
    "cdi_host_device_list": apart.DEVICE_LIST,
}
# `profile: tty` of two consoles.
CONSOLES = {
    "profile": "rule",
    "kind": "fleet.cdi/tty",
    "match": {"subsystem": "tty", "node": ["/dev/tty13", "/dev/tty14"]},
    "name_by": ["sysname"],
    "group_by": "none",
}
HOST = {
    **LOCAL,
    "cdi_host_devices": {"consoles": CONSOLES},
    "cdi_host_plugins": {
        # Whoever has a console of this machine open is none of the blocks' business.
        "tty/generic-tty": {"plugin": "generic-tty", "args": {"num_system_reserved": 12, "occupied_ignore": ["*"]}}
    },
}
NIGHTLY = pytest.mark.skipif(not os.environ.get("NIGHTLY"), reason="takes long: make nightly")
CASES = [
    pytest.param(name, number, row, id=f"{name}-{number}", marks=NIGHTLY if row.get("nightly") else ())
    for name, rows in typed.table().items()
    for number, row in enumerate(rows)
    if "here" in row
]

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="provisions this machine in a mount namespace: needs root"),
    pytest.mark.skipif(not os.path.exists("/dev/tty63"), reason="this machine has no 63 consoles"),
]


@pytest.fixture(scope="module")
def provisioned(tmp_path_factory, ansible_environment):
    """An archive of a host after its first provisioning."""
    place = tmp_path_factory.mktemp("provisioned")
    (place / "consoles.yml").write_text(yaml.safe_dump({"all": {"hosts": {"node1": HOST}}}))
    os.makedirs("/var/lib/cdi/run")
    play = [Path(sys.executable).with_name("ansible-playbook"), "-i", place / "consoles.yml", "fleet.cdi.provision"]
    done = subprocess.run(play, capture_output=True, text=True, env=ansible_environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    subprocess.run(["tar", "-C", "/", "-cf", place / "host.tar", *(one[1:] for one in apart.DIRECTORIES)], check=True)
    apart.empty()
    return place / "host.tar"


@pytest.fixture
def host(tmp_path, ansible_environment, provisioned):
    """The variables of a host that nobody has provisioned. $PROVISION unpacks the host that was provisioned once.

    $PLAIN, $GPUS and $MEMORY provision it by the playbook, with other settings.
    """
    os.makedirs("/var/lib/cdi/run", exist_ok=True)
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory/hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"gpu01.example.com": LOCAL}}}))
    (tmp_path / "consoles.yml").write_text(yaml.safe_dump({"all": {"hosts": {"node1": HOST}}}))
    plain = {name: value for name, value in HOST.items() if name != "cdi_host_plugins"}
    (tmp_path / "plain.yml").write_text(yaml.safe_dump({"all": {"hosts": {"node1": plain}}}))
    memory = {"match": {"subsystem": "mem", "node": ["/dev/full", "/dev/zero"]}, "kind": "vendor.com/memory"}
    memory = {**plain, "cdi_host_devices": {"memory": {**CONSOLES, **memory}}}
    more = {"python": sys.executable, "install_packages": False, "command_link": False}
    more["device_list"] = HOST["cdi_host_device_list"]
    gpus = {**CONSOLES, "kind": "fleet.cdi/gpu", "match": {"subsystem": "block", "node": ["/dev/loop0", "/dev/loop1"]}}
    pools = {**HOST["cdi_host_plugins"], "gpu/drm": {"plugin": "rule", "args": gpus}}
    gpus = {**HOST, "cdi_host_devices": {"consoles": CONSOLES, "gpus": gpus}, "cdi_host_plugins": pools}
    (tmp_path / "gpus.yml").write_text(yaml.safe_dump({"all": {"hosts": {"node1": gpus}}}))
    (tmp_path / "memory.yml").write_text(yaml.safe_dump({"all": {"hosts": {"node1": memory}}}))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text('#!/bin/sh\nshift; exec "$@"\n')
    (tmp_path / "bin/ssh").chmod(0o755)
    yield {
        **ansible_environment,
        "HOME": str(tmp_path),
        "PROVISION": f"tar -C / -xpf {provisioned}",
        "PLAIN": f"ansible-playbook -i {tmp_path}/plain.yml fleet.cdi.provision",
        "GPUS": f"ansible-playbook -i {tmp_path}/gpus.yml fleet.cdi.provision",
        "MORE": yaml.safe_dump(more).strip(),
        "MEMORY": f"ansible-playbook -i {tmp_path}/memory.yml fleet.cdi.provision",
        "CHECKOUT": str(typed.CHECKOUT),
        "PATH": f"{tmp_path}/bin:/opt/cdi/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ANSIBLE_INVENTORY": str(tmp_path / "consoles.yml"),
    }
    apart.empty()


@pytest.mark.parametrize(("name", "number", "row"), CASES)
def test_the_block_does_what_it_shows(name, number, row, tmp_path, host):
    block = typed.blocks_of(name)[number]
    for other in typed.blocks_of(name):  # files that the reader saves
        for path in typed.saved_as(other):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(typed.replaced(other.text, row.get("replace", {})))
    replace = {
        one: text.replace("$HERE", str(tmp_path)).replace("$MORE", host["MORE"])
        for one, text in row.get("replace", {}).items()
    }
    if "command" in row:  # the block is the output of it
        block = block._replace(text=f"$ {row['command']}\n{block.text}")
    typed.run(name, block, tmp_path, host, replace, row["here"])
