# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the result of module cdi_plugin_info: configurations, and the answers of their plugins."""

from __future__ import annotations

import os
from typing import Any

from ..manifest import Manifest, read_manifest
from ..protocol.configurations import Configuration, find
from ..protocol.errors import ProtocolError
from .calls import Caller, info, versions


def answer(options: dict[str, Any], _check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of the module for its `options`. Only reads, in every mode. Raises CdiError."""
    manifest = read_manifest(options["state_dir"])
    caller = Caller(os.path.join(options["prefix"], "bin"), options["timeout"])
    found = find(options["config_dir"], options["resource_type"] or "")
    plugins = [_described(caller, one, manifest) for one in found.configurations]
    broken = [{"path": path, **_error(error)} for path, error in found.errors.items()]
    return {"plugins": plugins, "broken": broken}, []


def _described(caller: Caller, one: Configuration, manifest: Manifest) -> dict[str, Any]:
    """Return a configuration with the answers of its plugin, or with `error` if a call fails."""
    ours = manifest.owns(one.path)
    document: dict[str, Any] = {
        "path": one.path,
        "name": os.path.basename(one.path)[: -len(".conf")],
        **{field: getattr(one.config, field) for field in ("type", "plugin", "args")},
        "description": one.config.name,
        "cdi_version": one.config.version,
        "managed": ours,
        "managed_by": manifest.by(one.path) if ours else None,
        "versions": [],
        "info": {},
        "error": None,
    }
    try:
        document["versions"] = list(versions(caller, one))
        document["info"] = info(caller, one)
    except ProtocolError as error:
        document["error"] = _error(error)
    return document


def _error(error: ProtocolError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "details": error.details}
