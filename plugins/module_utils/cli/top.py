# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi top: devices, holders, health and openers, live in a terminal.

The screen is drawn with the controls that every terminal has (ECMA-48), not with curses, which some distributions ship
as a package of its own. `frame` is pure: it makes the lines of one screen.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Optional

from ..layout import Layout
from ..manifest import read_manifest
from ..protocol.configurations import directories
from ..records import CdiError
from ..report.device_use import DeviceUse, HostUse, host_use, make_operator
from ..safe_text import one_line
from .operand import seconds
from .terminal import say, say_document

INTERVAL = 2.0  # seconds
SHORTEST = 0.5  # seconds between two looks: a look at all processes costs CPU
WIDEST = 10_000  # columns of a frame that is not for a terminal

# Column -> (its text of a device, the least width). The widths that are left are shared by what the columns need.
COLUMNS: Mapping[str, tuple[Callable[[DeviceUse], str], int]] = {
    "": (lambda one: "!" if one.is_occupied or not one.health.is_usable else "", 1),
    "DEVICE": (lambda one: one.name, 10),
    "HEALTH": (lambda one: f"{one.health.state}: {one.health.reason}" if one.health.reason else one.health.state, 7),
    "HELD BY": (lambda one: ", ".join(one.holders) or "-", 7),
    "OPEN IN": (lambda one: "; ".join(one.openers) or "-", 7),
}

SORTS: Mapping[str, Callable[[DeviceUse], Any]] = {
    "device": lambda one: one.name,
    "health": lambda one: (one.health.is_usable, one.health.state, one.name),
    "holder": lambda one: (not one.holders, one.holders, one.name),
    "open": lambda one: (not one.openers, not one.is_occupied, one.name),
}

SHOWN: Mapping[str, Callable[[DeviceUse], bool]] = {
    "all": lambda _one: True,
    "held": lambda one: bool(one.holders),
    "free": lambda one: one.health.is_usable and not one.holders and not one.openers,
    "open": lambda one: bool(one.openers),
    "trouble": lambda one: one.is_occupied or not one.health.is_usable,
}

KEYS = "q quit  s sort  r reverse  f show  / text  arrows scroll"


class Screen(NamedTuple):
    """What the user chose to see."""

    sort: str = "device"
    backwards: bool = False
    shown: str = "all"
    text: str = ""
    typing: bool = False  # the text is being typed
    top: int = 0  # first device on the screen
    quit: bool = False


def run(arguments: Any, paths: Layout) -> int:
    """Show the devices until q is pressed, or once. Raises CdiError."""
    interval = max(SHORTEST, seconds("--interval", arguments.interval, INTERVAL))
    operator = make_operator(paths, directories(read_manifest(paths.state_dir).files))

    def look() -> HostUse:
        return host_use(operator)

    if arguments.json:
        found = look()
        rows = [{**one._asdict(), "health": list(one.health), "occupied": one.is_occupied} for one in found.devices]
        say_document({"devices": rows, "gaps": list(found.gaps)})
    elif arguments.once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDEST
        say(*frame(look(), Screen(), columns, 0))
    elif os.environ.get("TERM", "dumb") == "dumb":
        raise CdiError("top: found TERM=dumb; expected a terminal that moves its cursor. Use --once.")
    else:
        _live(look, interval)
    return 0


def frame(found: HostUse, screen: Screen, columns: int, lines: int) -> list[str]:
    """Return the lines of a screen of this size; with 0 lines all devices, and no line for the keys.

    No line is wider than the screen, and none has a control character.
    """
    chosen = _chosen(found, screen)
    room = max(1, lines - 4 - len(found.gaps)) if lines else len(chosen)
    top = min(screen.top, max(0, len(chosen) - room))
    cells = [[one_line(text(one)) for text, _least in COLUMNS.values()] for one in chosen[top : top + room]]
    widths = _widths([list(COLUMNS), *cells], columns)
    rows = ["  ".join(fit(cell, width) for cell, width in zip(row, widths)).rstrip() for row in [list(COLUMNS), *cells]]
    every = found.devices
    counts = (
        f"{len(every)} devices: {sum(bool(one.holders) for one in every)} held, "
        f"{sum(bool(one.openers) for one in every)} open, {sum(one.is_occupied for one in every)} occupied, "
        f"{sum(not one.health.is_usable for one in every)} not usable"
    )
    choice = f"sort: {screen.sort}{' (reverse)' if screen.backwards else ''}  show: {screen.shown}"
    choice += f"  text: {one_line(screen.text)}{'_' if screen.typing else ''}" if screen.text or screen.typing else ""
    head = [counts, *(f"unknown: {one_line(gap)}" for gap in found.gaps)]
    if not lines:
        return [fit(line, columns).rstrip() for line in (*head, "", *rows)]
    more = f"  {top + 1}-{top + len(cells)} of {len(chosen)}" if len(chosen) > room else ""
    shown = [*head, *rows, *[""] * (room - len(cells)), f"{choice}{more}", KEYS]
    return [fit(line, columns).rstrip() for line in shown][:lines]


def _chosen(found: HostUse, screen: Screen) -> list[DeviceUse]:
    matching = [
        one
        for one in found.devices
        if SHOWN[screen.shown](one)
        and screen.text.lower() in " ".join(text(one) for text, _least in COLUMNS.values()).lower()
    ]
    return sorted(matching, key=SORTS[screen.sort], reverse=screen.backwards)


