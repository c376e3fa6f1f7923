# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims over the real executables: made, repeated, refused, given back, and undone halfway."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import time
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.claims import add_claim as add_claim_file
from ansible_collections.fleet.cdi.plugins.module_utils.claims import delete_claim as delete_claim_file
from ansible_collections.fleet.cdi.plugins.module_utils.claims import store
from ansible_collections.fleet.cdi.plugins.module_utils.claims.add_claim import add_claim
from ansible_collections.fleet.cdi.plugins.module_utils.claims.calls import Caller
from ansible_collections.fleet.cdi.plugins.module_utils.claims.check_claims import check_claims
from ansible_collections.fleet.cdi.plugins.module_utils.claims.delete_claim import delete_claim, spec_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime import collect_claims as collect_claims_file
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime import open_nodes, user_access
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.collect_claims import collect_claims
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.users import shown_state, users_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods.pod_record import (
    PodRecord,
    alone_with_pods,
    remove_pod,
    write_pod,
)
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import (
    ASKED,
    GRANTED,
    IDLE,
    ClaimRecord,
    NodeAccess,
    WantedClaim,
    parse_amounts,
)
from ansible_collections.fleet.cdi.plugins.module_utils.claims.restore_claims import restore_claims
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.refresh_all import refresh
from ansible_collections.fleet.cdi.plugins.module_utils.directories import ACCESS_LIST
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.claim_user import note_user
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.error import HookError
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Node
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import containers
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.containers import ListedContainers
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry
from ansible_collections.fleet.cdi.plugins.module_utils.system.process_mark import CLOSED, process_mark
from ansible_collections.fleet.cdi.tests.unit.builders import program
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import Host, config
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import BOOT as BOOT_FILE
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import gpus
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

BOOT = "boot-1"
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

    def collect(self, *ids, trouble=(), boot=BOOT, idle_for=0.0, now=0.0):
        """Collect garbage while engines have the containers `ids`."""
        listed = ListedContainers(frozenset(ids), trouble)
        return collect_claims(self.places, self.caller, boot, idle_for, lambda: listed, lambda: now)

    def restore(self):
        return restore_claims(self.places, self.caller, "boot-2")

    def change(self, id_, **fields):
        """Change the record of a claim."""
        with store.alone(self.places.state_dir, id_, self.caller):
            store.write_claim(self.places.state_dir, self.stored(id_)._replace(**fields))

    def held(self):
        """What the foreign plugin holds, and whether both GPUs are free."""
        return self.how.with_suffix(".held").read_text().split(), self.free()

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


