# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Type single blocks of the documentation, each on a host that a shell script prepared (tests/blocks.yml, `here`).

page.py types a whole page; this types one block. A command for which the block shows output has to print that. A
command without output in the block has to succeed. What differs on each machine and day is the same here: times,
boots, processes, releases of Python and podman, and the width of columns.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import page
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
SECONDS = 300.0
VARYING = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "BOOT"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( UTC|Z)?", "TIME"),
    (r"as of \d+\.\d+", "as of SECONDS"),
    (r"\bpid \d+ \([\w.]+", "pid PID (NAME"),
    (r"podman \d[\d.]*( \(CDI [\d.]+\)| \(reads up to [\d.]+\))", "podman VERSION"),
    (r"python3\.\d+", "python3"),
    (r"^(\w+\.json) +\d+ ", r"\1 BYTES "),
    (r"\b(\d+\.\d+\.\d+)-[0-9a-f]{12}\b", r"\1-DIGEST"),
    (r"sha256:[0-9a-f]{64}", "sha256:DIGEST"),
    (r"^commit +([0-9a-f]{40}$|none: .*)", "commit COMMIT"),
    (r"^python +/\S+ \([\d.]+\)$", "python PYTHON"),
    (r"\b\d+( files: )\d+( sources, )\d+( of byte code, )", r"N\1N\2N\3"),
    (r" {2,}", " "),
)


class BlockError(Exception):
    """A block that did not do what it shows: page:line, the command, found, expected."""


def table() -> dict[str, list[dict[str, Any]]]:
    """Return tests/blocks.yml: page -> what proves each of its blocks, in order."""
    found = yaml.safe_load((CHECKOUT / "tests/blocks.yml").read_text(encoding="utf-8"))
    return {
        name: rows if isinstance(rows, list) else [{"starts": "", **rows} for _block in blocks_of(name)]
        for name, rows in found.items()
    }


def blocks_of(name: str) -> list[page.Block]:
    """Return the blocks of a page, by its path in the checkout."""
    return page.blocks((CHECKOUT / name).read_text(encoding="utf-8"), name)


def plain(line: str) -> str:
    """Return a line with what varies made the same."""
    for pattern, same in VARYING:
        line = re.sub(pattern, same, line)
    return line.strip()


def replaced(text: str, replace: Mapping[str, str]) -> str:
    """Return a text with what this machine has in place of what the page has."""
    for theirs, ours in replace.items():
        text = text.replace(theirs, ours)
    return text


def steps_of(name: str, block: page.Block) -> list[page.Step]:
    """Return the commands of a block. If the first prompt is `$ `, a line that starts with `# ` is output."""
    found: list[page.Step] = []
    for step in page.steps(block, name):
        line = block.text.splitlines()[step.line - block.line - 1]
        if found and block.text.startswith("$ ") and line.startswith("# "):
            found[-1] = found[-1]._replace(expected=(*found[-1].expected, line, *step.expected))
        else:
            found.append(step)
    return found


def run(
    name: str,
    block: page.Block,
    directory: Path,
    environment: Mapping[str, str],
    replace: Mapping[str, str],
    before: str,
) -> int:
    """Type a console block in `directory`, after the script `before`; return the number of commands. Needs root.

    What the script mounts is gone with the block.

    Raises BlockError for a script that fails, and for the first command that does not do what the block shows.
    """
    steps = steps_of(name, block)
    lines = [
        "exec 2>&1",
        f"( set -e; {before or ':'}\n) || {{ printf '{page.MARK}given\\n'; exit; }}",
        f"printf '{page.MARK}\\n'",
    ]
    for step in steps:
        lines += [replaced(step.command, replace), f"printf '{page.MARK}%s\\n' $?"]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "bash", "-c", "\n".join(lines)],
        cwd=directory,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=SECONDS,
        check=False,
    )
    output = re.sub(r".*: udev does not run here .*\n", "", done.stdout.decode("utf-8", "replace"))
    for theirs, ours in replace.items():
        output = output.replace(ours, theirs) if len(ours) > 3 else output
    said, *rest = re.split(f"{page.MARK}(.*)\n", output)
    if not rest or rest[0]:
        raise BlockError(f"{name}:{block.line}: the script before it failed: {said}")
    answers = list(zip(rest[1::2], rest[2::2]))
    for step, (text, status) in zip(steps, answers):
        where = f"{name}:{step.line}: {step.command}\n"
        found, expected = map(plain, text.splitlines()), list(map(plain, step.expected))
        if not step.expected and status != "0":
            raise BlockError(f"{where}--- found exit status {status}\n{text}--- expected 0")
        if step.expected and not page.matches(expected, list(found)):
            raise BlockError(f"{where}--- found\n{text}--- expected\n" + "\n".join(step.expected))
    if len(answers) != len(steps):
        raise BlockError(f"{name}:{block.line}: the shell ended after {len(answers)} commands: {rest[-1]}")
    return len(steps)


def saved_as(block: page.Block) -> list[str]:
    """Return where the reader saves a block: the path in its first line, a comment such as `# group_vars/all.yml`."""
    found = re.match(r"# ([\w./-]+\.(?:yml|cfg|json))\b", block.text)
    return (
        [found[1]]
        if found and block.language in ("yaml", "ini", "json")
        else [block.value]
        if block.mark == page.FILE
        else []
    )
