# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi validate, inject and doctor, and what specs says of stale ones: output, exit codes, no traceback."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.cli import transform
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import VERBS, main
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import detect
from ansible_collections.fleet.cdi.tests.unit import builders
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.release.conftest import Host as Prefix


@pytest.fixture
def fleet_cdi(tmp_path, capsys, monkeypatch):
    """Run the command line on directories of the test's own: (exit code, stdout, stderr); bytes for stdin."""
    (tmp_path / "etc").mkdir(exist_ok=True)
    defaults = {
        "state_dir": str(tmp_path / "state"),
        "inventory": str(tmp_path / "inventory.json"),
        "spec_dirs": [str(tmp_path / "etc"), str(tmp_path / "run")],
        "prefix": str(tmp_path / "cdi"),
    }

    def run(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = main(list(map(str, arguments)), "0.1.0-test", defaults)
        out, err = capsys.readouterr()
        failures = [line for line in err.splitlines() if not line.startswith("fleet-cdi: warning: ")]
        assert len(failures) == (1 if status == 2 else 0), err
        return status, out, err

    return run


def spec(*names, version="0.3.0", kind="vendor.com/gpu", **edits):
    return json.dumps(builders.spec(dict.fromkeys(names, edits or {"env": ["A=1"]}), kind, version))


@pytest.fixture
def put(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


# What may be lying where a specification is expected. None of it may crash, hang or print more than a little.
GARBAGE = {
    "empty": b"",
    "not UTF-8": b"\xff\xfe\x00{",
    "cut off": b'{"cdiVersion": "0.3.0", "kin',
    "another document": b"[]",
    "null": b"null",
    "wrong types everywhere": b'{"cdiVersion": 1, "kind": [], "devices": {"a": null}, "containerEdits": "x"}',
    "a key twice": b'{"cdiVersion": "0.3.0", "cdiVersion": "0.4.0"}',
    "deep": b'{"devices":' * 100_000,
    # Python 3.11 can't read this, 3.12 can and can't write it again.
    "deep and closed": b'{"devices":' * 5000 + b"1" + b"}" * 5000,
    "large": b" " * (17 << 20),
    "anchors": b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n" * 10,
    "nul": b"\0" * 100,
}


class TestValidate:
    def test_a_valid_file(self, fleet_cdi, put):
        path = put("a.json", spec("x", "y", version="0.5.0"))
        assert fleet_cdi("validate", path) == (
            0,
            f"valid: {path}: vendor.com/gpu, CDI 0.5.0 (0.3.0 is enough), 2 devices\n",
            "",
        )
        path = put("b.json", spec("x"))
        assert fleet_cdi("validate", path)[1] == f"valid: {path}: vendor.com/gpu, CDI 0.3.0, 1 device\n"
        path = put("v.json", spec("x", version="v0.3.0"))  # the same version
        assert fleet_cdi("validate", path)[1].startswith(f"valid: {path}: vendor.com/gpu, CDI v0.3.0, 1 device\n")
        path = put("c.json", spec("x", version="1.1.0", intelRdt={"closID": "/"}))  # a lower one would not be valid
        assert fleet_cdi("validate", path)[1] == f"valid: {path}: vendor.com/gpu, CDI 1.1.0, 1 device\n"

    def test_every_finding_has_a_line_and_one_bad_file_hides_no_other(self, fleet_cdi, put):
        bad, good = put("bad.json", spec("a b", "c", version="9")), put("good.json", spec("x"))
        status, out, _err = fleet_cdi("validate", bad, good)
        lines = out.splitlines()
        assert status == 1 and len(lines) == 3
        assert lines[0].startswith(f"error: {bad}: /cdiVersion: found '9', expected one of 0.3.0")
        assert lines[1].startswith(f"error: {bad}: /devices/0/name: found 'a b'")
        assert lines[2].startswith(f"valid: {good}")

    def test_a_warning_is_told_and_valid(self, fleet_cdi, put):
        path = put("a.json", spec("x", deviceNodes=[{"path": "dev/null"}]))
        status, out, _err = fleet_cdi("validate", path)
        assert status == 0
        assert (
            f"\nwarning: {path}: /devices/0/containerEdits/deviceNodes/0/path: found 'dev/null', expected an abs" in out
        )

    def test_a_name_that_runtimes_skip(self, fleet_cdi, put):
        path = put(
            "a.yml", "cdiVersion: 0.3.0\nkind: vendor.com/gpu\ndevices: [{name: x, containerEdits: {env: [A=1]}}]\n"
        )
        status, out, _err = fleet_cdi("validate", path)
        assert status == 0 and out.endswith(
            "expected a name that ends in .json or .yaml; runtimes skip others [file-name] [FC4002]\n"
        )

    @pytest.mark.parametrize(
        "content",
        [
            spec("x"),
            " " + spec("x"),
            "cdiVersion: 0.3.0\nkind: a.com/gpu\ndevices:\n- name: x\n  containerEdits:\n    env: [A=1]\n",
        ],
    )
    def test_standard_input_is_json_or_yaml(self, fleet_cdi, content):
        status, out, _err = fleet_cdi("validate", "-", stdin=content.encode())
        assert status == 0 and out.startswith("valid: standard input: ")

    def test_without_a_path_all_of_the_spec_directories(self, fleet_cdi, put, tmp_path):
        assert fleet_cdi("validate") == (0, f"No specs in {tmp_path}/etc {tmp_path}/run.\n", "")
        good, bad = put("etc/a.json", spec("x")), put("run/b.json", "{")
        status, out, _err = fleet_cdi("validate")
        assert status == 1 and out.startswith(f"valid: {good}") and f"\nerror: {bad}: " in out
        status, out, _err = fleet_cdi("validate", "--spec-dir", tmp_path / "etc", "--spec-dir", good)
        assert status == 1 and f"error: {good}: can't list it: Not a directory" in out and f"valid: {good}" in out

    def test_a_pipe_in_a_spec_directory_is_not_opened(self, fleet_cdi, put, tmp_path):
        good = put("etc/a.json", spec("x"))
        os.mkfifo(tmp_path / "etc/b.json")
        status, out, _err = fleet_cdi("validate")
        assert (
            status == 1
            and out.startswith(f"valid: {good}")
            and f"error: {tmp_path}/etc/b.json: is not a regular file" in out
        )

    def test_as_json(self, fleet_cdi, put):
        good, bad = put("a.json", spec("x", version="1.0.0")), put("b.json", spec("x", kind="gpu"))
        status, out, _err = fleet_cdi("validate", "--json", good, bad)
        first, second = json.loads(out)["files"]
        assert status == 1
        assert first == {
            "path": str(good),
            "valid": True,
            "kind": "vendor.com/gpu",
            "cdi_version": "1.0.0",
            "minimum_version": "0.3.0",
            "names": ["x"],
            "findings": first["findings"],
        }
        assert [finding["severity"] for finding in first["findings"]] == ["warning"]
        assert not second["valid"] and second["findings"][0]["rule"] == "kind"
        assert second["findings"][0].keys() == {"rule", "pointer", "found", "expected", "severity", "explanation"}
        assert second["findings"][0]["explanation"] == "FC4006"

    @pytest.mark.parametrize("name", ["none.json", "."])
    def test_what_can_not_be_read_is_an_error_in_its_place(self, fleet_cdi, put, tmp_path, name):
        good = put("good.json", spec("x"))
        status, out, _err = fleet_cdi("validate", tmp_path / name, good)
        assert status == 1
        assert out.startswith(f"error: {tmp_path / name}: can't be read: ") and f"\nvalid: {good}" in out

    @pytest.mark.parametrize("ending", ["json", "yaml"])
    @pytest.mark.parametrize("garbage", GARBAGE)
    def test_garbage(self, fleet_cdi, put, garbage, ending):
        path = put(f"x.{ending}", GARBAGE[garbage])
        for arguments in ([path], [path, "--json"], ["-"]):
            status, out, _err = fleet_cdi("validate", *arguments, stdin=GARBAGE[garbage])
            assert status == 1 and len(out) < 20_000

    def test_a_file_whose_name_is_no_text(self, fleet_cdi, tmp_path):
        (tmp_path / "etc" / os.fsdecode(b"\xff.json")).write_text("{")
        for verb in ("validate", "specs", "doctor"):
            status, out, _err = fleet_cdi(verb)
            assert status == 1 and "\\udcff.json" in out


# What releases of the CDI library read in different ways: a field too new for the version, an octal without quotes.
TYPED = {"hostPath": "/", "containerPath": "/a", "type": "none"}
OCTAL = """
cdiVersion: "0.5.0"
kind: vendor.com/old
devices: [{name: 010, containerEdits: {env: [A=1]}}]
"""
BUNDLE = {"ociVersion": "1.2.0", "process": {"cwd": "/", "env": ["PATH=/bin"]}}


class TestInject:
    @pytest.fixture
    def bundle(self, put, monkeypatch):
        monkeypatch.setattr(
            detect, "detect", lambda _path: detect.DetectedRuntimes((), ())
        )  # not those of this machine
        put("etc/a.json", spec("x", "y", deviceNodes=[{"path": "/dev/null"}]))
        put(
            "etc/b.json",
            spec("x", kind="vendor.com/nic", mounts=[{"hostPath": "/fleet-cdi-none", "containerPath": "/a"}]),
        )
        return put("config.json", json.dumps(BUNDLE))

    @pytest.mark.parametrize("name", ["y", "vendor.com/gpu=y"])
    def test_a_name_alone_is_enough(self, fleet_cdi, bundle, name):
        assert fleet_cdi("inject", bundle, name)[:2] == fleet_cdi("inject", bundle, "vendor.com/gpu=y")[:2]

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("x", "is one of vendor.com/gpu=x, vendor.com/nic=x; expected a name of one device"),
            ("/dev/null", "is one of vendor.com/gpu=x, vendor.com/gpu=y; expected a name of one device"),
            ("yy", "no spec defines a device of that name; expected vendor/class=name, a name alone"),
            ("/dev/none", "no spec defines a device of that name"),
        ],
    )
    def test_what_is_no_name_of_one_device(self, fleet_cdi, bundle, name, message):
        status, out, err = fleet_cdi("inject", bundle, name)
        assert (status, out) == (2, "") and err.startswith(f"fleet-cdi: {name}: {message}")

    def test_the_path_of_a_node(self, fleet_cdi, bundle, put):
        node = {"path": "/dev/x", "hostPath": "/dev/full"}
        put("etc/c.json", spec("full", kind="vendor.com/full", version="0.5.0", deviceNodes=[node]))
        status, out, err = fleet_cdi("inject", bundle, "/dev/full")
        assert (status, err) == (0, "") and json.loads(out)["linux"]["devices"][0]["path"] == "/dev/x"

    @pytest.mark.parametrize(
        ("name", "file", "content", "releases"),
        [
            ("vendor.com/old=x", "old.json", spec("x", kind="vendor.com/old", mounts=[TYPED]), "0.5.0, 0.5.1"),
            ("vendor.com/old=8", "old.yaml", OCTAL, "0.5.0, 0.5.1, 0.5.4, 0.6.0, 0.7.0, 0.8.0, 1.0.0, 1.1.0"),
        ],
    )
    def test_a_warning_names_the_releases_where_the_newest_does_not_resolve_a_name(
        self, fleet_cdi, bundle, put, name, file, content, releases
    ):
        put(f"etc/{file}", content)
        status, out, err = fleet_cdi("inject", bundle, name, "vendor.com/gpu=x")
        assert (status, json.loads(out)["ociVersion"]) == (0, BUNDLE["ociVersion"])
        told = f"{name}: CDI library 1.1.1 does not resolve it, only CDI library {releases}. "
        assert err.startswith(f"fleet-cdi: warning: {told}")
        assert err.count("\n") == 1
        assert fleet_cdi("inject", bundle, "vendor.com/gpu=x")[2] == ""

    @pytest.mark.parametrize(
        ("runtimes", "told"),
        [
            ({"podman": "5.4.0"}, ""),
            ({"podman": "4.3.1"}, "podman 4.3.1"),
            ({"podman": "5.4.0", "docker": "25.0.0"}, "docker 25.0.0"),
        ],
    )
    def test_a_warning_names_the_runtimes_of_this_host_that_do_not_resolve_a_name(
        self, fleet_cdi, bundle, put, monkeypatch, runtimes, told
    ):
        put("etc/new.json", spec("x", version="0.8.0", kind="vendor.com/new", additionalGids=[5]))
        monkeypatch.setattr(detect, "detect", lambda _path: detect.named(runtimes))
        status, _out, err = fleet_cdi("inject", bundle, "vendor.com/new=x", "vendor.com/gpu=x")
        assert status == 0 and err.count("\n") == bool(told)
        assert not told or err.startswith(f"fleet-cdi: warning: vendor.com/new=x: {told} does not resolve it, only ")

    @pytest.mark.parametrize(("docker", "is_told"), [("28.1.0", True), ("28.2.0", False)])
    def test_a_spec_directory_that_is_a_symlink(self, fleet_cdi, bundle, tmp_path, monkeypatch, docker, is_told):
        (tmp_path / "etc").rename(tmp_path / "elsewhere")
        (tmp_path / "etc").symlink_to("elsewhere")
        monkeypatch.setattr(detect, "detect", lambda _path: detect.named({"docker": docker}))
        status, _out, err = fleet_cdi("inject", bundle, "vendor.com/gpu=x")
        assert (status, f"docker {docker} does not resolve it" in err) == (0, is_told)

    def test_the_document_with_its_devices(self, fleet_cdi, bundle):
        status, out, _err = fleet_cdi("inject", bundle, "vendor.com/gpu=x")
        document = json.loads(out)
        assert status == 0
        assert document["linux"]["devices"][0]["path"] == "/dev/null" and document["process"] == BUNDLE["process"]
        assert fleet_cdi("inject", "-", "vendor.com/gpu=x", stdin=bundle.read_bytes()) == (0, out, "")
        assert json.loads(bundle.read_text()) == BUNDLE

    @pytest.mark.parametrize(
        ("names", "condition", "subject"),
        [
            (["vendor.com/fpga=x"], "unknown-kind", "vendor.com/fpga=x"),
            (["vendor.com/gpu=x", "vendor.com/gpu=z"], "unknown-device", "vendor.com/gpu=z"),
            (["vendor.com/gpu=x", "vendor.com/nic=x"], "missing-resource", "/fleet-cdi-none"),
        ],
    )
    def test_an_error_condition_names_its_subject(self, fleet_cdi, bundle, names, condition, subject):
        status, out, err = fleet_cdi("inject", bundle, *names)
        assert (status, out) == (2, "") and err.startswith("fleet-cdi: ") and subject in err
        status, out, json_err = fleet_cdi("inject", "--json", bundle, *names)
        error = json.loads(out)["error"]
        assert (status, json_err) == (2, err)
        assert (error["condition"], error["subjects"]) == (condition, [subject]) and subject in error["message"]

    @pytest.mark.usefixtures("bundle")
    @pytest.mark.parametrize("garbage", GARBAGE)
    def test_garbage_for_an_oci_spec(self, fleet_cdi, put, garbage):
        path = put("garbage.json", GARBAGE[garbage])
        for arguments in ([path], ["-"]):
            status, out, err = fleet_cdi("inject", *arguments, "vendor.com/gpu=x", stdin=GARBAGE[garbage])
            if status == 0:  # an OCI spec may have fields that nobody knows
                assert json.loads(out)["linux"]
            else:
                assert (status, out) == (2, "") and len(err) < 500

    @pytest.mark.usefixtures("bundle")
    @pytest.mark.parametrize(
        ("value", "found"),
        [
            ("NaN", "found NaN"),
            ("Infinity", "found Infinity"),
            ("-Infinity", "found -Infinity"),
            ("1e400", "found 1e400, a number too large for readers of JSON"),
            ("-1e400", "found -1e400, a number too large for readers of JSON"),
            ("9" * 400, f"found {'9' * 20}..., a number too large for readers of JSON"),
            ("9" * 5000, f"found {'9' * 20}..., a number too large for readers of JSON"),
        ],
    )
    def test_a_number_that_json_does_not_have(self, fleet_cdi, put, value, found):
        """Python reads NaN, Infinity and, of 1e400, infinity, and writes what nothing else reads."""
        path = put("odd.json", f'{{"annotations": {{"x": [{value}]}}}}')
        status, out, err = fleet_cdi("inject", path, "vendor.com/gpu=x")
        expected = f"is not valid JSON: {found}; expected an OCI spec, as config.json of a bundle"
        assert (status, out, err) == (2, "", f"fleet-cdi: {path}: {expected} [FC1157]\n")

    @pytest.mark.usefixtures("bundle")
    def test_any_other_number_is_printed(self, fleet_cdi, put):
        numbers = "[0, -0, 1.5, 1e300, -1e-400, 18446744073709551616]"
        path = put("numbers.json", f'{{"x": {numbers}, "twice": 1, "twice": 2}}')
        status, out, _err = fleet_cdi("inject", path, "vendor.com/gpu=x")
        document = json.loads(out)
        assert status == 0 and document["x"] == [0, 0, 1.5, 1e300, 0.0, 18446744073709551616]
        assert document["twice"] == 2  # as the library

    def test_one_that_is_too_large_is_not_read_to_its_end(self, fleet_cdi, put):
        path = put("large.json", b"{" + GARBAGE["large"] + b"}")
        for name, arguments in ((path, [path]), ("standard input", ["-"])):
            _status, _out, err = fleet_cdi("inject", *arguments, "vendor.com/gpu=x", stdin=path.read_bytes())
            assert err == f"fleet-cdi: {name}: is larger than 16 MiB; expected one specification [FC1007]\n"

    def test_garbage_beside_the_spec_changes_nothing(self, fleet_cdi, bundle, put):
        before = fleet_cdi("inject", bundle, "vendor.com/gpu=x")
        for index, content in enumerate(GARBAGE.values()):
            put(f"etc/garbage-{index}.json", content)
        assert fleet_cdi("inject", bundle, "vendor.com/gpu=x") == before

    @pytest.mark.parametrize("path", ["none.json", "etc"])
    def test_an_oci_spec_that_can_not_be_read(self, fleet_cdi, tmp_path, path):
        status, out, err = fleet_cdi("inject", tmp_path / path, "vendor.com/gpu=x")
        assert (status, out) == (2, "") and err.startswith(f"fleet-cdi: {tmp_path / path}: can't be read: ")

    @pytest.mark.parametrize("arguments", [["inject"], ["inject", "config.json"]])
    def test_wrong_use(self, arguments, capsys):
        with pytest.raises(SystemExit) as ended:
            main(arguments, "0", {"state_dir": "/", "inventory": "/", "spec_dirs": [], "prefix": "/"})
        assert ended.value.code == 2 and "NAME" in capsys.readouterr().err


