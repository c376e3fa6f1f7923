# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi top: its frames, its keys, and the command in a terminal of its own (pty)."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import page  # tests/harness
import pytest
from hypothesis import given
from hypothesis import strategies as some

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.pod_holds import holder
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import GrantPart, Key
from ansible_collections.fleet.cdi.plugins.module_utils.cli import top
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.cli.top import Screen, frame, keys, pressed, width_of
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Health, Node
from ansible_collections.fleet.cdi.plugins.module_utils.report.device_use import DeviceUse, HostUse

WELL = Health("healthy")
FREE = DeviceUse("a", "v.com/gpu=0", WELL, (), (), False)
HELD = DeviceUse("b", "v.com/gpu=1", WELL, ("request 7 (gpu/a)",), ("pid 1 (python3, uid 0)",), False)
OCCUPIED = DeviceUse("c", "v.com/gpu=2", WELL, (), ("pid 2 (Xorg, uid 0)",), False)
ILL = DeviceUse("d", "v.com/gpu=3", Health("unhealthy", "ECC\n\x1b[2J"), (), (), False)
WATCHED = DeviceUse("e", "v.com/gpu=4", WELL, (), ("pid 3 (nvidia-smi, uid 0)",), True)
HOST = HostUse((FREE, HELD, OCCUPIED, ILL, WATCHED), ())


def names(lines):
    return re.findall(r"v\.com/gpu=(\d)", "\n".join(lines))


def test_a_whole_frame():
    assert frame(HOST, Screen(), 200, 0) == [
        "5 devices: 1 held, 3 open, 1 occupied, 1 not usable",
        "",
        "   DEVICE       HEALTH                   HELD BY            OPEN IN",
        "   v.com/gpu=0  healthy                  -                  -",
        "   v.com/gpu=1  healthy                  request 7 (gpu/a)  pid 1 (python3, uid 0)",
        "!  v.com/gpu=2  healthy                  -                  pid 2 (Xorg, uid 0)",
        "!  v.com/gpu=3  unhealthy: ECC\\n\\x1b[2J  -                  -",
        "   v.com/gpu=4  healthy                  -                  pid 3 (nvidia-smi, uid 0)",
    ]


def test_the_frame_that_the_page_shows():
    text = (Path(__file__).resolve().parents[5] / "docs/cli.md").read_text(encoding="utf-8")
    (shown,) = [block.text.splitlines() for block in page.blocks(text) if "fleet-cdi top --once" in block.text]
    full = DeviceUse("mem:full", "vendor.com/memory=full", WELL, (), ("pid 812 (python3.11, uid 0)",), False)
    held = holder(Key("memory", "rule", "7890"), GrantPart("", "claims", "active", {}, (), "", 0.0, 0.0))
    zero = DeviceUse("mem:zero", "vendor.com/memory=zero", WELL, (held,), (), False)
    assert shown[1:] == frame(HostUse((full, zero), ()), Screen(), top.WIDEST, 0)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", "01234"),
        ("s", "30124"),  # health: what is not usable first
        ("ss", "10234"),  # holder
        ("sss", "21403"),  # open: occupied first
        ("ssss", "01234"),
        ("r", "43210"),
        ("f", "1"),
        ("ff", "0"),
        ("fff", "124"),
        ("ffff", "23"),
        ("fffff", "01234"),
        ("/XORG\r", "2"),
        ("/xorgx\x7f\r", "2"),
        ("/nothing\r", ""),
        ("/nothing\x1b", "01234"),
        ("/q\x1b", "01234"),
        ("zZ\x00é", "01234"),
    ],
)
def test_keys_sort_and_filter(typed, expected):
    screen = Screen()
    for key in keys(typed):
        screen = pressed(screen, key)
    found = names(frame(HOST, screen, 200, 40))
    assert not screen.quit
    assert "".join(found) == expected


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ("\x1b[A\x1b[Bq", ["up", "down", "q"]),
        ("\x1bOA", ["up"]),
        ("\x1b[5~\x1b[6~\x1b[H", ["page-up", "page-down", "home"]),
        ("\x1b[1~\x1bOHj", ["home", "home", "j"]),
        ("\x1b", ["escape"]),
        ("\x1b[1;5Cs", ["s"]),
        ("\x1b[", []),
        ("\x1b\x1b[A", ["escape", "up"]),
    ],
)
def test_what_a_terminal_sends(sent, expected):
    assert list(keys(sent)) == expected


def test_it_scrolls_and_stops_at_the_end():
    many = HostUse(tuple(FREE._replace(name=f"v.com/gpu={index}") for index in range(9)), ())
    screen = Screen()
    assert "1-4 of 9" in frame(many, screen, 80, 8)[-2]
    for key in keys("jj\x1b[6~"):
        screen = pressed(screen, key)
    assert "6-9 of 9" in frame(many, screen, 80, 8)[-2]
    assert pressed(Screen(), "k").top == 0


