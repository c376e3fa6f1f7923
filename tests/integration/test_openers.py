# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who has a device open, in a real container: podman (with runc) gives it a console of this machine."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.system import openers

CONSOLE = "/dev/tty24"

pytestmark = [
    pytest.mark.counterpart("podman", "runc", "busybox-static"),
    pytest.mark.skipif(os.geteuid() != 0, reason="runs containers: needs root"),
    pytest.mark.skipif(not os.path.exists(CONSOLE), reason=f"needs the console {CONSOLE}"),
]


def seen():
    number = openers.number_of(CONSOLE)
    return openers.look([number]).openers.get(number, ())


@pytest.mark.parametrize("path", [CONSOLE, "/dev/console-of-mine"])
def test_a_container_is_named_whatever_it_calls_the_device(container, path):
    name = f"fleet-cdi-test-{os.getpid()}-open"
    device = f"{CONSOLE}:{path}"
    done = container(f"exec sleep 1000 <> {path}", "--detach", "--name", name, "--device", device)
    assert done.returncode == 0, done.stderr
    try:
        deadline = time.monotonic() + 30
        while not seen() and time.monotonic() < deadline:
            time.sleep(0.1)
        (found,) = seen()
        assert found.command == "busybox"
        assert (found.group.engine, found.group.container) == ("podman", done.stdout.strip())
        assert str(found).endswith(f" in container {done.stdout.strip()[:12]} (podman)")
    finally:
        subprocess.run(
            ["podman", "--runtime", "runc", "rm", "--force", "--time", "0", name], capture_output=True, check=False
        )
    assert seen() == ()
