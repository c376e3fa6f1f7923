# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of others among the specs of claims."""

from __future__ import annotations

import os

import pytest

from .test_claims import Claims


@pytest.mark.parametrize("name", [b"\xc3\xbc", b"\xff", b"a\xe2\x80\xae"])
def test_a_file_with_a_name_that_no_claim_has_is_left_alone(tmp_path, name):
    claims = Claims(tmp_path)
    claims.add("job", "gpu:1")
    path = os.fsencode(claims.places.spec_dirs[-1]) + b"/fleet.cdi-claim_" + name + b".json"
    with open(path, "wb") as file:
        file.write(b"{}")
    assert claims.check() == []
    assert claims.collect() == ((), (), ())
    assert os.path.exists(path)
