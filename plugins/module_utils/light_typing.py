# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A light replacement for module `typing` in processes that start often: executables, claims, `call cdi_host`.

It saves a sixth of an ADD's CPU and a fifth of a DEL's (Python 3.11: 53 ms instead of 63, 31 instead of 39;
tests/bench/allocation_executable.py measures both): the import of typing, and thirty classes of typing.NamedTuple, each
compiled at every start. These classes need little at run time. Our files never evaluate annotations (from __future__
import annotations), so besides NamedTuple only the names have to exist. Any other name comes from the real module. A
test compares both kinds of NamedTuple.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from operator import itemgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMES = ("Any", "Callable", "Optional", "TypeVar", "Union")  # of typing, that our files import
ModuleType = type(sys)


class Type(type):
    """Metaclass that makes a tuple class with named fields from a class body written for typing.NamedTuple."""

    def __new__(cls, name: str, _bases: tuple[type, ...], space: dict[str, Any]) -> type:
        """Make the class, with the methods of collections.namedtuple that our files use."""
        fields = tuple(space.get("__annotations__", ()))
        defaults = {field: space.pop(field) for field in fields if field in space}
        for index, field in enumerate(fields):
            space[field] = property(itemgetter(index))
        space.update(METHODS, __slots__=(), _fields=fields, _field_defaults=defaults)
        return type(name, (tuple,), space)


def new(cls: Any, *values: Any, **named: Any) -> Any:
    """Make a record of these values; other fields have their defaults. Raises TypeError as a call does."""
    fields = cls._fields
    if named or len(values) < len(fields):
        given = {**cls._field_defaults, **dict(zip(fields, values)), **named}
        twice = [name for name in fields[: len(values)] if name in named]
        wrong = twice + [name for name in fields if name not in given] + [name for name in given if name not in fields]
        if wrong:
            raise TypeError(f"{cls.__name__}: missing, unknown or given twice: {', '.join(wrong)}")
        values = (*values, *[given[name] for name in fields[len(values) :]])
    elif len(values) > len(fields):
        raise TypeError(f"{cls.__name__}: {len(values)} values for {len(fields)} fields")
    return tuple.__new__(cls, values)


def make(cls: Any, values: Iterable[Any]) -> Any:
    """Make a record of all values in `values`."""
    return cls(*values)


def replace(self: Any, **named: Any) -> Any:
    """Return the record with new values in the fields `named`."""
    values = [named.pop(field, value) for field, value in zip(self._fields, self)]
    if named:
        raise ValueError(f"{type(self).__name__}: unknown: {', '.join(named)}")
    return tuple.__new__(type(self), values)


def asdict(self: Any) -> dict[str, Any]:
    """Return the fields as a dict: name -> value."""
    return dict(zip(self._fields, self))


def show(self: Any) -> str:
    """Return the record as text, as in Device(id='pci:0000:3b:00.0')."""
    return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in asdict(self).items())})"


METHODS = {"__new__": new, "_make": classmethod(make), "_replace": replace, "_asdict": asdict, "__repr__": show}


class Name:
    """A name that occurs in an annotation, or in an alias for one."""

    def __call__(self, *_arguments: object) -> Name:
        """Accept a call, as TypeVar("T")."""
        return self

    def __getitem__(self, _arguments: object) -> Name:
        """Accept an index, as Optional[int]."""
        return self


class NamedTuple(Name):
    """The base in a class statement; makes `Type` the metaclass."""

    def __mro_entries__(self, _bases: Iterable[object]) -> tuple[type, ...]:
        """Return the real base of the class."""
        return (Base,)


Base = type.__new__(Type, "Base", (), {})


def install() -> None:
    """Replace `typing` for later imports, unless it was imported already."""
    if "typing" in sys.modules:
        return
    light = ModuleType("typing")
    light.__dict__.update({name: Name() for name in NAMES}, TYPE_CHECKING=False, NamedTuple=NamedTuple())
    light.__dict__["__getattr__"] = real
    sys.modules["typing"] = light


def uninstall() -> None:
    """Give later imports the real `typing`: packages such as grpc make generic classes with it."""
    if "__getattr__" in getattr(sys.modules.get("typing"), "__dict__", {}):
        del sys.modules["typing"]


def real(name: str) -> object:
    """Return this name of the real module. Raises AttributeError for dunder names, which `import` looks up."""
    if name.startswith("__"):
        raise AttributeError(name)
    light = sys.modules.pop("typing")
    try:
        import typing

        return getattr(typing, name)
    finally:
        sys.modules["typing"] = light
