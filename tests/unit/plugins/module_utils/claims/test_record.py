# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a claim: what is asked for, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path

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

    @pytest.mark.parametrize(
        ("old", "new", "is_good"), [('"gpu": 1', '"gpu": 2', False), ("_id", "_iD", False), ("", "", True)]
    )
    def test_one_that_was_changed_and_is_still_a_claim(self, tmp_path, old, new, is_good):
        state = str(tmp_path / "state")
        with store.alone(state, "job", Caller()):
            store.write_claim(state, ClaimRecord(WantedClaim("job", {"gpu": 1})))
        path = Path(store.claim_path(state, "job"))
        path.write_text(path.read_text().replace(old, new, 1))
        errors = store.read_claims(state).errors
        assert [*errors] == ([] if is_good else [str(path)])
        assert is_good or "it was changed" in errors[str(path)]

    def test_one_of_an_older_release_without_a_checksum(self, tmp_path):
        state = str(tmp_path / "state")
        with store.alone(state, "job", Caller()):
            store.write_claim(state, ClaimRecord(WantedClaim("job", {"gpu": 1})))
        path = Path(store.claim_path(state, "job"))
        document = json.loads(path.read_text())
        del document["checksum"]
        path.write_text(json.dumps(document))
        assert store.read_claim(state, "job") == ClaimRecord(WantedClaim("job", {"gpu": 1}))
