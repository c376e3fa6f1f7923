# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of one file, and the plan that consists of such changes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Optional

from ..files import LiveFile, canonical, read
from ..manifest import Manifest
from ..records import CdiError

OR_FORCE = "or set force to replace it (undo then puts it back)."  # the other answer to a file that is not ours
MODE = 0o644  # a rootless runtime has to read it


class Change(NamedTuple):
    """The content of one file before and after; None: the file does not exist."""

    path: str
    kind: str  # the kind of a spec; "" for any other file
    before: Optional[bytes]
    after: Optional[bytes]
    by: str = ""  # who asked for the file, for the manifest
    ours: bool = False  # `before` is ours without a record, because that was lost: undo does not put it back
    back: bool = False  # `after` is the file from before us, which is put back


class Plan(NamedTuple):
    """All changes for one kind, and the warnings for the user."""

    path: str
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]
    kinds: Mapping[str, Optional[dict[str, Any]]] = {}  # for the manifest to remember; None: forget the kind


def plan_file(
    path: str,
    after: Optional[bytes],
    manifest: Manifest,
    by: str = "",
    force: bool = False,
    advice: str = "Move it away.",
    has_our_form: Callable[[bytes], bool] = lambda _content: False,
) -> tuple[Change, ...]:
    """Return the changes that give `path`, which is not a spec, the content `after`; None removes the file, and forgets
    one of ours that is gone already.

    A file that already has this content becomes ours. Its mode, its owner and its record are corrected; a record lists
    another content after a restore from a backup. A file without a record becomes ours too if it `has_our_form`: its
    record was lost. Raises CdiError, which ends with `advice`, for another file that the manifest does not list;
    `force` replaces such a file.
    """
    path = canonical(path)
    live = read(path)
    before = live.content if live else None
    recorded = manifest.record(path) is not None
    forgotten = live is None and not manifest.expects(path)
    if before == after and (forgotten or (live and manifest.lists(path, after) and not wrong_rights(live))):
        return ()
    ours = before is not None and not recorded and (before == after or has_our_form(before))
    if before not in (None, after) and not recorded and not ours and not force:
        raise not_ours(path, advice)
    return (Change(path, "", before, after, by, ours),)


def wrong_rights(live: LiveFile) -> str:
    """Return the mode and owner of a file of ours if one is wrong, else "". Another owner could change it unseen."""
    if (live.mode, live.uid) == (MODE, os.geteuid()):
        return ""
    return f"has mode {live.mode:04o} and the owner {live.uid}; expected {MODE:04o} and {os.geteuid()}"


def not_ours(path: str, advice: str) -> CdiError:
    """Return the error for a file that the manifest does not list."""
    return CdiError(f"{path}: is not ours: fleet.cdi has no record of writing it. It stays unchanged. {advice}")
