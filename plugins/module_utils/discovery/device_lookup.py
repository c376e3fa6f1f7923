# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which device an operator means: by its id, a name, a PCI address, a uuid, a serial, or the path of a device node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from ..directories import real_path
from ..records import CdiError, Device
from ..schema import did_you_mean

EXPECTED = (
    "an id, a name (vendor/class=name, or name alone), a PCI address, a uuid, a serial or the path of a device node, "
    "as `fleet-cdi devices` shows them"
)


def names_of(device: Device) -> tuple[frozenset[str], ...]:
    """What `device` is called, the surest names first: one that names a device hides later ones of other devices."""
    # A partition or a port sits on a function, too: that is not what its address names.
    address = device.pci_address if device.id == f"pci:{device.pci_address}" else ""
    short = address[len("0000:") :] if address.startswith("0000:") else ""
    return (
        frozenset({device.id, *device.qualified_names}),
        frozenset({device.uuid, device.serial, address, short} - {""}),
        frozenset(device.names),
        frozenset(node.path for node in device.nodes),
    )


def find(name: str, devices: Sequence[Device], others: Iterable[str] = (), why: str = "") -> Optional[Device]:
    """The one of `devices` that `name` means; None where it is one of `others`: ids of devices that may not be there.

    Of a device with several records the first is returned. A link to a device node (/dev/disk/by-id/...) means the
    node. Raises CdiError, with the nearest name as suggestion, where nothing is called so (`why` says why `devices` may
    be empty), and with all candidates where several are.
    """
    called: dict[str, tuple[frozenset[str], ...]] = {}  # a device has a record for each of its kinds, with other names
    by_id: dict[str, Device] = {}
    for device in devices:
        ranks = names_of(device)
        called[device.id] = tuple(map(frozenset.union, called.get(device.id, ranks), ranks))
        by_id.setdefault(device.id, device)
    wanted = {name, real_path(name)} if name.startswith("/") else {name}
    for rank in range(4):
        found = [id_ for id_, ranks in called.items() if not wanted.isdisjoint(ranks[rank])]
        if len(found) == 1:
            return by_id[found[0]]
        if found:
            some = ", ".join(sorted(by_id[id_].qualified_names[0] for id_ in found))
            raise CdiError(f"device: found {name!r}, which is one of {some}; expected a name of one device. Name one.")
        if rank == 0 and name in others:
            return None
    known = sorted({one for ranks in called.values() for rank in ranks for one in rank})
    raise CdiError(
        f"device: found {name!r}, which this host does not have; expected {EXPECTED}"
        + did_you_mean(name, known)
        + (f" ({why})" if why else "")
    )
