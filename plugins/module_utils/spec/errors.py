# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The error conditions of SPEC.md that come before a container starts, by name.

The fourth, a hook that fails, is the runtime's to show.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..records import CdiError


class InjectError(CdiError):
    """One of SPEC.md's error conditions; `subjects` are the qualified names or host paths that it is about."""

    condition = ""

    def __init__(self, message: str, subjects: Sequence[str]) -> None:
        super().__init__(message)
        self.subjects = tuple(subjects)


class UnknownKind(InjectError):
    """A requested kind is in no spec."""

    condition = "unknown-kind"


class UnknownDevice(InjectError):
    """A requested device can't be resolved, though there are specs of its kind."""

    condition = "unknown-device"


class MissingResource(InjectError):
    """A device node, mount source, hook or interface that the edits need is not on the host."""

    condition = "missing-resource"
