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
  - Checks every variable C(cdi_host_*), C(cdi_device_plugin_*) and C(cdi_runtime_hooks_*) of the hosts against one JSON
    Schema (draft 2020-12), on the controller, without contacting a host. Settings that several hosts share are checked
    once.
  - A variable of that name that no role knows is an error, but for C(cdi_host_devices_<anything>), which adds to
    C(cdi_host_devices).
  - Facts are not there yet when the playbooks check; a setting that is made from them needs a fact cache.
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
  description: The faults, each with its file and line and the hosts that it concerns. Empty if there are none.
  type: list
  elements: str
  sample:
    - >-
      /srv/fleet/group_vars/rack7.yml:4:5: cdi_host_devices.gpus.profil: found the unknown option 'profil';
      expected one of env, kind, profile; did you mean 'profile'? (gpu01, gpu02)
"""

import json
import sys
from collections.abc import Mapping
from typing import Any, Callable

from ansible.errors import AnsibleError, AnsibleFilterError
from ansible.utils.display import Display
from jinja2 import Undefined, UndefinedError

from ansible_collections.fleet.cdi.plugins.plugin_utils import settings

SHOWN_HOSTS = 3


def check_settings(hostvars: Any, hosts: Any) -> list[str]:
    """Return the faults in the settings of `hosts`; each distinct document is checked once."""
    wrong: dict[str, list[str]] = {}
    documents: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    users: dict[str, list[str]] = {}
    for host in hosts:
        values, document, unresolved = _read(hostvars[host])
        for text in unresolved:
            wrong.setdefault(text, []).append(host)
        digest = json.dumps(document, sort_keys=True, default=repr)
        documents.setdefault(digest, (values, document))
        users.setdefault(digest, []).append(host)
    empty: list[str] = []
    for digest, (values, document) in documents.items():
        for text in _explained(values, document):
            wrong.setdefault(text, []).extend(users[digest])
        if settings.offers_nothing(document):
            empty += users[digest]
    if empty:
        Display().warning(
            f"{settings.DEVICES}: found no entry for {_named(empty)}, so no device is offered there; expected entries "
            "by name, as in {gpus: {profile: drm}}, in this variable or in any cdi_host_devices_*"
        )
    return [f"{text} ({_named(names)})" for text, names in wrong.items()]


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


def _read(variables: Any) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Return (the settings as Ansible holds them, the same as plain data, errors of variables without a value)."""
    values, document, unresolved = {}, {}, []
    for name in variables:
        if not str(name).startswith(settings.PREFIXES):
            continue
        try:
            value = variables[name]
            document[str(name)] = _plain(value)
            values[name] = value
        except (AnsibleError, UndefinedError) as error:
            where = origin(name)
            reason = "its value can't be worked out before a host is contacted: " + str(error).strip().splitlines()[0]
            unresolved.append(f"{where + ': ' if where else ''}{name}: {reason}")
    return values, document, unresolved


def _plain(value: Any) -> Any:
    """Return `value` in the types of JSON; other types stay. Raises UndefinedError if a template has no result."""
    if isinstance(value, Undefined):
        raise UndefinedError(str(value))
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    for simple in (bool, int, float, str):
        if isinstance(value, simple):
            return simple(value)
    return value


def _explained(values: dict[str, Any], document: dict[str, Any]) -> list[str]:
    try:
        found = settings.check(document)
    except ImportError as error:
        raise AnsibleFilterError(
            f"check_settings: the controller's Python can't import jsonschema ({error}). "
            f"Install it there: {sys.executable} -m pip install jsonschema"
        ) from error
    texts = []
    for finding in found:
        where, name = settings.place(finding.path, finding.key, values, origin)
        texts.append(f"{where + ': ' if where else ''}{name}: {finding.text}")
    return texts


def _named(hosts: list[str]) -> str:
    names = list(dict.fromkeys(hosts))
    more = len(names) - SHOWN_HOSTS
    return ", ".join(names[:SHOWN_HOSTS]) + (f" and {more} more" if more > 0 else "")


class FilterModule:
    """The class by which Ansible finds the filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"check_settings": check_settings}
