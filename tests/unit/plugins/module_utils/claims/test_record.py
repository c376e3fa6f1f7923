# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a claim: what is asked for, and damaged files."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims import store
from ansible_collections.fleet.cdi.plugins.module_utils.claims.calls import Caller
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import ClaimRecord, WantedClaim, parse_amounts
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError


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
