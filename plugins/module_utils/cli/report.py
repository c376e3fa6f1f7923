# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi report: four truths of each device of this host, and where they disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..explanations.shown import rule_with_id
from ..layout import Layout
from ..report.host_report_info import report_document
from .step_line import StepLine
from .terminal import say, say_document, table

HEADER = ("", "DEVICE", "WANTED", "WRITTEN", "PROMISED", "REAL", "OPEN IN")


def run(arguments: Any, paths: Layout) -> int:
    """Print the report; the exit status is 1 if there are findings."""
    with StepLine("looks at the host"):
        report = report_document(paths)
    if arguments.json:
        say_document(report, sort_keys=False)
        return int(bool(report["findings"]))
    if report["devices"]:
        say(*table(HEADER, map(_row, report["devices"])), "")
    for one in report["findings"]:
        text = one["problem"] if one["problem"].startswith(one["subject"]) else f"{one['subject']}: {one['problem']}"
        say(rule_with_id(f"{one['rule']}: {text}", one["rule"]), f"  next: {one['next']}")
    devices = report["devices"]
    red = sum(bool(one.get("findings")) for one in devices)
    grey = sum(bool(one.get("unknown")) and not one.get("findings") for one in devices)
    say(f"{len(devices)} devices: {red} disagree (!), {grey} unknown (?), {len(devices) - red - grey} agree.")
    return int(bool(report["findings"]))


def _row(device: Mapping[str, Any]) -> Sequence[Sequence[str]]:
    mark = "!" if device.get("findings") else "?" if device.get("unknown") else ""
    openers = device["openers"]
    return (
        [mark],
        [f"{device['kind']}={device['names'][0]}"],
        [_text(device["wanted"])],
        device["written"][2] or [device["written"][0]],
        [hold["who"] for hold in device["promised"][2]] or [device["promised"][0]],
        [_text(device["real"])],
        ["unknown"] if openers is None else [f"pid {one['pid']} ({one.get('command', '')})" for one in openers],
    )


def _text(truth: Sequence[Any]) -> str:
    return f"{truth[0]}: {truth[1]}" if truth[1] else str(truth[0])
