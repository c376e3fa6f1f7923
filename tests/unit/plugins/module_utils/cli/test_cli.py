# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi as an operator runs it: the installed command, on real files and this machine's devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils import records
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Key, hold_of
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.cli import devices as verb
from ansible_collections.fleet.cdi.plugins.module_utils.cli import grants
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import VERBS
from ansible_collections.fleet.cdi.plugins.module_utils.converge.runtime import managed_keys
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Health, Node
from ansible_collections.fleet.cdi.plugins.module_utils.release import build, host, install, launcher
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.place import Setting
from ansible_collections.fleet.cdi.tests.unit.builders import spec

ROOM = Path(verb.__file__).parent
HELPERS = {
    "__init__",
    "call",
    "change_log",
    "claim_pod",
    "complete",
    "main",
    "operand",
    "pages",
    "paths",
    "plain_command",
}
HELPERS |= {"start", "step_line", "system_log", "taken_options", "terminal"}

GPU = Device(
    id="pci:0000:3b:00.0",
    profile="drm",
    kind="fleet.cdi/gpu",
    names=("0", "0000:3b:00.0"),
    nodes=(Node("/dev/dri/card0", "c", 226, 0), Node("/dev/dri/renderD128", "c", 226, 128)),
    driver="i915",
    numa_node=1,
    health=Health("healthy"),
)
ILL = GPU._replace(
    names=("1",), nodes=GPU.nodes[:1], driver="", numa_node=None, health=Health("unhealthy", "no driver")
)
TTY = Device(
    "tty:tty13", "tty", "fleet.cdi/tty", ("tty13",), (Node("/dev/tty13", "c", 4, 13),), health=Health("healthy")
)


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A host with this collection's release: (command, directory); the paths baked in lie below the directory."""
    directory = tmp_path_factory.mktemp("host")
    release = build.build(str(Path(records.__file__).parent))
    defaults = {
        "state_dir": str(directory / "state"),
        "inventory": str(directory / "inventory.json"),
        "spec_dirs": [str(directory / "etc"), str(directory / "run")],
        "prefix": str(directory / "cdi"),
    }
    launchers = launcher.texts(sys.executable, defaults)
    python = host.probe(sys.executable, run)
    install.present(defaults["prefix"], release.id, python, launchers, run, build.pack(release))
    return f"{directory}/cdi/bin/fleet-cdi", directory


@pytest.fixture
def fleet_cdi(installed, tmp_path):
    """Run the command on empty directories of the test's own: (exit code, stdout, stderr)."""
    command, _directory = installed
    paths = ["--state-dir", str(tmp_path / "state"), "--inventory", str(tmp_path / "inventory.json")]
    paths += ["--spec-dir", str(tmp_path / "etc"), "--spec-dir", str(tmp_path / "run")]
    return lambda *arguments: run([command, *paths, *arguments])


def write_inventory(tmp_path, *devices, boot_id=None):
    (tmp_path / "inventory.json").write_bytes(
        inventory.render(inventory.Inventory(devices), boot_id or inventory.boot_id())
    )


def write_spec(path, name="gpu0", version="0.3.0", kind="fleet.cdi/gpu"):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(spec({name: {"env": ["A=b"]}}, kind, version)))


# --- the command itself


def test_every_verb_is_a_file_and_every_file_is_a_verb_or_a_helper():
    assert {path.stem for path in ROOM.glob("*.py")} - HELPERS == set(VERBS)


def test_version_is_the_release(installed):
    command, directory = installed
    release = os.readlink(directory / "cdi/lib/current")
    assert run([command, "--version"]) == (0, f"fleet-cdi {release}\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["gc", "--force", "FILE"],
        ["gc", "FILE", "--force"],
        ["--force", "gc", "FILE"],
        ["gc", "--force", "--state-dir", "/none", "FILE"],
        ["gc", "--state-d", "/none", "FILE", "--force"],
        ["gc", "--force", "--", "FILE"],
    ],
)
def test_options_stand_anywhere(fleet_cdi, arguments, tmp_path):
    """`grants gc --force FILE` was "unrecognized arguments: FILE"."""
    valid = tmp_path / "valid"
    valid.write_text(fleet_cdi("grants", "list")[1].splitlines()[0])
    arguments = [str(valid) if word == "FILE" else word for word in arguments]
    status, out, err = fleet_cdi("grants", *arguments)
    assert (status, err) == (0, "") and out.endswith(f"{grants.NO_STORE}\n")
    assert fleet_cdi("grants", "--nonsense", *arguments)[0] == 2


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["undo", "--nonsense"], ["devices", "--spec-dir"]])
def test_wrong_use_is_exit_code_2(installed, arguments):
    status, out, err = run([installed[0], *arguments])
    assert (status, out) == (2, "")
    assert err.startswith("usage: fleet-cdi")


