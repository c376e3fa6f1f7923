# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can become of a store or an inventory behind the back of those who write it. Names are those in life.yml."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

NAME = "ledger.db"


def _content(change: Callable[[bytes, random.Random], bytes]) -> Callable[[Path, random.Random], None]:
    """Replace the content, in place."""

    def apply(state: Path, chance: random.Random) -> None:
        path = state / NAME
        path.write_bytes(change(path.read_bytes(), chance))

    return apply


def _flip(content: bytes, at: int, bit: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


def _flip_record(content: bytes, chance: random.Random) -> bytes:
    start = content.index(b'["fleet.cdi/grant"')
    return _flip(content, start + chance.randrange(60), chance.randrange(8))


def _noise(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content))
    data = chance.randbytes(chance.choice((16, 512, 4096)))
    return content[:start] + data[: len(content) - start] + content[start + len(data) :]


def _user_version(number: int) -> Callable[[Path, random.Random], None]:
    def apply(state: Path, _chance: random.Random) -> None:
        with closing(sqlite3.connect(state / NAME)) as base:
            base.execute("PRAGMA journal_mode = PERSIST")
            base.execute(f"PRAGMA user_version = {number}")
            base.commit()

    return apply


def _foreign(state: Path, _chance: random.Random) -> None:
    (state / NAME).unlink()
    with closing(sqlite3.connect(state / NAME)) as base:
        base.execute("CREATE TABLE somebody (else_ TEXT)")
        base.commit()


def _directory(state: Path, _chance: random.Random) -> None:
    (state / NAME).unlink()
    (state / NAME).mkdir()


def _symlink(state: Path, _chance: random.Random) -> None:
    os.rename(state / NAME, state.parent / "elsewhere.db")
    os.symlink(state.parent / "elsewhere.db", state / NAME)


def _copy(state: Path, _chance: random.Random) -> None:
    shutil.copy2(state / NAME, state.parent / "copy.db")


def _copy_back(state: Path, _chance: random.Random) -> None:
    shutil.copy2(state.parent / "copy.db", state / NAME)


def _without(*names: str) -> Callable[[Path, random.Random], None]:
    def apply(state: Path, _chance: random.Random) -> None:
        for name in names:
            (state / name).unlink()

    return apply


STORE: dict[str, Callable[[Path, random.Random], None]] = {
    "empty": _content(lambda _content, _chance: b""),
    "half": _content(lambda content, _chance: content[: len(content) // 2]),
    "cut": _content(lambda content, chance: content[: chance.randrange(1, len(content))]),
    "trailing bytes": _content(lambda content, chance: content + chance.randbytes(chance.randrange(1, 9000))),
    "trailing page": _content(lambda content, _chance: content + bytes(4096)),
    "flip": _content(lambda content, chance: _flip(content, chance.randrange(len(content)), chance.randrange(8))),
    "flip in a record": _content(_flip_record),
    "flip in the header": _content(lambda content, chance: _flip(content, chance.randrange(100), chance.randrange(8))),
    "noise": _content(_noise),
    "text": _content(lambda _content, _chance: b"this is no store\n" * 1000),
    "gone": _without(NAME),
    "gone with its lock": _without(NAME, "ledger.lock"),
    "all gone but the lock": _without(NAME, "ledger.db-journal"),
    "lock gone": _without("ledger.lock"),
    "log gone": _without("ledger.log"),
    "journal gone": _without("ledger.db-journal"),
    "other version": _user_version(9909),
    "no version": _user_version(0),
    "foreign": _foreign,
    "directory": _directory,
    "symlink": _symlink,
    "copy": _copy,
    "copy back": _copy_back,
    "open to all": lambda state, _chance: state.chmod(0o777),
}


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _newer(path: Path) -> None:
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "version": 99}))


POOL: dict[str, Callable[[Path], None]] = {
    "gone": Path.unlink,
    "empty": lambda path: os.truncate(path, 0),
    "half": _cut,
    "newer": _newer,
}