class TestAdd:
    def test_over_two_types(self, claims):
        claim, changed = claims.add("job-42", "zero:1", "gpu:1")
        assert changed and claim.state == GRANTED and claim.device == "fleet.cdi/claim=job-42"
        assert [node.path for node in claim.nodes] == ["/dev/dri/card0", "/dev/dri/renderD128", "/dev/null"]
        assert [os.path.basename(path) for path in claim.configurations] == ["drm0.conf", "foreign.conf"]
        assert claims.stored("job-42") == claim and claims.held() == (["job-42"], False)
        (device,) = claims.spec("job-42")["devices"]
        null = device["containerEdits"]["deviceNodes"][-1]
        assert null == {"path": "/dev/null", "type": "c", "major": 1, "minor": 3}
        assert registry.load(claims.places.spec_dirs).devices == {claim.device: spec_path(claims.places, "job-42")}

    def test_only_root_reads_the_record_and_all_read_the_spec(self, claims):
        claims.add("job-42", "gpu:1")
        path = store.claim_path(claims.places.state_dir, "job-42")
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
        assert stat.S_IMODE(os.stat(spec_path(claims.places, "job-42")).st_mode) == 0o644

    def test_again_is_the_same_answer(self, claims):
        first = claims.add("job-42", "gpu:1", near=(1,))
        assert claims.add("job-42", "gpu:1", near=(1,)) == (first.claim, False)

    @pytest.mark.parametrize("more", [{"near": (1,)}, {"release_on_stop": True}, {"amount": "gpu:2"}])
    def test_another_request_is_refused_with_both(self, claims, more):
        claims.add("job-42", "gpu:1")
        amount = more.pop("amount", "gpu:1")
        with pytest.raises(CdiError, match=r"for gpu:1; found a request for gpu:.*claim del") as caught:
            claims.add("job-42", amount, **more)
        assert str(WantedClaim("", parse_amounts([amount]), **more)) in str(caught.value)

    def test_an_id_that_is_no_request_id(self, claims):
        claim, _changed = claims.add("web@1.service", "gpu:1", "zero:1")
        assert claim.device == "fleet.cdi/claim=web:401.service"
        assert claims.held()[0][0].startswith("claim-")
        assert claims.delete("web@1.service") and claims.held() == ([], True)

    def test_all_or_nothing(self, claims, tmp_path):
        claims.behave("add")
        with pytest.raises(CdiError, match="no"):
            claims.add("job-42", "gpu:1", "zero:1")
        assert claims.stored("job-42") is None and claims.spec("job-42") is None and claims.free()
        assert list((tmp_path / "state/claims").iterdir()) == []
        claims.behave("well")
        assert claims.add("job-42", "gpu:1", "zero:1").changed

    def test_devices_that_the_caller_chose(self, claims):
        claim, _changed = claims.add("job-42", "gpu:1", only=("/dev/dri/renderD129",))
        assert [node.path for node in claim.nodes] == ["/dev/dri/card1", "/dev/dri/renderD129"]
        with pytest.raises(CdiError, match="only devices with /dev/dri/renderD129 were asked for"):
            claims.add("job-43", "gpu:1", only=("/dev/dri/renderD129",))
        assert claims.stored("job-43") is None

    def test_a_plugin_that_ignores_the_choice_takes_its_devices_back(self, claims):
        with pytest.raises(CdiError, match="granted ./dev/null.; expected devices with /dev/full"):
            claims.add("job-42", "zero:1", only=("/dev/full",))
        assert claims.stored("job-42") is None and claims.held() == ([], True)

    def test_what_is_not_a_device_node_is_given_back(self, claims):
        claims.behave("file")
        with pytest.raises(CdiError, match="/dev/shm: was granted, and is not a device node"):
            claims.add("job-42", "zero:1")
        assert claims.stored("job-42") is None

    def test_a_failed_undo_stays_asked_with_the_reason_and_is_tried_again(self, claims):
        claims.behave("file-del")
        with pytest.raises(CdiError, match="is not a device node.*stuck.*claim gc"):
            claims.add("job-42", "gpu:1", "zero:1")
        claim = claims.stored("job-42")
        assert claim.state == ASKED and "stuck" in claim.reason
        with pytest.raises(CdiError, match="stuck"):
            claims.add("job-42", "gpu:1")
        claims.behave("well")
        assert claims.add("job-42", "gpu:1").changed

    def test_a_type_without_a_configuration_is_refused_before_anything(self, claims):
        with pytest.raises(CdiError, match=r"fpga.d in .* has no configuration"):
            claims.add("job-42", "gpu:1", "fpga:1")
        assert claims.stored("job-42") is None and claims.free()

    def test_a_spec_directory_that_is_not_writable(self, claims, tmp_path):
        (tmp_path / "cdi").write_text("")
        with pytest.raises(CdiError, match="cdi"):
            claims.add("job-42", "gpu:1")
        (tmp_path / "cdi").unlink()
        assert claims.add("job-42", "gpu:1").changed