def test_help_tells_verbs_defaults_and_exit_codes(installed):
    command, directory = installed
    status, out, _err = run([command, "--help"], env={**os.environ, "COLUMNS": "500"})
    assert status == 0
    assert all(part in out for part in (*VERBS, str(directory / "state"), "Exit codes: 0 all is well, 1"))
    for name in VERBS:
        assert run([command, name, "--help"])[0] == 0


def test_baked_paths_are_used_and_options_win_before_and_after_the_verb(installed, tmp_path):
    command, directory = installed
    assert f"{directory}/inventory.json" in run([command, "devices"])[2]
    write_inventory(tmp_path, TTY)
    option = ["--inventory", str(tmp_path / "inventory.json")]
    before, after = run([command, *option, "devices"]), run([command, "devices", *option])
    assert before == after
    assert before[0] == 0
    assert f"{directory}/etc {directory}/run" in run([command, "specs"])[1]


def test_only_the_verb_in_use_is_imported(installed):
    command, _directory = installed
    loaded = run([sys.executable, "-I", "-X", "importtime", command, "--version"])[2]
    assert "cli.main" in loaded
    for module in ("json", "discovery", "spec", "converge", "cli.devices", "cli.undo"):
        assert f"module_utils.{module}" not in loaded


def test_claim_starts_without_what_takes_long(installed):
    command, _directory = installed
    timed = [sys.executable, "-IS", "-X", "importtime", command]
    slow = ("argparse", "typing", "subprocess", "hashlib", "site", "threading")

    def loaded(*arguments):
        return {line.rpartition("|")[2].strip() for line in run([*timed, *arguments])[2].splitlines()}

    assert loaded("claim", "list").isdisjoint(slow)
    assert loaded("claim", "add", "a", "gpu:1").isdisjoint(slow)
    assert {"typing", "site"} < loaded("devices")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--help", 0),
        ("validate bad.json", 1),
        ("validate good.json", 0),
        ("--inventory few.json devices", 0),
        ("--inventory many.json devices", 1),  # the verb had more to say
    ],
)
def test_a_reader_that_goes_away_is_no_error_and_hides_none(installed, tmp_path, words, expected):
    command, _directory = installed
    (tmp_path / "bad.json").write_text("{}")
    write_spec(tmp_path / "good.json")
    for name, number in (("few", 1), ("many", 5000)):
        write_inventory(tmp_path, *(TTY._replace(names=(f"tty{one}",)) for one in range(number)))
        (tmp_path / "inventory.json").rename(tmp_path / f"{name}.json")
    script = f"exec 3> >(exec 0<&-; true); sleep 0.2; {command} {words} >&3; echo $?"
    status, out, err = run(["bash", "-c", script], cwd=tmp_path)
    assert (status, out, err) == (0, f"{expected}\n", "")


def test_output_that_does_not_get_out_is_one_line(installed, tmp_path):
    command, _directory = installed
    write_inventory(tmp_path, TTY)
    status, _out, err = run(["bash", "-c", f"{command} --inventory {tmp_path}/inventory.json devices > /dev/full"])
    assert (status, err) == (2, "fleet-cdi: [Errno 28] No space left on device [FC1004]\n")


# --- devices


