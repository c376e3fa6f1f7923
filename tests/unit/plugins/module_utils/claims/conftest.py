# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host whose plugins are real executables, one of them not ours, and its claims."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims import store
from ansible_collections.fleet.cdi.plugins.module_utils.claims.add_claim import add_claim
from ansible_collections.fleet.cdi.plugins.module_utils.claims.calls import Caller
from ansible_collections.fleet.cdi.plugins.module_utils.claims.check_claims import check_claims
from ansible_collections.fleet.cdi.plugins.module_utils.claims.delete_claim import delete_claim, spec_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.collect_claims import collect_claims
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.users import users_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import WantedClaim, parse_amounts
from ansible_collections.fleet.cdi.plugins.module_utils.claims.restore_claims import restore_claims
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.claim_user import note_user
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.containers import ListedContainers
from ansible_collections.fleet.cdi.plugins.module_utils.system.process_mark import mark
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import Host, config
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import BOOT as BOOT_FILE
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import gpus
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

BOOT = "boot-1"
ENDED = mark("boot-0", 1, 1, "pid:[1]")  # of a container of an earlier boot
FOREIGN = """#!/bin/sh
# A 2017 executable that is not ours. It fails as its file says.
read -r how < {state}
case "$CDI_COMMAND:$how" in
VERSION:*) echo '{{"cdiVersion": "0.0.1", "supportedVersions": ["0.0.1"]}}' ;;
ADD:add*) echo '{{"cdiVersion": "0.0.1", "code": 100, "msg": "no"}}'; exit 1 ;;
ADD:file*) echo '{{"cdiVersion": "0.0.1", "devices": ["/dev/shm"]}}' ;;
ADD:slow*) : > {state}.began; sleep 1; echo "$CDI_REQUEST_ID" >> {state}.held
  echo '{{"cdiVersion": "0.0.1", "devices": ["/dev/null"]}}' ;;
ADD:*) echo "$CDI_REQUEST_ID" >> {state}.held; echo '{{"cdiVersion": "0.0.1", "devices": ["/dev/null"]}}' ;;
DEL:*del*) echo '{{"cdiVersion": "0.0.1", "code": 105, "msg": "stuck"}}' ;;
DEL:*) sed -i "/^$CDI_REQUEST_ID$/d" {state}.held ;;
esac
"""


class Claims:
    """A host with two GPUs, a foreign plugin of type `zero`, and claims."""

    def __init__(self, directory):
        self.host = Host(directory, gpus((4096, 8192)))
        self.host.configure(config())
        self.host.install()
        self.how = directory / "how"
        self.behave("well")
        (directory / "how.held").write_text("")
        foreign = directory / "opt/bin/foreign"
        foreign.write_text(FOREIGN.format(state=self.how))
        foreign.chmod(0o755)
        (directory / "etc/zero.d").mkdir()
        (directory / "etc/zero.d/foreign.conf").write_text(json.dumps(config("foreign", "zero")))
        (directory / "root/etc").mkdir(exist_ok=True)
        (directory / "root/dev/shm").write_text("x")
        self.caller = Caller(str(directory / "opt/bin"))
        self.places = Layout(
            str(self.host.state),
            self.host.inventory,
            str(directory / "etc"),
            self.host.root,
            str(directory / "opt"),
            (str(directory / "cdi"),),
        )

    def behave(self, how):
        self.how.write_text(how + "\n")

    def add(self, id_, *amounts, reuse=False, boot=BOOT, **more):
        return add_claim(self.places, self.caller, boot, WantedClaim(id_, parse_amounts(amounts), **more), reuse)

    def delete(self, id_, token="", force=False):
        return delete_claim(self.places, self.caller, BOOT, id_, token, force)

    def start_container(self, claim, container="c", pid=None):
        """Do what the hook of the claim does at the start of a container. Raises HookError."""
        state = Path(self.places.state_dir, "container")
        state.write_text(json.dumps({"id": container, "pid": pid or os.getpid()}))
        note_user(users_path(self.places.state_dir, claim), str(state))

    def stored(self, id_):
        return store.read_claim(self.places.state_dir, id_)

    def reboot(self, memories=(4096, 8192)):
        """Restart with GPUs of these sizes, an empty /run, and a refresh."""
        shutil.rmtree(self.host.root)
        tree = gpus(memories)
        tree["files"][BOOT_FILE] = "boot-2\n"
        render(tree, Path(self.host.root))
        shutil.rmtree(self.places.spec_dirs[0])
        self.host.refresh()

    def swap(self, old, new):
        """In this boot, put another card, at the address `new`, in place of the one at `old`, and refresh."""
        shutil.rmtree(self.host.root)
        tree = gpus((4096, 8192))
        places = {place.replace("0000:01:00.0", new): device for place, device in tree["devices"].items()}
        assert old != new
        render({**tree, "devices": places}, Path(self.host.root))
        self.host.refresh()

    def check(self, boot=BOOT):
        return [(fault.id, fault.fault, fault.advice) for fault in check_claims(self.places, boot).faults]

    def collect(self, *ids, trouble=(), boot=BOOT, idle_for=0.0, now=0.0, check=False):
        """Collect garbage while engines have the containers `ids`."""
        listed = ListedContainers(frozenset(ids), trouble)
        return collect_claims(self.places, self.caller, boot, idle_for, lambda: listed, lambda: now, check=check)

    def restore(self):
        return restore_claims(self.places, self.caller, "boot-2")

    def change(self, id_, **fields):
        """Change the record of a claim."""
        with store.alone(self.places.state_dir, id_, self.caller):
            store.write_claim(self.places.state_dir, self.stored(id_)._replace(**fields))

    def held(self):
        """What the foreign plugin holds, and whether both GPUs are free."""
        return self.how.with_suffix(".held").read_text().split(), self.free()

    def files(self):
        """Every file of claims, of executables and of specs, with its content: what a look may not change."""
        found = [path for one in (self.places.state_dir, *self.places.spec_dirs) for path in Path(one).rglob("*")]
        return {path: path.read_bytes() for path in [*found, self.how.with_suffix(".held")] if path.is_file()}

    def free(self):
        status, _reply = self.host.ask("ADD", config(), "gpu:2", "probe")
        if status == 0:
            self.host.ask("DEL", config(), request_id="probe")
        return status == 0

    def spec(self, id_):
        path = spec_path(self.places, id_)
        return json.loads(open(path, encoding="utf-8").read()) if os.path.exists(path) else None


@pytest.fixture
def claims(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    return Claims(tmp_path)
