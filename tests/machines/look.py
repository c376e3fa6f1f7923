# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine shows: its inventory, specs, claims, findings of doctor, and containers with a device."""

from __future__ import annotations

import json
import time

INVENTORY = "/run/cdi-inventory.json"
TRY_S = 900  # seconds to wait for an effect: on a host at load 20, emulation is twelve times slower
GPU = "/dev/dri/renderD128"
# No refresh runs, and none was asked for.
WANTED = ("/run/cdi-refresh.wanted", "/run/udev/cdi-refresh.wanted")
IDLE = " && ".join(
    [
        "systemctl is-active fleet-cdi-refresh | grep -qx -e inactive -e failed",
        *(f"test ! -e {path}" for path in WANTED),
    ]
)


def wait_for(holds, what):
    """Wait until holds() is true; return the seconds."""
    started = time.monotonic()
    while not holds():
        assert time.monotonic() - started < TRY_S, what
        time.sleep(0.2)
    return time.monotonic() - started


def devices_of(machine):
    """The devices of the inventory by their first qualified name."""
    listed = json.loads(machine.root(f"cat {INVENTORY}"))["devices"]
    return {f"{one['kind']}={one['names'][0]}": one for one in listed}


def spec_of(machine, kind):
    """Name -> paths on the host of its nodes, by the spec of a kind; empty without a spec."""
    done = machine.attempt(f"cat /etc/cdi/{kind.replace('/', '-')}.json")
    if done.returncode:
        return {}
    return {
        one["name"]: [node.get("hostPath", node["path"]) for node in one["containerEdits"]["deviceNodes"]]
        for one in json.loads(done.stdout)["devices"]
    }


def health_of(machine, name):
    """The state of a device in the inventory; "" if it is not there."""
    found = devices_of(machine).get(name)
    return found["health"]["state"] if found else ""


def container(machine, device, script, runtime="crun", options=""):
    """Run a script of busybox's shell as root in a container with the device."""
    options = f"{machine.known['containers']} {options}"
    podman = f"podman --runtime {runtime} run --rm --network=none {options} --device {device}"
    return machine.attempt(f"sudo {podman} --rootfs /opt/container /bin/sh -c '{script}'")


def findings_of(machine):
    """The names of doctor's findings."""
    said = machine.attempt("sudo fleet-cdi doctor").stdout
    return {line.partition(":")[0] for line in said.splitlines() if line[:1].islower() and ": " in line}


def requests_of(machine):
    """The request-ids of the grants in the ledger."""
    listed = json.loads(machine.root("fleet-cdi grants list --json"))["grants"]
    return {one["key"]["request_id"] for one in listed}


def claims_of(machine):
    """Id -> state of the claims."""
    listed = json.loads(machine.root("fleet-cdi claim list --json"))["claims"]
    return {one["id"]: one["state"] for one in listed}


def error_of(done):
    """The one error that a command of fleet-cdi ended with; any other end fails the test."""
    said = done.stdout + done.stderr
    errors = [line for line in done.stderr.splitlines() if not line.startswith("fleet-cdi: warning: ")]
    assert done.returncode not in (0, 255) and len(errors) == 1 and "Traceback" not in said, said
    return errors[0]


def wait_idle(machine):
    """Wait until no refresh runs and none is wanted."""
    wait_for(lambda: machine.attempt(IDLE).returncode == 0, "no refresh, or no end of it")