def test_devices_table(fleet_cdi, tmp_path):
    write_inventory(tmp_path, ILL, GPU, TTY)
    write_spec(tmp_path / "etc/gpu.json", "0", "0.5.0")
    status, out, err = fleet_cdi("devices")
    assert (status, err) == (0, "")
    assert out == (
        "QUALIFIED NAME              NODES                NUMA  DRIVER  HEALTH                HELD BY\n"
        "fleet.cdi/gpu=1             /dev/dri/card0       -     -       unhealthy: no driver  -\n"
        "fleet.cdi/gpu=0             /dev/dri/card0       1     i915    healthy               -\n"
        "fleet.cdi/gpu=0000:3b:00.0  /dev/dri/renderD128\n"
        "fleet.cdi/tty=tty13         /dev/tty13           -     -       healthy               -\n"
        "\n"
        f"To give one to a container: podman --cdi-spec-dir {tmp_path}/etc --cdi-spec-dir {tmp_path}/run run --rm "
        "--device fleet.cdi/gpu=0 docker.io/library/busybox ls -l /dev/dri/card0 /dev/dri/renderD128  # podman >= 5.5\n"
    )


def test_devices_shows_a_node_once_that_a_container_also_gets_at_its_links(fleet_cdi, tmp_path):
    card = GPU.nodes[0]
    links = (card, card._replace(container_path="/dev/dri/by-path/pci-0000:3b:00.0-card"))
    write_inventory(tmp_path, GPU._replace(nodes=links))
    rows = fleet_cdi("devices")[1].partition("\n\n")[0]
    assert rows.split().count(card.path) == 1


def test_devices_as_json(fleet_cdi, tmp_path):
    write_inventory(tmp_path, GPU)
    status, out, _err = fleet_cdi("devices", "--json")
    (device,) = json.loads(out)["devices"]
    assert status == 0
    assert device["qualified_names"] == ["fleet.cdi/gpu=0", "fleet.cdi/gpu=0000:3b:00.0"]
    assert device["nodes"][1]["path"] == "/dev/dri/renderD128"
    assert device["health"] == {"state": "healthy", "reason": ""}
    assert device["held_by"] == []


def hold(tmp_path, device, request_id="7890"):
    Ledger(str(tmp_path / "state"), inventory.boot_id()).add(
        Key("tty", "generic-tty", request_id), {"tty": 1}, lambda _held: [hold_of(device)], "claims"
    )


def test_devices_says_who_holds_what_and_offers_what_is_free(fleet_cdi, tmp_path):
    other = TTY._replace(id="tty:tty14", names=("tty14",), nodes=(Node("/dev/tty14", "c", 4, 14),))
    write_inventory(tmp_path, GPU, TTY, other)
    write_spec(tmp_path / "etc/gpu.json", "gpu9")
    write_spec(tmp_path / "etc/tty13.json", "tty13", kind="fleet.cdi/tty")
    write_spec(tmp_path / "etc/tty14.json", "tty14", kind="fleet.cdi/tty")
    hold(tmp_path, TTY)
    out = fleet_cdi("devices")[1]
    held = {line.split()[0]: line.rpartition("  ")[2] for line in out.splitlines() if "healthy" in line}
    assert held == {
        "fleet.cdi/gpu=0": "-",
        "fleet.cdi/tty=tty13": "request 7890 (tty/generic-tty)",
        "fleet.cdi/tty=tty14": "-",
    }
    assert "--device fleet.cdi/tty=tty14 " in out  # gpu is in no spec, and tty13 is held
    listed = [one["id"] for one in json.loads(fleet_cdi("devices", "--free", "--json")[1])["devices"]]
    assert listed == [GPU.id, "tty:tty14"]
    listed = [one["id"] for one in json.loads(fleet_cdi("devices", "--kind", "fleet.cdi/tty", "--json")[1])["devices"]]
    assert listed == [TTY.id, "tty:tty14"]
    status, out, err = fleet_cdi("devices", "--kind", "fleet.cdi/gpus")
    assert (status, out) == (2, "") and "expected fleet.cdi/gpu or fleet.cdi/tty" in err


