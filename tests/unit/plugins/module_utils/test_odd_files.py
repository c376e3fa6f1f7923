# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands where a file should be: no reader waits for it, ends with a traceback, or reads without a bound."""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import documents, files, manifest
from ansible_collections.fleet.cdi.plugins.module_utils.cli import operand
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration, in_force
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.configuration import PluginSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import configurations
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import host, tree

SECONDS = 30  # far more than any of them takes: a reader that waits is ended with an error


@pytest.fixture(autouse=True)
def never_forever():
    def end(_number, _frame):
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=["directory", "FIFO", "FIFO with a writer", "device without an end"])
def odd(request, tmp_path):
    """A path with something on it that is no file."""
    path = tmp_path / "odd.d" / "odd.conf"
    path.parent.mkdir()
    handle = -1
    if request.param == "directory":
        path.mkdir()
    elif request.param == "device without an end":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)
        handle = os.open(path, os.O_RDWR) if "writer" in request.param else -1
    yield str(path)
    if handle >= 0:
        os.close(handle)


# Reader -> what its error says.
REFUSE = {
    "configuration of the device plugin": (configuration.read, "is not a regular file"),
    "inventory": (lambda path: inventory.read(path, "boot"), "inventory .*is not a regular file"),
    "configuration of an executable": (configurations.read, "is not a regular file"),
}


@pytest.mark.parametrize("reader", REFUSE)
def test_it_is_refused_in_one_line(odd, reader):
    read, words = REFUSE[reader]
    with pytest.raises((CdiError, ProtocolError), match=words) as error:
        read(odd)
    assert "\n" not in str(error.value) and odd in str(error.value)


def test_the_daemon_goes_on_with_what_is_in_force(odd):
    before = in_force.InForce(odd, PluginSettings(), "0" * 64)
    found = in_force.load(odd, before)
    assert found.settings == before.settings and "is not a regular file" in (found.error or "")
    assert in_force.run_dir(odd) == PluginSettings().run_dir


def test_the_record_of_a_release_counts_as_lost(odd, monkeypatch):
    monkeypatch.setattr(tree, "RECORD", os.path.basename(odd))
    monkeypatch.setattr(tree, "at", lambda *_names: odd)
    assert tree.read_record("/opt/cdi")["directories"] == []


def test_a_distribution_is_unknown(odd, tmp_path):
    (tmp_path / "etc").mkdir()
    os.rename(odd, tmp_path / "etc/os-release")
    assert host.distribution(str(tmp_path)) == {"id": "", "version_id": "", "name": ""}


def test_a_manifest_whose_lock_it_is_was_changed_by_nobody(odd, tmp_path):
    os.rename(odd, tmp_path / ".lock")
    assert not manifest.changed_by_others(manifest.read_manifest(str(tmp_path)))


def test_an_instance_whose_lock_it_is_can_be_asked_for(odd, tmp_path):
    instance = instance_status.InstanceEntry(str(tmp_path / "run"), "a")
    instance.enter()
    instance.write({"instance": "a", "since_boot": 1.0, "resources": {}})
    instance.leave()
    os.rename(tmp_path / "run/a.lock", tmp_path / "a.lock")
    os.rename(odd, tmp_path / "run/a.lock")
    assert [seen.alive for seen in instance_status.instances_in(str(tmp_path / "run"))] == [False]


def test_an_operand_without_an_end_is_refused_and_a_pipe_is_read(tmp_path):
    """The user named it: a pipe is fine there, as it is for cat(1)."""
    for path, words in (("/dev/zero", "larger than 16 MiB"), (str(tmp_path), "Is a directory")):
        with pytest.raises(CdiError, match=words):
            operand.read(path)
    read, write = os.pipe()
    os.write(write, b"{}")
    os.close(write)
    try:
        assert operand.read(f"/dev/fd/{read}") == b"{}"
    finally:
        os.close(read)


def test_an_inventory_has_a_bound(tmp_path):
    with open(tmp_path / "large", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CdiError, match=r"inventory .*large: is larger than 64 MiB; expected a smaller file"):
        inventory.read(str(tmp_path / "large"), "boot")


@pytest.mark.parametrize("read", [lambda path: documents.content(path, 1 << 20), partial(files.read, trusted=False)])
def test_a_file_that_opens_and_can_not_be_read(read):
    """As on a bad sector: nothing is mapped at the start of a process's memory."""
    with pytest.raises(documents.CallFailed, match="/proc/self/mem: can't read it: Input/output error"):
        read("/proc/self/mem")
