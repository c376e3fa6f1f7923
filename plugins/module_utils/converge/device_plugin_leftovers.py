# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a device plugin that is removed leaves: sockets, status files, holds in the ledger. Private API of fleet.cdi."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from contextlib import suppress

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

PREFIX = "fleet-cdi-"  # of our sockets' names
DIRECTORIES = ("device-plugins", "plugins_registry")  # of the kubelet's


def tidy(state_dir: str, kubelet_dir: str, run_dir: str) -> list[str]:
    """Clear up, once no instance runs; returns warnings for what has to stay. Raises CdiError."""
    for name in DIRECTORIES:
        _sweep(os.path.join(kubelet_dir, name))
    with suppress(FileNotFoundError):
        for entry in os.scandir(run_dir):
            os.unlink(entry.path)
        os.rmdir(run_dir)
    return _free(state_dir, os.path.join(kubelet_dir, "pod-resources", "kubelet.sock"))


def _sweep(directory: str) -> None:
    """Remove sockets of ours on which nobody listens: those of a process that was killed."""
    try:
        names = [name for name in os.listdir(directory) if name.startswith(PREFIX) and name.endswith(".sock")]
    except OSError:  # no kubelet
        return
    for name in names:
        path = os.path.join(directory, name)
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.lstat(path).st_mode) and not _listens(path):
                os.unlink(path)


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(1)
        try:
            one.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
        return True


def _free(state_dir: str, pod_resources: str) -> list[str]:
    """Free what the ledger holds for Kubernetes, unless pods may still use it."""
    if not os.path.lexists(os.path.join(state_dir, "ledger.db")):
        return []
    # Here, as few hosts have a store, and SQLite takes long to be imported.
    from ansible_collections.fleet.cdi.plugins.module_utils.allocation import handover
    from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import Ledger

    ledger = Ledger(state_dir, inventory.boot_id())
    held = sorted({hold.device for _key, part in handover.holds(ledger.grants()) for hold in part.holds})
    why = _used(pod_resources) if held else ""
    if held and not why:
        handover.clear(ledger)
    if not why:
        return []
    some = ", ".join(held[:4]) + (", ..." if held[4:] else "")
    text = f"{len(held)} devices stay held for Kubernetes ({some}): {why}. Drain the node; then free each with "
    return [text + "`fleet-cdi grants release DEVICE`."]


def _used(pod_resources: str) -> str:
    """Why pods may still have devices; "" if they have none."""
    # Here, as gRPC takes long to be imported, and hosts without the plugin need not have it.
    from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin import pods

    try:
        used = asyncio.run(pods.in_use(pod_resources))
    except pods.Unavailable as error:
        return "" if error.cause == "absent" else f"the kubelet can't be asked which pods use them ({error})"
    except (CdiError, ImportError) as error:
        return f"the kubelet can't be asked which pods use them ({error})"
    return f"the kubelet has {len(used.devices)} devices in use by pods" if used.devices else ""
