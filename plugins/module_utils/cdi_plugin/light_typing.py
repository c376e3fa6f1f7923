# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A light stand-in for the module `typing` in the processes of the executables. Private API of fleet.cdi.

Of an ADD's own time a third went to importing typing and to making thirty classes of typing.NamedTuple, each compiled
anew at every start; what these classes do at run time is little. Annotations are not evaluated in any of our files
(from __future__ import annotations), so besides NamedTuple only the names have to be there. Whoever asks for another
name gets that of the real module. docs/executables.md, "Speed", has the figures; a test compares both kinds of
NamedTuple.
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
    """Makes a class of named fields, a tuple, of what would be a class of typing.NamedTuple."""

    def __new__(cls, name: str, _bases: tuple[type, ...], space: dict[str, Any]) -> type:
        """The class, with the methods of collections.namedtuple that our files use."""
        fields = tuple(space.get("__annotations__", ()))
        defaults = {field: space.pop(field) for field in fields if field in space}
        for index, field in enumerate(fields):
            space[field] = property(itemgetter(index))
        space.update(METHODS, __slots__=(), _fields=fields, _field_defaults=defaults)
        return type(name, (tuple,), space)


def new(cls: Any, *values: Any, **named: Any) -> Any:
    """A record of these values; fields that are left out have their defaults. Raises TypeError as a call does."""
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
    """A record of all values in `values`."""
    return cls(*values)


def replace(self: Any, **named: Any) -> Any:
    """The record with other values in the fields `named`."""
    values = [named.pop(field, value) for field, value in zip(self._fields, self)]
    if named:
        raise ValueError(f"{type(self).__name__}: unknown: {', '.join(named)}")
    return tuple.__new__(type(self), values)


def asdict(self: Any) -> dict[str, Any]:
    """Field -> value."""
    return dict(zip(self._fields, self))


def show(self: Any) -> str:
    """As in Device(id='pci:0000:3b:00.0')."""
    return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in asdict(self).items())})"


METHODS = {"__new__": new, "_make": classmethod(make), "_replace": replace, "_asdict": asdict, "__repr__": show}


class Name:
    """A name that stands in an annotation, or in an alias for one."""

    def __call__(self, *_arguments: object) -> Name:
        """TypeVar("T")"""
        return self

    def __getitem__(self, _arguments: object) -> Name:
        """Optional[int]"""
        return self


class NamedTuple(Name):
    """Stands in the bases of a class, and makes `Type` its metaclass."""

    def __mro_entries__(self, _bases: Iterable[object]) -> tuple[type, ...]:
        """What the class is made from instead."""
        return (Base,)


Base = type.__new__(Type, "Base", (), {})


def install() -> None:
    """Be `typing` for whatever is imported from now on, unless that was imported already."""
    if "typing" in sys.modules:
        return
    light = ModuleType("typing")
    light.__dict__.update({name: Name() for name in NAMES}, TYPE_CHECKING=False, NamedTuple=NamedTuple())
    light.__dict__["__getattr__"] = real
    sys.modules["typing"] = light


def real(name: str) -> object:
    """The thing of that name in the real module. Raises AttributeError, as for what `import` asks every module for."""
    if name.startswith("__"):
        raise AttributeError(name)
    light = sys.modules.pop("typing")
    try:
        import typing

        return getattr(typing, name)
    finally:
        sys.modules["typing"] = light
