# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi claim, over the real executables and consoles of this machine."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.claims.delete_claim import delete_claim
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime import run_command
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.users import read_users
from ansible_collections.fleet.cdi.plugins.module_utils.claims.store import read_claims
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.system.commands import device_scope
from ansible_collections.fleet.cdi.plugins.module_utils.system.process_mark import is_mark, process_mark
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import Host, config
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import BOOT, ttys

pytestmark = pytest.mark.usefixtures("bare_host")


@pytest.fixture
def claim(tmp_path, capsys):
    """The command on a host with four consoles to grant: (exit code, stdout, stderr)."""
    if os.geteuid() != 0 or not os.path.exists("/dev/tty15"):
        pytest.skip("needs root and the consoles of this machine")
    tree = ttys(16)
    tree["files"][BOOT] = inventory.boot_id() + "\n"  # the command line has no root but /
    made = Host(tmp_path, tree)
    made.configure(config("generic-tty", "tty"))
    made.install()
    conf = tmp_path / "etc/tty.d/generic-tty0.conf"
    with locked_manifest(str(made.state)) as manifest:  # by which the command finds the configuration
        manifest.write(str(conf), conf.read_bytes() + b"\n")
    defaults = {
        "state_dir": str(made.state),
        "inventory": made.inventory,
        "spec_dirs": [str(tmp_path / "cdi")],
        "prefix": made.host.prefix,
    }

    def run(*arguments, verb="claim"):
        status = main([verb, *arguments], "test", defaults)
        return (status, *capsys.readouterr())

    return run


def test_from_add_to_del(claim):
    assert claim("list") == (0, "No claims on this host.\n", "")
    assert claim("add", "job-42", "tty:2") == (0, "fleet.cdi/claim=job-42\n", "")
    status, out, _err = claim("list")
    assert (status, out.splitlines()[1].split()) == (
        0,
        ["job-42", "granted", "tty:2", "fleet.cdi/claim=job-42", "/dev/tty13"],
    )
    assert claim("check") == (0, "All claims agree with this host (1).\n", "")
    assert claim("gc") == claim("restore") == (0, "Nothing to do.\n", "")
    assert claim("del", "job-42") == (0, "given back: job-42\n", "")
    assert claim("del", "job-42") == (0, "Nothing to give back.\n", "")
    status, _out, err = claim("add", "job-42", "tty:2")
    assert status == 2 and "ended in this boot" in err
    assert claim("add", "job-42", "tty:2", "--reuse")[0] == 0


def test_check_tells_what_del_and_gc_would_give_back(claim, tmp_path):
    claim("add", "job-42", "tty:1")
    for path in (tmp_path / "state/claims").glob("*.users"):
        (path / "c").write_text(process_mark(os.getpid()))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    status, out, err = claim("del", "job-42", "--check")
    assert (status, out) == (2, "") and "still run: c. Stop them first" in err
    assert claim("del", "job-42", "--check", "--force") == (0, "would be given back: job-42\n", "")
    assert claim("del", "other", "--check") == (0, "Nothing to give back.\n", "")
    assert claim("del", "job-42", "--check", "--token", "another") == (0, "Nothing to give back.\n", "")
    assert json.loads(claim("del", "job-42", "--check", "--force", "--json")[1]) == {"id": "job-42", "changed": True}
    assert claim("gc", "--check") == (0, "Nothing to do.\n", "")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path / "cdi/fleet.cdi-claim_lost.json").write_bytes(
        (tmp_path / "cdi/fleet.cdi-claim_job-42.json").read_bytes()
    )
    assert claim("gc", "--check")[1] == f"would be removed: {tmp_path}/cdi/fleet.cdi-claim_lost.json\n"
    assert claim("gc")[1] == f"removed: {tmp_path}/cdi/fleet.cdi-claim_lost.json\n"


