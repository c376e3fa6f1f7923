# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubelet is upgraded and taken back while a pod holds a device. One plugin serves them all, without a restart."""

from __future__ import annotations

import kubelets
import pytest
from product import ACCEL, ALL, seen
from versions import VERSIONS


@pytest.mark.parametrize("version", ["1.20", "1.30-without-cdi"])
def test_a_kubelet_is_upgraded_and_taken_back_while_a_pod_holds_a_device(product, cluster, version):
    old, new = VERSIONS[version], VERSIONS["1.36"]
    if not kubelets.program(new.kubelet).exists():
        pytest.skip(f"needs kubelet {new.kubelet}")
    plugin = product.serve(ALL)
    name = cluster.create({ACCEL: 1})
    (held,) = seen(cluster.output(name))[1]
    try:
        for kubelet in (new, old):
            cluster.stop_kubelet()
            since = cluster.now()
            cluster.start_kubelet(kubelet)
            cluster.await_allocatable(ACCEL, ALL, since)
            assert seen(cluster.output(name))[1] == {held}
            assert cluster.held(name, ACCEL) == {held}
            rest = cluster.create({ACCEL: 2})
            assert seen(cluster.output(rest))[1] == ALL - {held}
            cluster.delete(rest)
        assert plugin.process.poll() is None
    finally:
        if cluster.version != old:
            cluster.restart_kubelet(old)
