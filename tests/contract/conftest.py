# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of this directory share: nodes with a kubelet of either personality, and plugins on them."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
pytest.importorskip("grpc", reason="missing packages: python3-grpcio (make test INSTALL=1)")

from host import Host, Plugin
from kubelet import Kubelet
from personality import BY_NAME, NEW, Personality

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.configuration import PluginSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status as status_files

Start = Callable[..., Plugin]


QUICK = 0.02  # seconds until a kubelet of a test wipes its directory; real ones take longer, which a test shows


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory with a short path: a socket's may have 107 bytes, and pytest's own are long."""
    path = Path(tempfile.mkdtemp(prefix="c"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(params=sorted(BY_NAME))
def personality(request: pytest.FixtureRequest) -> Personality:
    """Both, one after the other."""
    return BY_NAME[request.param]._replace(wipe_after=QUICK)


def make_kubelet(short: Path, personality: Personality) -> Kubelet:
    """A kubelet that does not run yet, and looks for sockets more often than a real one does."""
    return Kubelet(
        str(short / "p"),
        personality,
        registry_dir=str(short / "r"),
        pod_resources=str(short / "l" / "kubelet.sock"),
        info=30.0,
        loop=0.1,
    )


@pytest.fixture
def kubelet(short: Path, personality: Personality) -> Iterator[Kubelet]:
    """A running kubelet."""
    node = make_kubelet(short, personality)
    node.start()
    yield node
    node.stop()


@pytest.fixture
def newer(short: Path) -> Iterator[Kubelet]:
    """A running kubelet of the new personality alone, for what is the same on both."""
    node = make_kubelet(short, NEW._replace(wipe_after=QUICK))
    node.start()
    yield node
    node.stop()


@pytest.fixture
def host(short: Path) -> Host:
    """A host without devices, and without the plugin."""
    return Host(short)


@pytest.fixture
def start(host: Host) -> Iterator[Start]:
    """Starts the plugin; at the end every instance that lives has to stop in order, without a traceback."""
    started: list[Plugin] = []

    def one(*arguments: Any, **options: Any) -> Plugin:
        started.append(Plugin(host, *arguments, **options))
        return started[-1]

    yield one
    for plugin in started:
        lived = plugin.runs
        status = plugin.stop()
        assert "Traceback" not in plugin.text, plugin.text
        assert not plugin.lines("defect"), plugin.text
        assert status == 0 or not lived, plugin.text
    ours = [
        seen.document["instance"] for seen in status_files.instances_in(PluginSettings().run_dir) if _is_of(host, seen)
    ]
    assert not ours, f"{PluginSettings().run_dir}: instances of this test, whose configuration named no run_dir: {ours}"


def _is_of(host: Host, seen: status_files.SeenInstance) -> bool:
    return str(seen.document["config"]["path"]) == str(host.config)