class TestDelete:
    def test_all_is_given_back(self, claims):
        claims.add("job-42", "gpu:2", "zero:1")
        assert claims.delete("job-42")
        assert claims.held() == ([], True) and claims.spec("job-42") is None
        assert os.listdir(os.path.join(claims.places.state_dir, "claims")) == []
        assert not claims.delete("job-42")

    def test_a_name_that_ended_is_not_used_again_in_this_boot(self, claims):
        claims.add("job-42", "gpu:1")
        claims.delete("job-42")
        with pytest.raises(CdiError, match="job-42: ended in this boot.*--reuse"):
            claims.add("job-42", "gpu:1")
        assert claims.add("job-4", "gpu:1").changed
        assert claims.add("job-42", "gpu:1", reuse=True).changed
        claims.delete("job-42")
        assert claims.add("job-42", "gpu:1", boot="boot-2").changed

    def test_a_late_one_frees_no_newer_claim(self, claims):
        first = claims.add("job-42", "gpu:1").claim
        claims.delete("job-42", first.token)
        second = claims.add("job-42", "gpu:1", reuse=True).claim
        assert not claims.delete("job-42", first.token)
        assert claims.stored("job-42") == second and not claims.free()

    def test_a_failed_one_stays_without_its_spec(self, claims):
        claims.add("job-42", "zero:1", "gpu:1")
        claims.behave("del")
        with pytest.raises(CdiError, match="stuck"):
            claims.delete("job-42")
        assert claims.stored("job-42").state == ASKED and claims.spec("job-42") is None and claims.free()
        claims.behave("well")
        assert claims.delete("job-42") and claims.held() == ([], True)

    def test_without_its_configuration(self, claims, tmp_path):
        claims.add("job-42", "gpu:1")
        (tmp_path / "etc/gpu.d/drm0.conf").rename(tmp_path / "kept.conf")
        with pytest.raises(CdiError, match="drm0.conf"):
            claims.delete("job-42")
        (tmp_path / "kept.conf").rename(tmp_path / "etc/gpu.d/drm0.conf")
        assert claims.delete("job-42") and claims.free()


class TestCheck:
    def test_all_is_well(self, claims):
        claims.add("one", "gpu:1", "zero:1")
        claims.add("two", "gpu:1")
        assert claims.check() == []

    def test_what_disagrees_is_told_with_the_next_step(self, claims):
        path = spec_path(claims.places, "one")
        claims.add("one", "gpu:1")
        content = Path(path).read_text()
        os.unlink(path)
        assert claims.check() == [("one", f"{path} is missing", "run `fleet-cdi claim restore`")]
        Path(path).write_text(content.replace("128", "129"))
        ((_id, fault, _advice),) = claims.check()
        assert "is not what the claim and the specs of its devices say" in fault
        Path(path).write_text(content)
        assert claims.check() == []
        claims.host.ask("DEL", config(), request_id="one")
        ((_id, fault, advice),) = claims.check()
        assert fault == "the ledger has no grant of gpu/drm for it any more" and "claim del" in advice

    def test_a_node_that_is_another_device_now(self, claims):
        claims.add("one", "gpu:1")
        node = claims.stored("one").nodes[0]
        os.unlink(claims.host.root + node.path)
        os.mknod(claims.host.root + node.path, stat.S_IFCHR | 0o600, os.makedev(226, 63))
        ((_id, fault, _advice),) = claims.check()
        assert fault == f"{node.path}: has minor 63, expected {node.minor}"

    def test_half_done_and_orphaned(self, claims):
        claims.add("one", "gpu:1")
        claims.change("one", state=ASKED)
        claims.add("two", "gpu:1")
        os.unlink(store.claim_path(claims.places.state_dir, "two"))
        assert [(id_, advice) for id_, _fault, advice in claims.check()] == [
            ("one", "run `fleet-cdi claim gc`"),
            (spec_path(claims.places, "two"), "run `fleet-cdi claim gc`"),
        ]

    def test_before_a_restore(self, claims):
        claims.add("one", "gpu:1")
        ((_id, fault, advice),) = claims.check("boot-2")
        assert "before the last reboot" in fault and "claim restore" in advice