@pytest.mark.parametrize("damage", ["garbage", "gone"])
def test_devices_never_takes_what_it_can_not_read_for_free(fleet_cdi, tmp_path, damage):
    write_inventory(tmp_path, TTY)
    write_spec(tmp_path / "etc/tty13.json", "tty13", kind="fleet.cdi/tty")
    hold(tmp_path, TTY)
    store = tmp_path / "state/ledger.db"
    store.unlink()
    if damage == "garbage":
        store.write_bytes(b"x" * 5000)
    before = sorted(path.name for path in store.parent.iterdir())
    status, out, err = fleet_cdi("devices")
    assert status == 0 and out.splitlines()[1].endswith("  unknown")
    assert "To give one" not in out, "a request may hold it"
    assert err.startswith(f"fleet-cdi: warning: nothing tells who holds which device: {store}: ")
    assert json.loads(fleet_cdi("devices", "--json")[1])["devices"][0]["held_by"] is None
    status, out, err = fleet_cdi("devices", "--free")
    assert (status, out) == (2, "") and err.startswith("fleet-cdi: --free: nothing tells which devices are free")
    assert sorted(path.name for path in store.parent.iterdir()) == before  # who looks rebuilds nothing


def test_command_on_a_usual_host():
    renamed = TTY._replace(nodes=(Node("/dev/tty13", "c", 4, 13, container_path="/dev/my console"),))
    assert verb.command(renamed, "fleet.cdi/tty=tty13", ("/etc/cdi", "/var/run/cdi")) == (
        "podman run --rm --device fleet.cdi/tty=tty13 docker.io/library/busybox ls -l '/dev/my console'"
        "  # the same with docker run"
    )


