# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that others wrote, and every place that shows it."""

from __future__ import annotations

import io
import json
import os
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import delete
from ansible_collections.fleet.cdi.plugins.module_utils.cli import call, terminal
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import log, metrics
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.safe_text import one_line
from ansible_collections.fleet.cdi.plugins.module_utils.spec import validate

# C0, DEL, C1 (0x9b alone is what ESC [ is), bidirectional, of no width, line separators, half of a surrogate pair.
HOSTILE = "a\n\r\x00\x1b[2J\x7f\x85\x9b31m\u202e\u2066\u200b\ufeff\u2028\udcff\U000e0041b"


def raw(shown: str) -> list[str]:
    """The characters in a shown text that can do something, but for the newline at its end."""
    return [
        letter
        for letter in shown.removesuffix("\n")
        if unicodedata.category(letter)[0] == "C" or letter in "\u2028\u2029"
    ]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("plain text, with 'quotes' and a \\ as it is", "plain text, with 'quotes' and a \\ as it is"),
        ("Gerät 図 ✓", "Gerät 図 ✓"),
        ("one\ntwo", "one\\ntwo"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("exe.\u202egnp", "exe.\\u202egnp"),
        ("\udcff", "\\udcff"),
        ("\U000e0041", "\\U000e0041"),
        ("gpu\u3164\u2800\ufe00\U000e0100", "gpu\\u3164\\u2800\\ufe00\\U000e0100"),
        ("e\u0301 \u0928\u093f", "e\u0301 \u0928\u093f"),  # marks that can be seen
    ],
)
def test_what_can_not_be_seen_is_spelled_out(said, shown):
    assert one_line(said) == shown


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_that_does_something_is_left(said):
    shown = one_line(said)
    assert not raw(shown) and shown.isprintable()
    assert one_line(shown) == shown and len(shown) <= 10 * len(said)
    shown.encode()


class TestWhereItIsShown:
    def test_lines_and_tables_of_the_command_line(self, capsys):
        terminal.say(HOSTILE)
        terminal.say(*terminal.table(("A", "B"), [([HOSTILE], ["x"]), (["y"], [])]))
        terminal.complain(HOSTILE)
        shown = capsys.readouterr()
        assert len(shown.out.splitlines()) == 4 and len(shown.err.splitlines()) == 1
        assert not any(raw(line) for line in (*shown.out.splitlines(), *shown.err.splitlines()))
        assert shown.out.splitlines()[2].rindex("x") == shown.out.splitlines()[1].rindex("B")  # still aligned

    def test_a_json_document_keeps_it_and_is_ascii(self, capsys):
        terminal.say_document({"serial": HOSTILE})
        shown = capsys.readouterr().out
        assert shown.isascii() and not any(raw(line) for line in shown.splitlines())
        assert json.loads(shown) == {"serial": HOSTILE}

    def test_json_by_others_becomes_ascii(self):
        document = json.dumps({"env": HOSTILE.replace("\udcff", ""), "plain": "Gerät"}, ensure_ascii=False, indent=2)
        assert terminal.ascii_json(document).isascii() and json.loads(terminal.ascii_json(document)) == json.loads(
            document
        )

    def test_the_log_of_the_device_plugin(self):
        stream = io.StringIO()
        written = log.Log(stream)
        for letter in HOSTILE:
            written.warning("seen", device=f"a{letter}b", blank=f"a {letter}b")
        lines = stream.getvalue().splitlines()
        assert len(lines) == len(HOSTILE) and not any(raw(line) for line in lines)

    def test_metrics(self):
        shown = metrics.Metrics().render(
            [metrics.Sample("device_fault", {"reason": "taken", "device": f'{HOSTILE}"\\'}, 1)]
        )
        samples = [line for line in shown.splitlines() if "device_fault{" in line]
        assert len(samples) == 1 and not raw(samples[0]) and samples[0].endswith('\\"\\\\"} 1')

    def test_findings_about_a_spec(self):
        spec = {"cdiVersion": "0.6.0", "kind": "a.b/cc", HOSTILE: 1, "annotations": {HOSTILE: HOSTILE}, "devices": []}
        findings = validate.validate(spec)
        assert findings and not any(raw(str(finding)) for finding in findings)

    def test_warnings_and_errors_of_modules_but_not_their_results(self, monkeypatch, capsys):
        class Room:
            @staticmethod
            def answer(_options, check):
                if check:
                    raise CdiError(HOSTILE)
                return {"serial": HOSTILE}, [HOSTILE]

        monkeypatch.setattr(call, "import_module", lambda _name: Room)
        answers = []
        for check in (False, True):
            monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"options": {}, "check": check})))
            call.main("spec")
            answers.append(json.loads(capsys.readouterr().out))
        assert answers[0]["result"] == {"serial": HOSTILE}
        assert not raw(answers[0]["warnings"][0]) and not raw(answers[1]["error"])

    def test_what_an_executable_says_on_stderr(self, monkeypatch):
        said = []
        monkeypatch.setattr(os, "write", lambda handle, content: said.append((handle, content)))
        delete.complain(HOSTILE)
        ((handle, content),) = said
        assert handle == 2 and not raw(content.decode())
