# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `fleet-cdi claim check` finds, and files of others among the specs of claims."""

from __future__ import annotations

import json
import os
import shutil
import stat
from functools import partial
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims import store
from ansible_collections.fleet.cdi.plugins.module_utils.claims.delete_claim import spec_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.users import NO_MARK, users_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import ASKED
from ansible_collections.fleet.cdi.plugins.module_utils.claims.restore_claims import restore_claims
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.system import process_mark
from ansible_collections.fleet.cdi.tests.unit import builders
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import config
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.claims.conftest import BOOT


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

    def test_the_damaged_mark_of_a_container(self, claims):
        claim, _changed = claims.add("one", "gpu:1", release_on_stop=True)
        claims.start_container(claim, "a")
        claims.change("one", boot_id=process_mark.boot_id())  # marks are of the boot of this kernel
        check = partial(claims.check, boot=process_mark.boot_id())
        path = Path(users_path(claims.places.state_dir, claim), "a")
        content = path.read_text()
        for damaged in ("", content[:-3], content.replace("-", "+", 1)):
            path.write_text(damaged)
            ((id_, fault, advice),) = check()
            assert (id_, fault) == ("one", NO_MARK.format(path)) and "remove the file, and give" in advice
            assert claims.collect(boot=process_mark.boot_id()).freed == ()
            with pytest.raises(CdiError, match=r"a \(its file is damaged: see `fleet-cdi claim check`\)"):
                claims.delete("one")
        path.unlink()
        assert check() == [] and claims.delete("one")

    def test_a_mark_that_is_damaged_keeps_no_claim_that_a_reboot_ended(self, claims):
        claim, _changed = claims.add("one", "gpu:1", release_on_stop=True)
        Path(users_path(claims.places.state_dir, claim), "a").write_text("damaged")
        ((_id, fault, _advice),) = claims.check(boot="boot-2")
        assert fault == "ended with the last reboot (release_on_stop)"
        assert claims.collect(boot="boot-2", check=True).freed == claims.collect(boot="boot-2").freed == ("one",)

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

    def test_a_damaged_record_is_told_once(self, claims):
        """And its spec is not that of a claim that is over: `claim gc` would leave it."""
        claims.add("one", "gpu:1")
        path = store.claim_path(claims.places.state_dir, "one")
        Path(path).write_text("{")
        assert [(id_, advice) for id_, _fault, advice in claims.check()] == [
            (path, "restore the file, or move it away")
        ]

    def test_a_copy_of_a_record_is_no_claim(self, claims):
        """It would free the devices of the other claim."""
        claims.add("one", "gpu:1")
        copy = store.claim_path(claims.places.state_dir, "two")
        shutil.copy2(store.claim_path(claims.places.state_dir, "one"), copy)
        ((path, fault, _advice),) = claims.check()
        assert path == copy and "is damaged (it is of claim 'one')" in fault
        with pytest.raises(CdiError, match="it is of claim 'one'"):
            claims.delete("two")
        os.unlink(copy)
        assert claims.check() == []

    def test_a_device_of_the_claim_without_a_spec(self, claims):
        """A restore can't bring it back, and the claim does not lose what the device needs."""
        etc = Path(claims.places.spec_dirs[0], "zero.json")
        etc.parent.mkdir(exist_ok=True)
        edits = {"env": ["A=1"], "deviceNodes": [{"path": "/dev/null"}]}
        etc.write_text(json.dumps(builders.spec({"x": edits}, "vendor.com/zero")))
        claims.add("one", "zero:1")
        assert "A=1" in str(claims.spec("one")) and claims.check() == []
        etc.unlink()
        ((_id, fault, advice),) = claims.check()
        assert "vendor.com/zero=x" in fault and "claim del" in advice
        assert restore_claims(claims.places, claims.caller, BOOT) == ((), ()) and "A=1" in str(claims.spec("one"))

    def test_another_file_with_the_device_of_the_claim(self, claims):
        claims.add("one", "gpu:1")
        other = Path(claims.places.spec_dirs[-1], "other.json")
        other.write_bytes(Path(spec_path(claims.places, "one")).read_bytes())
        assert claims.check() == [
            ("one", f"{other} defines fleet.cdi/claim=one, too", "remove the file that is not the claim's")
        ]

    def test_before_a_restore(self, claims):
        claims.add("one", "gpu:1")
        ((_id, fault, advice),) = claims.check("boot-2")
        assert "before the last reboot" in fault and "claim restore" in advice


@pytest.mark.parametrize("name", [b"\xc3\xbc", b"\xff", b"a\xe2\x80\xae"])
def test_a_file_with_a_name_that_no_claim_has_is_left_alone(claims, name):
    claims.add("job", "gpu:1")
    path = os.fsencode(claims.places.spec_dirs[-1]) + b"/fleet.cdi-claim_" + name + b".json"
    with open(path, "wb") as file:
        file.write(b"{}")
    assert claims.check() == []
    assert claims.collect() == ((), (), ())
    assert os.path.exists(path)
