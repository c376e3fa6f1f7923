# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a vendor's own programs say of the GPUs of this host."""

from __future__ import annotations

import csv
import glob
import io
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Optional


class Listed(NamedTuple):
    """A GPU as the vendor's program lists it; "" or 0 for what that does not say."""

    address: str  # of PCI, "0000:00:06.0"
    uuid: str
    memory: int  # MiB
    model: str


class Vendor(NamedTuple):
    """The programs of a vendor, and where a loaded driver shows its GPUs."""

    name: str
    gpus: str  # a pattern of paths, one for each GPU that the driver has
    version: str  # the file that has the driver's version
    profile: str
    kind: str
    names: tuple[str, ...]  # name_by of the profile, for the names that the generator gives
    lister: tuple[str, ...]  # lists the GPUs
    listed: Callable[[str], Iterator[Listed]]  # reads what it prints
    generator: tuple[str, ...]  # writes the vendor's spec to {}
    hook: str  # the vendor's program for hooks, "" for none
    options: Mapping[str, str]  # option of the profile -> that of the generator
    defaults: Mapping[str, str]  # options of the profile whose default the generator does not share


def of_nvidia_smi(text: str) -> Iterator[Listed]:
    for address, uuid, memory, model in csv.reader(io.StringIO(text), skipinitialspace=True):
        yield Listed(address[-12:].lower(), uuid, int(memory), model)


def of_amd_smi(text: str) -> Iterator[Listed]:
    for row in json.loads(text):
        yield Listed(row["bdf"].lower(), "", 0, "")


VENDORS = (
    Vendor(
        "nvidia",
        "/proc/driver/nvidia/gpus/*",
        "/proc/driver/nvidia/version",
        "nvidia",
        "nvidia.com/gpu",
        ("index", "uuid", "type-index"),
        ("nvidia-smi", "--query-gpu=pci.bus_id,uuid,memory.total,name", "--format=csv,noheader,nounits"),
        of_nvidia_smi,
        (
            *("nvidia-ctk", "--quiet", "cdi", "generate", "--format=json", "--output={}"),
            *("--device-name-strategy=index", "--device-name-strategy=uuid", "--device-name-strategy=type-index"),
        ),
        "nvidia-cdi-hook",
        {
            "hook_path": "--nvidia-cdi-hook-path={}",
            "driver_root": "--driver-root={}",
            "dev_root": "--dev-root={}",
        },
        {"dev_root": "/"},  # there, the device nodes are below driver_root, too
    ),
    Vendor(
        "amd",
        "/sys/bus/pci/drivers/amdgpu/[0-9a-f]*:*",
        "/sys/module/amdgpu/version",
        "amd",
        "amd.com/gpu",
        ("index",),
        ("amd-smi", "list", "--json"),
        of_amd_smi,
        ("amd-ctk", "cdi", "generate", "--output={}"),
        "",
        {},
        {},
    ),
)


def at_hand() -> Optional[Vendor]:
    """The vendor whose driver has a GPU on this host; None without one."""
    return next((vendor for vendor in VENDORS if glob.glob(vendor.gpus)), None)


def version(vendor: Vendor) -> str:
    """The version of the loaded driver, "" where it says none."""
    try:
        found = re.search(r"\b[0-9]+(\.[0-9]+)+\b", Path(vendor.version).read_text(encoding="utf-8"))
    except FileNotFoundError:  # the driver of the kernel itself has no version of its own
        return ""
    return found[0] if found else ""


def spec(vendor: Vendor, path: Path, options: Mapping[str, str]) -> Any:
    """The spec that the vendor's generator writes to `path`, by the same options of the profile.

    Raises CalledProcessError, and KeyError for an option that the generator does not have.
    """
    command = [word.format(path) for word in vendor.generator]
    command += [vendor.options[name].format(value) for name, value in {**vendor.defaults, **options}.items()]
    subprocess.run(command, check=True, capture_output=True)
    return json.loads(path.read_text(encoding="utf-8"))
