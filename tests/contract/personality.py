# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between kubelets, as a table.

OLD is kubelet 1.20.2, NEW is 1.32 to 1.36 (pkg/kubelet/cm/devicemanager of each). Fields that a test sets otherwise, by
`_replace`, are how versions between and after them behave.
"""

from __future__ import annotations

from typing import NamedTuple


class Personality(NamedTuple):
    """How one kubelet behaves where kubelets differ."""

    name: str
    dials_in_register: bool  # answers Register only after it has dialled back and asked for the options
    asks_options: bool  # calls GetDevicePluginOptions; otherwise the options come from Register
    bookkeeping: str  # of streams, see below
    repeats: str  # the second Register of a socket whose stream lives, see below
    wipes: str  # what goes from the directory at start: "files" (all but the checkpoint), "sockets", "nothing"
    wipe_after: float  # seconds from start until it wipes and listens
    marks_deprecated: bool  # leaves a file DEPRECATION in the directory
    lists_allocatable: bool  # podresources v1 has GetAllocatableResources (1.21)
    takes_cdi_field: bool  # reads `cdi_devices` (1.28)
    tracks_health: bool  # tells pods of the health of their devices; admits none again whose devices are unwell


# bookkeeping, what the end of a stream does to the resource:
IDENTITY = "identity"  # 1.20: nothing if another endpoint registered since
RESOURCE = "resource"  # up to 1.36: closes whichever endpoint the resource has now, so also its successor's
SOCKET = "socket"  # kubernetes#135437: closes its own; if it was the current one, the newest of the others takes over
# repeats:
ACCEPTED = "accepted"  # a second stream
IGNORED = "ignored"  # kubernetes#139765: answered with success, nothing happens
REFUSED = "refused"  # a check for duplicates in the same discussion: an error

OLD = Personality("old", False, False, IDENTITY, ACCEPTED, "files", 5.6, True, False, False, False)
NEW = Personality("new", True, True, RESOURCE, ACCEPTED, "files", 0.4, False, True, True, True)
BY_NAME = {personality.name: personality for personality in (OLD, NEW)}
