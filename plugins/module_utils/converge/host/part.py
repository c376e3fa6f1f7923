# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the parts of a run of module cdi_host are given, and what they return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

from ...layout import SPEC_DIRS
from ..host_runtimes import HostRuntimes

BY = "cdi_host"  # who asks for specs, configurations and keys, for the manifest


class HostRun(NamedTuple):
    """One run on a host."""

    settings: Mapping[str, Any]  # all of them (settings.read_settings)
    release: str  # that runs
    check: bool
    runtimes: HostRuntimes  # of the host, asked once
    archive: str = ""  # path of the archive of `release`; "" where that is installed
    source: str = ""  # path of the file of the settings; "" if a controller sent them
    before: tuple[str, ...] = ()  # the parts of this run before the present one
    tell: Callable[[str], None] = lambda _part: None  # is called with the name of each part before it

    def options(self, **more: Any) -> dict[str, Any]:
        """Return the options of a module, with those that all modules have."""
        common = {name: self.settings[name] for name in ("prefix", "state_dir")}
        return {**common, "release": self.release, "archive": self.archive or None, **more}

    @property
    def spec_dirs(self) -> list[str]:
        """Return the spec directories that count, lowest priority first. One that is not usual is read alone."""
        usual = list(SPEC_DIRS)
        return usual if self.settings["spec_dir"] in usual else [self.settings["spec_dir"]]


class HostProblem(NamedTuple):
    """One reason why a host is not as its settings say."""

    code: str
    message: str


class PartOutcome(NamedTuple):
    """The result of one part. With a problem, the parts after it do not run."""

    changed: bool = False
    diff: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    problems: tuple[HostProblem, ...] = ()
    result: Mapping[str, Any] = {}  # what it adds to the result of the run
