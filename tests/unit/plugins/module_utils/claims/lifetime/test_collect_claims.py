# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which claims a collection of garbage frees: those whose containers are gone, and those that a kill left halfway."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims import delete_claim as delete_claim_file
from ansible_collections.fleet.cdi.plugins.module_utils.claims import store
from ansible_collections.fleet.cdi.plugins.module_utils.claims.delete_claim import spec_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime import collect_claims as collect_claims_file
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.collect_claims import collect_claims
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.unused_since import damage
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.users import shown_state, users_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods.pod_record import (
    PodRecord,
    alone_with_pods,
    remove_pod,
    write_pod,
)
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import ASKED, GRANTED, IDLE
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.refresh_all import refresh
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.claim_user import note_user
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.error import HookError
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import containers
from ansible_collections.fleet.cdi.plugins.module_utils.system.process_mark import process_mark
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.claims.conftest import BOOT, ENDED


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

    def test_check_tells_the_same_and_changes_nothing(self, claims):
        for id_ in ("half", "run", "over", "young"):
            claim, _changed = claims.add(id_, "zero:1", release_on_stop=id_ == "over")
            mark = process_mark(os.getpid()) if id_ == "run" else ENDED
            Path(users_path(claims.places.state_dir, claim), "a").write_text(mark)
        for id_ in ("half", "run"):
            claims.change(id_, state=ASKED)
        lost = Path(spec_path(claims.places, "lost"))
        lost.write_text(json.dumps(claims.spec("half")))
        before = claims.files()
        told = claims.collect(idle_for=10, now=5, check=True)
        assert claims.files() == before
        assert (told.freed, told.removed) == (("half", "over"), (str(lost),))
        assert len(told.failed) == 1 and "claim run: containers or commands that use it still run: a" in told.failed[0]
        done = claims.collect(idle_for=10, now=5)
        assert (done.freed, done.removed) == (told.freed, told.removed)
        assert len(done.failed) == 1 and "still run: a" in done.failed[0]
        claims.collect(idle_for=10, now=14, check=True)  # neither begins the time of `young` nor ends it
        assert claims.collect(idle_for=10, now=15, check=True).freed == ("young",)
        assert claims.collect(idle_for=10, now=15).freed == ("young",)

    def test_an_add_that_outlives_its_killed_caller_is_undone(self, claims):
        """The executable that a killed claim called may still run: gc waits for its end, then takes the claim back."""
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
            (users / container).write_text(process_mark(os.getpid()) if container == "run" else ENDED)
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
            Path(users_path(claims.places.state_dir, claim), "a").write_text(ENDED)
        done = claims.collect(trouble=("docker: does not run",))
        assert done.freed == ("freed",)
        assert done.failed == ("claim kept: is kept, because its container may still exist: docker: does not run",)

    def test_a_refresh_frees_nothing_and_asks_no_engine(self, claims, monkeypatch):
        monkeypatch.setattr(containers, "LISTS", None)
        claim, _changed = claims.add("stopped", "zero:1", release_on_stop=True)
        Path(users_path(claims.places.state_dir, claim), "a").write_text(ENDED)
        claims.add("half", "zero:1")
        claims.change("half", state=ASKED)
        assert refresh(claims.places).failed == ()
        assert [claim.id for claim in store.read_claims(claims.places.state_dir).claims] == ["half", "stopped"]

    def test_idle_for_counts_from_the_first_look_and_again_from_each_container(self, claims):
        for id_, release in (("kept", False), ("stopped", True)):
            claim, _changed = claims.add(id_, "gpu:1", release_on_stop=release)
            Path(users_path(claims.places.state_dir, claim), "a").write_text(ENDED)
        users = users_path(claims.places.state_dir, claims.stored("kept"))
        assert claims.collect(idle_for=10, now=5).freed == ("stopped",)  # does not wait
        assert claims.collect(idle_for=10, now=14).freed == ()
        Path(users, "b").write_text(ENDED)  # ran and was removed between two looks
        assert claims.collect(idle_for=10, now=15).freed == claims.collect(idle_for=10, now=24).freed == ()
        assert damage(claims.places.unused_claims) == ""
        Path(claims.places.unused_claims).write_text("x")  # begins again
        assert "is not what a look at the claims noted" in damage(claims.places.unused_claims)
        assert claims.collect(idle_for=10, now=25).freed == claims.collect(idle_for=10, now=34).freed == ()
        assert claims.collect("b", idle_for=10, now=35).freed == ()  # an engine has it again, so it is not gone
        assert claims.collect(idle_for=10, now=36).freed == claims.collect(idle_for=10, now=45).freed == ()
        assert claims.collect(idle_for=10, now=46).freed == ("kept",)
        claims.collect(idle_for=10, now=47)
        assert json.loads(Path(claims.places.unused_claims).read_text().partition(" ")[2]) == {}
        assert damage(claims.places.unused_claims) == ""

    def test_where_the_note_can_not_be_written_the_others_are_freed_nevertheless(self, claims):
        """On a full disk, say: what is freed makes room."""
        for id_, release in (("kept", False), ("stopped", True)):
            claim, _changed = claims.add(id_, "gpu:1", release_on_stop=release)
            Path(users_path(claims.places.state_dir, claim), "a").write_text(ENDED)
        Path(claims.places.unused_claims).mkdir()
        done = claims.collect(idle_for=10, now=5)
        assert done.freed == ("stopped",) and len(done.failed) == 1 and claims.places.unused_claims in done.failed[0]
        assert claims.collect(idle_for=10, now=50).freed == ()  # nothing tells since when
        Path(claims.places.unused_claims).rmdir()
        assert claims.collect(idle_for=10, now=51).freed == claims.collect(idle_for=10, now=60).freed == ()
        assert claims.collect(idle_for=10, now=61).freed == ("kept",)

    def test_a_damaged_note_is_replaced_by_the_next_look_also_if_no_claim_waits(self, claims):
        claims.add("one", "gpu:1")
        Path(claims.places.unused_claims).write_text("{}")
        assert damage(claims.places.unused_claims)
        claims.collect(idle_for=10, now=5)
        assert damage(claims.places.unused_claims) == ""

    def test_idle_for_begins_again_with_each_boot(self, claims):
        claim, _changed = claims.add("kept", "gpu:1")
        Path(users_path(claims.places.state_dir, claim), "a").write_text(ENDED)
        assert claims.collect(idle_for=10, now=5).freed == ()
        claims.reboot()
        claims.restore()
        assert claims.collect(idle_for=10, now=16, boot="boot-2").freed == ()
        assert claims.collect(idle_for=10, now=26, boot="boot-2").freed == ("kept",)

    def test_keep_is_given_back_by_del_alone(self, claims):
        claim, _changed = claims.add("job", "gpu:1", keep=True)
        Path(users_path(claims.places.state_dir, claim), "a").write_text(ENDED)
        assert claims.collect().freed == ()
        with pytest.raises(CdiError, match="kept until it is given back; found a request for gpu:1"):
            claims.add("job", "gpu:1")
        assert claims.delete("job")

    @pytest.mark.parametrize("killed_in", ["note_ended", "write_claim", "undo_claim", "remove_claim"])
    def test_one_that_is_killed_on_the_way_is_collected_by_the_next(self, claims, monkeypatch, killed_in):
        claim, _changed = claims.add("one", "gpu:2")
        users = users_path(claims.places.state_dir, claim)
        Path(users, "a").write_text(ENDED)

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
        Path(users_path(claims.places.state_dir, claim), "a").write_text(ENDED)
        with alone_with_pods(claims.places.state_dir):
            write_pod(claims.places.state_dir, PodRecord("default/pod", {"c": ("one",)}))
        assert claims.collect().freed == ()
        remove_pod(claims.places.state_dir, "default/pod")
        assert claims.collect().freed == ("one",)

    def test_the_claim_of_a_pod_whose_record_is_lost_stays(self, claims):
        claim, _changed = claims.add("one", "gpu:1")
        Path(users_path(claims.places.state_dir, claim), "a").write_text(ENDED)
        claims.change("one", of_pods=True)
        assert claims.collect().freed == ()

    def test_a_job_ends_its_claim_itself(self, claims):
        claim, _changed = claims.add("one", "gpu:1", job="Slurm job 1, restart 0")
        Path(users_path(claims.places.state_dir, claim), "a").write_text(ENDED)
        assert claims.collect().freed == ()

    def test_no_engine_is_asked_without_need(self, claims):
        claims.add("one", "gpu:1")
        assert collect_claims(claims.places, claims.caller, BOOT, listed=None).failed == ()

    def test_what_fails_is_told_and_stays(self, claims):
        claims.add("one", "zero:1")
        claims.add("two", "gpu:1")
        for id_ in ("one", "two"):
            claims.change(id_, state=ASKED)
        claims.behave("del")
        done = claims.collect()
        assert done.freed == ("two",) and "stuck" in done.failed[0]