@pytest.mark.skipif(os.geteuid() != 0, reason="lets another user open nodes: needs root")
class TestForAUser:
    """The parts are tested in lifetime/test_user_access.py, the whole in tests/integration/test_rootless_claims.py."""

    NULL = Node("/dev/null", "c", 1, 3)

    @pytest.fixture(autouse=True)
    def nobody_else(self, monkeypatch):
        """Hide the processes of this machine: one of user daemon may have /dev/null open, in a container of a test."""
        monkeypatch.setattr(open_nodes, "open_nodes", lambda *_given: "")

    @pytest.fixture
    def entry(self, claims):
        """Tell if the user has an entry in the access list of the node that `zero` grants."""
        null = Path(claims.host.root) / "dev/null"
        null.chmod(0o600)
        return lambda: ACCESS_LIST in os.listxattr(null)

    def test_who_can_not_enter_a_directory_on_the_way_gets_no_claim(self, claims, entry):
        Path(claims.places.spec_dirs[0]).mkdir(exist_ok=True)
        Path(claims.places.spec_dirs[0]).chmod(0o700)
        with pytest.raises(CdiError, match="user daemon can't open it, although"):
            claims.add("one", "zero:1", for_user="daemon")
        assert not entry() and claims.stored("one") is None and claims.held() == ([], True)

    def test_after_a_reboot_a_fault_and_an_unfinished_undo(self, claims, entry, monkeypatch):
        monkeypatch.setattr(user_access, "check_access", lambda *_given: None)  # can't enter pytest's directory
        made = claims.add("one", "zero:1", for_user="daemon")
        assert made.claim.access == (NodeAccess(self.NULL),) and entry() and claims.check() == []
        Path(spec_path(claims.places, "one")).chmod(0o644)
        assert "its access list is not the claim's" in claims.check()[0][1]
        claims.reboot()
        (Path(claims.host.root) / "dev/null").chmod(0o600)
        assert not entry()
        assert claims.restore().restored == ("one",)
        assert entry() and claims.check("boot-2") == [] and claims.restore().restored == ()
        monkeypatch.setattr(open_nodes, "open_nodes", lambda *_given: "/dev/null is open in pid 7")
        with pytest.raises(CdiError, match="is open in pid 7; expected that nobody uses it"):
            claims.delete("one")
        assert entry() and claims.stored("one").state == GRANTED
        monkeypatch.setattr(  # opened between the look and the end of the access
            open_nodes,
            "open_nodes",
            lambda _places, claim, *_only: "" if claim.access[0].given else "/dev/null is open",
        )
        with pytest.raises(CdiError, match="could not be given back: /dev/null is open"):
            claims.delete("one")
        assert not entry() and claims.stored("one").state == ASKED and len(claims.held()[0]) == 1
        assert claims.collect().freed == ()
        monkeypatch.setattr(open_nodes, "open_nodes", lambda *_given: "")
        assert claims.collect().freed == ("one",) and claims.held() == ([], True)


