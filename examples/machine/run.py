# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make machine`: a virtual machine with devices of its own, to try the collection without a GPU.

run.py             start it, wait until it is up, and say how to use it
run.py plug        put an NVMe disk into a free slot of the running machine
run.py unplug      take that disk out again
run.py stop        switch the machine off and remove its files

Needs root, QEMU and mmdebstrap (docs/machine.md).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "tests/harness"), str(CHECKOUT / "tests/machines")]

import controller as controllers
import machine as machines

NAME = "trixie"  # in tests/machines/machines.yml
HERE = CHECKOUT / "build/machine"  # leads to the directory of the running machine
SLOT = "near"
HOW = """
The machine is up. Log in, as a user who may use sudo:
  ssh -F build/machine/ssh_config machine

Provision it from this checkout; its settings are tests/machines/settings.yml:
  export ANSIBLE_COLLECTIONS_PATH=$PWD/build/machines/collections
  build/venv/bin/ansible-playbook -i build/machine/inventory.yml fleet.cdi.provision

Then, on the machine:
  sudo fleet-cdi devices
  sudo podman run --rm --network=none --device fleet.cdi/gpu=0 --rootfs /opt/container \\
    /bin/sh -c 'busybox ls -l /dev/dri'

From here: make machine-plug, make machine-unplug, make machine-stop"""


def main(arguments: list[str]) -> int:
    """The command line."""
    actions = {"": start, "plug": plug, "unplug": unplug, "stop": stop}
    action = actions.get(" ".join(arguments))
    if action is None:
        print(__doc__)
        return 2
    try:
        return action()
    except OSError as error:
        print(f"machine: {error}", file=sys.stderr)
        return 1


def start() -> int:
    """Start the machine, and build and install the collection for it."""
    why = machines.lacking()
    if why:
        print(f"machine: {why}", file=sys.stderr)
        return 1
    if HERE.exists():
        print("machine: it runs already. To start a new one: make machine-stop machine", file=sys.stderr)
        return 1
    print("Make the image, unless it is there: two minutes", flush=True)
    machine = machines.Machine(machines.definition(NAME))
    HERE.unlink(missing_ok=True)
    HERE.symlink_to(machine.directory)
    print("Start the machine: a minute", flush=True)
    started = time.monotonic()
    machine.start(stays=True)
    machine.wait_up()
    print(f"It answers after {time.monotonic() - started:.0f} s.", flush=True)
    controllers.install()
    controllers.Controller(machine)
    print(HOW)
    return 0


def plug() -> int:
    """Put a disk into the free slot. Raises OSError if there is one already."""
    name = running().plug(SLOT, "nvme", serial="plugged-in", drive="{disk}")
    (HERE / "plugged").write_text(name, encoding="utf-8")
    print("Plugged in. A few seconds later `fleet-cdi devices` shows it: fleet.cdi/nvme=nvme1n1")
    return 0


def unplug() -> int:
    """Take the disk of `plug` out. Raises OSError without one."""
    running().unplug((HERE / "plugged").read_text(encoding="utf-8"))
    print("The machine lets go of the disk in five seconds.")
    return 0


def stop() -> int:
    """Switch off and remove the machine's files; the image stays. Raises OSError if no machine runs."""
    machine = running()
    machine.control("quit")
    machine.close()
    HERE.unlink()
    print("Stopped.")
    return 0


def running() -> machines.Machine:
    """The machine that `start` left. Raises OSError if no machine runs."""
    if not HERE.exists():
        raise OSError("none runs: make machine")
    return machines.Machine(machines.definition(NAME), HERE.resolve())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
