# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of this directory share: a node for each kubelet, made once, and emptied after each test."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
pytest.importorskip("grpc", reason="no grpcio in this environment: make setup")

import counterparts
import kubelets
from cluster import CGROUPS, Cluster
from node import hierarchies
from product import Product
from versions import VERSIONS

PACKAGES = ("runc", "busybox-static", "python3-grpcio")
FIGURES = pytest.StashKey()
SAYS = re.compile("[Dd]evice|[Pp]lugin|pod-")  # lines of a kubelet's log
NOISE = re.compile("GetAllocatableDevices|[Vv]olume|FLAG|Machine:|httplog|Factory|ignoring container")


def pytest_configure(config):
    config.stash[FIGURES] = []


def pytest_terminal_summary(terminalreporter, config):
    """What was measured on the way; no test depends on it."""
    if config.stash[FIGURES]:
        terminalreporter.section("figures")
        for line in config.stash[FIGURES]:
            terminalreporter.line(line)


@pytest.fixture
def figure(request):
    """Note a figure: figure("what it is", seconds, ...) shows each, or their median and 95th percentile if many."""

    def note(what, *values, unit="s"):
        values = sorted(values)
        shown = ", ".join(f"{value:.3f}" for value in values)
        if len(values) > 3:
            high = values[min(len(values) - 1, int(len(values) * 0.95))]
            shown = f"{values[len(values) // 2]:.3f} median, {high:.3f} p95, {values[-1]:.3f} worst of {len(values)}"
        where = getattr(getattr(request.node, "callspec", None), "id", "")
        request.config.stash[FIGURES].append(f"{what}{f' [{where}]' if where else ''}: {shown} {unit}")

    return note


class Nodes:
    """The node of the version that tests are at: made when the first of them comes, closed when another one's do."""

    def __init__(self, place):
        self.place, self.name, self.product = place, "", None

    def get(self, name):
        version = VERSIONS[name]
        needed = [kubelets.program(version.kubelet), kubelets.CONTAINERDS / version.suite]
        lacking = [str(path) for path in needed if not path.exists()] + counterparts.missing(PACKAGES)
        if os.geteuid() != 0 or lacking:
            pytest.skip(f"needs root and {' '.join(lacking) or 'nothing else'}: make e2e INSTALL=1")
        if name != self.name:
            self.close()
            cluster = Cluster(self.place / name, version.suite)
            try:
                cluster.start_kubelet(version)
                self.name, self.product = name, Product(cluster.node, cluster)
            except BaseException:
                cluster.close()
                raise
        return self.product

    def close(self):
        if self.product is not None:
            self.product.cluster.close()
        self.name, self.product = "", None


@pytest.fixture(scope="session")
def nodes():
    """Nodes, in a directory with a short path, as paths of sockets lie below it."""
    place = Path(tempfile.mkdtemp(prefix="e2e-"))
    found, before = Nodes(place), cgroups()
    yield found
    found.close()
    shutil.rmtree(place)
    assert cgroups() <= before, "nodes have left cgroups"


def cgroups():
    """Those of containers in which nothing runs any more; others' nodes may have some that live."""
    found = set()
    for path in [path for one in hierarchies() for path in one.glob(f"{CGROUPS}/*/cgroup.procs")]:
        with contextlib.suppress(OSError):  # gone meanwhile
            if not path.read_text():
                found.add(path.parent)
    return found


@pytest.fixture
def product(version, nodes):
    """The release on a node with the kubelet of `version`, and three devices of the vendor's that nobody serves yet."""
    found = nodes.get(version)
    found.configure()
    found.plug("accel0", "accel1", "accel2")
    found.describe("accel0", "accel1", "accel2")
    yield found
    try:
        found.cluster.clear()
        found.reset()
    except BaseException:
        nodes.close()  # the next test gets a new one
        raise


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """A test that failed says what the last plugin and the kubelet logged."""
    outcome = yield
    report = outcome.get_result()
    product = getattr(item, "funcargs", {}).get("product")
    if report.when == "call" and report.failed and product is not None:
        for program in product.programs:
            report.sections.append((program.log.name, program.tail(6000)))
        for log in sorted(product.node.path("/var/log/pods").glob("kube-system_*/*/*.log")):
            report.sections.append((log.parts[-3], log.read_text(errors="replace")[-6000:]))
        if product.cluster.kubelet:
            log = product.cluster.kubelet.tail(400000).splitlines()
            lines = [line for line in log if SAYS.search(line) and not NOISE.search(line)]
            report.sections.append(("kubelet", "\n".join(lines[-40:])))


@pytest.fixture
def cluster(product):
    """The node's kubelet and pods."""
    return product.cluster


@pytest.fixture
def bystander(cluster):
    """A pod that stays: a kubelet that lists no pod at all is believed ten times later."""
    cluster.output(cluster.create({}))


def pytest_generate_tests(metafunc):
    """Each test runs with every kubelet, unless it names those that it is about (parametrize "version")."""
    named = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "version" in metafunc.fixturenames and "version" not in named:
        metafunc.parametrize("version", VERSIONS)


def pytest_collection_modifyitems(items):
    """Tests of one kubelet come together: starting a node takes seconds."""
    order = [*VERSIONS]

    def rank(item):
        version = getattr(item, "callspec", None) and item.callspec.params.get("version")
        return order.index(version) if version in order else len(order)

    items.sort(key=rank)
