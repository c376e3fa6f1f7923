# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a command in a scope of systemd that may open some devices only: systemd-run(1), systemd.resource-control(5).

A scope keeps the command a child of its caller: with its terminal, environment, directory and exit status. systemd has
the kernel refuse all other devices to the control group of the scope: by BPF with cgroup v2, by the devices controller
with version 1. Files that are open already stay open.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress

from ...records import CdiError, Node
from .. import systemd
from ..device_nodes import numbers_at

SECONDS = 10  # from SIGTERM to SIGKILL for processes that are left in a scope
# Devices whose opening has no effect, by which limited_command.py sees that others are refused.
PROBES = ("/dev/kmsg", "/dev/fuse", "/dev/net/tun")
UNKNOWN = 5  # exit status of systemctl for a unit that is not loaded: the scope has ended


def scope_words(unit: str, allowed: Sequence[tuple[Node, str]], command: Sequence[str]) -> list[str]:
    """Return the words that run `command` in the scope `unit`; systemd-run becomes the command, with its process id.

    `allowed`: device nodes, and what the command may do: letters of "rwm". Devices are named by their numbers. The
    policy "closed" adds /dev/null, /dev/zero, /dev/full, /dev/random, /dev/urandom, /dev/tty and the pseudoterminals.
    Raises CdiError if no probe is left, so that nobody could tell if the kernel refuses devices.
    """
    probe = _probe([node for node, _access in allowed])
    kinds = {"b": "block"}
    rules = [f"/dev/{kinds.get(node.type, 'char')}/{node.major}:{node.minor} {access}" for node, access in allowed]
    properties = ["DevicePolicy=closed", f"TimeoutStopSec={SECONDS}", *(f"DeviceAllow={rule}" for rule in rules)]
    limited = os.path.join(os.path.dirname(__file__), "limited_command.py")
    return [
        *("systemd-run", "--scope", "--quiet", "--collect", "--no-ask-password", f"--unit={unit}"),
        *(f"--property={one}" for one in properties),
        *("--", sys.executable, "-I", "-S", limited, probe, *command),
    ]


def check_scopes() -> None:
    """Raise CdiError if systemd does not run this host."""
    if not systemd.booted():
        raise CdiError(
            "systemd does not run this host, and nothing else here can keep a command from other devices. Run it in a "
            "container with the claim."
        )


def stop_scope(unit: str) -> None:
    """End all processes of the scope `unit`; one that has ended already is left alone. Raises CdiError."""
    if not systemd.booted():
        return
    status, said = systemd.run_on_host(["systemctl", "stop", unit])
    if status not in (0, UNKNOWN):
        raise CdiError(f"{unit}: its processes can't be ended (exit status {status}): {' '.join(said.split())}")


def _probe(allowed: Collection[Node]) -> str:
    """Return a device that this process can open, and that is not `allowed`. Raises CdiError."""
    numbers = {(node.type, node.major, node.minor) for node in allowed}
    for path in PROBES:
        found = numbers_at(path)
        if found is None or tuple(found) in numbers:
            continue
        with suppress(OSError):
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
            return path
    raise CdiError(
        f"none of {', '.join(PROBES)} can be opened here, so it can't be seen that other devices are refused; expected "
        "one of them, as root has them on a host"
    )
