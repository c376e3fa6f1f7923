# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Specs for NVIDIA devices beside those of NVIDIA's own generator, on rendered trees (cases.yml).

The generator is the vendor's library, with go-nvml's mock of a DGX A100 as NVML (main.go). Each sees the same tree as
the root directory of a host; a difference that cases.yml does not explain is a failure.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import judge
import pytest
import yaml
from vendor_spec import containers, differences, explained

from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.build_spec import spec_of
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.configuration import PluginSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import offer
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.inventory import Inventory
from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec
from ansible_collections.fleet.cdi.plugins.module_utils.spec.registry import SpecFile, resolve
from ansible_collections.fleet.cdi.tests.unit.trees import nvidia

SOURCE = Path(__file__).parent
TABLE = yaml.safe_load((SOURCE / "cases.yml").read_text(encoding="utf-8"))
MODES = TABLE["modes"]
# What the generator leaves on a host with one GPU; tests of coexistence read it.
FIXTURE = judge.CHECKOUT / "tests/unit/trees/nvidia-ctk.yaml"


@pytest.fixture(scope="session")
def generator() -> Path:
    """The vendor's generator, built where its source is newer. It takes cgo, and chroot takes root."""
    program = judge.BUILT / "nvidia-ctk"
    if os.geteuid() != 0:
        pytest.skip("NVIDIA's generator is not compared: only root can make device nodes and change the root directory")
    if shutil.which("gcc") is None:
        pytest.skip("NVIDIA's generator is not compared: building it takes gcc (apt-get install gcc libc6-dev)")
    sources = [SOURCE / name for name in ("main.go", "go.mod", "go.sum")]
    if not program.exists() or program.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        judge.BUILT.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "CGO_ENABLED": "1", "CGO_CFLAGS": "-O0 -w"}
        try:
            command = [judge.find_go(), "build", "-buildvcs=false", "-p=2", "-o", str(program), "."]
        except judge.Unavailable as why:
            pytest.skip(f"NVIDIA's generator is not compared: {why}")
        done = subprocess.run(command, cwd=SOURCE, env=environment, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"NVIDIA's generator is not compared: it can't be built: {done.stderr.strip()[-500:]}")
    return program


def theirs(generator: Path, case: dict[str, Any], root: str, gpus: tuple[nvidia.Gpu, ...], *names: str) -> Any:
    """What the generator answers for every mode."""
    parts = case.get("mig", {})
    request = {
        "root": root,
        "driverroot": case.get("driver_root", "/"),
        "devroot": case.get("dev_root", "/"),
        "devices": case.get("devices", ["all"]),
        "driver": nvidia.VERSION,
        "hook": case.get("hook", nvidia.HOOK),
        "modes": list(MODES),
        "names": names,
        "gpus": [
            {
                "uuid": gpu.uuid,
                "pci": gpu.address,
                "minor": gpu.minor,
                "migmode": bool(gpu.mig),
                "mig": [
                    {"gi": gi, "ci": ci, "uuid": gpu.mig_uuid(gi, ci), "profile": profile}
                    for gi, ci, profile in parts.get(gpu.address, ())
                ],
            }
            for gpu in gpus
        ],
    }
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    done = subprocess.run(
        [generator], input=json.dumps(request), env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def ours(case: dict[str, Any], root: str, mode: str, *names: str) -> Any:
    """Our spec, None without devices."""
    entry: dict[str, Any] = {"profile": MODES[mode], "device_numbers": True, "required": False}
    if "driver_root" in case and mode in ("nvml", "gds", "management"):
        entry["driver_root"] = case["driver_root"]
    if "dev_root" in case:
        entry["dev_root"] = case["dev_root"]
    if mode == "nvml":
        entry["name_by"] = list(names)
        if "devices" in case:
            entry["devices"] = case["devices"]
    if "hook_path" in case and mode in ("nvml", "management"):
        entry["hook_path"] = case["hook_path"]
    found = discover({"gpus": entry}, snapshot.take(root))
    return spec_of(found.kinds[0], found.devices) if found.devices else None


def offered(spec: Any) -> Any:
    """The spec; None where no device has a node: the vendor's modes write one for what is not there, too."""
    return spec if spec and any(device["containerEdits"].get("deviceNodes") for device in spec["devices"]) else None


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test_specs_are_those_of_the_vendor(generator, case, tmp_path):
    root, gpus = nvidia.of_case(case, tmp_path)
    names = ("index", "uuid", "type-index")
    answers = theirs(generator, case, root, gpus, *names)
    used: set[int] = set()
    compared = 0
    specs = []
    for mode, answer in answers.items():
        our, their = ours(case, root, mode, *names), offered(answer.get("spec"))
        if our and their:
            assert our["kind"] == their["kind"]
        for side, line in differences(containers(our), containers(their)):
            rows = explained(TABLE["differences"], line, case=case["name"], mode=mode, side=side)
            assert rows, f"mode {mode}: only {side}: {line}"
            used.update(rows)
        compared += sum(map(len, containers(their).values()))
        specs += [our] if our else []
    unused = [
        row for number, row in enumerate(TABLE["differences"]) if row["case"] == case["name"] and number not in used
    ]
    assert not unused
    assert compared > 50
    with judge.Judge("newest") as library:
        answers = library.ask_all(judge.reading("gpus.json", codec.encode(spec)) for spec in specs)
    assert [answer["error"] for answer in answers if not answer["accept"]] == []


def test_what_it_leaves_on_a_host(generator, tmp_path):
    case = {"gpus": "P100"}
    root, gpus = nvidia.of_case(case, tmp_path)
    text = theirs(generator, case, root, gpus, "index", "uuid")["nvml"]["text"]
    assert FIXTURE.read_text(encoding="utf-8") == text, f"the generator writes another file; put it into {FIXTURE}"


@pytest.mark.parametrize(
    "case", [case for case in TABLE["cases"] if "devices" not in case], ids=lambda case: case["name"]
)
def test_what_the_kubelet_is_offered_of_the_vendors_spec(generator, case, tmp_path):
    """One device for each GPU or MIG device, although each has three names; the same hardware as in our inventory."""
    root, gpus = nvidia.of_case(case, tmp_path)
    spec = theirs(generator, case, root, gpus, "index", "uuid", "type-index")["nvml"]["spec"]
    path = "/etc/cdi/nvidia.yaml"
    registry = resolve(("/etc/cdi",), [SpecFile(path, 0, spec)], {})
    options = {"dev_root": case["dev_root"]} if "dev_root" in case else {}
    known = discover({"gpus": {"profile": "nvidia", **options}}, snapshot.take(root))
    parts = [max(1, len(case.get("mig", {}).get(gpu.address, ()))) for gpu in gpus]
    for inventory in (None, Inventory(known.devices, known.kinds, known.links)):
        (resource,) = offer(PluginSettings(), registry, inventory).resources
        assert len(resource.units) == sum(parts)
        assert len(registry.devices) == 3 * sum(parts) + 1
        uuids = [gpu.mig_uuid(gi, ci) for gpu in gpus for gi, ci, _profile in case.get("mig", {}).get(gpu.address, ())]
        uuids += [gpu.uuid for gpu in gpus if gpu.address not in case.get("mig", {})]
        assert [unit.id for unit in resource.units] == sorted(uuids)
    assert {unit.device.id for unit in resource.units} == {device.id for device in known.devices}
