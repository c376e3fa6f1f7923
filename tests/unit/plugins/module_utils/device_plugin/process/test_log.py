# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of the daemon's log, as a program that parses them reads them."""

from __future__ import annotations

import io
import json
import re

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.log import MOST, Log, quoted

FIELD = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^\s"=]+)(?: |$)')


def parsed(line: str) -> dict[str, str]:
    """A line of logfmt, whole."""
    found = {key: json.loads(value) if value[0] == '"' else value for key, value in FIELD.findall(line)}
    assert "".join(match[0] for match in FIELD.finditer(line)) == line
    return found


def test_a_line_has_time_level_event_and_fields() -> None:
    stream = io.StringIO()
    log = Log(stream, lambda: 1763749065.1234)
    log.info("registered", resource="nvidia.com/gpu", seconds=0.0591, reason=None)
    log.warning("lost", reason="the stream was ended", again=True)
    assert stream.getvalue().splitlines() == [
        "ts=2025-11-21T18:17:45.123Z level=info event=registered resource=nvidia.com/gpu seconds=0.059",
        'ts=2025-11-21T18:17:45.123Z level=warning event=lost reason="the stream was ended" again=true',
    ]


def test_a_problem_has_the_id_of_its_explanation() -> None:
    stream = io.StringIO()
    log = Log(stream, lambda: 0.0)
    log.warning("unserved", resource="a.com/gpu", reason="/run/x.sock: can't serve a.com/gpu there: No such file")
    log.info("unserved", reason="/run/x.sock: can't serve a.com/gpu there: No such file")
    assert [parsed(line).get("explanation") for line in stream.getvalue().splitlines()] == ["FC1655", None]


@given(st.text())
def test_whatever_a_value_is_a_line_stays_one_line_that_says_it(text: str) -> None:
    stream = io.StringIO()
    Log(stream).info("x", value=text)
    [line] = stream.getvalue().split("\n")[:-1]
    assert parsed(line)["value"] == text
    assert quoted(text).isascii() or not re.search(r'[\s"=]', quoted(text))


def test_what_repeats_is_said_once_and_again_after_it_was_over() -> None:
    stream = io.StringIO()
    log = Log(stream)
    assert [log.change("a", state, "bad", reason=state) for state in ("x", "x", "y", "y")] == [True, False, True, False]
    assert (log.over("a", "well"), log.over("a", "well")) == (True, False)
    assert log.change("a", "y", "bad", reason="y")
    assert [parsed(line)["event"] for line in stream.getvalue().splitlines()] == ["bad", "bad", "well", "bad"]


def test_what_is_remembered_has_an_end() -> None:
    log = Log(io.StringIO())
    for number in range(3 * MOST):
        log.change(("look", str(number)), True, "bad")
    assert len(log.subjects("look")) <= MOST


def test_a_reader_that_went_away_ends_nothing() -> None:
    class Closed(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    Log(Closed()).info("x")
