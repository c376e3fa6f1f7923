# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host with directories of its own, on which the release of this checkout is installed once for all tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from layouts import layout_beside

from ansible_collections.fleet.cdi.plugins.module_utils import records
from ansible_collections.fleet.cdi.plugins.module_utils.converge import undo
from ansible_collections.fleet.cdi.plugins.module_utils.converge.host import cdi_host
from ansible_collections.fleet.cdi.plugins.module_utils.release import build, host

MODULE_UTILS = Path(records.__file__).parent
Answer = Callable[..., tuple[dict[str, Any], list[str]]]


def entry(number: int) -> dict[str, Any]:
    """An entry of a kind of its own: /dev/null and /dev/zero, which every machine has."""
    return {
        "profile": "rule",
        "kind": f"test.fleet.cdi/kind{number}",
        "match": {"subsystem": "mem", "node": ["/dev/null", "/dev/zero"]},
        "group_by": "none",
        "name_by": ["sysname"],
    }


def settings_in(directory: Path) -> dict[str, Any]:
    """Settings with every path below `directory`, of a host that installs nothing."""
    here = host.distribution()
    return {
        "spec_dir": str(directory / "cdi"),
        "state_dir": str(directory / "state"),
        "device_list": str(directory / "inventory.json"),
        "python": sys.executable,
        "command_link": False,
        "install_packages": False,
        "refresh": False,
        "distributions": {here["id"]: [here["version_id"]]},
    }


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the release is installed."""
    directory = tmp_path_factory.mktemp("release")
    release = build.build(str(MODULE_UTILS))
    archive = directory / "archive.zip"
    archive.write_bytes(build.pack(release))
    options = {
        "settings": settings_in(directory),
        "state": "present",
        "parts": None,
        "prefix": str(directory / "opt"),
        "state_dir": None,
        "release": release.id,
        "archive": None,
    }
    assert cdi_host.answer(options, False) == ({"needs_archive": True}, [])
    result, _warnings = cdi_host.answer({**options, "archive": str(archive)}, False)
    assert result["again"] and result["parts"] == {"release": True}, "the installed release has to go on"
    yield directory / "opt"


@pytest.fixture
def answer(prefix: Path) -> Iterator[Answer]:
    """Module cdi_host: answer(parts, check, state, **settings) -> (result, warnings). It is undone afterwards."""
    release = build.build(str(MODULE_UTILS)).id
    usual = settings_in(prefix.parent)

    def run(parts: Any = None, check: bool = False, state: str = "present", **settings: Any) -> Any:
        where = settings.pop("prefix", str(prefix))
        options = {"settings": {**usual, **settings}, "state": state, "parts": parts, "prefix": where}
        return cdi_host.answer({**options, "state_dir": None, "release": release, "archive": None}, check)

    yield run
    undo.undo(layout_beside(usual["state_dir"]), force=True)
