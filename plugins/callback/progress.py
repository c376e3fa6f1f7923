# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person sees of a run over many hosts: how far it is while it runs, and the causes of failures at its end."""

from __future__ import annotations

DOCUMENTATION = """
name: progress
type: stdout
short_description: Show how far a run over many hosts is, and at its end why hosts failed
version_added: 0.1.0
author: fleet.cdi contributors (@ansible-collections)
description:
  - Shows how many hosts are done, changed, failed and pending, and an estimate of the time that is left.
  - In a terminal this is a table that stays in its place. Elsewhere, as in AWX, it is a line now and then.
  - A run ends with the causes of its failures, those of most hosts first, each with a value for C(--limit).
    Hosts that say the same but for their names and addresses have one cause.
  - With C(-v) each host that changed something is named. With C(--diff) its differences are shown.
options:
  interval:
    description: The least number of seconds between two lines, in a run without the table.
    type: float
    default: 10
    env:
      - name: FLEET_CDI_PROGRESS_INTERVAL
    ini:
      - section: callback_fleet_cdi_progress
        key: interval
  table:
    description:
      - Whether to show a table that stays in its place.
      - V(auto) shows one if the output is a terminal, and the run is not that of ansible-runner or AWX.
    type: str
    choices: [auto, always, never]
    default: auto
    env:
      - name: FLEET_CDI_PROGRESS_TABLE
    ini:
      - section: callback_fleet_cdi_progress
        key: table
  limits:
    description:
      - A directory for the hosts of each cause, as files for C(--limit @FILE). It is made if it does not exist.
        The files of an earlier run are overwritten or removed.
      - Without it, a cause shows at most 20 of its hosts.
    type: path
    env:
      - name: FLEET_CDI_PROGRESS_LIMITS
    ini:
      - section: callback_fleet_cdi_progress
        key: limits
requirements:
  - Set as stdout callback, C(stdout_callback = fleet.cdi.progress) in C(ansible.cfg).
"""

import glob
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any

from ansible import constants
from ansible.plugins.callback import CallbackBase

from ansible_collections.fleet.cdi.plugins.plugin_utils import failure_causes as causes
from ansible_collections.fleet.cdi.plugins.plugin_utils.run_progress import PlayProgress, clock, duration, progress_bar

SHOWN = 3  # hosts whose failure is shown at once, of each cause
HOSTS = 20  # hosts that a cause names at the end
REDRAW_S = 0.2  # seconds between two drawings of the table
DEFAULTS = {"interval": 10.0, "table": "auto", "limits": None}  # in ansible-runner, another plugin has the options
RUNNER = "AWX_ISOLATED_DATA_DIR"  # ansible-runner sets it; its output is a terminal that nobody looks at


