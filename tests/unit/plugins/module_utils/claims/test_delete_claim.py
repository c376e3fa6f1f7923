# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims given back over the real executables: once, halfway, and not while a container runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims import delete_claim as delete_claim_file
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.users import users_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import ASKED, GRANTED
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.error import HookError
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.claims.conftest import ENDED


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

    def test_its_name_is_known_when_the_inventory_and_the_specs_move(self, claims, tmp_path):
        claims.add("job-42", "zero:1")
        claims.delete("job-42")
        inventory, specs = str(tmp_path / "new/inventory.json"), (str(tmp_path / "new/cdi"),)
        claims.places = claims.places._replace(inventory=inventory, spec_dirs=specs)
        with pytest.raises(CdiError, match="job-42: ended in this boot"):
            claims.add("job-42", "zero:1")
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

    def test_a_claim_is_not_given_back_while_a_container_runs(self, claims):
        claim, _changed = claims.add("one", "gpu:2")
        claims.start_container(claim, "a")
        claims.start_container(claim, "b")
        with pytest.raises(CdiError, match=r"still run: a, b\. Stop them first .*--force"):
            claims.delete("one")
        assert claims.stored("one") == claim and claims.spec("one") and not claims.free()
        Path(users_path(claims.places.state_dir, claim), "b").write_text(ENDED)
        with pytest.raises(CdiError, match="still run: a"):
            claims.delete("one")
        assert claims.delete("one", force=True) and claims.free()

    def test_a_container_that_stopped_keeps_no_claim(self, claims):
        claim, _changed = claims.add("one", "gpu:2")
        Path(users_path(claims.places.state_dir, claim), "a").write_text(ENDED)
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
