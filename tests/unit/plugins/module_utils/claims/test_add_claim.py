# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims made over the real executables: granted, repeated, refused, and all or nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims import store
from ansible_collections.fleet.cdi.plugins.module_utils.claims.delete_claim import spec_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.users import users_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import ASKED, GRANTED, WantedClaim, parse_amounts
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry


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

    def test_without_the_ledger_no_device_of_another_claim(self, claims):
        """All its files are gone: a new one would have this device free."""
        claims.add("zeros", "zero:1")
        claims.add("one", "gpu:1")
        for path in Path(claims.places.state_dir).glob("ledger.*"):
            path.unlink()
        with pytest.raises(CdiError, match="claim two: .*ledger.db is missing, and claim one has devices by it"):
            claims.add("two", "gpu:1")
        assert claims.stored("two") is None and claims.delete("one")
        assert claims.add("two", "gpu:1").changed

    def test_without_a_ledger_that_no_claim_needed(self, claims):
        claims.add("zeros", "zero:1")
        assert not list(Path(claims.places.state_dir).glob("ledger.*"))
        assert claims.add("one", "gpu:1").changed

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

    def test_keep_and_release_on_stop_are_refused(self, claims):
        with pytest.raises(CdiError, match="found release_on_stop and keep; expected one of them"):
            claims.add("job", "gpu:1", keep=True, release_on_stop=True)
        assert claims.stored("job") is None

    def test_a_claim_of_the_same_id_has_users_of_its_own(self, claims):
        first, _changed = claims.add("one", "gpu:1")
        claims.delete("one")
        second, _changed = claims.add("one", "gpu:1", reuse=True)
        paths = [users_path(claims.places.state_dir, claim) for claim in (first, second)]
        assert [os.path.isdir(path) for path in paths] == [False, True]
        (hook,) = claims.spec("one")["devices"][0]["containerEdits"]["hooks"]
        assert hook["hookName"] == "createRuntime" and hook["env"]
        assert hook["args"] == ["cdi-hook", "use-claim", f"--directory={paths[1]}"]
