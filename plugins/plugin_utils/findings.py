# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The faults in the settings of hosts, in words, and where the user wrote them."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Callable, NamedTuple, Optional

from ansible_collections.fleet.cdi.plugins.module_utils.converge import plugin_configuration
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import entry_options
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.schema import TYPES as STRICT
from ansible_collections.fleet.cdi.plugins.module_utils.schema import did_you_mean, expectation, shown
from ansible_collections.fleet.cdi.plugins.plugin_utils import settings

MOST = 100  # findings of one variable; more help nobody, and each costs time
ALIKE = 0.88  # a layer whose name is as similar as this to that of another variable is taken for its typo


class Later:
    """A value that only the run on the host knows: of a fact, or from a vault. It is never wrong here."""

    def __repr__(self) -> str:
        return "<known later>"


LATER = Later()


class Finding(NamedTuple):
    """One fault. `path` leads to it; with `key` its last part is wrong, otherwise the value there."""

    path: tuple[Any, ...]
    text: str
    key: bool = False


class RunningPlaybook(NamedTuple):
    """What a run of ansible-playbook tells of the variables, beside their values."""

    playbook: str = ""  # its name, if it refuses variables that only others read
    inventory: frozenset[str] = frozenset()  # names that have no value on the command line


NO_PLAYBOOK = RunningPlaybook()


def check(documents: Mapping[str, Any]) -> list[Finding]:
    """Return all faults in the settings of one host (plain data, variable name -> value).

    Raises ImportError without jsonschema.
    """
    found = [finding for unit in units(tuple(documents)) for finding in check_unit(unit, documents)]
    return sorted(found, key=lambda finding: [str(part) for part in finding.path])


