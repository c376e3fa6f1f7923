# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether somebody listens at a socket, on real sockets."""

from __future__ import annotations

import os
import socket

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin import dial


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A relative path, which is short however long that of the directory is."""
    monkeypatch.chdir(tmp_path)
    return "kubelet.sock"


def test_nobody_listens_where_nothing_is(place):
    assert not dial.listening(place)


def test_nobody_listens_at_what_an_ended_process_left(place):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
    assert os.path.exists(place) and not dial.listening(place)


def test_somebody_listens(place):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
        server.listen()
        assert dial.listening(place)


def test_nobody_listens_at_a_path_that_no_socket_can_have(tmp_path):
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    assert not dial.listening(str(directory / "kubelet.sock"))
