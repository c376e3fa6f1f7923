# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules container_runtime and container_runtime_info on real runtimes: turned on, a container sees the device; turned
off, it does not.

docker, containerd and podman of a Debian suite in a container host (engines.py), FLEET_CDI_SUITES="bookworm trixie sid"
for all. There is no systemd in it: a systemctl of ours restarts the real daemons.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from pathlib import Path

import configurations
import engines
import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils import on_host
from ansible_collections.fleet.cdi.plugins.module_utils.converge.runtime.plan import plan_runtime
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import Manifest
from ansible_collections.fleet.cdi.plugins.module_utils.release import build
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import survey, table
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.edit import toml_text
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.place import InstalledRuntime, Source, WantedCdi
from ansible_collections.fleet.cdi.plugins.plugin_utils import on_host as on_host_release

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="runs containers with devices: needs root")
pytestmark = [NEEDS_ROOT, pytest.mark.counterpart("podman", "runc", "mmdebstrap", "busybox-static")]

CLAIMS_PAGE = Path(__file__).resolve().parents[2] / "docs/claims.md"
NAME = "test.fleet.cdi/instrument=front"
SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "test.fleet.cdi/instrument",
    "devices": [
        {
            "name": "front",
            "containerEdits": {"deviceNodes": [{"path": "/dev/instrument", "hostPath": engines.NODE}]},
        }
    ],
}
SEEN = f"/dev/instrument {engines.number_of(engines.NODE)}"
SPEC_FILE = "/etc/cdi/instrument.json"
CONFIG = {"docker": "/etc/docker/daemon.json", "containerd": "/etc/containerd/config.toml"}

# What the module uses of systemctl(1). A file /run/refuse makes one restart fail, as a daemon that does not start does.
SYSTEMCTL = r"""#!/bin/sh
verb=$1
for unit; do :; done
case $unit in
docker.service) program=/usr/sbin/dockerd;;
containerd.service) program=/usr/bin/containerd;;
*) exit 0;;
esac
alive() { grep -qs '^State:.[^Z]' /proc/$1/status; }  # nobody waits for it here, so it stays as a zombie
pid=
for one in $(busybox pidof ${program##*/}); do alive $one && pid=$one; done
case $verb in
show)
    [ -n "$pid" ] && echo ActiveState=active || echo ActiveState=inactive
    printf 'MainPID=%s\nKillMode=process\nExecStart={ path=%s ; argv[]=%s ; }\n' "${pid:-0}" $program $program;;
restart)
    [ -z "$pid" ] || kill $pid
    while [ -n "$pid" ] && alive $pid; do sleep 0.1; done
    if rm /run/refuse 2> /dev/null; then exit 1; fi
    rm -f /var/run/docker.pid
    setsid $program > /var/log/${program##*/} 2>&1 < /dev/null &
    case $program in *dockerd) ready="docker info";; *) ready="ctr version";; esac
    for try in $(seq 1200); do $ready > /dev/null 2>&1 && exit 0; sleep 0.1; done
    exit 1;;
esac
"""


@pytest.fixture(scope="module", params=engines.SUITES)
def suite(request):
    return request.param


@pytest.fixture(scope="module")
def host(suite, tmp_path_factory):
    """A host whose runtimes are set up as packages leave them, as far as CDI goes, and a spec for them."""
    files = {
        CONFIG["containerd"]: engines.CONTAINERD.get(suite, engines.CONTAINERD_1),
        "/usr/local/bin/systemctl": SYSTEMCTL,
        SPEC_FILE: json.dumps(SPEC),
    }
    tag = engines.image(suite, tmp_path_factory.mktemp("image"))
    with engines.running(tag, tmp_path_factory.mktemp("shared"), files) as inside:
        inside.run("chmod", "+x", "/usr/local/bin/systemctl")
        yield inside


# Module -> its options with their defaults.
OPTIONS = {
    "container_runtime": {
        "state": "enabled",
        "spec_dirs": None,
        "installation": "system",
        "config_file": None,
        "restart": "never",
        "on_held": "keep",
        "on_unsupported": "fail",
        "managed_by": "test",
    },
    "container_runtime_info": {"name": None},
}


@pytest.fixture(scope="module")
def call(host):
    """What a module does once it is on the host: the release's code, from its archive, asked for one answer."""
    release = build.build(on_host_release.MODULE_UTILS)
    archive = host.shared / "release.zip"
    archive.write_bytes(build.pack(release))

    def run(module, failed=False, check=False, **options):
        common = {"prefix": "/opt/cdi", "release": release.id, "state_dir": "/var/lib/cdi"}
        request = json.dumps({"options": {**OPTIONS[module], **common, **options}, "check": check})
        done = json.loads(host.run("python3", "-I", "-c", on_host.FROM_ARCHIVE, str(archive), module, stdin=request))
        assert ("error" in done) == failed, done
        return done["error"] if failed else {**done["result"], "warnings": done["warnings"]}

    return run