class TestCollect:
    def test_half_done_ones_and_specs_without_a_claim(self, claims):
        claims.add("one", "gpu:1", "zero:1")
        claims.change("one", state=ASKED)
        claims.add("kept", "gpu:1")
        spec = spec_path(claims.places, "lost")
        Path(spec).write_text(json.dumps(claims.spec("one")))
        done = claims.collect()
        assert (done.freed, done.removed, done.failed) == (("one",), (spec,), ())
        assert [claim.id for claim in store.read_claims(claims.places.state_dir).claims] == ["kept"]
        assert claims.how.with_suffix(".held").read_text() == ""

    def test_an_add_that_outlives_its_killed_caller_is_undone(self, claims):
        """The executable of a killed claim ends when it likes, so whoever undoes the claim waits for it."""
        claims.behave("slow")
        child = os.fork()
        if not child:
            claims.add("one", "zero:1")
            os._exit(0)
        began = claims.how.with_suffix(".began")
        while not began.exists():
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        claims.behave("well")
        assert claims.collect().freed == ("one",)
        time.sleep(1.2)
        assert claims.held() == ([], True)

    @pytest.mark.parametrize(
        ("release_on_stop", "containers", "listed", "freed"),
        [
            (False, "", (), False),  # not used yet
            (True, "", (), False),
            (False, "run", (), False),  # the kernel knows better than an engine that lost it
            (False, "run", ("run",), False),
            (True, "run", (), False),
            (False, "stopped", ("stopped", "other"), False),  # it may start again
            (False, "stopped", ("other",), True),
            (True, "stopped", ("stopped",), True),
            (False, "stopped run", (), False),
            (True, "stopped run", (), False),
            (False, "stopped gone", ("stopped",), False),
            (False, "stopped gone", (), True),
        ],
    )
    def test_a_claim_is_over_when_all_its_containers_are(self, claims, release_on_stop, containers, listed, freed):
        claim, _changed = claims.add("one", "gpu:1", release_on_stop=release_on_stop)
        users = Path(users_path(claims.places.state_dir, claim))
        for container in containers.split():
            (users / container).write_text(process_mark(os.getpid()) if container == "run" else "boot-0 1 1\n")
        state = shown_state(claims.places.state_dir, claim).state
        assert state == (IDLE if containers and "run" not in containers else GRANTED)
        assert claims.collect(*listed).freed == (("one",) if freed else ())
        assert users.exists() == (not freed) == bool(claims.spec("one"))
        assert claims.check() == []
        if freed:
            with pytest.raises(CdiError, match="ended in this boot"):
                claims.add("one", "gpu:1")

    def test_an_engine_that_does_not_answer_keeps_the_claims_that_wait_for_it(self, claims):
        for id_, release in (("kept", False), ("freed", True)):
            claim, _changed = claims.add(id_, "gpu:1", release_on_stop=release)
            Path(users_path(claims.places.state_dir, claim), "a").write_text("")
        done = claims.collect(trouble=("docker: does not run",))
        assert done.freed == ("freed",)
        assert done.failed == ("claim kept: is kept, because its container may still exist: docker: does not run",)

    def test_a_refresh_frees_nothing_and_asks_no_engine(self, claims, monkeypatch):
        monkeypatch.setattr(containers, "LISTS", None)
        claim, _changed = claims.add("stopped", "zero:1", release_on_stop=True)
        Path(users_path(claims.places.state_dir, claim), "a").write_text("")
        claims.add("half", "zero:1")
        claims.change("half", state=ASKED)
        assert refresh(claims.places).failed == ()
        assert [claim.id for claim in store.read_claims(claims.places.state_dir).claims] == ["half", "stopped"]

    def test_idle_for_counts_from_the_first_look_and_again_from_each_container(self, claims):
        for id_, release in (("kept", False), ("stopped", True)):
            claim, _changed = claims.add(id_, "gpu:1", release_on_stop=release)
            Path(users_path(claims.places.state_dir, claim), "a").write_text("")
        users = users_path(claims.places.state_dir, claims.stored("kept"))
        assert claims.collect(idle_for=10, now=5).freed == ("stopped",)  # does not wait
        assert claims.collect(idle_for=10, now=14).freed == ()
        Path(users, "b").write_text("")  # ran and was removed between two looks
        assert claims.collect(idle_for=10, now=15).freed == claims.collect(idle_for=10, now=24).freed == ()
        Path(claims.places.unused_claims).write_text("x")  # begins again
        assert claims.collect(idle_for=10, now=25).freed == claims.collect(idle_for=10, now=34).freed == ()
        assert claims.collect("b", idle_for=10, now=35).freed == ()  # an engine has it again, so it is not gone
        assert claims.collect(idle_for=10, now=36).freed == claims.collect(idle_for=10, now=45).freed == ()
        assert claims.collect(idle_for=10, now=46).freed == ("kept",)
        claims.collect(idle_for=10, now=47)
        assert json.loads(Path(claims.places.unused_claims).read_text()) == {}

    def test_keep_is_given_back_by_del_alone(self, claims):
        claim, _changed = claims.add("job", "gpu:1", keep=True)
        Path(users_path(claims.places.state_dir, claim), "a").write_text("")
        assert claims.collect().freed == ()
        with pytest.raises(CdiError, match="kept until it is given back; found a request for gpu:1"):
            claims.add("job", "gpu:1")
        assert claims.delete("job")

    def test_keep_and_release_on_stop_are_refused(self, claims):
        with pytest.raises(CdiError, match="found release_on_stop and keep; expected one of them"):
            claims.add("job", "gpu:1", keep=True, release_on_stop=True)
        assert claims.stored("job") is None

    def test_a_claim_is_not_given_back_while_a_container_runs(self, claims):
        claim, _changed = claims.add("one", "gpu:2")
        claims.start_container(claim, "a")
        claims.start_container(claim, "b")
        with pytest.raises(CdiError, match=r"still run: a, b\. Stop them first .*--force"):
            claims.delete("one")
        assert claims.stored("one") == claim and claims.spec("one") and not claims.free()
        Path(users_path(claims.places.state_dir, claim), "b").write_text("")
        with pytest.raises(CdiError, match="still run: a"):
            claims.delete("one")
        assert claims.delete("one", force=True) and claims.free()

    def test_a_container_that_stopped_keeps_no_claim(self, claims):
        claim, _changed = claims.add("one", "gpu:2")
        Path(users_path(claims.places.state_dir, claim), "a").write_text("")
        assert claims.delete("one") and claims.free()

    @pytest.mark.parametrize("killed_in", ["note_ended", "write_claim", "undo_claim", "remove_claim"])
    def test_a_del_that_is_killed_on_the_way_is_finished_by_gc_or_nothing_happened(
        self, claims, monkeypatch, killed_in
    ):
        claim, _changed = claims.add("one", "gpu:2")

        def kill(*_arguments):
            raise KeyboardInterrupt

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(delete_claim_file, killed_in, kill)
            claims.delete("one")
        if claims.stored("one").state == GRANTED:
            claims.start_container(claim)
            assert claims.check() == []
        else:
            with pytest.raises(HookError, match="the claim is over"):
                claims.start_container(claim)
            assert claims.collect().freed == ("one",) and claims.free()

    @pytest.mark.parametrize("killed_in", ["note_ended", "write_claim", "undo_claim", "remove_claim"])
    def test_one_that_is_killed_on_the_way_is_collected_by_the_next(self, claims, monkeypatch, killed_in):
        claim, _changed = claims.add("one", "gpu:2")
        users = users_path(claims.places.state_dir, claim)
        Path(users, "a").write_text("")

        def kill(*_arguments):
            raise KeyboardInterrupt

        module = delete_claim_file if killed_in == "remove_claim" else collect_claims_file
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(module, killed_in, kill)
            claims.collect()
        state = claims.places.state_dir + "/container"
        Path(state).write_text(json.dumps({"id": "b", "pid": os.getpid()}))
        with pytest.raises(HookError, match="the claim is over"):
            note_user(users, state)
        assert claims.collect().freed == ("one",)
        assert not os.path.exists(users) and claims.free()

    def test_pods_count_their_users_themselves(self, claims):
        claim, _changed = claims.add("one", "gpu:1")
        Path(users_path(claims.places.state_dir, claim), "a").write_text("")
        with alone_with_pods(claims.places.state_dir):
            write_pod(claims.places.state_dir, PodRecord("default/pod", {"c": ("one",)}))
        assert claims.collect().freed == ()
        remove_pod(claims.places.state_dir, "default/pod")
        assert claims.collect().freed == ("one",)

    def test_a_job_ends_its_claim_itself(self, claims):
        claim, _changed = claims.add("one", "gpu:1", job="Slurm job 1, restart 0")
        Path(users_path(claims.places.state_dir, claim), "a").write_text("")
        assert claims.collect().freed == ()

    def test_no_engine_is_asked_without_need(self, claims):
        claims.add("one", "gpu:1")
        assert collect_claims(claims.places, claims.caller, BOOT, listed=None).failed == ()

    def test_a_claim_of_the_same_id_has_users_of_its_own(self, claims):
        first, _changed = claims.add("one", "gpu:1")
        claims.delete("one")
        second, _changed = claims.add("one", "gpu:1", reuse=True)
        paths = [users_path(claims.places.state_dir, claim) for claim in (first, second)]
        assert [os.path.isdir(path) for path in paths] == [False, True]
        (hook,) = claims.spec("one")["devices"][0]["containerEdits"]["hooks"]
        assert hook["hookName"] == "createRuntime" and hook["env"]
        assert hook["args"] == ["cdi-hook", "use-claim", f"--directory={paths[1]}"]

    def test_what_fails_is_told_and_stays(self, claims):
        claims.add("one", "zero:1")
        claims.add("two", "gpu:1")
        for id_ in ("one", "two"):
            claims.change(id_, state=ASKED)
        claims.behave("del")
        done = claims.collect()
        assert done.freed == ("two",) and "stuck" in done.failed[0]


