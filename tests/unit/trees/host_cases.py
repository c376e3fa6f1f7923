# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cases of spec/on_host.yml, for all who ask what a host with some runtimes makes of its specs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.spec.registry import Registry
from ansible_collections.fleet.cdi.plugins.module_utils.spec.seen.linked import ANY, Linked, of_runtime

TABLE = Path(__file__).parents[1] / "plugins/module_utils/spec/on_host.yml"
CASES: Mapping[str, Mapping[str, Any]] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))["cases"]
KIND = "vendor.com/gpu"
TEXT = """\
cdiVersion: {version}
kind: {kind}
devices:
- name: {name}
  containerEdits:
    deviceNodes: [{{path: {node}}}]
"""


def put(root: Path, case: Mapping[str, Any]) -> list[str]:
    """Write the files of the case, and return the directories."""
    for name in ("real", "run"):
        (root / name).mkdir()
    (root / "etc").symlink_to("real") if case.get("link") else (root / "real").rename(root / "etc")
    for path, one in case["files"].items():
        text = TEXT.format(
            version=one.get("cdiVersion", "0.5.0"), kind=KIND, name=one.get("name", "x0"), node=one["node"]
        )
        (root / path).write_text(text + ("    intelRdt: {enableCMT: true}\n" if one.get("cmt") else ""))
    return [str(root / "etc"), str(root / "run")]


def runtimes(case: Mapping[str, Any]) -> list[tuple[str, str, bool, bool]]:
    """Name, library, whether it follows links, whether it is newer than we know: of each runtime of the case."""
    words = [str(one).split() for one in case["runtimes"]]
    return [(f"runtime {one[0]}", one[0], "follows" in one, "newer" in one) for one in words]


def linked(case: Mapping[str, Any]) -> tuple[Linked, ...]:
    """Return the libraries of the case."""
    return tuple(one for facts in runtimes(case) for one in of_runtime(*facts)) or ANY


def told(root: Path, found: Registry) -> dict[str, Any]:
    """What the registry says, in the words of the table."""

    def short(paths: Any) -> list[str]:
        return [path[len(f"{root}/") :] for path in paths]

    devices = {
        name.partition("=")[2]: f"{short([path])[0]} {found.edits[name]['deviceNodes'][0]['path']}"
        for name, path in found.devices.items()
    }
    lists = {
        key: {name.partition("=")[2]: short(paths) for name, paths in getattr(found, key).items()}
        for key in ("conflicts", "shadowed")
    }
    return {"devices": devices, **{key: one for key, one in lists.items() if one}}


def expected(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the table says of the registry."""
    return {key: case[key] for key in ("devices", "conflicts", "shadowed") if key in case}
