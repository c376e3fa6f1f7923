# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A support archive of a host that others filled: specs, links, names, sizes."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import tarfile
import time

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.bundle import bounded_files, members
from ansible_collections.fleet.cdi.plugins.module_utils.bundle.archive import TOP, archive
from ansible_collections.fleet.cdi.plugins.module_utils.bundle.members import BundleMember, Taken
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.system import processes
from ansible_collections.fleet.cdi.tests.unit.builders import spec
from ansible_collections.fleet.cdi.tests.unit.limits import LeapingClock

HOSTILE = "e\x1b[2Jvil\n../../x.json"


@pytest.fixture
def host(tmp_path, capsys, monkeypatch):
    """host(*arguments) -> (exit code, stdout, stderr) of the command, with one verb and no command."""
    monkeypatch.setattr(members, "VERBS", {"specs.json": ("specs",)})
    monkeypatch.setattr(members, "COMMANDS", {})

    class Host:
        etc, state = tmp_path / "etc", tmp_path / "state"

        def __call__(self, *arguments):
            defaults = {"state_dir": str(self.state), "inventory": str(tmp_path / "inventory.json")}
            status = main(
                ["bundle", *arguments], "test", {**defaults, "spec_dirs": [str(self.etc)], "prefix": str(tmp_path)}
            )
            return (status, *capsys.readouterr())

        def taken(self):
            """BundleMember -> its document or text; every name is one of ours."""
            path = tmp_path / "x.tar.gz"
            path.unlink(missing_ok=True)
            assert self("--output", str(path))[0] == 0
            with tarfile.open(path) as tar:
                return {
                    one.name: json.loads(text) if one.name.endswith(".json") else text.decode()
                    for one in tar.getmembers()
                    for text in [tar.extractfile(one).read()]
                }

        def entries(self):
            (found,) = (one for one in self.taken()[f"{TOP}/spec-dirs.json"] if one["path"] == str(self.etc))
            return {one["name"]: one for one in found["entries"]}

    Host.etc.mkdir()
    Host.state.mkdir()
    return Host()


def test_secrets_of_specs_and_of_files_before_ours_stay_on_the_host(host):
    document = spec({"gpu0": {"env": ["API_TOKEN=hunter2", "A=b"]}}, "vendor.com/gpu")
    document["devices"][0]["containerEdits"]["hooks"] = [
        {"hookName": "createContainer", "path": "/x", "args": ["x", "--password", "hunter2"]}
    ]
    (host.etc / "a.json").write_text(json.dumps(document))
    prior = {"content": "aHVudGVyMg==", "mode": 384, "uid": 0, "gid": 0}
    record = {"applied": ["sha256:0"], "kind": "", "by": "", "prior": prior}
    (host.state / "manifest.json").write_text(json.dumps({"version": 1, "files": {"/etc/x": record}}))
    lines = ("cdiVersion: 0.6.0", "kind: vendor.com/nic", "devices:", "- name: nic0", "  containerEdits:")
    (host.etc / "b.yaml").write_text("\n".join((*lines, "    env: [PASSWORD=hunter2, C=d]", "")))
    found = host.taken()
    text = json.dumps(found)
    assert "hunter2" not in text and "aHVudGVyMg" not in text and "A=b" in text and "C=d" in text
    assert found[f"{TOP}/manifest.json"]["files"]["/etc/x"]["prior"]["mode"] == 384


def test_names_of_others_are_values_and_never_paths_or_controls(host):
    (host.etc / HOSTILE.replace("/", "_")).write_text("{}")
    assert HOSTILE.replace("/", "_") in host.entries()
    assert all(name.startswith(f"{TOP}/") and ".." not in name for name in host.taken())
    for arguments in ((), ("--list",), ("--list", "--json")):
        out = host(*arguments, *([] if arguments else ["--output", str(host.etc.parent / "y")]))[1]
        assert "\x1b" not in out