def test_a_list_that_lacks_a_claim_does_not_free_its_devices(claim, tmp_path):
    claim("add", "job-42", "tty:2")
    stamp, *_rows = claim("list", verb="grants")[1].splitlines()
    valid = tmp_path / "valid"
    valid.write_text(f"{stamp}\n")
    assert claim("gc", "--force", str(valid), verb="grants") == (0, "Nothing to free.\n", "")
    assert claim("check") == (0, "All claims agree with this host (1).\n", "")


def test_undo_ends_claims_by_force_alone(claim, tmp_path):
    claim("add", "job-42", "tty:2")
    status, out, _err = claim(verb="undo")
    assert status == 1 and "claim job-42 has devices. Give it back (`fleet-cdi claim del job-42`)" in out
    assert "would be ended: claim job-42\n" in claim("--check", "--force", verb="undo")[1] and claim("check")[0] == 0
    status, out, _err = claim("--force", verb="undo")
    assert (status, claim("list")[1]) == (0, "No claims on this host.\n") and "ended: claim job-42\n" in out
    assert not list((tmp_path / "cdi").glob("*claim*"))


def test_json(claim):
    document = json.loads(claim("add", "job-42", "tty:1", "--near", "1,0", "--release-on-stop", "--json")[1])
    assert document.pop("token") and document.pop("boot_id") and document.pop("configurations")
    assert document == {
        "id": "job-42",
        "amounts": {"tty": 1},
        "near": [0, 1],
        "release_on_stop": True,
        "for_user": "",
        "uid": 0,
        "keep": False,
        "only": [],
        "job": "",
        "state": "granted",
        "device": "fleet.cdi/claim=job-42",
        "nodes": [{"path": "/dev/tty13", "type": "c", "major": 4, "minor": 13}],
        "names": [],
        "numa_locality": [],
        "reason": "",
        "changed": True,
    }
    assert json.loads(claim("list", "--json")[1])["claims"][0]["id"] == "job-42"
    assert json.loads(claim("check", "--json")[1])["faults"] == []
    assert json.loads(claim("gc", "--json")[1]) == {"freed": [], "removed": [], "failed": []}
    assert json.loads(claim("restore", "--json")[1]) == {"restored": [], "failed": []}
    assert json.loads(claim("del", "job-42", "--token", "another", "--json")[1])["changed"] is False
    assert json.loads(claim("del", "job-42", "--json")[1]) == {"id": "job-42", "changed": True}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["free", "job-42"], "found 'free'; expected add, exec, del, pod, list, check, gc, restore"),
        (["add", "job-42"], "expected an id and what it is for"),
        (["add", "job-42", "tty"], "expected TYPE:AMOUNT"),
        (
            ["add", "job-42", "tty:9"],
            "claim job-42: Request cannot be fulfilled (error 100): asked for 9 devices; 4 are free",
        ),
        (["add", "job-42", "tty:1", "--near", "a"], "expected numbers of NUMA nodes"),
        (["del"], "expected the id of a claim"),
        (["list", "job-42"], "expected nothing behind it"),
        (["gc", "--idle-for", "soon"], "--idle-for: found 'soon'; expected seconds, 0 or more"),
        (["add", "job-42", "tty:1", "--keep", "--release-on-stop"], "expected one of them"),
    ],
)
def test_wrong_use_and_refusals(claim, arguments, words):
    status, out, err = claim(*arguments)
    assert (status, out) == (2, "") and words in err


def test_exit_code_1_for_findings(claim, tmp_path):
    claim("add", "job-42", "tty:1")
    os.unlink(tmp_path / "cdi/fleet.cdi-claim_job-42.json")
    status, out, _err = claim("check")
    assert status == 1 and "is missing; run `fleet-cdi claim restore` [FC1560]" in out
    assert claim("restore")[:2] == (0, "restored: job-42\n")
    (tmp_path / "state/claims/bad.json").write_text("{")
    for action in ("list", "gc", "restore", "check"):
        status, out, err = claim(action)
        assert status == 1 and "bad.json" in out + err


NO_SYSTEMD = pytest.mark.skipif(os.path.exists("/run/systemd/system"), reason="needs a machine without systemd")


