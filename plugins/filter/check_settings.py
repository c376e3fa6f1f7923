# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter fleet.cdi.check_settings."""

from __future__ import annotations

DOCUMENTATION = r"""
name: check_settings
short_description: Find faults in the settings of hosts
version_added: 0.1.0
author:
  - fleet.cdi contributors (@fleet-cdi)
description:
  - Checks every variable C(cdi_host_*), C(cdi_device_plugin_*), C(cdi_runtime_hooks_*) and C(fleet_cdi_*) of the hosts
    against one JSON Schema (draft 2020-12), on the controller, without contacting a host. Values that several hosts
    share are checked once.
  - A variable of such a name that no role and no playbook knows is an error. Layers are none,
    as C(cdi_host_devices_rack7), which adds to C(cdi_host_devices).
  - A variable that configures the play itself, as C(fleet_cdi_serial), is an error in the inventory, because Ansible
    reads it from the command line only.
  - A value that is encrypted with C(!vault), or made from facts that are not known yet, is left to the run on the host.
requirements:
  - jsonschema
options:
  _input:
    description:
      - C(hostvars).
    type: dict
    required: true
  _hosts:
    description:
      - The names of the hosts.
    type: list
    elements: str
    required: true
  prefix:
    description:
      - Check only variables whose names begin with it, for a playbook that does not read the others.
    type: str
    default: ""
  playbook:
    description:
      - The name of a playbook of this collection that refuses variables which only the others read.
    type: str
    default: ""
positional: _hosts
"""

EXAMPLES = r"""
- name: Check the settings of all hosts of the play
  ansible.builtin.assert:
    that: findings == []
    fail_msg: "{{ findings }}"
  vars:
    findings: "{{ hostvars | fleet.cdi.check_settings(ansible_play_hosts_all) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description:
    - The faults, each with its file, line and column, and with the hosts that it concerns. Empty if there are none.
    - A fault that is in several files is there once.
  type: list
  elements: str
  sample:
    - >-
      /srv/fleet/group_vars/rack7.yml:4:5: cdi_host_devices_rack7.gpus.profil: found the unknown option 'profil';
      expected one of env, kind, profile; did you mean 'profile'? (2 hosts: gpu01, gpu02)
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from ansible.errors import AnsibleError, AnsibleFilterError
from ansible.utils.display import Display
from jinja2 import Undefined, UndefinedError

from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import with_id
from ansible_collections.fleet.cdi.plugins.module_utils.schema import shown
from ansible_collections.fleet.cdi.plugins.plugin_utils import findings, settings
from ansible_collections.fleet.cdi.plugins.plugin_utils.findings import LATER, Finding

SHOWN_HOSTS = 3

TEMPLATE = re.compile(r"{{|{%|{#")
NAME = re.compile(r"[A-Za-z_]\w*")
FACT = re.compile(r"\bansible_")


class Plain(NamedTuple):
    """The value of a variable in the types of JSON."""

    value: Any
    digest: str  # equal values have equal digests
    faults: tuple[Finding, ...]  # what can't be read; their paths begin below the variable


class Group(NamedTuple):
    """The hosts with one fault, and the places where it stands."""

    hosts: list[str]
    places: dict[str, None]  # file:line:column, in the order of the hosts


def check_settings(hostvars: Any, hosts: Any, prefix: str = "", playbook: str = "") -> list[str]:
    """Return the faults in the settings of `hosts`, each distinct fault once; `prefix` chooses variables by name."""
    reader, judge = Reader(), Judge(findings.RunningPlaybook(playbook, _in_inventory(hostvars)))
    groups: dict[tuple[str, str], Group] = {}
    empty: list[str] = []
    for host in hosts:
        variables = hostvars[host]
        ours = {name: value for name, value in _raw(variables).items() if name.startswith(settings.PREFIXES)}
        values = {name: value for name, value in ours.items() if name.startswith(prefix)}
        plain = {str(name): (name, value, reader.read(value, variables)) for name, value in values.items()}
        for unit in findings.units(tuple(plain)):
            for where, name, text in judge.faults([plain[name] for name in unit]):
                group = groups.setdefault((name, text), Group([], {}))
                group.hosts.append(host)
                group.places[where] = None
        if not prefix and settings.offers_nothing({name: one.value for name, (_key, _value, one) in plain.items()}):
            empty.append(host)
    if empty:
        why = (
            f"{settings.DEVICES}: found no entry for {_named(empty)}, so no device is offered there; expected entries "
            "by name, as in {gpus: {profile: drm}}, in this variable or in any cdi_host_devices_*"
        )
        Display().warning(with_id(why))
    in_order = sorted(groups.items(), key=lambda item: (_position(next(iter(item[1].places))), item[0]))
    texts = [_told(name, text, group) for (name, text), group in in_order]
    if len(texts) > findings.MOST:
        texts[findings.MOST :] = [with_id(f"There are more faults than these {findings.MOST}; correct these first")]
    return texts


class Reader:
    """Reads the values of variables. A value without templates that hosts share is read once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Optional[Plain]]] = {}  # id -> the value, and None if it has templates

    def read(self, value: Any, variables: Any) -> Plain:
        """Return a value of the host with `variables`."""
        if id(value) not in self._known:
            templates: list[str] = []

            def later(text: str) -> Any:
                templates.append(text)
                return LATER

            found = _plain_of(value, later)
            self._known[id(value)] = (value, None if templates else found)  # the value is kept, so the id is not reused
        _value, known = self._known[id(value)]
        if known is not None:
            return known
        return _plain_of(
            value, lambda text: LATER if _secret(text, _raw(variables), set()) else _resolved(text, variables)
        )


