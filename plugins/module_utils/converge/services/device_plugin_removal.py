# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clean up after a removed device plugin: sockets, status files, holds in the ledger."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable
from contextlib import suppress

from ...allocation.ledger.lock_file import has_traces
from ...device_plugin.config import configuration
from ...device_plugin.kubelet import unix_sockets
from ...discovery import inventory
from ...layout import kubelet_layout, ledger_path
from ...manifest import Manifest
from ...records import CdiError
from . import device_plugin_config


def tidy(manifest: Manifest, state_dir: str, kubelet_dir: str, run_dir: str, check: bool = False) -> list[str]:
    """Clean up, after the instances stopped and before the configuration goes: it names the kubelet's directory.

    Returns warnings for what has to stay; with `check` it changes nothing.
    """
    configured = list(_configured(manifest))
    directories = sorted({kubelet_dir.rstrip("/"), *(os.path.dirname(one.plugin_dir) for one in configured)})
    kubelets = [*map(kubelet_layout, directories)]
    if not check:
        for one in kubelets:
            for directory in (one.plugin_dir, one.registry_dir):
                unix_sockets.remove_stale(directory)
        with suppress(OSError):  # the directory does not exist, or has other files
            for entry in os.scandir(run_dir):
                os.unlink(entry.path)
            os.rmdir(run_dir)
    try:
        return _free(state_dir, [one.pod_resources for one in kubelets], configured, check)
    except CdiError as error:
        return [f"the devices held for Kubernetes stay held: {error}"]


def _configured(manifest: Manifest) -> Iterable[configuration.PluginSettings]:
    """Yield the configurations that we wrote."""
    for path, record in manifest.files.items():
        if record["by"] == device_plugin_config.BY:
            with suppress(CdiError):
                yield configuration.read(path)


def _free(
    state_dir: str, sockets: Iterable[str], configured: Iterable[configuration.PluginSettings], check: bool
) -> list[str]:
    """Free the holds for Kubernetes after their teardown, unless pods may still use them. Raises CdiError."""
    if not has_traces(ledger_path(state_dir)):
        return []
    # Imported here, because few hosts have a store, and the import of SQLite takes long.
    from ...allocation.holds import pod_holds
    from ...allocation.ledger.ledger import Ledger

    ledger = Ledger(state_dir, inventory.boot_id())
    grants = ledger.grants()
    holds = list(pod_holds.holds(grants))
    stuck = [text for _key, part in holds for text in pod_holds.stuck(part)]
    holds = [(key, part) for key, part in holds if not any(pod_holds.stuck(part))]
    held = sorted({hold.device for _key, part in holds for hold in part.holds})
    resources = {key.plugin for key, _part in holds}
    why = next((text for one in sockets if resources and (text := _used(one, resources))), "")
    if why:
        some = ", ".join(held[:4]) + (", ..." if held[4:] else "")
        text = f"{len(held)} devices stay held for Kubernetes ({some}): {why}. Drain the node, then free them with "
        return [text + "`fleet-cdi plugin forget`.", *stuck]
    if check or not (held or any(pod_holds.is_dra(grant.key) for grant in grants)):
        return stuck
    from ...device_plugin.daemon import operate

    for settings in configured:
        if os.path.abspath(settings.state_dir) == os.path.abspath(state_dir):
            operate.give_back(settings, ledger)
    pod_holds.clear(ledger)  # the holds of resources without a configuration
    return [text for _key, part in pod_holds.holds(ledger.grants()) for text in pod_holds.stuck(part)]


def _used(pod_resources: str, resources: Collection[str]) -> str:
    """Tell why pods may still have devices of these resources; "" if they have none.

    Pods outlive a stopped kubelet. Only a host on which no kubelet ever made its socket has no pods.
    """
    if not os.path.lexists(pod_resources):
        return ""
    # Imported here: the import of gRPC takes long, and hosts without the plugin may lack it.
    from ...device_plugin.kubelet import podresources

    try:
        used = asyncio.run(podresources.in_use(pod_resources))
    except (CdiError, ImportError) as error:
        return f"the kubelet can't be asked which pods use them ({error})"
    number = sum(name in resources for name, _device_id in used.devices)
    return f"the kubelet has {number} devices in use by pods" if number else ""