@NO_SYSTEMD
def test_exec_refuses_to_run_a_command_with_all_devices(claim, tmp_path):
    """A systemd runs it in molecule's scenario runtimes."""
    out = tmp_path / "ran"
    status, _out, err = claim("exec", "tty:1", "--", "touch", str(out))
    assert status == 125 and "systemd does not run this host" in err and not out.exists()
    assert claim("list")[1] == "No claims on this host.\n"


def test_an_id_that_begins_with_a_dash(claim):
    assert claim("add", "--", "-x", "tty:1") == (0, "fleet.cdi/claim=id::2dx\n", "")
    assert claim("add", "--near", "0", "--", "-y", "tty:1")[0] == 0
    assert [one["id"] for one in json.loads(claim("list", "--json")[1])["claims"]] == ["-x", "-y"]
    assert claim("del", "--", "-x") == (0, "given back: -x\n", "")
    assert claim("--force", "del", "--", "-y") == (0, "given back: -y\n", "")
    assert "found 'ls'; expected nothing behind it" in claim("list", "--", "ls")[2]


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (("exec", "tty:1"), 125, "expected a command"),
        (("exec", "tty:1", "--"), 125, "expected a command"),
        (("exec", "--json", "tty:1", "--", "ls"), 125, "expected it without"),
        (("exec", "--for", "daemon", "tty:1", "--", "ls"), 125, "expected it with add alone"),
        (("exec", "job", "--", "ls"), 125, "expected TYPE:AMOUNT"),
        (("exec", "--", "ls"), 125, "expected TYPE:AMOUNT"),
    ],
)
def test_what_exec_refuses(claim, words, status, why):
    found, _out, err = claim(*words)
    assert found == status and why in err, err


@pytest.fixture
def scope(monkeypatch):
    """Stand for systemd-run, which this machine can't run: the command has all devices. What it was asked for."""
    asked = []

    def words(unit, allowed, command):
        asked.append((unit, [(node.path, access) for node, access in allowed]))
        return command

    monkeypatch.setattr(run_command, "check_scopes", lambda: None)
    monkeypatch.setattr(run_command, "scope_words", words)
    return asked


def test_exec_gives_the_claim_back_with_the_end_of_the_command(claim, scope, tmp_path):
    out = tmp_path / "seen"
    state = next(tmp_path.rglob("manifest.json")).parent
    look = (
        f'echo "$FLEET_CDI_CLAIM $FLEET_CDI_DEVICES" > {out}; cat {state}/claims/job.*.users/*.scope >> {out}; exit 3'
    )
    assert claim("exec", "job", "tty:2", "--near", "0", "--", "sh", "-c", look) == (3, "", "")
    first, mark = out.read_text().splitlines()
    assert first == "fleet.cdi/claim=job /dev/tty13 /dev/tty14" and is_mark(f"{mark}\n")
    ((unit, allowed),) = scope
    assert unit.startswith("fleet-cdi-claim-") and allowed == [("/dev/tty13", "rwm"), ("/dev/tty14", "rwm")]
    assert claim("list")[1] == "No claims on this host.\n"
    status, _out, err = claim("exec", "job", "tty:1", "--", "true")
    assert status == 125 and "--reuse" in err
    assert claim("exec", "--reuse", "job", "tty:1", "--", "false")[0] == 1


def test_exec_keeps_the_claim_of_a_container_that_the_command_started(claim, scope, tmp_path, monkeypatch):
    """As `podman run --detach --device $FLEET_CDI_CLAIM`: the hook notes a container that outlives the command."""
    stopped = []
    for module in (device_scope, run_command):
        monkeypatch.setattr(module, "stop_scope", stopped.append)
    state = next(tmp_path.rglob("manifest.json")).parent
    with subprocess.Popen(["sleep", "60"]) as container:
        start = f"echo {process_mark(container.pid).strip()} > $(echo {state}/claims/job.*.users)/c1; exit 3"
        status, _out, err = claim("exec", "job", "tty:1", "--", "sh", "-c", start)
        container.kill()
    assert status == 3 and "containers or commands that use it still run: c1" in err and err.count("\n") == 1
    assert stopped == [scope[0][0]]  # what the command left ends, though the claim stays
    assert claim("gc")[1] == "given back: job\n"


