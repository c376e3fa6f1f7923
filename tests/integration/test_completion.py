# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Completion in real shells: keys are typed into bash and zsh, and fleet-cdi notes the words with which it is run."""

from __future__ import annotations

import json
import os
import pty
import select
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.cli import main as cli
from ansible_collections.fleet.cdi.plugins.module_utils.cli.completion import SCRIPTS
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Health, Node

COLLECTIONS = Path(cli.__file__).parents[6]
PATIENCE = 60  # seconds
PROMPT = "ready> "
BASH_COMPLETION = "/usr/share/bash-completion/bash_completion"

GPU = Device(
    id="pci:0000:3b:00.0",
    profile="drm",
    kind="fleet.cdi/gpu",
    names=("0", "0000:3b:00.0", "$(touch hacked)"),
    nodes=(Node("/dev/dri/card0", "c", 226, 0),),
    health=Health("healthy"),
)
TTY = Device("tty:tty13", "tty", "fleet.cdi/tty", ("tty13",), (Node("/dev/tty13", "c", 4, 13),))

# Keys -> the words that fleet-cdi gets. HERE is a directory with "some file.json", state/ and inventory.json.
CASES = yaml.safe_load("""
- {keys: "cla<TAB>add --ne<TAB>0 job-1 tty:1", words: [claim, add, --near, "0", job-1, "tty:1"]}
- {keys: "tr<TAB>--rel<TAB>ho<TAB>-", words: [transform, --relative-to, host, "-"]}
- {keys: "devices --kind fleet.cdi/g<TAB>--fr<TAB>", words: [devices, --kind, fleet.cdi/gpu, --free]}
- {keys: "devices --kind=fleet.cdi/t<TAB>", words: [devices, --kind=fleet.cdi/tty]}
- keys: "device dis<TAB>fleet.cdi/gpu=0000:3<TAB>--reason x"
  words: [device, disable, "fleet.cdi/gpu=0000:3b:00.0", --reason, x]
- {keys: "grants release fleet.cdi/t<TAB>", words: [grants, release, fleet.cdi/tty=tty13]}
- {keys: "validate HERE/some<TAB>", words: [validate, "HERE/some file.json"]}
- {keys: "--inventory=HERE/inv<TAB>devices", words: [--inventory=HERE/inventory.json, devices]}
- {keys: "specs --state-dir HERE/st<TAB>x", words: [specs, --state-dir, HERE/state/x]}
- {keys: "completion z<TAB>", words: [completion, zsh]}
""")

PROGRAM = """#!{python} -I
import json, sys
if sys.argv[1] != "complete":
    with open({log!r}, "a") as file:
        file.write(json.dumps(sys.argv[1:]) + "\\n")
    sys.exit()
sys.stderr = open({asked!r}, "a")  # the scripts of completion drop what the program complains of
print(sys.argv[2:], file=sys.stderr, flush=True)
sys.path.insert(0, {collections!r})
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
sys.exit(main(sys.argv[1:], "0.1.0", {defaults!r}))
"""

SHELLS = {
    "bash": (
        ["bash", "--noprofile", "--norc", "-i"],
        f"source {BASH_COMPLETION}; bind 'set bell-style none'; bind 'set enable-bracketed-paste off'",
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        "unset zle_bracketed_paste; unsetopt prompt_sp prompt_cr; . ~/share/zsh.rc",
    ),
}
PACKAGES = {"bash": "bash-completion", "zsh": "zsh"}
PLACES = {"bash": "bash-completion/completions/fleet-cdi", "zsh": "zsh/site-functions/_fleet-cdi"}


class Shell:
    """An interactive shell at a terminal, with completion as a host has it after the installation."""

    def __init__(self, name: str, here: Path) -> None:
        place = here / "share" / PLACES[name]
        place.parent.mkdir(parents=True)
        place.write_text(SCRIPTS[name])
        (here / "share/zsh.rc").write_text(
            # Not what this machine has in /usr/local: its own _fleet-cdi would come first.
            "fpath=(~/share/zsh/site-functions ${fpath:#/usr/local/*})\nautoload -U compinit\ncompinit -u -D\n"
        )
        start, prepare = SHELLS[name]
        self.terminal, inner = pty.openpty()
        environment = {"PATH": f"{here}/bin:/usr/bin:/bin", "HOME": str(here), "XDG_DATA_DIRS": f"{here}/share"}
        environment |= {"TERM": "dumb", "LC_ALL": "C.UTF-8"}
        self.process = subprocess.Popen(
            start, stdin=inner, stdout=inner, stderr=inner, env=environment, cwd=here, start_new_session=True
        )
        os.close(inner)
        self.shown = ""
        self.type(f"PS1={shlex.quote(PROMPT)}; {prepare}; echo pre''pared\r", "prepared")
        self.type("echo st''arted\r", f"started\r\n{PROMPT}")

    def type(self, keys: str, until: str = "") -> None:
        """Send keys, and read what the terminal shows until it has `until`."""
        os.write(self.terminal, keys.encode())
        deadline = time.monotonic() + PATIENCE
        start = len(self.shown)
        while until not in self.shown[start:].replace("\x1b[?2004h", ""):
            assert time.monotonic() < deadline, self.shown
            self.read(0.2)

    def read(self, seconds: float) -> None:
        """Take what the terminal shows, so that the shell never waits for it."""
        if select.select([self.terminal], [], [], seconds)[0]:
            self.shown += os.read(self.terminal, 4096).decode("utf-8", "replace")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.counterpart(PACKAGES[name])) for name in SHELLS])
def typed(request, tmp_path):
    """Type keys after "fleet-cdi ": typed(keys) -> the words with which fleet-cdi was run, and what led to them."""
    for name in ("state", "bin"):
        (tmp_path / name).mkdir()
    (tmp_path / "some file.json").touch()
    found = inventory.render(inventory.Inventory((GPU, TTY)), inventory.boot_id())
    (tmp_path / "inventory.json").write_bytes(found)
    log = tmp_path / "log"
    log.touch()
    asked = tmp_path / "asked"
    asked.touch()
    defaults = {"state_dir": f"{tmp_path}/state", "inventory": f"{tmp_path}/inventory.json", "prefix": str(tmp_path)}
    defaults["spec_dirs"] = [f"{tmp_path}/specs"]
    program = tmp_path / "bin/fleet-cdi"
    text = PROGRAM.format(
        python=sys.executable, log=str(log), asked=str(asked), collections=str(COLLECTIONS), defaults=defaults
    )
    program.write_text(text)
    program.chmod(0o755)
    shell = Shell(request.param, tmp_path)

    def run(keys):
        before = len(log.read_text().splitlines())
        os.write(shell.terminal, f"fleet-cdi {keys}\r".encode())
        deadline = time.monotonic() + PATIENCE
        while len(lines := log.read_text().splitlines()) == before:
            assert time.monotonic() < deadline, shell.shown
            shell.read(0.05)
        return json.loads(lines[-1]), f"{asked.read_text()}{shell.shown}"

    yield run
    shell.close()
    assert not (tmp_path / "hacked").exists()


def test_completion(typed, tmp_path):
    for case in CASES:
        keys, words = (json.loads(json.dumps(case[name]).replace("HERE", str(tmp_path))) for name in ("keys", "words"))
        found, story = typed(keys.replace("<TAB>", "\t"))
        assert found == words, f"{case}\n{story}"