def test_no_command_without_a_device_that_works(fleet_cdi, tmp_path):
    write_inventory(tmp_path, ILL)
    assert "To give one" not in fleet_cdi("devices")[1]
    write_inventory(tmp_path)
    assert fleet_cdi("devices")[1] == f"No devices in {tmp_path}/inventory.json; --scan looks for some now.\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "does not exist"), (b"{", "is damaged"), ("other boot", "was written in boot 'another'")],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_inventory_that_can_not_be_used(fleet_cdi, tmp_path, content, message, form):
    if content == "other boot":
        write_inventory(tmp_path, TTY, boot_id="another")
    elif content:
        (tmp_path / "inventory.json").write_bytes(content)
    status, out, err = fleet_cdi("devices", *form)
    assert (status, out) == (2, "")
    assert err.startswith(f"fleet-cdi: inventory {tmp_path}/inventory.json: {message}")
    assert err.count("\n") == 1


def test_scan_finds_this_machines_consoles(fleet_cdi):
    found = {name for name in os.listdir("/sys/class/tty") if name.startswith("tty") and name[3:].isdigit()}
    status, out, _err = fleet_cdi("devices", "--scan", "--json")
    names = {name for device in json.loads(out)["devices"] for name in device["qualified_names"]}
    assert status == 0
    if os.path.exists("/dev/tty63"):
        assert "fleet.cdi/tty=tty63" in names
    assert {name.partition("=")[2] for name in names if name.startswith("fleet.cdi/tty=tty")} <= found | set(
        os.listdir("/sys/class/tty")
    )


# --- specs


def test_specs_table(fleet_cdi, tmp_path):
    assert fleet_cdi("specs") == (0, f"No specs in {tmp_path}/etc {tmp_path}/run.\n", "")
    write_spec(tmp_path / "etc/gpu.json")
    path = f"{tmp_path}/etc/gpu.json"
    head = f"{'SPEC'.ljust(len(path))}  KIND           VERSION  OURS  DEVICES\n"
    assert fleet_cdi("specs") == (0, f"{head}{path}  fleet.cdi/gpu  0.3.0    no    gpu0\n", "")
    with locked_manifest(str(tmp_path / "state")) as manifest:
        manifest.write(path, b" " + (tmp_path / "etc/gpu.json").read_bytes(), kind="fleet.cdi/gpu")
    assert fleet_cdi("specs") == (0, f"{head}{path}  fleet.cdi/gpu  0.3.0    yes   gpu0\n", "")


def test_shadowed_is_told_and_no_finding(fleet_cdi, tmp_path):
    write_spec(tmp_path / "etc/gpu.json")
    write_spec(tmp_path / "run/gpu.json")
    status, out, _err = fleet_cdi("specs")
    assert status == 0
    assert f"shadowed: fleet.cdi/gpu=gpu0 comes from {tmp_path}/run/gpu.json, not from {tmp_path}/etc/gpu.json\n" in out


def test_conflicts_and_errors_are_findings(fleet_cdi, tmp_path):
    write_spec(tmp_path / "etc/a.json")
    write_spec(tmp_path / "etc/b.json")
    assert fleet_cdi("specs")[0] == 1
    assert f"conflict: fleet.cdi/gpu=gpu0 is defined by {tmp_path}/etc/a.json and" in fleet_cdi("specs")[1]
    (tmp_path / "etc/b.json").write_text("{")
    status, out, err = fleet_cdi("specs")
    assert (status, err) == (1, "")
    assert f"\nerror: {tmp_path}/etc/b.json: " in out
    status, out, _err = fleet_cdi("specs", "--json")
    document = json.loads(out)
    assert status == 1
    assert list(document["errors"]) == [f"{tmp_path}/etc/b.json"]
    assert document["devices"] == {"fleet.cdi/gpu=gpu0": f"{tmp_path}/etc/a.json"}
    assert document["specs"][0]["names"] == ["fleet.cdi/gpu=gpu0"]


def test_names_that_older_libraries_read_otherwise(fleet_cdi, tmp_path):
    (tmp_path / "etc").mkdir(exist_ok=True)
    path = tmp_path / "etc" / "octal.yaml"
    path.write_text("""
cdiVersion: "1.0.0"
kind: vendor.com/gpu
devices: [{name: 010, containerEdits: {env: [A=1]}}]
""")
    (found,) = json.loads(fleet_cdi("specs", "--json")[1])["specs"]
    assert (found["names"], found["seen_by"]) == (["vendor.com/gpu=010"], ["1.1.1", "newer"])
    assert found["seen_otherwise"] == [{"names": ["vendor.com/gpu=8"], "seen_by": ["1.0.0", "1.1.0"]}]
    line = f"differs: {path}: defines vendor.com/gpu=8 for the CDI library 1.0.0, 1.1.0"
    assert line in fleet_cdi("specs")[1].splitlines()


# --- undo


@pytest.fixture
def managed(tmp_path):
    """Three files as fleet.cdi writes them: a new one, one over a foreign one, and one that somebody changed since."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/foreign.json").write_text("theirs")
    with locked_manifest(str(tmp_path / "state")) as manifest:
        for name in ("new", "foreign", "changed"):
            manifest.write(str(tmp_path / f"etc/{name}.json"), b"ours", kind="fleet.cdi/gpu")
    (tmp_path / "etc/changed.json").write_text("somebody's")
    return tmp_path / "etc"


def test_undo_takes_back_what_is_ours(fleet_cdi, managed):
    before = {path.name: path.read_text() for path in managed.iterdir()}
    status, out, err = fleet_cdi("undo", "--check")
    assert (status, err) == (1, "")
    assert (
        f"would be removed: {managed}/new.json\nwould be restored: {managed}/foreign.json\nkept: {managed}/changed"
        in out
    )
    assert {path.name: path.read_text() for path in managed.iterdir()} == before
    status, out, _err = fleet_cdi("undo")
    assert status == 1
    assert out.startswith(
        f"removed: {managed}/new.json\nrestored: {managed}/foreign.json\nkept: {managed}/changed.json: "
    )
    assert {path.name: path.read_text() for path in managed.iterdir()} == {
        "foreign.json": "theirs",
        "changed.json": "somebody's",
    }


def test_undo_says_which_runtime_has_to_be_restarted(fleet_cdi, tmp_path):
    for runtime, note in (("docker", " (for docker from its next restart on)"), ("podman", "")):
        path = str(tmp_path / f"{runtime}.json")
        made = managed_keys.amended(
            path, None, [Setting(path, ((("features", "cdi"), True),))], f"{runtime}/system", "json", ""
        )
        with locked_manifest(str(tmp_path / "state")) as manifest:
            manifest.amend(path, made.after, made.record)
        assert fleet_cdi("undo") == (0, f"removed: {path}{note}\n", "")


def test_undo_force_and_then_nothing(fleet_cdi, managed, tmp_path):
    status, out, _err = fleet_cdi("undo", "--force", "--json")
    assert status == 0
    assert json.loads(out) == {
        "removed": [f"{managed}/changed.json", f"{managed}/new.json"],
        "restored": [f"{managed}/foreign.json"],
        "kept": [],
        "forced": [f"{managed}/changed.json: was changed since fleet.cdi wrote it"],
    }
    assert fleet_cdi("undo") == (0, f"Nothing to undo: the manifest in {tmp_path}/state lists no file.\n", "")


def test_undo_json_names_reasons(fleet_cdi, managed):
    status, out, _err = fleet_cdi("undo", "--json")
    (kept,) = json.loads(out)["kept"]
    assert status == 1
    assert kept["path"] == f"{managed}/changed.json"
    assert "changed since fleet.cdi wrote it" in kept["reason"]


def test_undo_with_a_damaged_manifest(fleet_cdi, managed, tmp_path):
    (tmp_path / "state/manifest.json").write_text("{")
    status, out, err = fleet_cdi("undo")
    assert (status, out) == (2, "")
    assert err.startswith(f"fleet-cdi: {tmp_path}/state/manifest.json: is damaged")
    assert (managed / "new.json").exists()


def test_undo_of_a_lost_manifest_says_so_and_a_second_provisioning_finds_it_again(fleet_cdi, managed, tmp_path):
    """Nobody can tell what is ours. A run that ends green would leave it all."""
    kept = tmp_path / "kept.json"
    (tmp_path / "state/manifest.json").rename(kept)
    for options in ((), ("--check",), ("--force",)):
        status, out, err = fleet_cdi("undo", *options)
        assert (status, out) == (2, "")
        assert err.startswith(f"fleet-cdi: {tmp_path}/state/manifest.json: is gone, but fleet.cdi wrote ")
        assert "provision this host again" in err and (managed / "new.json").exists()
    with locked_manifest(str(tmp_path / "state")) as manifest:
        manifest.write(str(managed / "new.json"), b"ours", kind="fleet.cdi/gpu")
    status, out, _err = fleet_cdi("undo")
    assert status == 0 and not (managed / "new.json").exists()


@pytest.mark.usefixtures("managed")
def test_undo_takes_the_list_of_devices_out_of_service_that_a_lost_manifest_had(fleet_cdi, tmp_path):
    """A provisioning does not record it again, and it would look like a lost manifest for ever."""
    (tmp_path / "state/device-state.json").write_text("{}")
    assert f"would be removed: {tmp_path}/state/device-state.json\n" in fleet_cdi("undo", "--check")[1]
    assert f"removed: {tmp_path}/state/device-state.json\n" in fleet_cdi("undo", "--force")[1]
    assert fleet_cdi("undo") == (0, f"Nothing to undo: the manifest in {tmp_path}/state lists no file.\n", "")


def test_undo_where_a_run_was_killed_before_its_manifest_was_there(fleet_cdi, tmp_path):
    """The lock is there, and names no manifest: nothing was written, and nothing is lost."""
    state = tmp_path / "state"
    state.mkdir(exist_ok=True)
    (state / ".lock").touch()
    status, out, _err = fleet_cdi("undo")
    assert status == 0 and out.startswith("Nothing to undo") and not (state / ".lock").exists()


# --- validate, inject and doctor; test_cli_specs.py has what they say


def test_the_verbs_about_specs_run_from_a_release(fleet_cdi, tmp_path):
    write_spec(tmp_path / "etc/gpu.json")
    (tmp_path / "config.json").write_text("{}")
    path = f"{tmp_path}/etc/gpu.json"
    assert fleet_cdi("validate") == (0, f"valid: {path}: fleet.cdi/gpu, CDI 0.3.0, 1 device\n", "")
    status, out, err = fleet_cdi("inject", f"{tmp_path}/config.json", "fleet.cdi/gpu=gpu0")
    assert (status, json.loads(out), err) == (0, {"process": {"env": ["A=b"]}}, "")
    status, out, err = fleet_cdi("inject", f"{tmp_path}/config.json", "fleet.cdi/gpu=gpu9")
    assert (status, out) == (2, "") and err.startswith("fleet-cdi: fleet.cdi/gpu=gpu9: no spec defines this device")
    status, out, err = fleet_cdi("doctor")  # this machine may have an engine from before CDI, which is a finding
    assert (status in (0, 1), err) == (True, "") and "Qualified names that resolve: 1. " in out
