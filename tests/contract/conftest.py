# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of this directory share: nodes with a kubelet of either personality, and plugins on them."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
pytest.importorskip("grpc", reason="missing packages: python3-grpcio (make test INSTALL=1)")

from kubelet import Kubelet
from personality import BY_NAME, Personality

QUICK = 0.05  # seconds until a kubelet of a test wipes its directory; real ones take longer, which a test shows


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


@pytest.fixture
def kubelet(short: Path, personality: Personality) -> Iterator[Kubelet]:
    """A running kubelet."""
    node = Kubelet(
        str(short / "p"),
        personality,
        registry_dir=str(short / "r"),
        pod_resources=str(short / "l" / "kubelet.sock"),
        dial=2.0,
        loop=0.1,
    )
    node.start()
    yield node
    node.stop()
