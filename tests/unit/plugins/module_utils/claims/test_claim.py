# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of module claim: check mode refuses what the run would refuse."""

from __future__ import annotations

import os
import subprocess
from contextlib import nullcontext

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims import claim as module
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import GRANTED
from ansible_collections.fleet.cdi.plugins.module_utils.claims.store import write_claim
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

from .lifetime.user_nodes import USER, Nodes


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"gpu": 2}, ""),
        ({"gpu": 3}, "claim job: gpu: found 3; expected 2 at most, because no configuration of gpu has more"),
        ({"gpu": 1, "gpu-memory": 99999}, "gpu-memory: found 99999; expected 12288 at most"),
        ({"gpu": 1, "gpu-cores": 1}, ""),  # it tells nothing of these
        ({"zero": 9}, ""),  # as an executable of others may do
    ],
)
def test_check_mode_refuses_what_the_host_does_not_have(claims, monkeypatch, request_, words):
    """What others hold may be given back until then."""
    claims.add("other", "gpu:1")
    monkeypatch.setattr(module, "places_of", lambda _options: claims.places)
    before = claims.files()
    given = {"prefix": claims.places.prefix, "state_dir": claims.places.state_dir, "release": "", "timeout": 60}
    given.update(id="job", state="present", request=request_, near=[], reuse=False, for_user="", keep=False)
    with pytest.raises(CdiError, match=words) if words else nullcontext():
        assert module.answer({**given, "release_on_stop": False}, True)[0]["changed"]
    assert claims.files() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes: needs root")
@pytest.mark.usefixtures("only_own_processes")
@pytest.mark.parametrize("mode", [0o660, 0o666])
@pytest.mark.parametrize("check", [True, False])
def test_a_device_that_its_user_has_open_is_not_given_back(tmp_path, monkeypatch, mode, check):
    nodes = Nodes(tmp_path)
    claim = nodes.claim("job", nodes.make("full", 7, mode))
    write_claim(nodes.places.state_dir, claim._replace(state=GRANTED))
    monkeypatch.setattr(module, "places_of", lambda _options: nodes.places)
    places = {"prefix": str(tmp_path), "state_dir": nodes.places.state_dir}
    given = {**places, "release": "", "timeout": 5, "id": "job", "state": "absent"}
    with open("/dev/full", "rb") as file:
        words = ["setpriv", "--reuid", USER, "--clear-groups", "cat"]
        process = subprocess.Popen(words, stdin=-1, stdout=-1, bufsize=0, pass_fds=[file.fileno()])
    with process:
        process.stdin.write(b"x")
        assert process.stdout.read(1) == b"x"
        with pytest.raises(CdiError, match=f"/dev/full is open in pid {process.pid} "):
            module.answer({**given, "force": False}, check)
        if check:
            assert module.answer({**given, "force": True}, check)[0]["changed"]
        process.stdin.close()