class TestStale:
    def test_specs_tells_them_with_reasons(self, fleet_cdi, put):
        path = put("etc/a.json", spec("x", deviceNodes=[{"path": "/dev/null", "major": 510, "minor": 3}]))
        status, out, _err = fleet_cdi("specs")
        pointer = "/devices/0/containerEdits/deviceNodes/0/major"
        assert status == 1
        assert out.endswith(f"stale: {path}: {pointer}: the spec says 510, the host has 1 [node-number]\n")
        status, out, _err = fleet_cdi("specs", "--json")
        assert status == 1
        assert json.loads(out)["stale"] == {
            str(path): [{"rule": "node-number", "pointer": pointer, "found": "1", "expected": "510"}]
        }


@pytest.fixture
def no_engines(tmp_path, monkeypatch):
    """This machine may have one from before CDI, which is a finding."""
    monkeypatch.setattr(detect, "DIRECTORIES", ())
    monkeypatch.setenv("PATH", str(tmp_path))


class TestDoctor:
    @pytest.mark.usefixtures("no_engines")
    def test_all_is_well(self, fleet_cdi, put):
        put("etc/a.json", spec("x", deviceNodes=[{"path": "/dev/null"}]))
        status, out, _err = fleet_cdi("doctor")
        assert status == 0 and out.startswith("No findings. Qualified names that resolve: 1. Container runtimes: ")
        status, out, _err = fleet_cdi("doctor", "--json")
        assert status == 0 and json.loads(out)["findings"] == []

    @pytest.mark.usefixtures("no_engines")
    def test_the_container_runtimes_are_named(self, fleet_cdi, tmp_path):
        (program,) = builders.program(tmp_path, "podman", "echo podman version 5.4.2")
        assert "Container runtimes: podman 5.4.2 (CDI 0.8.0)." in fleet_cdi("doctor")[1]
        expected = {"name": "podman", "version": "5.4.2", "path": program, "reads": "0.8.0"}
        assert json.loads(fleet_cdi("doctor", "--json")[1])["runtimes"] == [expected]

    @pytest.mark.usefixtures("no_engines")
    def test_findings_say_what_to_do_next(self, fleet_cdi, put):
        path, bad = put("etc/a.json", spec("x", deviceNodes=[{"path": "/dev/fleet-cdi-none"}])), put("etc/b.json", "{")
        status, out, _err = fleet_cdi("doctor")
        lines = out.splitlines()
        assert status == 1
        assert lines[0].startswith(f"invalid: {bad}: ") and lines[1].startswith("  next: correct or remove it")
        assert lines[2] == (
            f"node-missing: {path}: /devices/0/containerEdits/deviceNodes/0/path: the spec says /dev/fleet-cdi-none, "
            "the host has nothing [FC3015]"
        )
        assert lines[3].startswith("  next: load its driver")
        assert lines[4].startswith("2 findings. Qualified names that resolve: 1. ")
        status, out, _err = fleet_cdi("doctor", "--json")
        found = json.loads(out)["findings"]
        assert status == 1
        assert [(one["rule"], one["subject"]) for one in found] == [("invalid", str(bad)), ("node-missing", str(path))]
        assert all(one["problem"] and one["next"] for one in found)
        assert [one["explanation"] for one in found] == ["FC3014", "FC3015"]

    def test_a_damaged_release_makes_the_answer_unreliable(self, tmp_path, capsys):
        """The status is 2 without a line on stderr: the findings are all that is printed, and one names the file."""
        release = Prefix(tmp_path)
        release.install(release.release())
        paths = {"state_dir": f"{tmp_path}/state", "inventory": f"{tmp_path}/inventory.json"}
        defaults = {**paths, "spec_dirs": [f"{tmp_path}/etc"], "prefix": release.prefix}
        assert main(["doctor"], "0.1.0-test", defaults) == 0
        capsys.readouterr()
        (path,) = release.lib.glob("current/**/layout.py")
        path.write_text(path.read_text() + "# changed\n")
        for arguments in ([], ["--json"]):
            assert main(["doctor", *arguments], "0.1.0-test", defaults) == 2
            out, err = capsys.readouterr()
            assert "release-damaged" in out and "layout.py" in out and err == ""

    def test_a_damaged_manifest_is_a_finding_and_hides_nothing(self, fleet_cdi, put):
        path, other = put("state/manifest.json", "{"), put("etc/b.json", "{")
        status, out, _err = fleet_cdi("doctor", "--json")
        found = [(one["rule"], one["subject"]) for one in json.loads(out)["findings"]]
        assert (status, found) == (
            1,
            [("manifest-damaged", str(path)), ("invalid", str(other))],
        )

    def test_the_other_verbs_can_not_do_without_a_manifest(self, fleet_cdi, put):
        put("state/manifest.json", "{")
        status, out, err = fleet_cdi("specs")
        assert (status, out) == (2, "") and "manifest.json: is damaged" in err