class TestRestore:
    def test_after_a_reboot(self, claims):
        claims.add("kept", "gpu:1", "zero:1")
        claims.reboot()
        refresh(claims.places, claims=False)
        assert claims.spec("kept") is None
        assert claims.restore() == (("kept",), ())
        assert claims.check("boot-2") == []
        assert claims.add("kept", "gpu:1", "zero:1", boot="boot-2").changed is False
        assert claims.restore() == ((), ())

    def test_one_that_a_reboot_ended_gets_no_spec_and_is_freed(self, claims):
        """By a collection, or by the next `add` of its id: a unit may make its claim before the first collection."""
        for id_ in ("one", "two"):
            claims.add(id_, "gpu:1", release_on_stop=True)
        claims.add("job", "zero:1", job="Slurm job 1, restart 0")
        claims.reboot()
        assert claims.restore() == ((), ()) and claims.spec("one") is None
        assert [advice for _id, _fault, advice in claims.check("boot-2")] == ["run `fleet-cdi claim gc`"] * 3
        assert claims.add("one", "gpu:1", boot="boot-2").changed
        assert claims.collect(boot="boot-2", idle_for=10).freed == ("job", "two")
        assert claims.check("boot-2") == [] and claims.spec("one")

    def test_renumbered_nodes_are_those_of_the_same_card(self, claims):
        claims.add("one", "gpu:1")
        claims.add("two", "gpu:1")
        before = claims.stored("two").nodes
        claims.reboot()
        claims.change("two", parts=tuple(part._replace(nodes=part.nodes[:1]) for part in claims.stored("two").parts))
        claims.restore()
        assert claims.stored("two").nodes == before

    def test_a_plugin_that_is_killed_takes_nothing_away(self, claims):
        """The grant is that of the boot before: the next restore finds it."""
        claims.add("one", "gpu:1")
        before = claims.stored("one").nodes
        claims.reboot()
        plugin = Path(claims.places.prefix, "bin/drm")
        text = plugin.read_text()
        (real,) = program(plugin.parent, "real", "")
        Path(real).write_text(text)
        program(plugin.parent, "drm", f'[ "$CDI_COMMAND" = ADD ] && kill -9 $$; exec {real}')
        (why,) = claims.restore().failed
        assert "claim one: can't be restored" in why
        plugin.write_text(text)
        assert claims.restore() == (("one",), ())
        assert claims.stored("one").nodes == before

    def test_a_vanished_device_is_told_and_not_swapped(self, claims):
        claims.add("one", "gpu:1")
        claims.add("two", "gpu:1")
        claims.reboot((4096,))
        done = claims.restore()
        assert done.restored == ("one",)
        (why,) = done.failed
        assert "claim two: can't be restored" in why and "do not start" in why
        assert claims.spec("two") is None and claims.stored("two").reason
        with pytest.raises(CdiError, match="has not been restored"):
            claims.add("two", "gpu:1", boot="boot-2")
        claims.reboot()
        assert "two" in claims.restore().restored

    def test_a_device_whose_node_another_one_has_is_refused_until_it_is_back(self, claims):
        """In one boot: a card is pulled, and the next card gets its nodes."""
        claims.add("one", "gpu:1")
        claims.add("two", "gpu:1")
        before = claims.spec("one"), claims.stored("one").nodes
        claims.swap("0000:01:00.0", "0000:05:00.0")
        done = restore_claims(claims.places, claims.caller, BOOT)
        (why,) = done.failed
        assert "claim one: can't be restored" in why and done.restored == ()
        assert claims.spec("one") is None and claims.spec("two") and claims.stored("one").reason
        assert restore_claims(claims.places, claims.caller, BOOT).restored == ()
        claims.swap("0000:05:00.0", "0000:01:00.0")
        assert restore_claims(claims.places, claims.caller, BOOT) == (("one",), ())
        assert (claims.spec("one"), claims.stored("one").nodes) == before

    def test_a_grant_that_the_ledger_lost_is_not_made_anew(self, claims):
        claims.add("one", "gpu:1")
        claims.host.ask("DEL", config(), request_id="one")
        claims.reboot()
        (why,) = claims.restore().failed
        assert "the ledger has no grant" in why and claims.free()

    def test_a_foreign_device_that_is_of_another_type(self, claims):
        claims.add("one", "zero:1")
        claims.reboot()
        os.unlink(claims.host.root + "/dev/null")
        os.mknod(claims.host.root + "/dev/null", stat.S_IFBLK | 0o600, os.makedev(7, 0))
        (why,) = claims.restore().failed
        assert "another type" in why and claims.spec("one") is None