TEXT = some.text(max_size=30)


@given(TEXT, TEXT, TEXT, some.integers(1, 120), some.integers(1, 30))
def test_no_line_is_too_wide_and_none_controls_the_terminal(name, reason, process, columns, lines):
    one = DeviceUse("x", name, Health("unhealthy", reason), (process,), (process,), False)
    shown = frame(HostUse((one, FREE), (reason,)), Screen(text="", typing=True), columns, lines)
    assert len(shown) <= lines
    assert all(width_of(line) <= columns and line.isprintable() for line in shown)


@given(TEXT, some.integers(0, 40))
def test_a_cell_has_exactly_its_width(text, width):
    assert width_of(top.fit(text, width)) == width or any(unicode_zero(letter) for letter in text)


def unicode_zero(letter):
    return width_of(letter) == 0


# --- the command


@pytest.fixture
def options(tmp_path):
    node = Node("/dev/null", "c", 1, 3)
    device = Device("mem:null", "rule", "v.com/mem", ("e\x1b[2Jvil",), (node,), health=WELL)
    listing = tmp_path / "inventory.json"
    listing.write_bytes(inventory.render(inventory.Inventory((device,)), inventory.boot_id()))
    return ["--state-dir", str(tmp_path / "state"), "--inventory", str(listing), "--spec-dir", str(tmp_path / "etc")]


DEFAULTS = {"state_dir": "", "inventory": "", "spec_dirs": [], "prefix": ""}


@pytest.mark.usefixtures("only_own_processes")
def test_without_a_terminal_it_prints_one_frame(options, capsys):
    with open("/dev/null", "rb"):
        assert main(["top", *options], "test", DEFAULTS) == 0
    out = capsys.readouterr().out
    assert "v.com/mem=e\\x1b[2Jvil" in out and "\x1b" not in out and f"pid {os.getpid()}" in out
    with open("/dev/null", "rb"):
        assert main(["top", "--json", *options], "test", DEFAULTS) == 0
    (one,) = json.loads(capsys.readouterr().out)["devices"]
    assert (one["id"], one["occupied"], one["holders"]) == ("mem:null", True, [])


class Terminal:
    """The command in a terminal of its own."""

    def __init__(self, options, term="xterm", size=(24, 80)):
        program = "import sys; from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main; "
        program += f"sys.exit(main({['top', *options]!r}, 'test', {DEFAULTS!r}))"
        self.pid, self.handle = pty.fork()
        if not self.pid:
            os.environ["TERM"] = term
            os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
            os.execv(sys.executable, [sys.executable, "-c", program])
        self.before = termios.tcgetattr(self.handle)
        self.resize(*size)
        self.said = ""

    def resize(self, lines, columns):
        fcntl.ioctl(self.handle, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, text):
        deadline = time.monotonic() + 30
        while text not in self.said:
            assert time.monotonic() < deadline, self.said[-2000:]
            if select.select([self.handle], [], [], 0.2)[0]:
                try:
                    self.said += os.read(self.handle, 65536).decode()
                except OSError:  # the command has ended
                    break
        assert text in self.said, self.said[-2000:]
        before, _text, self.said = self.said.partition(text)
        return before

    def send(self, text):
        os.write(self.handle, text.encode())

    def end(self):
        """Return the exit status once it has ended."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_in_a_terminal_it_follows_keys_and_sizes_and_gives_the_terminal_back(options):
    terminal = Terminal(options)
    first = terminal.until(top.KEYS)
    assert first.startswith("\x1b[?1049h") and "v.com/mem=e\\x1b[2Jvil" in first
    terminal.send("f")
    terminal.until("show: held")
    terminal.send("/mem")
    terminal.until("text: mem_")
    terminal.send("\x1b")
    terminal.resize(7, 20)
    os.kill(terminal.pid, signal.SIGWINCH)
    terminal.until("q quit  s sort  r r~")
    terminal.send("q")
    terminal.until("\x1b[?7h\x1b[?25h\x1b[?1049l")
    assert terminal.end() == 0


def test_a_signal_gives_the_terminal_back_too(options):
    terminal = Terminal(options)
    terminal.until(top.KEYS)
    os.kill(terminal.pid, signal.SIGTERM)
    terminal.until("\x1b[?1049l")
    assert terminal.end() == 130


def test_a_terminal_without_a_cursor_is_refused(options):
    terminal = Terminal(options, term="dumb")
    terminal.until("expected a terminal that moves its cursor. Use --once.")
    assert terminal.end() == 2
