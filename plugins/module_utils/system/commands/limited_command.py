# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Become a command, after a look that the kernel refuses devices to this process: the last step of device_scope.py.

systemd accepts DeviceAllow= also where the kernel or a container does not apply it. So this opens one device that is
not allowed. A program of its own, because it runs after systemd-run: `limited_command.py PROBE COMMAND...`. It imports
nothing of ours, so the ids of its messages are in their texts.
"""

from __future__ import annotations

import os
import signal
import sys

NOT_LIMITED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127  # exit statuses, as of env(1) and timeout(1)


def main(probe: str, command: list[str]) -> int:
    """Become `command` if `probe` can't be opened; return an exit status otherwise."""
    try:
        os.close(os.open(probe, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
    except PermissionError:
        pass
    except OSError as error:
        return _failed(NOT_LIMITED, f"{probe}: {error.strerror}; expected that the kernel refuses it [FC1163]")
    else:
        return _failed(
            NOT_LIMITED,
            f"{probe} can be opened, so the kernel does not keep the command from devices that it was not granted. Run "
            "it in a container with the claim. [FC1163]",
        )
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would pass that on
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        return _failed(NOT_FOUND, f"{command[0]}: is not a program of this host [FC1164]")
    except OSError as error:
        return _failed(NOT_EXECUTABLE, f"{command[0]}: can't be started: {error.strerror} [FC1164]")


def _failed(status: int, why: str) -> int:
    sys.stderr.write(f"fleet-cdi: {ascii(why)[1:-1]}\n")
    return status


if __name__ == "__main__":
    STATUS = main(sys.argv[1], sys.argv[2:])
    sys.stderr.flush()
    os._exit(STATUS)
