# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims over the real executables: made, repeated, refused, given back, and undone halfway."""

from __future__ import annotations

import json
import os
import stat

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims import store
from ansible_collections.fleet.cdi.plugins.module_utils.claims.add_claim import add_claim
from ansible_collections.fleet.cdi.plugins.module_utils.claims.calls import Caller
from ansible_collections.fleet.cdi.plugins.module_utils.claims.delete_claim import delete_claim, spec_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import (
    ASKED,
    GRANTED,
    ClaimRecord,
    WantedClaim,
    parse_amounts,
)
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import Host, config
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import gpus

BOOT = "boot-1"
FOREIGN = """#!/bin/sh
# A 2017 executable of somebody else, which fails as its file says.
read -r how < {state}
case "$CDI_COMMAND:$how" in
VERSION:*) echo '{{"cdiVersion": "0.0.1", "supportedVersions": ["0.0.1"]}}' ;;
ADD:add*) echo '{{"cdiVersion": "0.0.1", "code": 100, "msg": "no"}}'; exit 1 ;;
ADD:file*) echo '{{"cdiVersion": "0.0.1", "devices": ["/dev/shm"]}}' ;;
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

    def delete(self, id_, token=""):
        return delete_claim(self.places, self.caller, BOOT, id_, token)

    def stored(self, id_):
        return store.read_claim(self.places.state_dir, id_)

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

    def test_all_or_nothing(self, claims):
        claims.behave("add")
        with pytest.raises(CdiError, match="no"):
            claims.add("job-42", "gpu:1", "zero:1")
        assert claims.stored("job-42") is None and claims.spec("job-42") is None and claims.free()
        claims.behave("well")
        assert claims.add("job-42", "gpu:1", "zero:1").changed

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
        with pytest.raises(CdiError, match="has no configuration for fpga"):
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


class TestRecord:
    def test_amounts(self):
        assert parse_amounts(["gpu:1,gpu-memory:8192", "tty:3"]) == {"gpu": 1, "gpu-memory": 8192, "tty": 3}

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
        with store.alone(state, "good"):
            store.write_claim(state, ClaimRecord(WantedClaim("good", {"gpu": 1})))
        path = store.claim_path(state, "bad")
        with open(path, "w", encoding="ascii") as file:
            file.write(content)
        found = store.read_claims(state)
        assert [claim.id for claim in found.claims] == ["good"] and [*found.errors] == [path]