@lru_cache(maxsize=1024)
def units(names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return `names` in groups that are checked apart: a variable with its layers, the variable first."""
    bases: dict[str, list[str]] = {}
    for name in names:
        bases.setdefault(base_of(name), []).append(name)
    return tuple(tuple(sorted(group)) for group in bases.values())


@lru_cache(maxsize=4096)
def base_of(name: str) -> str:
    """Return the variable of which `name` is a layer, or `name`."""
    if name in settings.all_variables():
        return name
    return next((base for base in settings.layered() if settings.layers(base, [name])), name)


def check_unit(
    unit: Sequence[str], documents: Mapping[str, Any], running: RunningPlaybook = NO_PLAYBOOK
) -> list[Finding]:
    """Return the first MOST faults of one variable with its layers (`units`), each path once. Raises ImportError."""
    base = base_of(unit[0])
    if base not in settings.all_variables():
        return [] if base in settings.of_playbooks() else [_unknown(base)]
    found = [finding for name in unit if name != base for finding in _odd_layer(base, name)]
    default = settings.all_variables()[base].default
    if base in settings.layered():
        right = {}
        for name in unit:
            if isinstance(documents[name], settings.sort(default)):
                right[name] = documents[name]
            elif documents[name] is not LATER:
                expected = expectation(settings.all_variables()[base].schema)
                found.append(Finding((name,), f"found {shown(documents[name])}; expected {expected}"))
        if right:
            whole = len(right) == len(unit)
            found += _of_value(base, settings.merge(base, right, type(default)()), right, whole)
    else:
        found += (*_out_of_place(base, documents[base], running), *_of_value(base, documents[base], {}, True))
    first: dict[tuple[Any, ...], Finding] = {}
    for finding in found:
        first.setdefault(finding.path, finding)
    return list(first.values())[:MOST]


def _out_of_place(name: str, value: Any, running: RunningPlaybook) -> Iterator[Finding]:
    """Yield a fault if the run would ignore the variable. AWX sends the defaults of its survey to all playbooks."""
    variable = settings.all_variables()[name]
    found = "found a value" if value is LATER else f"found {shown(value)}"
    if variable.texts.get("play") and name in running.inventory:
        why = "because Ansible reads the keywords of a play from there only"
        yield Finding((name,), f"{found} in the inventory; expected it on the command line (-e), {why}")
    refusal = variable.texts.get("refused_by", {}).get(running.playbook)
    if refusal and str(value) != str(variable.default):
        yield Finding((name,), f"{found}; {refusal}")


def _of_value(name: str, value: Any, layers: Mapping[str, Any], whole: bool) -> Iterator[Finding]:
    """Yield the faults in the merged value of a variable. Without `whole`, layers are not known yet."""
    validator, schema = _validator(), settings_schema()
    wanted = schema["properties"][name] if whole else schema["patternProperties"][f"^{name}_."]
    number = wanted.get("type") == ["integer", "string"] and isinstance(value, str) and value.isascii()
    typed = int(value) if number and value.isdecimal() and len(value) < 10 else value
    every = (
        finding
        for error in validator.descend(typed, wanted, path=name)
        for finding in _findings(error, value if number else error.instance)
    )
    found = list(itertools.islice(every, MOST))
    if whole and isinstance(value, Mapping) and len(found) < MOST:
        found += _beyond_schema(name, value, found)
    for finding in found:
        in_list = isinstance(value, list) and len(finding.path) > 1
        yield finding._replace(path=_in_layer(finding.path, value, layers)) if in_list else finding


def _in_layer(path: tuple[Any, ...], merged: Sequence[Any], layers: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the path to an item of a merged list in the layer that it is from."""
    item = merged[path[1]]
    name = next(name for name in sorted(layers) if item in layers[name])
    return (name, layers[name].index(item), *path[2:])


def _unknown(name: str) -> Finding:
    role = _role(name)
    known = [one for one in (*settings.all_variables(), *settings.of_playbooks()) if one.startswith(role)]
    parts = name[len(role) :].split("_")
    tails = ["_".join(parts[position:]) for position in range(1, len(parts)) if parts[-1]]
    layers = [f"{base}_{tail}" for base in settings.layered() if base.startswith(role) for tail in tails]
    near = _near(name, role, known, ALIKE) or _near(name, role, [*known, *layers], 0.6)
    hint = f"; did you mean {near!r}?" if near else f"; expected one of {', '.join(sorted(known))}"
    return Finding((name,), f"found the unknown variable {name!r}{hint}", True)


def _odd_layer(base: str, name: str) -> Iterator[Finding]:
    """Yield a fault if the name of a layer looks like that of another variable."""
    near = _near(name, _role(name), (one for one in settings.all_variables() if one != base), ALIKE)
    if near:
        text = f"found a layer of {base} with a name like that of {near}; did you mean {near!r}?"
        yield Finding((name,), f"{text} Otherwise give the layer another suffix, as in {base}_site", True)


def _role(name: str) -> str:
    """Return the prefix of a variable."""
    return next((prefix for prefix in settings.PREFIXES if name.startswith(prefix)), "")


def _near(name: str, role: str, known: Iterable[str], alike: float) -> str:
    """Return that of the variables with prefix `role` whose rest is the most similar to that of `name`, or ""."""
    rests = [one[len(role) :] for one in known if one.startswith(role)]
    return "".join(role + rest for rest in difflib.get_close_matches(name[len(role) :][:64], rests, 1, alike))


def place(
    path: Sequence[Any], key: bool, documents: Mapping[str, Any], origin: Callable[[Any], str]
) -> tuple[str, str]:
    """Return where the user wrote the value at `path`: (file:line:column or "", variable and path below it).

    `documents` are the variables as Ansible holds them; `origin` returns the place of a key or value. Of several layers
    the one that has most of the path counts, and of equal ones the last, because its value counts.
    """
    variable = settings.all_variables().get(path[0])
    merged = variable is not None and isinstance(variable.default, dict)  # of a list, `path` has the layer already
    names = settings.layers(path[0], documents) if merged else [path[0]]
    trails = [_trail(documents, (name, *path[1:])) for name in reversed(names)]
    best = max(trails, key=len, default=[])
    whole = len(best) == len(path)
    value = best[-1][1] if whole and not key else None
    steps = [step[0] for step in reversed(best)]
    if not isinstance(value, (Mapping, list, tuple)):  # a fault of a collection is better shown at its name
        steps.insert(0, value)
    where = next(filter(None, map(origin, steps)), "")
    words = [str(best[0][0]) if best else str(path[0]), *map(str, path[1:])]
    return where, ".".join(words)


def _trail(documents: Any, path: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return (key, value) for each step of `path` that exists. The keys are the document's, which know their place."""
    found = []
    for part in path:
        if isinstance(documents, Mapping) and part in documents:
            key = next(key for key in documents if key == part)
        elif isinstance(documents, (list, tuple)) and isinstance(part, int) and part < len(documents):
            key = part
        else:
            break
        documents = documents[part]
        found.append((key, documents))
    return found


@lru_cache(maxsize=1)
def settings_schema() -> dict[str, Any]:
    """Return the schema of all variables, made once."""
    return settings.schema()


@lru_cache(maxsize=1)
def _validator() -> Any:
    return validator(settings_schema())


def validator(table: Mapping[str, Any]) -> Any:
    """Return a validator of jsonschema for a table. Its types are as strict as those of module_utils/schema.py.

    It accepts LATER everywhere. Raises ImportError without jsonschema.
    """
    import jsonschema  # the only third-party library here; if it is missing, the filter gives the next step

    def strict(name: str) -> Callable[[Any, Any], bool]:
        return lambda _checker, value: STRICT[name](value)

    draft = jsonschema.Draft202012Validator
    types = draft.TYPE_CHECKER.redefine_many({name: strict(name) for name in ("integer", "number")})
    rules = {keyword: _unless_later(keyword, rule) for keyword, rule in draft.VALIDATORS.items()}
    return jsonschema.validators.extend(draft, rules, type_checker=types)(table)


def _unless_later(keyword: str, rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule of jsonschema that accepts LATER, and a mapping if LATER decides a condition on it."""

    def judge(validator: Any, limit: Any, instance: Any, schema: Any) -> Iterator[Any]:
        decides = limit.get("properties", ()) if keyword == "if" and isinstance(instance, Mapping) else ()
        if instance is not LATER and not any(instance.get(name) is LATER for name in decides):
            yield from rule(validator, limit, instance, schema) or ()

    return judge


def _findings(error: Any, instance: Any) -> Iterator[Finding]:
    """Yield the faults of one jsonschema error, in words. `instance` is the value as the user wrote it."""
    path = tuple(error.absolute_path)
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", ()))
        for name in instance:
            if name not in known:
                expected = f"expected one of {', '.join(sorted(known))}{did_you_mean(name, known)}"
                yield Finding((*path, name), f"found the unknown option {name!r}; {expected}", True)
    elif error.validator == "propertyNames" or "propertyNames" in error.relative_schema_path:
        what = "unknown option" if error.validator == "enum" else "name"
        yield Finding((*path, instance), f"found the {what} {instance!r}; expected {_expected(error)}", True)
    elif error.validator == "required":
        missing = [name for name in error.validator_value if name not in instance]
        yield Finding(path, f"{' and '.join(missing)} is missing; every such entry needs it")
    else:
        known = error.validator_value if error.validator == "enum" else []
        near = did_you_mean(instance, map(str, known))
        yield Finding(path, f"found {shown(instance)}; expected {_expected(error)}{near}")


def _expected(error: Any) -> str:
    if error.validator == "enum":
        known = ", ".join(map(str, error.validator_value))
        return f"one of {known}" + (
            did_you_mean(error.instance, error.validator_value) if "propertyNames" in error.relative_schema_path else ""
        )
    return expectation(error.schema)


def _beyond_schema(variable: str, entries: Mapping[str, Any], found: Sequence[Finding]) -> list[Finding]:
    """Return the faults that only the hosts' own checks see in entries and resources that are otherwise correct.

    They check that the name of an entry makes a valid kind, that an executable accepts its configuration, and that a
    kubelet accepts the name of a resource.
    """
    wrong = {finding.path[1:2] for finding in found}
    right = {name: entry for name, entry in entries.items() if (name,) not in wrong and not _open(entry)}
    if () in wrong:
        return []
    if variable == settings.DEVICES:
        refused = ((name, _refusal(name, entry)) for name, entry in right.items())
        return [Finding((variable, name), problem) for name, problem in refused if problem]
    if variable == settings.PLUGINS:
        return [one for key, entry in right.items() for one in _wrong_plugin(variable, key, entry)]
    if variable == settings.RESOURCES:
        return [
            Finding((variable, *one.path), f"{one.found}; expected {one.expected}", len(one.path) == 1)
            for one in configuration.wrong_resources(right)
        ]
    return []


def _open(value: Any) -> bool:
    """Return True if a part of `value` is known later."""
    inner: Iterable[Any] = ()
    if isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, (list, tuple)):
        inner = value
    return value is LATER or any(map(_open, inner))


def _wrong_plugin(variable: str, key: str, entry: Mapping[str, Any]) -> Iterator[Finding]:
    document = plugin_configuration.document_of(plugin_configuration.options_of(key, entry))
    try:
        for one in plugin_configuration.wrong_document(document):
            is_key = one.found.startswith("found the unknown option")
            yield Finding((variable, key, *one.path), f"{one.found}; expected {one.expected}", is_key)
    except ProtocolError as error:
        yield Finding((variable, key), error.details)


def _refusal(name: str, entry: Any) -> Optional[str]:
    try:
        entry_options.check({name: entry})
    except CdiError as error:
        return str(error)
    return None
