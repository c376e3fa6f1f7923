# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ids of claims as CDI device names, and back."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.claims.device_name import (
    LONGEST,
    claim_id,
    device_name,
    qualified_name,
    request_id,
)
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import grammar
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import names

NAMES = {
    "job-42": "job-42",
    "1234": "1234",
    "web.service": "web.service",
    "getty@tty1.service": "getty:40tty1.service",
    "job-": "job:2d",
    "-": "id::2d",
    "a:b": "a:b",
    "0000:3b:00.0": "0000:3a3b:3a00.0",
    "a/b": "a:2fb",
    "all": "id::61ll",
    "none": "id::6eone",
    "id::2d": "id:3a:3a2d",
    "grün": "gr:c3:bcn",
    os.fsdecode(b"\xff"): "id::ff",
}
IDS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30),
    st.binary(min_size=1, max_size=30).map(os.fsdecode),
    st.text("aid:2f3a-._0", min_size=1, max_size=30),
)


@pytest.mark.parametrize("id_", NAMES)
def test_names(id_: str) -> None:
    assert device_name(id_) == NAMES[id_]
    assert claim_id(NAMES[id_]) == id_
    assert qualified_name(id_) == f"fleet.cdi/claim={NAMES[id_]}"


@given(IDS)
def test_every_id_has_a_valid_name_that_leads_back(id_: str) -> None:
    name = device_name(id_)
    assert re.match(names.DEVICE, name) and name not in ("all", "none")
    assert claim_id(name) == id_
    assert names.transient_id(names.transient_file_name("fleet.cdi/claim", name), "fleet.cdi/claim") == name


@given(IDS, IDS)
def test_requests_of_two_claims_are_two(one: str, other: str) -> None:
    assert grammar.is_request_id(request_id(one))
    assert (request_id(one) == request_id(other)) == (one == other)
    assert request_id(request_id(one)) == request_id(one) or request_id(one) != one


def test_an_id_of_the_proposal_is_the_request_id() -> None:
    assert request_id("1234") == "1234"
    digest = request_id("web.service")
    assert digest.startswith("claim-") and request_id(digest) != digest


@pytest.mark.parametrize(("id_", "words"), [("", "empty id"), ("x" * (LONGEST + 1), "at most 200")])
def test_refused(id_: str, words: str) -> None:
    with pytest.raises(CdiError, match=words):
        device_name(id_)
    assert device_name("x" * LONGEST)