@pytest.fixture(scope="module")
def runtime(call):
    """Run the module on the host; its message where it fails."""

    def run(name, **options):
        return call("container_runtime", name=name, **options)

    return run


@pytest.fixture(scope="module")
def info(call):
    """What runtime_info says of one runtime."""

    def run(name):
        (found,) = call("container_runtime_info", name=name)["runtimes"]
        return found

    return run


@pytest.fixture(params=["docker", "containerd"])
def daemon(request, host, runtime):
    """The name of a runtime with a daemon, which is afterwards as it was before."""
    before = content(host, CONFIG[request.param])
    yield request.param
    runtime(request.param, state="absent", restart="always")
    assert content(host, CONFIG[request.param]) == before
    assert host.attempt("ls", "/var/lib/cdi").returncode != 0, "nothing is left to undo"


def content(host, path):
    return host.attempt("cat", path).stdout


def sees_it(host, name):
    done = host.container(name, NAME)
    return done.returncode == 0 and SEEN in done.stdout.splitlines()


def wait_for_sight(host, name, wanted):
    """Wait until containers of a runtime see the device, or don't: a daemon learns of files by events."""
    deadline = time.monotonic() + 60
    while sees_it(host, name) != wanted:
        assert time.monotonic() < deadline, f"{name} gives the device: still {not wanted}"
        time.sleep(0.2)


def test_a_release_without_cdi_says_so_and_is_left_alone(suite, host, daemon, runtime, info):
    if suite != "bookworm":
        pytest.skip("only bookworm has docker and containerd from before CDI: set FLEET_CDI_SUITES=bookworm")
    refused = runtime(daemon, failed=True, restart="always")
    first = {"docker": "25.0", "containerd": "1.7"}[daemon]
    assert f"has no CDI at all; the first release that has it is {first}" in refused
    left = runtime(daemon, on_unsupported="warn", restart="always")
    assert (left["changed"], len(left["warnings"])) == (False, 1)
    found = info(daemon)
    assert (found["reads"], found["enabled"], found["enabled_by"], found["error"]) == ("", False, "none", "")
    assert not sees_it(host, daemon)


def test_on_and_off_again(suite, host, daemon, runtime, info):
    if suite == "bookworm":
        pytest.skip("its docker and containerd are from before CDI")
    by_default = suite == "sid"
    before = info(daemon)
    assert (before["enabled"], before["enabled_by"]) == (by_default, "default")
    assert before["running"]["enabled"] == sees_it(host, daemon) == by_default
    original = content(host, CONFIG[daemon])

    if by_default:
        assert not runtime(daemon, restart="always")["changed"]
        assert content(host, CONFIG[daemon]) == original
    else:
        preview = runtime(daemon, check=True, restart="always")
        assert (preview["changed"], preview["restarted"], content(host, CONFIG[daemon])) == (True, True, original)
        written = runtime(daemon)
        assert (written["changed"], written["pending_restart"], written["paths"]) == (True, True, [CONFIG[daemon]])
        assert not sees_it(host, daemon), "it was not restarted"
        again = runtime(daemon)
        assert (again["changed"], again["pending_restart"]) == (False, True), "a later run still knows"
        assert info(daemon)["pending_restart"]
        restarted = runtime(daemon, restart="when_idle")
        assert (restarted["changed"], restarted["restarted"], restarted["pending_restart"]) == (True, True, False)
        assert sees_it(host, daemon)
        done = runtime(daemon, restart="when_idle")
        assert (done["changed"], done["restarted"]) == (False, False)

    off = runtime(daemon, state="disabled", restart="always")
    assert (off["changed"], off["enabled"], off["restarted"]) == (True, False, True)
    assert not sees_it(host, daemon)
    assert info(daemon)["running"]["enabled"] is False
    assert runtime(daemon, state="disabled", restart="always")["changed"] is False