class CallbackModule(CallbackBase):
    """Ansible calls the methods; their names are Ansible's."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "fleet.cdi.progress"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._started = self._said = time.monotonic()
        self._play: PlayProgress | None = None
        self._failures: list[tuple[str, str, str]] = []  # host, task, message
        self._once: set[str] = set()  # tasks that failed for all hosts: Ansible names the host that ran them
        self._shown: dict[tuple[str, str], int] = {}  # cause -> hosts that were shown
        self._drawn = False

    # -- plays and tasks -----------------------------------------------------------------------------

    def v2_playbook_on_play_start(self, play: Any) -> None:
        variables = play.get_variable_manager().get_vars(play=play)
        everyone, batch = variables["ansible_play_hosts_all"], variables.get("ansible_play_batch")
        name = causes.one_line(play.get_name())
        now = time.monotonic()
        if self._play is None or not self._play.continues(name, everyone, batch or everyone):
            self._end_play()
            self._play = PlayProgress(name, everyone, now)
            check = ", check mode: nothing is changed" if play.check_mode else ""
            self._say(f"{name}: {_hosts(len(everyone))}{check}")
        self._play.next_batch(batch or everyone)

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        if self._play:
            self._play.begin(causes.one_line(task.get_name()), time.monotonic(), bool(task.run_once))
            self._tell()

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        self.v2_playbook_on_task_start(task, False)

    def v2_playbook_on_no_hosts_matched(self) -> None:
        self._say("No host matches", constants.COLOR_SKIP)

    def v2_playbook_on_no_hosts_remaining(self) -> None:
        self._say("No host is left: all have failed", constants.COLOR_ERROR)

    # -- results of hosts ----------------------------------------------------------------------------

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        if self._play and self._play.task:
            self._play.task.begin(host.get_name(), time.monotonic())
            self._tell()

    def v2_runner_on_ok(self, result: Any) -> None:
        host, found = self._answered(result)
        if found.get("changed") and self._play:
            self._play.changed.add(host)
            if self._display.verbosity:
                self._say(f"changed: {host}: {self._task(result)}", constants.COLOR_CHANGED)
        self._warn(found)
        if found.get("_ansible_verbose_always") and result._task.run_once:  # a debug task that speaks for all hosts
            said = found.get("msg", "")
            self._say("\n".join(map(causes.one_line, map(str, said if isinstance(said, list) else [said]))))
        self._tell()

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._answered(result)
        self._tell()

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        host, found = self._answered(result)
        self._warn(found)
        if not ignore_errors:
            self._once.update([self._task(result)] if result._task.run_once else [])
            self._failed(host, self._task(result), found, "failed")
        self._tell()

    def v2_runner_on_unreachable(self, result: Any) -> None:
        host, found = self._answered(result)
        self._failed(host, self._task(result), found, "unreachable")
        self._tell()

    def v2_on_file_diff(self, result: Any) -> None:
        for one in [result._result, *(result._result.get("results") or ())]:
            if one.get("diff") and one.get("changed"):
                self._say(f"{result._host.get_name()}:\n{self._get_diff(_visible(one['diff']))}")

    # -- the end -------------------------------------------------------------------------------------

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._end_play()
        sums = {host: stats.summarize(host) for host in sorted(stats.processed)}
        lost = {host for host, one in sums.items() if one["failures"] or one["unreachable"]}
        # What a block rescued is not a cause: of a host that failed, the task counts that failed last.
        last = {host: task for host, task, _message in self._failures if host in lost}
        found = causes.group(one for one in self._failures if one[1] == last.get(one[0]))
        counts = {
            "as wanted": sum(host not in lost and not one["changed"] for host, one in sums.items()),
            "changed": sum(host not in lost and one["changed"] > 0 for host, one in sums.items()),
            "failed": sum(one["failures"] > 0 for one in sums.values()),
            "unreachable": sum(one["unreachable"] > 0 and not one["failures"] for one in sums.values()),
        }
        colour = constants.COLOR_ERROR if lost else constants.COLOR_CHANGED if counts["changed"] else constants.COLOR_OK
        text = ", ".join([_hosts(len(sums)), *(f"{count:,} {name}" for name, count in counts.items() if count)])
        self._say(f"\n{text}, in {clock(time.monotonic() - self._started)}", colour)
        of_hosts = [cause for cause in found if cause.task not in self._once]
        for cause in found:
            if cause.task in self._once:
                self._say(f"\nall hosts: {cause.text}", constants.COLOR_ERROR)
                self._say(f"  task: {cause.task}")
        for number, cause in enumerate(of_hosts, 1):
            self._say_cause(number, cause)
        self._remove_limits(len(of_hosts))

    def _say_cause(self, number: int, cause: causes.Cause) -> None:
        count = len(cause.hosts)
        limit, more = ",".join(cause.hosts[:HOSTS]), f"  (and {count - HOSTS:,} more)" if count > HOSTS else ""
        if directory := self._option("limits"):
            path = os.path.join(directory, f"cause-{number}.limit")
            try:
                os.makedirs(directory, exist_ok=True)
                _write_new(path, "".join(f"{host}\n" for host in cause.hosts))
                limit, more = f"@{path}", ""
            except OSError as error:
                self._display.warning(f"{path}: {error.strerror}; the hosts of a cause could not be written to it")
        self._say(f"\n{_hosts(count)}: {cause.text}", constants.COLOR_ERROR)
        self._say(f"  task: {cause.task}")
        self._say(f"  --limit {limit}{more}")

    def _remove_limits(self, count: int) -> None:
        """Remove the hosts of causes that an earlier run had and this one, with `count` causes, has not."""
        directory = self._option("limits")
        for path in glob.glob(os.path.join(glob.escape(directory), "cause-*.limit")) if directory else ():
            number = os.path.basename(path)[len("cause-") : -len(".limit")]
            if number.isdecimal() and int(number) > count:
                try:
                    os.remove(path)
                except OSError as error:
                    self._display.warning(f"{path}: {error.strerror}; it has the hosts of an earlier run")

    # -- output --------------------------------------------------------------------------------------

    def _answered(self, result: Any) -> tuple[str, Mapping[str, Any]]:
        """Note that a host has answered; its name and the result."""
        host = result._host.get_name()
        if self._play and self._play.task:
            self._play.task.end(host)
        return host, result._result

    def _task(self, result: Any) -> str:
        return causes.one_line(result._task.get_name())

    def _warn(self, found: Mapping[str, Any]) -> None:
        self._erase()
        self._handle_warnings(found)

    def _failed(self, host: str, task: str, found: Mapping[str, Any], how: str) -> None:
        if self._play:
            known = self._play.failed | self._play.unreachable
            self._play.gone += host not in known
            getattr(self._play, how).add(host)
        for message in causes.messages(found):
            self._failures.append((host, task, message))
            cause = causes.key(host, task, message)
            count = self._shown[cause] = self._shown.get(cause, 0) + 1
            if count <= SHOWN:
                more = "; more hosts with this cause are counted at the end" if count == SHOWN else ""
                where = task if task in self._once else f"{host}: {task}"
                self._say(f"{how}: {where}: {causes.shown_text(message)}{more}", constants.COLOR_ERROR)

    def _end_play(self) -> None:
        """Say what came of the play."""
        if self._play:
            self._say(f"{self._play.name}: done in {duration(time.monotonic() - self._play.started)}")
        self._play = None

    def _say(self, text: str, colour: str | None = None) -> None:
        """Print text that stays."""
        self._erase()
        self._display.display(text, color=colour)

    def _tell(self) -> None:
        """Say how far the run is, if it is time for it."""
        now = time.monotonic()
        play = self._play
        interval = float(self._option("interval"))
        if not (play and play.task) or now - self._said < (min(REDRAW_S, interval) if self._table else interval):
            return
        self._said = now
        spent = clock(now - self._started)
        slow = [f"{host} ({duration(for_s)})" for host, for_s in play.task.slow(now)]
        if not self._table:
            waits = f"; waits for {', '.join(slow)}" if slow else ""
            self._display.display(f"[{spent}] {play.task.name}: {play.line(now)}{waits}")
            return
        width = shutil.get_terminal_size().columns - 1
        answered = play.before + play.task.answered
        rows = [
            "",  # what others print comes here
            f"{spent}  {play.name}: {play.task.name}",
            f"[{progress_bar(answered, play.hosts, min(40, max(width - 2, 1)))}]  {play.line(now)}",
            f"waits for {', '.join(slow)}" if slow else "",
        ]
        self._draw([row[:width] for row in rows])

    def _draw(self, rows: list[str]) -> None:
        """Draw the table, and go back to its first row, so that other output takes its place (ECMA-48: ED, CUU)."""
        sys.stdout.write("\r\x1b[J" + "\n".join(rows) + f"\r\x1b[{len(rows) - 1}A")
        sys.stdout.flush()
        self._drawn = True

    def _erase(self) -> None:
        if self._drawn:
            sys.stdout.write("\r\x1b[J")
            sys.stdout.flush()
            self._drawn = False

    @property
    def _table(self) -> bool:
        wanted = self._option("table")
        if wanted == "auto":
            return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and RUNNER not in os.environ
        return wanted == "always"

    def _option(self, name: str) -> Any:
        try:
            return self.get_option(name)
        except KeyError:
            return DEFAULTS[name]


def _visible(diff: Any) -> Any:
    """Return a diff with escapes in its texts: a file on a host may have what drives a terminal."""
    if isinstance(diff, str):
        return re.sub(r"[^\n\t]+", lambda part: causes.one_line(part[0]), diff)
    if isinstance(diff, Mapping):
        return {name: _visible(one) for name, one in diff.items()}
    return [_visible(one) for one in diff] if isinstance(diff, (list, tuple)) else diff


def _write_new(path: str, text: str) -> None:
    """Put a new file in the place of whatever is at `path`, which another user may have made. Raises OSError."""
    new = f"{path}.{os.urandom(8).hex()}"
    with open(new, "x", encoding="utf-8") as file:
        file.write(text)
    os.replace(new, path)


def _hosts(count: int) -> str:
    return "1 host" if count == 1 else f"{count:,} hosts"
