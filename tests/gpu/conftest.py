# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make gpu`: this host with its GPU, provisioned apart from what it has. Results: build/gpu.json.

All of it happens in a mount namespace, with empty directories where fleet.cdi writes: nothing of the host changes.
OPTIONS='{"driver_root": "/run/nvidia/driver"}' has options of the profile, which the vendor's generator gets, too.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import apart  # tests/harness
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))

import vendors
from gpu_host import GpuHost

CHECKOUT = Path(__file__).resolve().parents[2]
RESULTS = CHECKOUT / "build/gpu.json"
LIMITS = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]
# How podman starts a container: plainly, or as a host needs it that is a container or a small machine.
WAYS = ([], ["--runtime=runc", *LIMITS], ["--runtime=crun", "--cgroups=disabled", *LIMITS])
# What an image has: a shell, and the C library of this host, which the driver's programs and libraries need.
PROGRAMS = ("/bin/sh", "/bin/ls", "/bin/cat")
NEEDED = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1")

GIVEN = os.environ.get("OPTIONS") or "{}"
try:
    OPTIONS: dict[str, str] = dict(json.loads(GIVEN))
except (ValueError, TypeError):
    raise pytest.UsageError(f"OPTIONS: found {GIVEN!r}, expected a JSON object: options of the profile") from None

_told: dict[str, Any] = {}
_outcomes: dict[str, str] = {}


@pytest.fixture(scope="session")
def vendor() -> vendors.Vendor:
    found = vendors.at_hand()
    if found is None:
        pytest.skip("no GPU of NVIDIA or AMD with its driver is on this host")
    if os.geteuid() != 0:
        pytest.skip("provisions this host, apart from what it has: needs root")
    _told.update(vendor=found.name, driver=vendors.version(found), kernel=platform.release(), options=OPTIONS)
    return found


@pytest.fixture(scope="session")
def told() -> dict[str, Any]:
    """What the results say beside the outcome of each test."""
    return _told


@pytest.fixture(scope="session")
def listed(vendor, told) -> list[vendors.Listed]:
    """The GPUs, as the vendor's own program lists them."""
    if not shutil.which(vendor.lister[0]):
        pytest.skip(f"{vendor.lister[0]} is not installed")
    done = subprocess.run(vendor.lister, check=True, capture_output=True, text=True)
    found = list(vendor.listed(done.stdout))
    told["gpus"] = [gpu._asdict() for gpu in found]
    return found


@pytest.fixture(scope="session")
def host(vendor, tmp_path_factory) -> GpuHost:
    apart.enter()
    directory = tmp_path_factory.mktemp("host")
    directory.chmod(0o755)
    found = GpuHost(directory, vendor, OPTIONS)
    found.provision()
    return found


@pytest.fixture(scope="session")
def image(tmp_path_factory) -> Path:
    """A root directory for containers with a shell and the C library of this host."""
    root = tmp_path_factory.mktemp("image")
    for name in ("bin", "dev", "etc", "proc", "run", "sys", "tmp"):
        (root / name).mkdir()
    libraries = dict(re.findall(r"(\S+) \([^)]*\) => (/\S+)", _output("ldconfig", "-p")))
    wanted = [*PROGRAMS, *(libraries[name] for name in NEEDED if name in libraries)]
    for path in dict.fromkeys(wanted + [found for one in wanted for found in _needs(one)]):
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / path[1:])
    return root


@pytest.fixture(scope="session")
def podman(image, told) -> Iterator[Any]:
    """Run words in a container, apart from the host's own: podman(words, device=...) -> done."""
    if not shutil.which("podman"):
        pytest.skip("podman is not installed")
    told["podman"] = _output("podman", "--version").split()[-1]
    storage = tempfile.mkdtemp(prefix="g", dir="/tmp")  # podman refuses a long path; nobody else may make it
    options = [f"--{name}={storage}/{name}" for name in ("root", "runroot", "tmpdir")]

    def run(words: list[str], device: Optional[str], way: list[str]) -> subprocess.CompletedProcess[str]:
        runtime = [word for word in way if word.startswith("--runtime")]
        start = ["podman", *options, *runtime, "run", "--rm", "--network=none"]
        start += [word for word in way if word not in runtime]
        start += ["--device", device] if device else []
        return subprocess.run([*start, "--rootfs", str(image), *words], capture_output=True, text=True, check=False)

    tries = [(way, run(["/bin/ls", "/"], None, way)) for way in WAYS]
    works = next((way for way, done in tries if done.returncode == 0), None)
    if works is None:
        pytest.skip(f"podman starts no container here: {tries[0][1].stderr.strip()[-300:]}")
    yield lambda words, device=None: run(words, device, works)
    shutil.rmtree(storage, ignore_errors=True)


@pytest.fixture(scope="session")
def compute(image) -> Path:
    """compute.c, built: on this host, and at /bin/compute of the image."""
    program = image / "bin/compute"
    source = Path(__file__).parent / "compute.c"
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed, which builds a program that uses a GPU")
    subprocess.run(["gcc", "-O1", "-o", str(program), str(source), "-ldl"], check=True)
    return program


@pytest.fixture(scope="session")
def options() -> dict[str, str]:
    return OPTIONS


@pytest.fixture(scope="session")
def explanations(vendor) -> Any:
    return yaml.safe_load((Path(__file__).parent / "differences.yml").read_text(encoding="utf-8"))[vendor.name]


def pytest_runtest_logreport(report) -> None:
    """Remember the outcome of each test: passed, failed, or the reason why it was skipped."""
    name = report.nodeid.rpartition("::")[2]
    if report.skipped:
        _outcomes[name] = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else "skipped"
    elif report.when == "call" or report.failed:
        _outcomes[name] = report.outcome


def pytest_sessionfinish() -> None:
    """Write the results, where there is a GPU."""
    if _told:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({**_told, "tests": _outcomes}, indent=2) + "\n")
        sys.stdout.write(f"\nThe results are in {RESULTS}\n")


def _output(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def _needs(path: str) -> list[str]:
    """The libraries that a program or library of this host needs, and the loader."""
    done = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
    return re.findall(r"(/\S+)", done.stdout)