def test_exec_makes_an_id_of_its_own(claim, scope):
    assert claim("exec", "tty:1", "--", "sh", "-c", "kill -9 $$")[0] == 137
    assert claim("exec", "tty:1,tty:1", "--", "true")[0] == 125  # twice in one request
    assert len(scope) == 1


def test_exec_takes_no_claim_of_others(claim, scope):
    claim("add", "job", "tty:1")
    status, _out, err = claim("exec", "job", "tty:1", "--", "true")
    assert status == 125 and not scope, err
    assert "granted" in claim("list")[1]


@pytest.mark.usefixtures("scope")
def test_a_claim_that_only_containers_can_have_is_given_back(claim, monkeypatch):
    def refuse(*_arguments):
        raise CdiError("the claim has netDevices")

    def delete(places, *arguments):
        (made,) = read_claims(places.state_dir).claims
        assert [user.runs for user in read_users(places.state_dir, made)] == [False]  # nobody uses it any more
        return delete_claim(places, *arguments)

    monkeypatch.setattr(run_command, "host_edits", refuse)
    monkeypatch.setattr(run_command, "delete_claim", delete)
    status, _out, err = claim("exec", "tty:1", "--", "true")
    assert status == 125 and "the claim has netDevices" in err
    assert claim("list")[1] == "No claims on this host.\n"


@pytest.mark.usefixtures("scope")
@pytest.mark.parametrize("when", ["before", "after"])
def test_gc_frees_the_claim_of_an_exec_that_was_killed(claim, monkeypatch, when):
    """Killed before the command runs, and after it: no process of the claim is left then."""

    class Killed(BaseException):
        pass

    def die(*_arguments, **_options):
        raise Killed

    monkeypatch.setattr(run_command, {"before": "_program", "after": "delete_claim"}[when], die)
    with pytest.raises(Killed):
        claim("exec", "job", "tty:1", "--", "true")
    assert claim("list")[1].split()[6] == "idle"
    assert claim("gc")[1] == "given back: job\n"


POD = """\
kind: ResourceRequest
metadata: {name: screen}
spec: {resources: {requests: {example.com/console: 1}}}
---
kind: Pod
metadata: {name: viewer}
spec:
  containers:
    - {name: own, resources: {limits: {example.com/console: 1}, shared: [{resourceRequestRef: screen}]}}
    - {name: other, resources: {shared: [{resourceRequestRef: screen}]}}
"""
CONSOLES = ("--resources", "example.com/console=tty")
IDS = ["pod_default__screen", "pod_default_viewer_own"]


def annotated(value):
    return POD.replace("name: viewer", f"name: viewer, annotations: {value}")


