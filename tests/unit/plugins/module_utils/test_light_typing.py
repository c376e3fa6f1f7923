# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in for typing: its records behave as those of typing.NamedTuple do, and nothing else changes."""

from __future__ import annotations

import subprocess
import sys
import typing

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import light_typing, records

SOURCE = '''
class Record(NamedTuple):
    """A record."""

    a: int
    b: str = "b"
    c: tuple[str, ...] = ()

    @property
    def both(self) -> str:
        return f"{self.a}{self.b}"
'''


def made(base):
    space = {"NamedTuple": base, "__name__": "anywhere"}
    exec("from __future__ import annotations\n" + SOURCE, space)
    return space["Record"]


def refused(act):
    with pytest.raises((ValueError, TypeError)):  # TypeError from Python 3.13
        act()


ACTS = {
    "by position": lambda record: record(1, "x", ("y",)),
    "defaults": lambda record: record(1),
    "by name": lambda record: record(c=("y",), a=1),
    "mixed": lambda record: record(1, c=("y",)),
    "too few": lambda record: record(),
    "too many": lambda record: record(1, 2, 3, 4),
    "twice": lambda record: record(1, a=2),
    "unknown": lambda record: record(1, d=2),
    "read": lambda record: [record(1).a, record(1).b, record(1).c, record(1).both],
    "set": lambda record: setattr(record(1), "a", 2),
    "new attribute": lambda record: setattr(record(1), "z", 2),
    "index": lambda record: [record(1)[0], record(1)[-1], len(record(1)), [*record(1)]],
    "equal": lambda record: [record(1) == (1, "b", ()), record(1) == record(2), hash(record(1)), record(1) < record(2)],
    "_make": lambda record: record._make([1, 2, 3]),
    "_make of too few": lambda record: record._make([]),
    "_replace": lambda record: record(1)._replace(b="x"),
    "_replace of nothing known": lambda record: refused(lambda: record(1)._replace(d="x")),
    "_asdict": lambda record: [*record(1)._asdict().items()],
    "fields": lambda record: [record._fields, record._field_defaults, record.__name__, record.__doc__],
    "text": lambda record: [repr(record(1)), str(record(1))],
    "tuple": lambda record: [isinstance(record(1), tuple), issubclass(record, tuple)],
}


@pytest.mark.parametrize("act", ACTS)
def test_a_record_is_as_typing_makes_it(act):
    def outcome(base):
        try:
            return ACTS[act](made(base))
        except Exception as error:
            return type(error)

    wanted = outcome(typing.NamedTuple)
    assert outcome(light_typing.NamedTuple()) == wanted, wanted


def test_the_shared_words_are_the_same_under_it():
    """Each record of records.py, made in a process with the stand-in, against those of this process."""
    program = """
import sys
sys.path[:0] = {path!r}
from ansible_collections.fleet.cdi.plugins.module_utils import light_typing
light_typing.install()
from ansible_collections.fleet.cdi.plugins.module_utils import records
from typing import get_type_hints
print({shown})
print(get_type_hints.__module__, "NamedTuple" in repr(records.Device.__mro__))
"""
    shown = "[(name, one._fields, one._field_defaults) for name, one in sorted(vars(records).items()) "
    shown += "if getattr(one, '_fields', None)]"
    program = program.format(path=sys.path, shown=shown)
    lines = subprocess.check_output([sys.executable, "-IS", "-c", program], text=True).splitlines()
    assert lines[0] == str(eval(shown, {"records": records}))
    assert lines[1] == "typing False"  # a name that the stand-in has not is the real one


def test_it_leaves_typing_alone_where_that_is_there_already():
    there = sys.modules["typing"]
    light_typing.install()
    assert sys.modules["typing"] is there


def test_later_imports_get_the_real_typing_again():
    """As grpc, whose generic classes need it."""
    program = (
        f"import sys\nsys.path[:0] = {sys.path!r}\n"
        "from ansible_collections.fleet.cdi.plugins.module_utils import light_typing\n"
        "light_typing.install()\nlight_typing.uninstall()\n"
        "from typing import Generic, TypeVar\nclass Box(Generic[TypeVar('T')]): pass\nprint('made')\n"
    )
    assert subprocess.check_output([sys.executable, "-IS", "-c", program], text=True) == "made\n"