class TestRecord:
    def test_amounts(self):
        assert parse_amounts(["gpu:1,gpu-memory:8192", "tty:3"]) == {"gpu": 1, "gpu-memory": 8192, "tty": 3}
        assert parse_amounts(["gpu-memory:8Gi"]) == {"gpu-memory": 8192}

    @pytest.mark.parametrize(
        "words", ["", "gpu", "gpu:", "gpu:0", "gpu:-1", "gpu:1.5", "gpu:8Gi", "g/u:1", "gpu:1,gpu:2"]
    )
    def test_bad_amounts(self, words):
        with pytest.raises(CdiError, match="claim: found"):
            parse_amounts([words])

    @pytest.mark.parametrize(
        "content", ["{", "[]", "{}", '{"version": 2}', '{"version": 1, "wanted": {}, "nodes": []}']
    )
    def test_damaged_files_are_named_and_hide_no_other(self, tmp_path, content):
        state = str(tmp_path / "state")
        with store.alone(state, "good", Caller()):
            store.write_claim(state, ClaimRecord(WantedClaim("good", {"gpu": 1})))
        path = store.claim_path(state, "bad")
        with open(path, "w", encoding="ascii") as file:
            file.write(content)
        found = store.read_claims(state)
        assert [claim.id for claim in found.claims] == ["good"] and [*found.errors] == [path]