class TestPod:
    """claim pod, as module pod_devices."""

    def test_from_add_to_del(self, claim, tmp_path):
        path = tmp_path / "pod.yaml"
        path.write_text(POD)
        status, out, err = claim("pod", "add", str(path), *CONSOLES)
        assert (status, err) == (0, "")
        (pod,) = [json.loads(line) for line in out.splitlines() if line != "---"]
        limits = [one["resources"]["limits"] for one in pod["spec"]["containers"]]
        assert limits == [{f"fleet.cdi/claim={id_}": 1 for id_ in ids} for ids in (IDS, IDS[:1])]
        again = json.loads(claim("pod", "add", str(path), *CONSOLES, "--json")[1])
        assert (again["changed"], again["claims"], again["manifest"]) == (False, [], [pod])
        assert {one["container"]: one["claims"] for one in again["containers"]} == {"own": IDS, "other": IDS[:1]}
        assert claim("pod", "del", str(path)) == (0, "".join(f"given back: {id_}\n" for id_ in IDS), "")
        assert claim("pod", "del", str(path)) == (0, "Nothing to give back.\n", "")
        assert claim("list")[1] == "No claims on this host.\n"

    def test_a_date_is_text(self, claim, tmp_path):
        path = tmp_path / "pod.yaml"
        path.write_text(annotated("{since: 2024-01-01, at: 12:30}"))
        status, out, err = claim("pod", "add", str(path), *CONSOLES)
        assert (status, err) == (0, "")
        (pod,) = [json.loads(line) for line in out.splitlines() if line != "---"]
        assert pod["metadata"]["annotations"] == {"since": "2024-01-01", "at": "12:30"}
        assert json.loads(claim("pod", "add", str(path), *CONSOLES, "--json")[1])["manifest"] == [pod]

    @pytest.mark.parametrize(
        "content",
        [
            annotated("{d: .nan}"),
            annotated("{1: 2, a: 3}"),
            annotated("{d: !!binary aGk=}"),
            json.dumps(list(yaml.safe_load_all(annotated("DEEP")))).replace('"DEEP"', "[" * 800 + "]" * 800),
        ],
        ids=["no number", "mixed keys", "bytes", "deep"],
    )
    def test_a_manifest_that_could_not_be_printed_makes_no_claim(self, claim, tmp_path, content):
        path = tmp_path / "pod.yaml"
        path.write_text(content)
        status, out, err = claim("pod", "add", str(path), *CONSOLES, "--json")
        assert claim("list")[1] == "No claims on this host.\n"
        assert (status, out, err.count("\n")) == (2, "", 1) and f"{path}: " in err, err

    def test_json_and_other_targets(self, claim, tmp_path):
        path = tmp_path / "pod.json"
        path.write_text(json.dumps(list(yaml.safe_load_all(POD))))
        asked = ("pod", "add", str(path), *CONSOLES, "--target", "resource_claims", "--device-classes", "tty=tty.x")
        done = json.loads(claim(*asked, "--json")[1])
        assert [one["kind"] for one in done["manifest"]].count("ResourceClaim") == 2 and done["containers"] == []
        assert claim("list")[1] == "No claims on this host.\n"
        status, _out, err = claim("pod", "add", str(path), *CONSOLES, "--target", "device_plugin")
        assert status == 2 and "shares devices" in err

    @pytest.mark.parametrize(
        ("arguments", "content", "said"),
        [
            (("add",), POD, "expected add or del, and a manifest"),
            (("make", "FILE"), POD, "expected add or del, and a manifest"),
            (("add", "FILE", "--target", "docker"), POD, "found 'docker'; expected podman, device_plugin"),
            (("add", "FILE", "--resources", "a"), POD, "--resources: found 'a'; expected each name once"),
            (("add", "FILE", "--resources", "a=b,a=c"), POD, "--resources: found 'a=c'; expected each name once"),
            (("add", "FILE"), "kind: Pod\nkind: Pod\n", "has the key 'kind' twice"),
            (("add", "FILE"), "a: &a [1]\nb: *a\n", "line 2, column 4: found an alias"),
            (("add", "FILE"), "a:\n  <<: {b: 1}\n", "line 2, column 3: found the merge key '<<'; write its keys there"),
            (("add", "FILE"), "a: [", "is not YAML"),
            (("add", "FILE"), "!!python/object:os.system {}", "found the tag"),
            (("add", "FILE"), "{", "is not a JSON document"),
            (("add", "FILE"), '{"a": 1, "a": 2}', "has the key"),
            (("add", "FILE"), b"\xff", "0xff at 0 is not UTF-8"),
            (("add", "FILE"), "[" * 900_000, "is nested too deeply"),
            (("add", "FILE"), "a: " * 9000, "is not YAML"),
            (("add", "FILE"), "- " * 9000 + "a", "is not a manifest"),
            (("add", "FILE"), " " * (1 << 21), "is larger than 1 MiB"),
            (("add", "/nowhere"), POD, "/nowhere: can't be read"),
            (("add", "FILE"), "", "found no Pod"),
        ],
    )
    def test_bad_input_is_one_line(self, claim, tmp_path, arguments, content, said):
        path = tmp_path / "pod.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        status, out, err = claim("pod", *(word.replace("FILE", str(path)) for word in arguments))
        assert (status, out, err.count("\n")) == (2, "", 1) and said in err, err