def test_specs_of_another_directory(suite, host, daemon, runtime, info):
    if suite == "bookworm":
        pytest.skip("its docker and containerd are from before CDI")
    host.write("/opt/site/cdi/other.json", json.dumps(SPEC))
    host.run("rm", SPEC_FILE)
    try:
        runtime(daemon, restart="always")
        assert not sees_it(host, daemon)
        dirs = ["/etc/cdi", "/opt/site/cdi"]
        set_ = runtime(daemon, spec_dirs=dirs, restart="always")
        assert (set_["changed"], set_["spec_dirs"], set_["enabled"]) == (True, dirs, True)
        assert info(daemon)["running"] == {"enabled": True, "spec_dirs": dirs}
        assert sees_it(host, daemon)
    finally:
        host.write(SPEC_FILE, json.dumps(SPEC))


def test_a_drop_in_file_where_tables_are_merged(suite, host, runtime):
    if suite != "sid":
        pytest.skip("containerd merges tables from 2.0 on: set FLEET_CDI_SUITES=sid")
    original = content(host, CONFIG["containerd"])
    imports = 'imports = ["conf.d/*.toml"]\n'
    host.write(CONFIG["containerd"], imports + original)
    theirs = "[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = true\n"
    host.write("/etc/containerd/conf.d/99-nvidia.toml", f"version = 3\n{theirs}")
    try:
        off = runtime("containerd", state="disabled", restart="always")
        assert off["paths"] == ["/etc/containerd/conf.d/zz-fleet-cdi.toml"]
        assert not sees_it(host, "containerd")
        assert runtime("containerd", state="absent", restart="always")["changed"]
        assert sees_it(host, "containerd")
        assert host.run("ls", "/etc/containerd/conf.d").split() == ["99-nvidia.toml"]
    finally:
        host.run("rm", "-r", "/etc/containerd/conf.d")
        host.write(CONFIG["containerd"], original)


def test_compose_passes_on_the_devices_of_the_block_in_the_docs(suite, host, runtime):
    if suite == "bookworm":
        pytest.skip("its docker is from before CDI")
    (block,) = re.findall(r"### Compose\n.*?```yaml\n(.*?)```", CLAIMS_PAGE.read_text(), re.DOTALL)
    document = yaml.safe_load(block)
    web = document["services"]["web"]
    (device,) = web["deploy"]["resources"]["reservations"]["devices"]
    assert device["device_ids"] == ["fleet.cdi/claim=web"]
    device["device_ids"] = [NAME]
    web.update(image=engines.IMAGE, network_mode="none", command=["/bin/sh", "-c", engines.LOOK])
    host.write("/root/compose.yaml", yaml.safe_dump(document))
    start = ["docker-compose", "--file", "/root/compose.yaml", "run", "--rm", "--no-TTY", "web"]
    try:
        assert runtime("docker", state={"trixie": "enabled", "sid": "absent"}[suite], restart="always")
        assert SEEN in host.run(*start).splitlines()
        host.run("rm", SPEC_FILE)
        wait_for_sight(host, "docker", False)
        assert host.attempt(*start).returncode != 0
    finally:
        host.write(SPEC_FILE, json.dumps(SPEC))
        host.attempt("docker-compose", "--file", "/root/compose.yaml", "down")
        runtime("docker", state="absent", restart="always")


# Writes a file as the release does; its archive is the first argument.
REPLACE = """
import sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.fleet.cdi.plugins.module_utils import files
files.replace(sys.argv[2], sys.stdin.buffer.read())
"""


def test_docker_does_not_notice_a_spec_that_is_moved_in(suite, host, runtime):
    """As docs/troubleshooting.md says. It notices what we write, and what `cp` does."""
    if suite == "bookworm":
        pytest.skip("its docker is from before CDI")
    try:
        runtime("docker", state={"trixie": "enabled", "sid": "absent"}[suite], restart="always")
        assert sees_it(host, "docker")
        host.run("mv", SPEC_FILE, "/root/")
        wait_for_sight(host, "docker", False)
        host.run("mv", "/root/instrument.json", SPEC_FILE)
        assert not sees_it(host, "docker")
        host.run("python3", "-I", "-c", REPLACE, str(host.shared / "release.zip"), SPEC_FILE, stdin=json.dumps(SPEC))
        wait_for_sight(host, "docker", True)
        host.run("mv", SPEC_FILE, "/root/")
        wait_for_sight(host, "docker", False)
        host.run("cp", "/root/instrument.json", SPEC_FILE)
        wait_for_sight(host, "docker", True)
    finally:
        runtime("docker", state="absent", restart="always")