class Judge:
    """Finds the faults of variables. What hosts share is judged once, and its place looked up once."""

    def __init__(self, running: findings.RunningPlaybook) -> None:
        self._running = running
        self._found: dict[tuple[Any, ...], list[Finding]] = {}
        self._placed: dict[tuple[Any, ...], list[tuple[str, str, str]]] = {}
        self._kept: list[Any] = []

    def faults(self, unit: Sequence[tuple[str, Any, Plain]]) -> list[tuple[str, str, str]]:
        """Return (file:line:column, name, text) for each fault in a variable and its layers: (name, value, plain)."""
        content = tuple((name, plain.digest) for name, _value, plain in unit)
        key = (content, tuple((id(name), id(value)) for name, value, _plain in unit))
        if content not in self._found:
            self._found[content] = _found({str(name): plain for name, _value, plain in unit}, self._running)
        if key not in self._placed:
            values = {name: value for name, value, _plain in unit}  # the names know their places
            placed = ((*findings.place(one.path, one.key, values, origin), one.text) for one in self._found[content])
            self._placed[key] = list(placed)
            self._kept.append(values)  # so that no id is used again
        return self._placed[key]


def _in_inventory(hostvars: Any) -> frozenset[str]:
    """Return the names of our variables that the command line does not set; none if nothing tells what it sets."""
    given = getattr(getattr(hostvars, "_variable_manager", None), "extra_vars", None)
    return frozenset() if given is None else frozenset(settings.all_variables()).difference(given)


def _found(unit: Mapping[str, Plain], running: findings.RunningPlaybook) -> list[Finding]:
    unread = [one._replace(path=(name, *one.path)) for name, plain in unit.items() for one in plain.faults]
    try:
        found = findings.check_unit(tuple(unit), {name: plain.value for name, plain in unit.items()}, running)
    except ImportError as error:
        why = (
            f"check_settings: the controller's Python can't import jsonschema ({error}). "
            f"Install it there: {sys.executable} -m pip install jsonschema"
        )
        raise AnsibleFilterError(with_id(why)) from None
    return [*unread, *found]


def origin(value: Any) -> str:
    """Return the file:line:column of a value or key of a variable; "" if Ansible does not know it.

    ansible-core up to 2.18 marks the values that it reads from YAML; later releases tell only the error about a value.
    """
    position = getattr(value, "ansible_pos", None)
    if position:
        return ":".join(map(str, position))
    context = getattr(AnsibleError("", obj=value), "_formatted_source_context", None) or ""
    first = str(context).partition("\n")[0].removeprefix("Origin: ")
    return first if first.rpartition(":")[2].isdecimal() else ""


def _raw(variables: Any) -> Mapping[str, Any]:
    """Return the variables of a host as they were read, with their templates and positions."""
    return getattr(variables, "_vars", variables)