def test_nothing_is_followed_or_waited_for(host, tmp_path):
    (tmp_path / "shadow.json").write_text('{"a": "stolen"}')
    (host.etc / "link.json").symlink_to(tmp_path / "shadow.json")
    (host.etc / "dir").symlink_to(tmp_path)
    os.mkfifo(host.etc / "fifo.json")
    (host.etc / "large.json").write_bytes(b"[" + b"1," * bounded_files.LARGEST + b"1]")
    (host.etc / "deep.json").write_bytes(b"[" * 100_000)
    (host.etc / "digits.json").write_bytes(b"1" * 500_000)
    (host.etc / "text.json").write_text("token: stolen")
    (host.etc / "notes.txt").write_text("stolen")
    found = host.entries()
    assert "stolen" not in json.dumps(found)
    assert {name for name, one in found.items() if "content" in one} == set()
    assert {name for name, one in found.items() if "left_out" in one} == {
        *("large.json", "deep.json", "digits.json", "text.json")
    }
    assert found["link.json"]["mode"][0] == "l" and found["fifo.json"]["mode"][0] == "p"


def test_a_look_ends_one_directory_below_and_at_the_most_names(host, monkeypatch):
    for path in ("gpu.d/mine.conf", "gpu.d/more/other.conf", "gpu.d/x.txt"):
        (host.etc / path).parent.mkdir(exist_ok=True)
        (host.etc / path).write_text('{"a": 1}')
    below = {one["name"]: one for one in host.entries()["gpu.d"]["entries"]}
    assert {name for name, one in below.items() if "content" in one} == {"mine.conf"}
    assert set(below) == {"mine.conf", "more", "x.txt"} and "entries" not in below["more"]
    monkeypatch.setattr(bounded_files, "MOST_NAMES", 2)
    (found,) = bounded_files.listing(str(host.etc), lambda _name: True)["entries"]
    assert len(found["entries"]) == 2 and found["left_out"] == "more than 2 names"


def test_the_state_directory_has_names_and_no_content(host):
    (host.state / "other.json").write_text('{"a": "stolen"}')
    found = host.taken()
    assert [one["name"] for one in found[f"{TOP}/state-dir.json"]["entries"]] == ["other.json"]
    assert "stolen" not in json.dumps(found)


def collected(monkeypatch, names, verb=len):
    """Return name -> the member of this name."""
    every = tuple(one for one in members.members() if one.name in names)
    monkeypatch.setattr(members, "members", lambda: every)
    return {one.name: one for one in members.collect(Layout(), verb)}


def test_what_others_say_is_without_secrets_and_controls(monkeypatch):
    """The log of the host, the documents of verbs, and the settings of container runtimes."""
    says = "printf 'a token=hunter2 b\\n\\033[2J\\n'"
    runs = {"says": says, "fails": "echo no pwd=hunter2 >&2; exit 1", "quiet": "true"}
    monkeypatch.setattr(members, "COMMANDS", {name: ("sh", "-c", text) for name, text in runs.items()})
    monkeypatch.setattr(members, "VERBS", {"verb": ("grants", "list")})
    runtimes = {"runtimes": [{"name": "podman", "config": "token=hunter2"}]}
    monkeypatch.setattr(members.container_runtime_info, "answer", lambda *_any: (runtimes, ["pwd=hunter2"]))

    def verb(words):
        return sys.stdout.write(json.dumps({"words": words, "key": {"plugin": "gpu"}, "env": "API_TOKEN=hunter2"}))

    found = collected(monkeypatch, {*runs, "verb", "runtimes.json"}, verb)
    assert found["says"].content == b"a token=[redacted] b\n\\x1b[2J\n"
    assert found["fails"].left_out == "no pwd=[redacted]"
    assert found["quiet"].content == b"(nothing)\n"
    document = json.loads(found["verb"].content)
    assert document == {"words": ["grants", "list", "--json"], "key": {"plugin": "gpu"}, "env": "API_TOKEN=[redacted]"}
    document = json.loads(found["runtimes.json"].content)
    expected = {"runtimes": [{"name": "podman", "config": "token=[redacted]"}], "warnings": ["pwd=[redacted]"]}
    assert document == expected


def test_all_members_together_have_a_bound(monkeypatch):
    monkeypatch.setattr(members, "TOTAL", 10)
    monkeypatch.setattr(members, "COMMANDS", {name: ("echo", text) for name, text in (("a", "12345"), ("b", "1234"))})
    found = collected(monkeypatch, {"a", "b"})
    assert (found["a"].content, found["b"].left_out) == (b"12345\n", "is larger than 4 bytes")