class TestTransform:
    def test_it_prints_the_spec_and_leaves_the_file(self, fleet_cdi, put):
        text = spec("a", deviceNodes=[{"path": "/dev/a"}])
        path = put("etc/a.json", text)
        status, out, _err = fleet_cdi("transform", "--to", "/run/driver", path)
        assert (status, path.read_text()) == (0, text)
        moved = json.loads(out)
        assert moved["cdiVersion"] == "0.5.0"
        node = {"path": "/dev/a", "hostPath": "/run/driver/dev/a"}
        assert moved["devices"][0]["containerEdits"]["deviceNodes"] == [node]
        back = fleet_cdi("transform", "--from", "/run/driver", "-", stdin=out.encode())[1]
        assert json.loads(back)["devices"] == json.loads(text)["devices"]

    def test_standard_input_may_be_yaml(self, fleet_cdi):
        text = "cdiVersion: 0.3.0\nkind: vendor.com/gpu\ndevices:\n- name: a\n  containerEdits:\n    env: [A=1]\n"
        assert json.loads(fleet_cdi("transform", "-", stdin=text.encode())[1]) == json.loads(spec("a"))

    def test_the_arguments_of_hooks_stay_and_that_is_told_for_paths_in_containers(self, put, fleet_cdi, monkeypatch):
        hook = {"hookName": "prestart", "path": "/bin/a", "args": ["a", "/dev/b"]}
        path, told = put("etc/a.json", spec("a", hooks=[hook])), []
        monkeypatch.setattr(transform, "complain", told.append)
        for whose, count in (("host", 0), ("container", 1)):
            out = fleet_cdi("transform", "--to", "/run/driver", "--relative-to", whose, path)[1]
            assert json.loads(out)["devices"][0]["containerEdits"]["hooks"][0]["args"] == hook["args"]
            assert len(told) == count

    @pytest.mark.parametrize("garbage", GARBAGE)
    def test_garbage_is_one_line(self, fleet_cdi, put, garbage):
        path = put("etc/x.json", GARBAGE[garbage])
        status, out, err = fleet_cdi("transform", path)
        assert (status, out) == (2, "") and str(path) in err

    def test_what_is_wrong_comes_before_what_only_gets_a_warning(self, fleet_cdi, put):
        edits = {"deviceNodes": [{"path": "dev/a"}], "hooks": [{"hookName": "never", "path": "/bin/a"}]}
        devices = [{"name": "a", "containerEdits": edits}, {"name": "b", "containerEdits": {}}]
        path = put("etc/x.json", json.dumps({"cdiVersion": "0.3.0", "kind": "vendor.com/gpu", "devices": devices}))
        status, _out, err = fleet_cdi("transform", path)
        assert status == 2 and "[hook-name]" in err and "[some-edit]" in err and "[absolute-path]" not in err

    @pytest.mark.parametrize(("option", "value"), [("--from", "host"), ("--to", "x/"), ("--relative-to", "image")])
    def test_options_are_checked(self, fleet_cdi, put, option, value):
        path = put("etc/a.json", spec("a"))
        assert f"{option}: found {value!r}; expected" in fleet_cdi("transform", option, value, path)[2]


@pytest.mark.parametrize("verb", VERBS)
def test_the_documentation_has_every_verb_and_switch(verb):
    text = (Path(__file__).resolve().parents[5] / "docs/cli.md").read_text(encoding="utf-8")
    head, _heading, section = text.partition(f"\n## {verb}\n")
    section = section.partition("\n## ")[0]
    assert f"[`{verb}`](#{verb})" in head and f"$ fleet-cdi {verb}" in section
    assert all(switch in section for switch in VERBS[verb].switches if switch != "--json")
