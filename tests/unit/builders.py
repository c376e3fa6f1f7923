# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents and programs that tests of several rooms need, each made in one place.

trees/specs.py makes whole registries and inventories of short texts; trees/render.py a sysfs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Union

import pytest


def spec(
    devices: Mapping[str, Mapping[str, Any]], kind: str = "vendor.com/gpu", version: str = "0.5.0", **whole: Any
) -> dict[str, Any]:
    """Return a spec: device name -> its container edits. `whole`: more fields of the spec, such as containerEdits."""
    listed = [{"name": name, "containerEdits": edits} for name, edits in devices.items()]
    return {"cdiVersion": version, "kind": kind, "devices": listed, **whole}


def nodes(*paths: Union[str, Path]) -> dict[str, Any]:
    """Return container edits that add the device nodes at these paths."""
    return {"deviceNodes": [{"path": str(path)} for path in paths]}


def program(directory: Union[str, Path], name: str, commands: str) -> list[str]:
    """Write a program that runs these shell commands; return the command that runs it."""
    path = os.path.join(directory, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\n{commands}\n")
    os.chmod(path, 0o755)
    return [path]


@contextmanager
def trusted_directory() -> Iterator[str]:
    """Yield a directory in which only root can write, all the way down, as fleet.cdi asks of commands for root."""
    if os.geteuid() != 0:
        pytest.skip("only root has commands that root runs")
    directory = f"/run/fleet-cdi-test-{os.getpid()}"
    os.makedirs(directory, 0o755, exist_ok=True)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
