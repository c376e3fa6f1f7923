# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several commands on one claim: access for an ordinary user, and what a killed command leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.claims import add_claim as add_claim_file
from ansible_collections.fleet.cdi.plugins.module_utils.claims.delete_claim import spec_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime import open_nodes, user_access
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.collect_claims import collect_claims
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import ASKED, GRANTED, NodeAccess
from ansible_collections.fleet.cdi.plugins.module_utils.directories import ACCESS_LIST
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Node
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.containers import ListedContainers
from ansible_collections.fleet.cdi.plugins.module_utils.system.process_mark import CLOSED
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.claims.conftest import BOOT


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
        assert made.claim.access == (NodeAccess(self.NULL, boot_id=BOOT),) and entry() and claims.check() == []
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
