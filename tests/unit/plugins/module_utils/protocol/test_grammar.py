# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The grammar against the proposal's own rules, written down here as regular expressions."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.protocol import grammar

# CDI proposal 2017, "Common ABNF rules"; ALPHA and DIGIT of RFC 5234, appendix B.1.
TYPE = "[A-Za-z][A-Za-z0-9]{0,15}"
SUBTYPE = "[A-Za-z0-9]{1,15}"
RULES = {
    "is_resource_type": TYPE,
    "is_resource_subtype": SUBTYPE,
    "is_resource_spec": f"{TYPE}(-{SUBTYPE})?",
    "is_request_id": "[A-Za-z0-9][A-Za-z0-9-]{0,63}",
    "is_plugin": "[A-Za-z0-9][A-Za-z0-9_-]{0,63}",
}
NEARLY = st.text(alphabet="aZ09-_./\n éª٣²", max_size=70) | st.from_regex("[a-z0-9-]{10,70}", fullmatch=True)


@pytest.mark.parametrize("rule", RULES)
def test_rules(rule):
    @given(NEARLY | st.text() | st.from_regex(RULES[rule], fullmatch=True))
    @example("")
    @example("a" * 15)
    @example("a" * 16)
    @example("a" * 17)
    @example("a" * 64)
    @example("a" * 65)
    @example("a-" + "a" * 15)
    @example("a-" + "a" * 16)
    @example("gpu\n")
    @example("-")
    @example("a-")
    @example("a--b")
    def agree(text):
        assert getattr(grammar, rule)(text) == bool(re.fullmatch(RULES[rule], text, re.ASCII))

    agree()