class Killed(BaseException):
    """SIGKILL."""


class TestAskedClaim:
    """What a killed command left half done still has containers, which keep their devices."""

    @staticmethod
    def kept(claims):
        """A container starts with the claim: gc leaves it, and the devices, alone."""
        claims.start_container(claims.stored("job"))
        listed = ListedContainers(frozenset({"c"}))
        assert collect_claims(claims.places, claims.caller, BOOT, listed=lambda: listed).freed == ()
        with pytest.raises(CdiError, match="0 are free"):
            claims.add("other", "gpu:2")

    def test_a_killed_del(self, claims, monkeypatch):
        claims.add("job", "gpu:2")
        real = files.replace

        def replace(path, *given, **named):
            if path.endswith(CLOSED):
                raise Killed
            return real(path, *given, **named)

        monkeypatch.setattr(files, "replace", replace)
        with pytest.raises(Killed):
            claims.delete("job")
        monkeypatch.undo()
        self.kept(claims)

    def test_a_killed_add(self, claims, monkeypatch):
        real = add_claim_file.write_claim

        def write(state_dir, claim):
            if claim.state == GRANTED:
                raise Killed
            real(state_dir, claim)

        monkeypatch.setattr(add_claim_file, "write_claim", write)
        with pytest.raises(Killed):
            claims.add("job", "gpu:2")
        monkeypatch.undo()
        self.kept(claims)
