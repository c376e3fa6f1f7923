# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A headless Chromium, driven by the DevTools protocol over two pipes: messages of JSON that end with a zero byte.

https://chromedevtools.github.io/devtools-protocol/, --remote-debugging-pipe. Needs no driver and no package of PyPI.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

PROGRAM = "chromium"
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# Key -> (code, number) of KeyboardEvent; letters and digits follow from themselves.
KEYS = {"Enter": ("Enter", 13), "Escape": ("Escape", 27), "ArrowDown": ("ArrowDown", 40), "Tab": ("Tab", 9)}
LONGEST = 60.0  # seconds to wait for anything


class Browser:
    """One browser with one page."""

    def __init__(self, profile: Path, width: int = 1400, height: int = 900) -> None:
        their_in, self._out = os.pipe()
        self._in, their_out = os.pipe()
        command = [PROGRAM, *OPTIONS, f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank"]
        # The browser reads descriptor 3 and writes descriptor 4.
        shell = f'exec "$@" 3<&{their_in} 4>&{their_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(their_in, their_out),
            env={**os.environ, "HOME": str(profile), "XDG_CONFIG_HOME": str(profile), "XDG_CACHE_HOME": str(profile)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_in)
        os.close(their_out)
        self._buffer, self._next, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        os.close(self._out)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; keep the events that come meanwhile. Raises RuntimeError."""
        self._next += 1
        session = {"sessionId": self._session} if self._session else {}
        message = json.dumps({"id": self._next, "method": method, "params": parameters, **session}).encode() + b"\0"
        while message:
            message = message[os.write(self._out, message) :]
        while True:
            answer = self._message()
            if answer.get("id") != self._next:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, url: str) -> None:
        """Open a page and wait until it is loaded. `events` are then those since."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(one.get("method") == "Page.loadEventFired" for one in self.events):
            self.events.append(self._message())

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], LONGEST)[0]:
                raise RuntimeError("the browser does not answer")
            piece = os.read(self._in, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._buffer += piece
        first, _mark, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page. Raises RuntimeError for an exception."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"])
        return done["result"].get("value")

    def wait(self, script: str) -> None:
        """Wait until an expression is true. Raises RuntimeError if that takes too long."""
        end = time.monotonic() + LONGEST
        while not self.run(f"Boolean({script})"):
            if time.monotonic() > end:
                raise RuntimeError(f"never true: {script}")
            time.sleep(0.02)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            code, number = KEYS.get(key, (f"Key{key.upper()}", ord(key.upper()[0])))
            same = {"key": key, "code": code, "windowsVirtualKeyCode": number}
            text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", **same, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **same)

    def type(self, text: str) -> None:
        """Insert a text where the focus is, as an input method does."""
        self.call("Input.insertText", text=text)

    def pdf(self) -> bytes:
        """Return the printed page."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])
