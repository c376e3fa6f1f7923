# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""C8 to C11, F3, F4: kubelets that end, start and wipe, and all that shows it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from admission import Rejected
from books import CHECKPOINT
from conftest import QUICK, Start, make_kubelet
from host import Host, until
from kubelet import Kubelet
from personality import NEW

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api

RESOURCE = "vendor.com/thing"


def sockets(host: Host) -> set[str]:
    """Our sockets in the kubelet's directory."""
    return {path.name for path in host.plugins.iterdir() if path.name.startswith("fleet-cdi-")}


def test_c08_nothing_of_ours_but_sockets_is_in_the_kubelets_directory(
    host: Host, kubelet: Kubelet, start: Start
) -> None:
    host.devices(2)
    start()
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.run("p", **{RESOURCE: 1})
    theirs = {api.KUBELET_SOCKET, CHECKPOINT, "DEPRECATION"}
    assert {path.name for path in host.plugins.iterdir()} - theirs == sockets(host)
    assert len(sockets(host)) == 1
    assert not list(host.registry.iterdir())


def test_c08_a_killed_kubelet_process(host: Host, start: Start) -> None:
    """SIGKILL of a real process: the stream ends at once, plugins' sockets stay, the next one wipes them."""
    program = [sys.executable, str(Path(__file__).with_name("kubelet.py")), "--dir", str(host.plugins)]
    kubelet = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    host.devices(1)
    plugin = start()
    plugin.said("registered", resource=RESOURCE)
    before = sockets(host)
    kubelet.send_signal(signal.SIGKILL)
    kubelet.communicate()
    plugin.said("lost", resource=RESOURCE)
    assert (host.plugins / api.KUBELET_SOCKET).is_socket()
    assert sockets(host) == before
    kubelet = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert until(lambda: len(plugin.lines("registered", resource=RESOURCE)) == 2)
    kubelet.communicate()


def test_c09_a_wiped_socket_is_made_anew(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(2)
    start()
    assert kubelet.wait_for(RESOURCE, 2)
    before = sockets(host)
    kubelet.restart()
    assert kubelet.wait_for(RESOURCE, 2)
    assert sockets(host).isdisjoint(before) and len(sockets(host)) == 1


def test_c10a_a_stream_that_the_kubelet_drops_is_made_again_in_place(
    host: Host, kubelet: Kubelet, start: Start
) -> None:
    host.devices(2)
    plugin = start()
    assert kubelet.wait_for(RESOURCE, 2)
    plugin.said("registered", resource=RESOURCE)
    kubelet.drop(RESOURCE)
    assert kubelet.books.wait(lambda: kubelet.books.seen("ended"))
    assert kubelet.wait_for(RESOURCE, 2)
    assert plugin.runs and len(plugin.lines("started")) == 1
    assert "stream" in plugin.said("lost", resource=RESOURCE)[0]["reason"]


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_c10b_its_own_socket_is_gone_or_another_one(host: Host, newer: Kubelet, start: Start, how: str) -> None:
    host.devices(2)
    start()
    assert newer.wait_for(RESOURCE, 2)
    path = host.plugins / sockets(host).pop()
    path.unlink()
    if how == "replaced":
        path.touch()
    assert newer.books.wait(lambda: len(newer.books.seen("list", RESOURCE)) > 1)
    assert len(newer.books.seen("Register", RESOURCE)) == 2 and newer.wait_for(RESOURCE, 2)
    assert path.exists() == (how == "replaced")  # what has its name now is not ours to remove


def test_c10c_another_kubelet_sock_while_the_stream_lives(
    host: Host, newer: Kubelet, short: Path, start: Start
) -> None:
    host.devices(2)
    start()
    assert newer.wait_for(RESOURCE, 2)
    os.unlink(host.plugins / api.KUBELET_SOCKET)
    second = make_kubelet(short, NEW._replace(wipe_after=0, wipes="nothing"))
    second.pod_resources = second.registry_dir = ""
    second.start()
    assert newer.books.connected[RESOURCE][0].watching
    assert second.wait_for(RESOURCE, 2)
    second.stop()


@pytest.mark.parametrize("limit", ["max_inotify_instances", "max_inotify_watches"])
def test_f03_no_inotify_left(host: Host, newer: Kubelet, start: Start, limit: str) -> None:
    """The kernel's own limits, of a user namespace: EMFILE for instances, ENOSPC for watches."""
    inside = f'echo 0 > /proc/sys/user/{limit} && exec "$0" "$@"'
    wrapper = ["unshare", "--user", "--map-root-user", "sh", "-c", inside]
    if subprocess.run([*wrapper, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody make user namespaces")
    host.devices(2)
    plugin = start(wrapper=wrapper)
    assert newer.wait_for(RESOURCE, 2)
    newer.restart()
    assert newer.wait_for(RESOURCE, 2)
    host.devices(3)
    assert newer.wait_for(RESOURCE, 3)
    host.unplug("thing0")
    assert newer.wait_for(RESOURCE, 2)
    assert len(plugin.lines("polling")) == 1  # said once
    assert "inotify" in plugin.lines("polling")[0]["reason"]


def test_f04_several_restarts_in_a_row(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(2)
    start()
    for _restart in range(5):
        kubelet.restart()
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.run("p", **{RESOURCE: 2})


def test_f04_the_directory_is_taken_away_and_made_again(host: Host, newer: Kubelet, start: Start) -> None:
    host.devices(2)
    plugin = start()
    assert newer.wait_for(RESOURCE, 2)
    newer.kill()
    newer.remove_directory()
    # It may see that the socket is gone before the directory is.
    until(lambda: [one for one in plugin.lines("waiting", resource=RESOURCE) if "no such directory" in one["reason"]])
    newer.start()
    assert newer.wait_for(RESOURCE, 2)
    newer.restart()  # it follows the new directory, too
    assert newer.wait_for(RESOURCE, 2)


def test_c11_until_it_registers_again_pods_are_refused_and_those_that_run_keep_their_devices(
    host: Host, kubelet: Kubelet, start: Start
) -> None:
    host.devices(2)
    plugin = start()
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.run("p", **{RESOURCE: 1})
    held = kubelet.holds("p")
    plugin.process.send_signal(signal.SIGSTOP)
    kubelet.restart()
    assert kubelet.counts(RESOURCE) == (0, 0)
    with pytest.raises(Rejected):
        kubelet.run("q", **{RESOURCE: 1})
    assert kubelet.holds("p") == held
    plugin.process.send_signal(signal.SIGCONT)
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.run("q", **{RESOURCE: 1})
    assert kubelet.holds("q")[RESOURCE].isdisjoint(held[RESOURCE])


def test_a_kubelet_as_slow_to_wipe_as_the_real_old_one(host: Host, short: Path, start: Start) -> None:
    """It wipes 5.6 s after its start; the plugin's sockets live until then, and it comes back after."""
    kubelet = make_kubelet(short, NEW._replace(wipe_after=QUICK))
    kubelet.start()
    host.devices(1)
    start()
    assert kubelet.wait_for(RESOURCE, 1)
    kubelet.stop()
    kubelet.personality = NEW._replace(wipe_after=2.0)
    began = time.monotonic()
    kubelet.start()
    assert kubelet.started - began >= 2.0
    assert kubelet.wait_for(RESOURCE, 1)
    kubelet.stop()