def _widths(rows: list[list[str]], columns: int) -> list[int]:
    """Return the width of each column: what it needs; on a narrow screen the widest lose first."""
    widths = [max(map(width_of, column)) for column in zip(*rows)]
    least = [size for _text, size in COLUMNS.values()]
    over = sum(widths) + 2 * (len(widths) - 1) - columns
    while over > 0:
        index = max(range(len(widths)), key=lambda one: widths[one] - least[one])
        if widths[index] <= least[index]:
            break
        others = [size for place, size in enumerate(widths) if place != index and size - least[place] > 0]
        step = min(over, max(1, widths[index] - max(least[index], *others, 0)))
        widths[index] -= step
        over -= step
    return widths


def width_of(text: str) -> int:
    """Return the columns that a text takes (Unicode Standard Annex 11)."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(letter: str) -> int:
    return 0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def fit(text: str, width: int) -> str:
    """Return a text of exactly `width` columns; "~" ends one that was cut."""
    if width_of(text) <= width:
        return text + " " * (width - width_of(text))
    kept, room = [], width - 1
    for letter in text:
        room -= _width(letter)
        if room < 0:
            break
        kept.append(letter)
    cut = "".join(kept)
    return (cut + "~" + " " * (width - 1 - width_of(cut)))[: max(width, 0)] if width > 0 else ""


def pressed(screen: Screen, key: str) -> Screen:
    """Return the screen after a key: a letter, or a name of ESCAPES."""
    if screen.typing:
        if key in ("\r", "\n", "escape"):
            return screen._replace(typing=False, text="" if key == "escape" else screen.text)
        if key in ("\x7f", "\b"):
            return screen._replace(text=screen.text[:-1])
        return screen._replace(text=screen.text + key, top=0) if len(key) == 1 and key.isprintable() else screen
    move = MOVES.get(key)
    if move:
        return screen._replace(top=max(0, screen.top + move))
    actions: Mapping[str, Callable[[], Screen]] = {
        "q": lambda: screen._replace(quit=True),
        "s": lambda: screen._replace(sort=_next(SORTS, screen.sort)),
        "r": lambda: screen._replace(backwards=not screen.backwards),
        "f": lambda: screen._replace(shown=_next(SHOWN, screen.shown), top=0),
        "/": lambda: screen._replace(typing=True, text=""),
        "escape": lambda: screen._replace(text=""),
    }
    return actions.get(key, lambda: screen)()


MOVES = {"up": -1, "down": 1, "k": -1, "j": 1, "page-up": -20, "page-down": 20, "home": -1_000_000}
ESCAPES = {"[A": "up", "[B": "down", "[5~": "page-up", "[6~": "page-down", "OA": "up", "OB": "down"}
ESCAPES |= {"[H": "home", "OH": "home", "[1~": "home"}  # of xterm, of its application mode, of tmux and the console


def keys(text: str) -> Iterator[str]:
    """Yield the keys in what a terminal sent at once; unknown sequences are dropped."""
    while text:
        if text[0] != "\x1b":
            yield text[0]
            text = text[1:]
            continue
        name = next((one for one in ESCAPES if text[1:].startswith(one)), None)
        if name is not None:
            yield ESCAPES[name]
            text = text[1 + len(name) :]
        elif text[1:2] in ("[", "O"):
            end = next((place for place, one in enumerate(text[2:], 3) if "@" <= one <= "~"), len(text))
            text = text[end:]
        else:
            yield "escape"
            text = text[1:]


def _next(table: Mapping[str, Any], name: str) -> str:
    names = list(table)
    return names[(names.index(name) + 1) % len(names)]


def _live(look: Callable[[], HostUse], interval: float) -> None:
    """Draw, wait for a key, a new size or the next look, and draw again."""
    screen, found, due = Screen(), HostUse((), ()), 0.0
    with _terminal() as resized:
        while not screen.quit:
            if time.monotonic() >= due:
                found, due = look(), time.monotonic() + interval
            size = os.get_terminal_size(sys.stdout.fileno())
            lines = frame(found, screen, max(1, size.columns), max(1, size.lines))
            text = "\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J"
            _write(text)
            ready = select.select([sys.stdin, resized], [], [], max(0.0, due - time.monotonic()))[0]
            if resized in ready:
                os.read(resized, 1000)
            if sys.stdin in ready:
                sent = os.read(sys.stdin.fileno(), 1000)
                if not sent:  # the connection is gone
                    return
                for key in keys(sent.decode("utf-8", "ignore")):
                    screen = pressed(screen, key)
                screen = screen._replace(top=min(screen.top, max(0, len(found.devices) - 1)))


@contextmanager
def _terminal() -> Iterator[int]:
    """Take over the terminal, and give it back as it was; yield a descriptor that can be read after a new size."""
    import termios  # here: the other verbs need no terminal
    import tty

    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    handlers: Mapping[int, Any] = {
        signal.SIGWINCH: lambda *_: None,
        signal.SIGTERM: _end,
        signal.SIGHUP: _end,
        signal.SIGTSTP: signal.SIG_IGN,
    }
    former = {number: signal.signal(number, act) for number, act in handlers.items()}
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        tty.setcbreak(handle)
        _write("\x1b[?1049h\x1b[?25l\x1b[?7l")  # the other screen, no cursor, no wrapping
        yield reading
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)
        signal.set_wakeup_fd(wakeup)
        for number, act in former.items():
            signal.signal(number, act)
        os.close(reading)
        os.close(writing)
        _write("\x1b[?7h\x1b[?25h\x1b[?1049l")


def _end(_number: int, _frame: Optional[Any]) -> None:
    raise KeyboardInterrupt


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