def _plain_of(value: Any, resolve: Callable[[str], Any]) -> Plain:
    faults: list[Finding] = []
    plain = _plain(value, resolve, (), faults, frozenset())
    return Plain(plain, repr((plain, faults)), tuple(faults[: findings.MOST]))


def _plain(
    value: Any, resolve: Callable[[str], Any], path: tuple[Any, ...], faults: list[Finding], above: frozenset[int]
) -> Any:
    """Return `value` in the types of JSON; other types stay. `above` are the ids of the collections that it is in."""
    if is_vaulted(value):  # nobody is to read it in an error
        return LATER
    if id(value) in above:
        faults.append(Finding(path, "found an alias of a collection that it is in; expected a value that ends"))
        return LATER
    if isinstance(value, Mapping):
        inside = above | {id(value)}
        return {
            _simple(key): _plain(item, resolve, (*path, _simple(key)), faults, inside) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        inside = above | {id(value)}
        return [_plain(item, resolve, (*path, number), faults, inside) for number, item in enumerate(value)]
    if isinstance(value, str) and TEMPLATE.search(value):
        made = resolve(value)
        if isinstance(made, Unresolved):
            faults.append(Finding(path, str(made)))
            return LATER
        return made
    return _simple(value)


def _simple(value: Any) -> Any:
    for simple in (bool, int, float, str):
        if isinstance(value, simple):
            return simple(value)
    return value


class Unresolved(str):
    """Why a template has no value, in words."""


def _secret(text: str, variables: Mapping[str, Any], seen: set[str]) -> bool:
    """Return True if a template may use a value that is encrypted with !vault, itself or through other variables."""
    names = set(NAME.findall(text)).difference(seen).intersection(variables)
    seen |= names
    for name in names:
        templates: list[str] = []
        if _has_vault(variables[name], templates, frozenset()):
            return True
        if any(_secret(one, variables, seen) for one in templates):
            return True
    return False


def _has_vault(value: Any, templates: list[str], above: frozenset[int]) -> bool:
    """Return True if a part of a value is encrypted with !vault; collect its templates."""
    if isinstance(value, str) and TEMPLATE.search(value):
        templates.append(value)
    inner: Iterable[Any] = ()
    if isinstance(value, Mapping) and id(value) not in above:
        inner = value.values()
    elif isinstance(value, (list, tuple)) and id(value) not in above:
        inner = value
    return is_vaulted(value) or any(_has_vault(one, templates, above | {id(value)}) for one in inner)


def is_vaulted(value: Any) -> bool:
    """Return True for a value that is encrypted with !vault."""
    return getattr(value, "_ciphertext", None) is not None


def _resolved(text: str, variables: Any) -> Any:
    """Return the value of a template; LATER if it needs a fact, and the reason if it never has one."""
    templar = getattr(variables, "_templar", None)
    if templar is None:
        return LATER
    try:
        made = templar.template(text)
        if isinstance(made, Undefined):
            raise UndefinedError(str(made))
        return _plain(made, str, (), [], frozenset())
    except (AnsibleError, UndefinedError) as error:
        reason = str(error).strip().partition("\n")[0].removeprefix("A captured exception marker was tripped: ")
        if FACT.search(text + reason):
            return LATER
        return Unresolved(f"found {shown(str(text))}, which has no value before a host is contacted: {reason}")


def _position(where: str) -> tuple[str, int, int]:
    """Return file, line and column of a place, for sorting."""
    file, line, column = where.rsplit(":", 2) if where else ("", "0", "0")
    return file, int(line), int(column)


def _told(name: str, text: str, group: Group) -> str:
    places = [where for where in group.places if where]
    more = f"; in {len(places)} places" if len(places) > 1 else ""
    where = f"{places[0]}: " if places else ""
    return with_id(f"{where}{name}: {text} ({_named(group.hosts)}{more})")


def _named(hosts: list[str]) -> str:
    names = list(dict.fromkeys(hosts))
    more = len(names) - SHOWN_HOSTS
    count = f"{len(names)} hosts: " if len(names) > 1 else ""
    return count + ", ".join(names[:SHOWN_HOSTS]) + (f" and {more} more" if more > 0 else "")


class FilterModule:
    """The class by which Ansible finds the filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"check_settings": check_settings}