def test_docker_is_not_restarted_while_a_container_would_end(suite, host, runtime, info):
    if suite == "bookworm":
        pytest.skip("its docker is from before CDI")
    state = {"trixie": "enabled", "sid": "disabled"}[suite]
    container = host.run("docker", "run", "--detach", "--network=none", engines.IMAGE).strip()
    try:
        kept = runtime("docker", state=state, restart="when_idle")
        assert (kept["changed"], kept["restarted"], kept["pending_restart"]) == (True, False, True)
        assert any("1 running containers would end" in text for text in kept["warnings"])
        assert host.run("docker", "inspect", "--format", "{{.State.Running}}", container).strip() == "true"
    finally:
        host.run("docker", "rm", "--force", container)
    assert runtime("docker", state=state, restart="when_idle")["restarted"]
    assert runtime("docker", state="absent", restart="when_idle")["restarted"]
    assert not info("docker")["pending_restart"]


ASK = """
import sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import containers
found = containers.find_containers({sys.argv[2]: ["/dev/instrument"]}, {"docker": containers.ENGINES["docker"]})
print(*sorted(map(str, found.containers)), *found.trouble, sep="\\n")
"""


def test_a_docker_that_does_not_run_has_the_containers_that_its_files_tell(suite, host, runtime):
    if suite == "bookworm":
        pytest.skip("its docker is from before CDI")

    def ask():
        return host.run("python3", "-I", "-c", ASK, str(host.shared / "release.zip"), NAME).splitlines()

    try:
        runtime("docker", state={"trixie": "enabled", "sid": "absent"}[suite], restart="always")
        host.run("docker", "create", "--name=other", engines.IMAGE)
        host.run("docker", "create", "--name=kept", "--device", NAME, engines.IMAGE)
        host.run("docker", "run", "--detach", "--name=runs", "--network=none", "--device", NAME, engines.IMAGE)
        assert ask() == ["container kept (docker, created)", "container runs (docker, running)"]
        host.run("sh", "-c", "kill -KILL $(busybox pidof dockerd)")
        host.wait("sh", "-c", "systemctl show docker.service | grep -qx ActiveState=inactive")
        assert ask() == ["container kept (docker, exited)", "container runs (docker, running)"]
    finally:
        host.run("systemctl", "restart", "docker.service")
        host.run("docker", "rm", "--force", "other", "kept", "runs")
        runtime("docker", state="absent", restart="always")


def test_containers_outlive_a_restart_of_containerd(suite, host, runtime):
    if suite == "bookworm":
        pytest.skip("its containerd is from before CDI")
    # Detached: a client that waits for the container ends it when it loses its connection.
    host.run("ctr", "run", "--detach", "--rootfs", f"{host.shared}/root", "kept", "/bin/busybox", "sleep", "999")
    state = {"trixie": "enabled", "sid": "disabled"}[suite]
    try:
        assert runtime("containerd", state=state, restart="when_idle")["restarted"]
        assert "RUNNING" in host.run("ctr", "tasks", "ls")
    finally:
        assert runtime("containerd", state="absent", restart="when_idle")["restarted"]
    assert "RUNNING" in host.run("ctr", "tasks", "ls")
    host.run("ctr", "tasks", "kill", "--signal", "KILL", "kept")


def test_a_daemon_that_does_not_start_gets_its_old_configuration_back(suite, host, daemon, runtime, info):
    if suite == "bookworm":
        pytest.skip("its docker and containerd are from before CDI")
    before = content(host, CONFIG[daemon])
    host.write("/run/refuse", "")
    state = {"trixie": "enabled", "sid": "disabled"}[suite]
    failed = runtime(daemon, failed=True, state=state, restart="always")
    assert f"{CONFIG[daemon]}: is as it was before, and it runs with that again" in failed
    assert content(host, CONFIG[daemon]) == before
    assert not info(daemon)["pending_restart"]
    assert info(daemon)["managed"] == {}


def test_what_the_runtime_itself_does_not_take_is_put_back(suite, host, daemon, runtime):
    """Somebody else's mistake, which no parser of ours can know of."""
    if suite == "bookworm":
        pytest.skip("its docker and containerd are from before CDI")
    before = content(host, CONFIG[daemon])
    broken = '{"no-such-option": 1}' if daemon == "docker" else f"{before}\n[grpc]\naddress = 7\n"
    host.write(CONFIG[daemon], broken)
    try:
        state = {"trixie": "enabled", "sid": "disabled"}[suite]
        failed = runtime(daemon, failed=True, state=state, restart="always")
        assert "does not take its configuration" in failed
        assert content(host, CONFIG[daemon]) == broken
    finally:
        if before:
            host.write(CONFIG[daemon], before)
        else:
            host.run("rm", CONFIG[daemon])


