# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How soon devices are back after each kind of restart of a kubelet, with a broken younger instance beside.

At the fake kubelet of tests/contract; what kinds there are, and how an instance is broken, is in its restarts.py.
Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. The baseline of a time is that
of the same restarts with no other instance beside, in turns with the broken ones. "Starved" is a restart after which
the kubelet was without the devices for 20 s; it has no baseline. ROUNDS=n in the environment: how often each kind of
restart is met beside each kind of broken instance (11, which makes more than 300 restarts).
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Optional

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "build/pythonpath"), str(CHECKOUT / "tests/contract")]

from host import Host, Plugin
from kubelet import Kubelet
from measure import line, percentile
from personality import NEW
from restarts import BROKEN, RESTARTS, Broken, back

ROUNDS = int(os.environ.get("ROUNDS", "11"))
DEVICES = 7
PATIENCE = 20.0  # seconds, after which a kubelet counts as starved
ALONE = "no instance beside"


@contextmanager
def node(broken: str) -> Iterator[tuple[Kubelet, Optional[Broken]]]:
    """A kubelet, an instance that is well, and a broken one unless `broken` is ALONE."""
    base = Path(tempfile.mkdtemp(prefix="b", dir="/tmp"))  # a socket's path has 107 bytes at most
    host = Host(base)
    host.devices(DEVICES)
    kubelet = Kubelet(
        str(host.plugins),
        NEW._replace(wipe_after=0.02),
        registry_dir=str(host.registry),
        pod_resources=str(host.pods),
        dial=1.0,
        loop=0.1,
    )
    plugins: list[Plugin] = []

    def start(*arguments: Any, **options: Any) -> Plugin:
        plugins.append(Plugin(host, *arguments, **options))
        return plugins[-1]

    kubelet.start()
    try:
        with ExitStack() as stack:
            start("a")
            assert back(kubelet, DEVICES, PATIENCE), plugins[0].text
            yield kubelet, None if broken == ALONE else stack.enter_context(BROKEN[broken](host, start))
    finally:
        for plugin in plugins:
            plugin.stop()
        kubelet.stop()
        shutil.rmtree(base, ignore_errors=True)


def main() -> None:
    """Print all lines."""
    took: dict[str, dict[str, list[float]]] = {}
    starved = 0
    with ExitStack() as stack:
        nodes = {broken: stack.enter_context(node(broken)) for broken in (ALONE, *BROKEN)}
        for turn in range(ROUNDS):
            for kind, restart in RESTARTS.items():
                for broken, (kubelet, other) in nodes.items():
                    if other is not None:
                        other.before()
                    since = restart(kubelet, random.Random(f"{turn} {kind}"))
                    starved += not back(kubelet, DEVICES, PATIENCE)
                    took.setdefault(broken, {}).setdefault(kind, []).append(time.monotonic() - since)
    alone = took.pop(ALONE)
    for broken, kinds in took.items():
        for kind, seconds in kinds.items():
            line(f"back, {broken}, {kind}, longest", "s", max(seconds), max(alone[kind]))
    # A kubelet that drops its streams is the same one, and what an instance that was stopped says of it may be true.
    every = [each for kinds in took.values() for kind, some in kinds.items() if kind != "dropped" for each in some]
    control = [each for kind, some in alone.items() if kind != "dropped" for each in some]
    line(f"back, {len(every)} restarts of every kind, p50", "s", percentile(every, 0.5), percentile(control, 0.5))
    line(f"back, {len(every)} restarts of every kind, p95", "s", percentile(every, 0.95), percentile(control, 0.95))
    line(f"back, {len(every)} restarts of every kind, longest", "s", max(every), max(control))
    line("starved", "restarts", starved)


if __name__ == "__main__":
    main()
