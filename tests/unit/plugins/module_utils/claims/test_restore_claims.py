# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims after a reboot: restored with the same devices, or told."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims.delete_claim import spec_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.users import users_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.restore_claims import restore_claims
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.refresh_all import refresh
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.tests.unit import builders
from ansible_collections.fleet.cdi.tests.unit.builders import program
from ansible_collections.fleet.cdi.tests.unit.failing_read import failing_read
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import config
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.claims.conftest import BOOT


def put(claims, names):
    """Write the spec of a vendor, whose devices have all nodes of the first card; one if their variables are None."""
    nodes = [{"path": path} for path in ("/dev/dri/card0", "/dev/dri/renderD128")]
    devices = {
        name: {"deviceNodes": nodes, "env": env} if env is not None else {"deviceNodes": nodes[:1]}
        for name, env in names.items()
    }
    path = Path(claims.places.spec_dirs[0], "vendor.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(builders.spec(devices, "vendor.com/gpu")))


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

    def test_check_mode_of_a_refresh_names_what_it_restores_and_writes_nothing(self, claims):
        claims.add("kept", "gpu:1")
        claims.add("well", "zero:1")
        refresh(claims.places)
        path = spec_path(claims.places, "kept")
        os.unlink(path)
        assert refresh(claims.places, check=True).changed == (path,) and claims.spec("kept") is None
        assert refresh(claims.places, check=True, claims=False).changed == ()
        assert refresh(claims.places).changed == (path,) and claims.spec("kept")
        assert refresh(claims.places, check=True).changed == ()

    def test_in_another_spec_directory(self, claims):
        """Else the old spec would stay for ever, and a runtime would find a claim that is over."""
        claims.add("kept", "gpu:1")
        claims.add("over", "zero:1")
        before = claims.places.spec_dirs[-1]
        claims.places = claims.places._replace(spec_dirs=(f"{before}.new",))
        assert claims.delete("over")
        assert os.listdir(before) == ["fleet.cdi-claim_kept.json"]
        assert restore_claims(claims.places, claims.caller, BOOT) == (("kept",), ())
        assert os.listdir(before) == [] and claims.check() == []
        assert restore_claims(claims.places, claims.caller, BOOT) == ((), ())
        assert claims.delete("kept") and os.listdir(f"{before}.new") == []

    def test_a_move_that_was_killed_between_the_two_specs_is_ended(self, claims):
        claims.add("kept", "gpu:1")
        before = claims.places.spec_dirs[-1]
        shutil.copytree(before, f"{before}.new")
        claims.places = claims.places._replace(spec_dirs=(f"{before}.new",))
        assert restore_claims(claims.places, claims.caller, BOOT) == (("kept",), ())
        assert os.listdir(before) == [] and os.listdir(f"{before}.new") == ["fleet.cdi-claim_kept.json"]

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

    def test_a_pool_that_can_not_be_read_now_is_told(self, claims):
        """Else the spec of a claim could lead to another card until the next refresh, and nobody knew."""
        claims.add("one", "gpu:1")
        claims.swap("0000:01:00.0", "0000:05:00.0")
        (pool,) = Path(f"{os.path.splitext(claims.places.inventory)[0]}.d").iterdir()
        with failing_read(pool.name) as done:
            assert restore_claims(claims.places, claims.caller, BOOT).failed
        assert done
        restore_claims(claims.places, claims.caller, BOOT)
        assert claims.spec("one") is None

    def test_a_grant_that_the_ledger_lost_is_not_made_anew(self, claims):
        claims.add("one", "gpu:1")
        claims.host.ask("DEL", config(), request_id="one")
        claims.reboot()
        (why,) = claims.restore().failed
        assert "the ledger has no grant" in why and claims.free()

    @pytest.mark.parametrize(
        "damage",
        [
            lambda path: path.write_text(path.read_text().replace("128", "129")),
            lambda path: path.write_text("{"),
        ],
    )
    def test_a_spec_that_was_changed_is_written_again(self, claims, damage):
        claims.add("one", "gpu:1")
        before = claims.spec("one")
        damage(Path(spec_path(claims.places, "one")))
        assert [advice for _id, _fault, advice in claims.check()] == ["run `fleet-cdi claim restore`"]
        assert restore_claims(claims.places, claims.caller, BOOT) == (("one",), ())
        assert claims.spec("one") == before and claims.check() == []
        assert restore_claims(claims.places, claims.caller, BOOT) == ((), ())

    def test_the_directory_of_its_containers_is_made_again(self, claims):
        """Without it the hook refuses each container."""
        claims.add("one", "gpu:1")
        path = users_path(claims.places.state_dir, claims.stored("one"))
        os.rmdir(path)
        assert claims.check() == [("one", f"{path} is not there, or no directory", "run `fleet-cdi claim restore`")]
        assert restore_claims(claims.places, claims.caller, BOOT) == (("one",), ())
        assert os.path.isdir(path) and claims.check() == []
        claims.host.ask("DEL", config(), request_id="one")
        os.rmdir(path)
        assert restore_claims(claims.places, claims.caller, BOOT) == ((), ())  # its devices may be another one's

    def test_a_device_that_gets_another_name_stays_the_claims(self, claims):
        put(claims, {"0": []})
        claims.add("one", "gpu:1")
        before = claims.spec("one")
        assert claims.stored("one").names == ("vendor.com/gpu=0",)
        put(claims, {"main": []})
        (fault,) = claims.check()
        assert fault[1:] == (
            "its devices are vendor.com/gpu=main now, and were vendor.com/gpu=0",
            "run `fleet-cdi claim restore`",
        )
        assert restore_claims(claims.places, claims.caller, BOOT) == (("one",), ())
        assert claims.stored("one").names == ("vendor.com/gpu=main",) and claims.check() == []
        assert claims.spec("one") == before
        assert restore_claims(claims.places, claims.caller, BOOT) == ((), ())

    def test_another_name_brings_its_own_edits(self, claims):
        put(claims, {"0": []})
        claims.add("one", "gpu:1")
        put(claims, {"main": ["A=b"]})
        assert restore_claims(claims.places, claims.caller, BOOT) == (("one",), ())
        assert claims.spec("one")["devices"][0]["containerEdits"]["env"] == ["A=b"]

    @pytest.mark.parametrize("there", [{}, {"main": None}])
    def test_a_claim_waits_while_no_name_has_its_nodes(self, claims, there):
        """A tool may be writing the spec anew, and the claim would lose what the device needs."""
        put(claims, {"0": ["A=b"]})
        claims.add("one", "gpu:1")
        before = claims.spec("one")
        put(claims, there)
        assert restore_claims(claims.places, claims.caller, BOOT) == ((), ())
        assert claims.spec("one") == before
        ((_id, fault, advice),) = claims.check()
        assert fault.startswith("vendor.com/gpu=0: no spec ") and "claim del" in advice

    def test_a_changed_spec_of_a_grant_that_the_ledger_lost_is_left(self, claims):
        claims.add("one", "gpu:1")
        claims.host.ask("DEL", config(), request_id="one")
        Path(spec_path(claims.places, "one")).write_text("{}")
        assert restore_claims(claims.places, claims.caller, BOOT) == ((), ())

    def test_a_foreign_device_that_is_of_another_type(self, claims):
        claims.add("one", "zero:1")
        claims.reboot()
        os.unlink(claims.host.root + "/dev/null")
        os.mknod(claims.host.root + "/dev/null", stat.S_IFBLK | 0o600, os.makedev(7, 0))
        (why,) = claims.restore().failed
        assert "another type" in why and claims.spec("one") is None
