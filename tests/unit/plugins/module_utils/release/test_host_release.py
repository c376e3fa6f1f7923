# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module host_release: the store of grants is migrated once for each release, however often that fails."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import guard, host_release

MIGRATE = ["grants", "migrate"]


@pytest.mark.usefixtures("bare_host")
def test_a_migration_that_failed_is_due_until_it_is_done(target, tmp_path, monkeypatch):
    """A run that is killed between the activation and the migration leaves the same."""
    release = target.release()
    target.install(release)
    options = target.options(release, tmp_path / "state")
    run, answers, asked = host_release._run, [(2, "", "no"), (2, "", "no"), (0, "", "")], []

    def answered(command):
        if command[-2:] != MIGRATE:
            return run(command)
        asked.append(command)
        return answers.pop(0)

    monkeypatch.setattr(host_release, "_run", answered)
    host_release.answer(options, True)
    assert asked == []
    for _attempt in (1, 2):
        with pytest.raises(CdiError, match="grants migrate: no[.] The release is active; grants are refused until"):
            host_release.answer(options, False)
        assert guard.active(options["prefix"])
    for _attempt in (1, 2):
        host_release.answer(options, False)
    assert asked == [[f"{options['prefix']}/bin/fleet-cdi", *MIGRATE]] * 3