def test_a_member_that_hangs_or_fails_is_left_out_and_hides_nothing(monkeypatch, tmp_path):
    def hang(*_any):
        (tmp_path / "hangs").touch()
        time.sleep(600)

    def fail(*_any):
        raise ValueError("token=hunter2\x1b")

    def large(*_any):
        return os.write(1, b"x" * 70_000) * 0

    def say(*_any):
        return os.write(1, b'{"a": 1}') * 0

    shown = BundleMember("c", "", say)
    monkeypatch.setattr(processes, "time", LeapingClock((tmp_path / "hangs").exists))
    monkeypatch.setattr(members, "LARGEST", 60_000)
    every = (BundleMember("a", "", hang), BundleMember("b", "", fail), shown, BundleMember("d", "", large))
    monkeypatch.setattr(members, "members", lambda: every)
    found = {one.name: one for one in members.collect(Layout(), lambda _words: 0)}
    assert json.loads(found["c"].content) == {"a": 1} and not found["c"].left_out
    assert "took more than 30 s" in found["a"].left_out
    assert found["b"].left_out == "ValueError: token=[redacted]"
    assert found["d"].left_out == "is larger than 60000 bytes"
    clock = iter((0, *[members.ALL + 1] * 9))
    assert all("no time left" in one.left_out for one in members.collect(Layout(), len, lambda: next(clock)))


def test_equal_members_are_equal_archives_and_contents_come_first():
    taken = [Taken("b.json", "b", b"{}", ""), Taken("a.txt", "a", b"", "why")]
    made = archive(taken)
    assert made == archive(taken)
    with tarfile.open(fileobj=io.BytesIO(made)) as tar:
        assert tar.getnames() == [f"{TOP}/contents.json", f"{TOP}/b.json"]
        assert {(one.mode, one.uid, one.uname, one.mtime) for one in tar.getmembers()} == {(0o600, 0, "", 0)}
        document = json.load(tar.extractfile(tar.getmembers()[0]))
    assert document["left_out"] == [{"name": "a.txt", "source": "a", "why": "why"}]


def test_the_file_is_new_and_only_for_its_owner(host, tmp_path):
    path = tmp_path / "x.tar.gz"
    status, out, _err = host("--output", str(path), "--json")
    assert (status, json.loads(out)["output"], stat.S_IMODE(path.stat().st_mode)) == (0, str(path), 0o600)
    before = path.read_bytes()
    assert "found a file; expected a new name" in host("--output", str(path))[2] and path.read_bytes() == before
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    for name, found in (("link", "a link"), (".", "a directory")):
        assert f"found {found}; expected a new name" in host("--output", str(tmp_path / name))[2]
    assert host("--output", str(tmp_path / "link"))[0] == 2 and not (tmp_path / "victim").exists()


def test_every_member_can_be_made(tmp_path):
    """On an empty host: what fails is what the host lacks."""
    state, device_list, plugin_config = (str(tmp_path / name) for name in ("state", "i.json", "plugin.json"))
    places = Layout(state, device_list, prefix=str(tmp_path), spec_dirs=(str(tmp_path),), plugin_config=plugin_config)
    found = members.collect(places, lambda words: main(words, "", places._asdict()))
    failed = {one.name: one.left_out for one in found if one.left_out and one.name not in members.COMMANDS}
    assert set(failed) == {"manifest.json", "inventory.json", "devices.json", "plugin-config.json"}
    assert all("No such file" in why or "does not exist" in why for why in failed.values())
    assert [one.name for one in found] == [one.name for one in members.members()]


def test_standard_output_gets_the_archive_and_nothing_else(host, monkeypatch):
    class Terminal(io.TextIOWrapper):
        def isatty(self):
            return True

    for output, arguments, expected in (
        (io.TextIOWrapper, (), 0),
        (Terminal, (), 2),
        (io.TextIOWrapper, ("--json",), 2),
    ):
        monkeypatch.setattr(sys, "stdout", output(io.BytesIO()))
        assert host("--output", "-", *arguments)[0] == expected
        written = sys.stdout.buffer.getvalue()
        if expected:
            assert written == b""
        else:
            with tarfile.open(fileobj=io.BytesIO(written)) as tar:
                assert f"{TOP}/host.json" in tar.getnames()


def test_list_writes_nothing(host, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(os.listdir(tmp_path))
    status, out, err = host("--list")
    assert (status, err, sorted(os.listdir(tmp_path))) == (0, "", before)
    assert out.startswith("MEMBER") and "host.json" in out and "LEFT OUT" in out