def test_a_key_that_is_on_dockers_command_line_is_found_beforehand(suite, host, runtime, info):
    if suite == "bookworm":
        pytest.skip("its docker is from before CDI")
    host.run("sh", "-c", "kill $(busybox pidof dockerd)")
    host.wait("sh", "-c", "systemctl show docker.service | grep -qx ActiveState=inactive")
    host.start("dockerd", "--cdi-spec-dir", "/etc/cdi", "--cdi-spec-dir=/opt/flag")
    host.wait("docker", "info")
    try:
        assert info("docker")["spec_dirs"] == ["/etc/cdi", "/opt/flag"]
        refused = runtime("docker", failed=True, spec_dirs=["/opt/site/cdi"])
        assert "--cdi-spec-dir is on the command line" in refused
        assert content(host, CONFIG["docker"]) == ""
        host.write(CONFIG["docker"], '{"cdi-spec-dirs": ["/etc/cdi"]}')
        both = runtime("docker", failed=True)
        assert "is set here and by --cdi-spec-dir" in both
        assert "is set here and by --cdi-spec-dir" in info("docker")["error"]
    finally:
        host.attempt("rm", CONFIG["docker"])
        host.run("systemctl", "restart", "docker.service")


def test_podman_reads_cdi_always_and_other_directories_from_5_5_on(suite, host, runtime, info):
    found = info("podman")
    assert (found["enabled"], found["enabled_by"], found["running"]) == (True, "always", None)
    assert not runtime("podman")["changed"]
    assert sees_it(host, "podman")
    assert "has no switch" in runtime("podman", failed=True, state="disabled")
    dirs = ["/opt/site/cdi"]
    if suite != "sid":
        refused = runtime("podman", failed=True, spec_dirs=dirs)
        assert "its directories are fixed, /etc/cdi and /var/run/cdi" in refused
        return
    set_ = runtime("podman", spec_dirs=dirs)
    assert set_["paths"] == ["/etc/containers/containers.conf.d/zz-fleet-cdi.conf"]
    host.run("rm", "-rf", "/opt/site/cdi")
    assert not sees_it(host, "podman"), "it reads another directory, which is empty"
    host.write("/opt/site/cdi/other.json", json.dumps(SPEC))
    assert sees_it(host, "podman")
    assert runtime("podman", state="absent")["changed"]
    assert host.attempt("ls", "/etc/containers/containers.conf.d").returncode != 0


# Dumps each of the configurations on its standard input; null where containerd refuses one.
DUMP = """
import json, subprocess, sys
def dump(text):
    open("/tmp/sample.toml", "w", newline="").write(text)
    asked = ["containerd", "--config", "/tmp/sample.toml", "config", "dump"]
    done = subprocess.run(asked, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None
print(json.dumps([[dump(text) for text in pair] for pair in json.load(sys.stdin)]))
"""
SAMPLE = 60


def leaves(value, above=()):
    """(path, value) of all that is no table."""
    for key, item in value.items():
        if isinstance(item, dict):
            yield from leaves(item, (*above, key))
        else:
            yield (*above, key), item


def test_no_other_key_changes_as_containerd_itself_sees_it(suite, host, info):
    """Of configurations in every form of TOML, before and after; json and tomllib see thousands in the unit tests."""
    if suite == "bookworm":
        pytest.skip("its containerd is from before CDI")
    version = info("containerd")["version"]
    place = InstalledRuntime(
        "containerd", "system", version, table.numbers(version), "1.0.0", "containerd", "/none/config.toml"
    )
    pairs = []
    for seed in range(SAMPLE):
        pick = random.Random(seed)
        said = pick.choice([2, 2, 1, 0] if suite == "trixie" else [3, 3, 2])
        keys = {"enable_cdi": pick.choice(["true", "false"])} if pick.random() < 0.5 else {}
        path = ("plugins", configurations.PLUGINS[said or 1])
        text = configurations.toml(pick, said, path, keys, []).text
        source = Source({place.config: text.encode()})
        reading = survey.CONFIGURATIONS["containerd"].read(place, source)
        made = plan_runtime(place, WantedCdi(not reading.enabled), Manifest("/none", {}), source)
        pairs.append((text, made.changes[0].after.decode()))
    seen = 0
    answers = json.loads(host.run("python3", "-c", DUMP, stdin=json.dumps(pairs)))
    for (text, _after), (before, after) in zip(pairs, answers):
        assert (before is None) == (after is None), text
        if before is not None:
            seen += 1
            old, new = (dict(leaves(toml_text.parse(one.encode(), "dump").value)) for one in (before, after))
            differ = {path for path in {*old, *new} if old.get(path) != new.get(path)}
            assert {path[-1] for path in differ} == {"enable_cdi"}, text
    assert seen > SAMPLE / 2
