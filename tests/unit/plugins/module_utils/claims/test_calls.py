# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The caller's side of the 2017 protocol: over the real executables, and over plugins that misbehave."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims import calls as plugin_calls
from ansible_collections.fleet.cdi.plugins.module_utils.claims import cdi_plugin_info
from ansible_collections.fleet.cdi.plugins.module_utils.claims.calls import Caller
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import errors
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.configurations import find
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import Host, config
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import gpus, ttys


class TestFind:
    @pytest.fixture
    def put(self, tmp_path):
        def write(name, content):
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content))
            return str(path)

        return write

    def test_by_type_and_file_name(self, tmp_path, put):
        names = ["tty.d/generic.conf", "gpu.d/b.conf", "gpu.d/a.conf", "gpu.d/notes.txt", "gpu/c.conf"]
        paths = [put(name, config(type_=name.partition(".")[0])) for name in names]
        assert [one.path for one in find(str(tmp_path)).configurations] == [paths[2], paths[1], paths[0]]
        assert [one.path for one in find(str(tmp_path), "tty").configurations] == paths[:1]
        assert find(str(tmp_path / "none")) == ((), {})

    def test_a_broken_one_is_told_and_hides_no_other(self, tmp_path, put):
        good = put("gpu.d/good.conf", config())
        wrong = {
            put("gpu.d/1.conf", "{"): "is not a JSON document",
            put("gpu.d/2.conf", config(type_="tty")): "'type' is 'tty', but it is in gpu.d; expected tty.d",
            put("gpu.d/3.conf", config(plugin="../sh")): "'plugin' is",
            put("gpu.d/4.conf", config(version="1.0.0")): "cdiVersion is",
            put("gpu.d/5.conf", " " * (1 << 21)): "is larger than 1 MiB",
            put("cdiVersion.d/6.conf", config(type_="cdiVersion")): "names a field of replies",
        }
        os.mkfifo(tmp_path / "gpu.d/7.conf")
        (tmp_path / "gpu.d/8.conf").mkdir()
        found = find(str(tmp_path))
        assert [one.path for one in found.configurations] == [good]
        assert len(found.errors) == len(wrong) + 2
        for path, words in wrong.items():
            assert words in str(found.errors[path])


@pytest.fixture
def host(tmp_path):
    """Makes a host of a tree, with the real executables installed."""
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")

    def make(tree, *configs):
        made = Host(tmp_path, tree)
        made.configure(*configs)
        made.install()
        return made, Caller(str(tmp_path / "opt/bin")), find(str(tmp_path / "etc"), configs[0]["type"]).configurations

    return make


class TestRealExecutables:
    def test_version_and_info(self, host):
        _made, caller, (one,) = host(gpus((16384, 16384)), config())
        assert plugin_calls.versions(caller, one) == ("0.0.1", "0.0.2")
        assert plugin_calls.info(caller, one) == {"gpu": 2, "gpu-memory": 32768}

    @pytest.mark.parametrize("type_", ["code", "error", "msg"])
    def test_a_type_with_the_name_of_a_field_of_errors(self, host, type_):
        """The exit status, and not a field, says if a call failed (proposal, "Commands")."""
        _made, caller, found = host(gpus((16384, 16384)), config(type_=type_))
        assert plugin_calls.info(caller, found[0]) == {type_: 2, f"{type_}-memory": 32768}
        assert plugin_calls.add(caller, found, {type_: "1"}, "a").devices == ("/dev/dri/card0", "/dev/dri/renderD128")
        with pytest.raises(ProtocolError) as caught:
            plugin_calls.add(caller, found, {type_: "2"}, "b")
        assert caught.value.code == errors.UNFULFILLED
        assert plugin_calls.delete(caller, found, "a") == ()

    def test_the_first_that_grants_all_wins_and_no_request_is_split(self, host):
        small, large = config(vendorid_whitelist="0x2345"), config("rule", profile="drm", vendorid_whitelist="0x1234")
        _made, caller, found = host(gpus(count=5), small, large)
        granted = plugin_calls.add(caller, found, {"gpu": "1"}, "a")
        assert (granted.path, granted.devices) == (found[0].path, ("/dev/dri/card1", "/dev/dri/renderD129"))
        assert granted.numa_locality == (1,)
        granted = plugin_calls.add(caller, found, {"gpu": "3"}, "b", near=[1])
        assert granted.path == found[1].path
        with pytest.raises(ProtocolError) as caught:
            plugin_calls.add(caller, found, {"gpu": "2"}, "c")
        assert caught.value.code == errors.UNFULFILLED
        assert all(one.path in caught.value.details for one in found)
        assert plugin_calls.delete(caller, found, "b") == ()
        assert plugin_calls.add(caller, found, {"gpu": "2"}, "c").path == found[1].path

    def test_what_a_single_plugin_says_is_what_the_caller_hears(self, host):
        _made, caller, found = host(ttys(14), config("generic-tty", "tty"))
        for request, code in (({"tty": "3"}, errors.UNFULFILLED), ({"tty-size": "3"}, errors.RESOURCE_SPEC)):
            with pytest.raises(ProtocolError) as caught:
                plugin_calls.add(caller, found, request, "a")
            assert caught.value.code == code
        with pytest.raises(ProtocolError) as caught:
            plugin_calls.add(caller, (), {"tty": "1"}, "a")
        assert caught.value.details == "there is no configuration for it"

    def test_del_goes_to_all(self, host):
        one, other = config(vendorid_whitelist="0x2345"), config("rule", profile="drm", vendorid_whitelist="0x1234")
        made, caller, found = host(gpus(count=2), one, other)
        for conf in (one, other):
            made.add(conf, "gpu:1", "a")
        assert plugin_calls.delete(caller, found, "a") == ()
        for conf in (one, other):
            made.add(conf, "gpu:1", "b")
        assert plugin_calls.delete(caller, found, "unknown") == ()

    def test_what_module_cdi_plugin_info_returns(self, host, tmp_path):
        made, _caller, (one,) = host(ttys(20), config("generic-tty", "tty"))
        with locked_manifest(str(tmp_path / "state")) as manifest:
            manifest.write(one.path, one.content + b"\n", by="cdi_host")
        (tmp_path / "etc/tty.d/z.conf").write_text("{")
        (tmp_path / "etc/gpu.d").mkdir()
        (tmp_path / "etc/gpu.d/none.conf").write_text(json.dumps(config("nothing")))
        options = {
            "prefix": made.host.prefix,
            "config_dir": str(tmp_path / "etc"),
            "state_dir": str(tmp_path / "state"),
            "resource_type": None,
            "timeout": 10.0,
        }
        result, warnings = cdi_plugin_info.answer(options, False)
        assert warnings == []
        assert [one["path"][-16:] for one in result["broken"]] == ["etc/tty.d/z.conf"]
        missing, tty = result["plugins"]
        assert (tty["name"], tty["managed_by"], tty["info"], tty["error"]) == (
            "generic-tty0",
            "cdi_host",
            {"tty": 8},
            None,
        )
        assert (missing["managed"], missing["managed_by"], missing["versions"]) == (False, None, [])
        assert missing["error"]["code"] == errors.DELEGATION
