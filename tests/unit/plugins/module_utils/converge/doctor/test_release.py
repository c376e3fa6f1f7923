# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of the doctor in the release: the link on the PATH."""

from __future__ import annotations

from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor import advice, rule
from ansible_collections.fleet.cdi.plugins.module_utils.release import integrity, tree


class TestRelease:
    def test_the_link_on_the_path(self, host, monkeypatch):
        """No file of the release: the answer of the doctor can be trusted without it."""
        link = host.root / "usr-local-bin-fleet-cdi"
        for module in (tree, integrity):
            monkeypatch.setattr(module, "ON_PATH", str(link))
        (host.root / "cdi/lib").mkdir(parents=True)
        tree.remember(f"{host.root}/cdi", on_path=True)
        link.symlink_to(f"{host.root}/cdi/bin/fleet-cdi")
        assert host.diagnose() == ()
        link.unlink()
        (finding,) = host.diagnose()
        assert (finding.rule, finding.subject, finding.status) == ("command-link-gone", str(link), rule.FINDINGS)
        assert "is not on the PATH" in finding.problem and finding.next == advice.PROVISION
        link.write_text("theirs")
        (finding,) = host.diagnose()
        assert (finding.rule, finding.subject, finding.status) == ("command-link-changed", str(link), rule.FINDINGS)
        assert f"`ls -l {link}`" in finding.next
