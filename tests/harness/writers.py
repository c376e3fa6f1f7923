# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that writes on a host, on a small host of the test's own: for tests that kill, race, or take the room away.

A new writer is a new row of WRITERS, IN_PLACE or BY_HAND.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Optional

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import ledger as ledgers
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.dispose import dispose
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold, Key
from ansible_collections.fleet.cdi.plugins.module_utils.bundle.archive import write_new
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin.grants import Operator
from ansible_collections.fleet.cdi.plugins.module_utils.claims.add_claim import add_claim
from ansible_collections.fleet.cdi.plugins.module_utils.claims.calls import Caller
from ansible_collections.fleet.cdi.plugins.module_utils.claims.delete_claim import delete_claim, spec_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.collect_claims import collect_claims
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.users import note_command, users_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods import pod_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods.pod_grants import add_pods, delete_pods
from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods.pod_manifest import OPAQUE
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import ASKED, WantedClaim
from ansible_collections.fleet.cdi.plugins.module_utils.claims.restore_claims import restore_claims
from ansible_collections.fleet.cdi.plugins.module_utils.claims.store import read_claim, write_claim
from ansible_collections.fleet.cdi.plugins.module_utils.cli import metrics as metrics_verb
from ansible_collections.fleet.cdi.plugins.module_utils.converge import node_features
from ansible_collections.fleet.cdi.plugins.module_utils.converge import undo as undoing
from ansible_collections.fleet.cdi.plugins.module_utils.converge.driver import device_links
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import cdi_plugin, device_state, refresh_all
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import spec as spec_module
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.plan_kind import WantedKind as Kind
from ansible_collections.fleet.cdi.plugins.module_utils.converge.runtime import container_runtime, daemon_restart
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import (
    converge_service,
    device_plugin_config,
    device_plugin_service,
    refresh_service,
    refresh_unit,
)
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services.converge_unit import ConvergeUnit
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services.device_plugin_unit import PluginUnit
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.instance_status import InstanceEntry
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.claim_user import note_user
from ansible_collections.fleet.cdi.plugins.module_utils.hooks.error import HookError
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import build, install
from ansible_collections.fleet.cdi.plugins.module_utils.release.host import Interpreter
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import running
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.containers import ListedContainers, RunningContainers
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.place import InstalledRuntime, WantedCdi
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.verify import Said
from ansible_collections.fleet.cdi.plugins.module_utils.system import process_mark

IMPORTED = (dispose,)  # before the fork: undo imports it when it runs

KIND = "vendor.com/zero"
ENTRIES = {"zero": {"profile": "rule", "kind": KIND, "match": {"subsystem": "mem"}, "name_by": ["sysname"]}}
RUNTIMES = {"docker": "26.1.5"}  # they read the specs
KEY = Key("zero", "fleet-cdi", "request")
SOURCES = {"__init__.py": "", "release/__init__.py": "", "release/version.py": 'VERSION = "1.0.0"\n'}


class Tree(NamedTuple):
    """Where the things of this host are: each may be moved elsewhere."""

    etc: Path  # specs and configurations
    state: Path  # the state directory
    run: Path  # inventory, status
    prefix: Path  # the release


def tree(top: Path) -> Tree:
    """The usual places, below `top`."""
    return Tree(top / "etc", top / "var/cdi", top / "run", top / "opt/cdi")


def _kind(at: Tree, content: str, entries: bool = False) -> None:
    devices = [{"name": "one", "containerEdits": {"env": [f"A={content}"]}}]
    wanted = Kind(KIND, ENTRIES if entries else None, None if entries else {"devices": devices})
    spec_module.converge_spec(wanted._replace(runtimes=RUNTIMES), _places(at))


def earlier_spec(at: Tree) -> None:
    """A spec."""
    _kind(at, "1")


def spec(at: Tree) -> None:
    """Another spec in its place."""
    _kind(at, "2")


def no_spec(at: Tree) -> None:
    """None of the kind."""
    spec_module.converge_spec(Kind(KIND, runtimes=RUNTIMES), _places(at))


def specs_of_devices(at: Tree) -> None:
    """What module spec makes of a real device: spec, inventory and memory."""
    _kind(at, "", entries=True)


def refreshed(at: Tree) -> None:
    """A refresh of what `specs_of_devices` made."""
    refresh_all.refresh(_places(at))


def _places(at: Tree) -> Layout:
    specs = (str(at.etc / "cdi"), str(at.run / "cdi"))
    return Layout(str(at.state), str(at.run / "inventory.json"), str(at.etc / "cdi"), "/", str(at.prefix), specs)


def spec_of_node(at: Tree) -> None:
    """A spec of the device node that the host has."""
    devices = [{"name": "one", "containerEdits": {"deviceNodes": [{"path": str(at.run / "dev/gpu")}]}}]
    wanted = Kind(KIND, None, {"devices": devices}, runtimes=RUNTIMES)
    spec_module.converge_spec(wanted, _places(at)._replace(inventory=""))


def links(at: Tree) -> None:
    """A link by number to it."""
    places = device_links.DeviceFolders(str(at.run / "dev"), str(at.run / "sys-dev"))
    device_links.keep_links([str(at.etc / "cdi")], str(at.state), False, places=places)


def executable(at: Tree) -> None:
    """The configuration of an executable, and its pool of devices."""
    args = {key: value for key, value in ENTRIES["zero"].items() if key not in ("profile", "kind")}
    document = {"cdiVersion": "0.0.2", "name": "zero", "type": "zero", "plugin": "rule", "args": args}
    cdi_plugin.converge_configuration(
        cdi_plugin.WantedConfiguration("zero", "zero", document), _places(at), Sources.programs
    )


def no_executable(at: Tree) -> None:
    """None, and no pool."""
    cdi_plugin.converge_configuration(
        cdi_plugin.WantedConfiguration("zero", "zero", None), _places(at), Sources.programs
    )


def out_of_service(at: Tree) -> None:
    """A device out of service."""
    wanted = device_state.WantedDeviceState("mem:zero", "broken")
    device_state.converge_state(wanted, _places(at), clock=lambda: 0.0, find=_no_containers)


def _no_containers(_asked: Any) -> RunningContainers:
    """Those of the machine are none of this host's."""
    return RunningContainers(())


def in_service(at: Tree) -> None:
    """The device in service again."""
    device_state.converge_state(device_state.WantedDeviceState("mem:zero"), _places(at))


def refresh_units(at: Tree) -> None:
    """The units and udev rules that start a refresh."""
    refresh_service.install(refresh_unit.RefreshUnit(), str(at.state), False)


def no_refresh_units(at: Tree) -> None:
    """None of them."""
    refresh_service.uninstall(str(at.state), False)


def plugin_unit(at: Tree) -> None:
    """The device plugin's unit, and those that look at processes for it."""
    device_plugin_service.install(PluginUnit(state_dir=str(at.state)), None, str(at.state), 0, False)


def plugin_unit_alone(at: Tree) -> None:
    """The same without the units that look at processes."""
    unit = PluginUnit(state_dir=str(at.state), process_access=False)
    device_plugin_service.install(unit, None, str(at.state), 0, False)


def reboot(at: Tree) -> None:
    """What a reboot takes."""
    (at.run / "inventory.json").unlink(missing_ok=True)


def docker(at: Tree) -> None:
    """CDI in docker's configuration, which is there already."""
    _runtime(_docker(at), WantedCdi(True), at)


def no_docker(at: Tree) -> None:
    """Nothing of ours in it."""
    _runtime(_docker(at), None, at)


def _docker(at: Tree) -> InstalledRuntime:
    path = str(at.etc / "docker/daemon.json")
    return InstalledRuntime("docker", "system", "26.1.5", (26, 1, 5), "0.8.0", "dockerd", path)


def crio(at: Tree) -> None:
    """The spec directories of CRI-O, in a directory of drop-ins."""
    place = InstalledRuntime("cri-o", "system", "1.31.0", (1, 31, 0), "0.8.0", "crio", str(at.etc / "crio/crio.conf"))
    _runtime(place, WantedCdi(True, ("/etc/cdi",)), at)


def _runtime(place: InstalledRuntime, wanted: Optional[WantedCdi], at: Tree) -> None:
    by = daemon_restart.Restarter(
        lambda _command: Said(0, "", ""),
        lambda _unit: "",
        lambda _place: running.Asked(None, "", False),
        using=_no_containers,
    )
    container_runtime.converge_runtime(place._replace(units=("no.service",)), wanted, str(at.state), by=by)


def plugin_service(at: Tree) -> None:
    """The configuration of the device plugin."""
    _plugin_config(at, b"{}\n")


def no_plugin_service(at: Tree) -> None:
    """None."""
    _plugin_config(at, None)


def _plugin_config(at: Tree, content: Optional[bytes]) -> None:
    path = str(at.etc / "fleet-cdi/device-plugin.json")
    device_plugin_config.write_config(path, content, str(at.state), False, False)


def status(at: Tree) -> None:
    """What an instance of the device plugin leaves of itself."""
    instance = InstanceEntry(str(at.run / "cdi-device-plugin"), "a")
    instance.enter()
    instance.write({"instance": "a", "since_boot": 1.0, "resources": {}})
    instance.leave()


def release(at: Tree) -> None:
    """A release, its launchers and links."""
    _install(at, Sources.release)


def newer_release(at: Tree) -> None:
    """Another one in its place."""
    _install(at, Sources.newer)


def older_release(at: Tree) -> None:
    """The one before it again."""
    install.rollback(str(at.prefix), _says(Sources.release.id))


def no_release(at: Tree) -> None:
    """None."""
    install.remove(str(at.prefix))


def _install(at: Tree, made: Any) -> None:
    launchers = {"fleet-cdi": "#!/bin/sh\n", "cdi-hook": "#!/bin/sh\n"}
    python = Interpreter("/usr/bin/python3", "3.11.2", "cpython-311", ())
    install.present(str(at.prefix), made.id, python, launchers, _says(made.id), build.pack(made))


def _says(release_id: str) -> Callable[[Sequence[str]], tuple[int, str, str]]:
    pages = '{"fleet-cdi.1": ".TH FLEET-CDI 1"}'
    return lambda command: (0, pages if command[-1] == "pages" else release_id, "")


def add(at: Tree) -> None:
    """A grant."""
    hold = Hold("mem:zero", KIND)
    ledgers.Ledger(str(at.state), "boot").add(KEY, {"zero": 1}, lambda _held: [hold], "external")


def delete(at: Tree) -> None:
    """The grant given back."""
    ledgers.Ledger(str(at.state), "boot").delete(KEY)


def grant(at: Tree) -> None:
    """A grant of this boot."""
    hold = Hold("mem:zero", KIND)
    Operator(_places(at)).ledger.add(KEY, {"zero": 1}, lambda _held: [hold], "external")


def collected_grants(at: Tree) -> None:
    """All grants freed, by a list that names none of them."""
    operator = Operator(_places(at))
    _raise(operator.collect(operator.valid(operator.stamp()), force=True, complete=False).errors)


def withheld(at: Tree) -> None:
    """A device that is withheld."""
    ledger = Operator(_places(at)).ledger
    (one,) = ledger.grants()
    ledger.withhold(one.key, one.tokens, "its teardown failed")


def released(at: Tree) -> None:
    """The device free again."""
    Operator(_places(at)).release("mem:zero")


def lost_grants(at: Tree) -> None:
    """A store that was rebuilt, and may have lost grants."""
    (at.state / "ledger.log").unlink()
    (at.state / "ledger.db").write_bytes(b"damaged")
    Operator(_places(at)).ledger.grants()


def accepted_loss(at: Tree) -> None:
    """New grants are made again."""
    Operator(_places(at)).accept_loss()


def given(at: Tree) -> None:
    """A kind that belongs to one owner."""
    Operator(_places(at)).give(KIND, ["external"])


def _raise(failed: Sequence[str]) -> None:
    """Fail as the verb does, which says each of these on a line of its own."""
    if failed:
        raise CdiError("\n".join(failed))


GRANTING = """#!/bin/sh
case $CDI_COMMAND in
VERSION) echo '{"cdiVersion": "0.0.2", "supportedVersions": ["0.0.2"]}' ;;
ADD) echo '{"cdiVersion": "0.0.2", "devices": ["/dev/null"]}' ;;
esac
"""
CONTAINER = {"name": "c", "resources": {"limits": {f"{OPAQUE}zero": 1}}}
POD = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [CONTAINER]}}


def executable_of_others(at: Tree) -> None:
    """The configuration of an executable that is not ours."""
    (at.etc / "cdi/zero.d").mkdir(parents=True, exist_ok=True)
    document = {"cdiVersion": "0.0.2", "name": "zero", "type": "zero", "plugin": "granting"}
    (at.etc / "cdi/zero.d/zero.conf").write_text(json.dumps(document))


def pods(at: Tree) -> None:
    """The claims of a pod."""
    add_pods(_places(at), Caller(Sources.programs), "boot", pod_manifest.read(POD, {}))


def claim(at: Tree) -> None:
    """A claim."""
    add_claim(_places(at), Caller(Sources.programs), "boot", WantedClaim("job", {"zero": 1}))


def no_claim(at: Tree) -> None:
    """The claim given back."""
    delete_claim(_places(at), Caller(Sources.programs), "boot", "job")


def asked_claim(at: Tree) -> None:
    """The claim as a run that was killed leaves it."""
    found = read_claim(str(at.state), "job")
    assert found
    write_claim(str(at.state), found._replace(state=ASKED))


def collected_claims(at: Tree) -> None:
    """That claim freed."""
    _raise(collect_claims(_places(at), Caller(Sources.programs), "boot").failed)


def used_claim(at: Tree) -> None:
    """The claim with a container of an earlier boot, which no engine has any more."""
    found = read_claim(str(at.state), "job")
    assert found
    Path(users_path(str(at.state), found), "a").write_text(process_mark.mark("earlier", 1, 1, "pid:[1]"))


def noted_container(at: Tree) -> None:
    """The note of the claim's hook that a container uses it."""
    found = read_claim(str(at.state), "job")
    assert found
    with tempfile.NamedTemporaryFile("w") as state:
        json.dump({"id": "b", "pid": os.getpid()}, state)
        state.flush()
        try:
            note_user(users_path(str(at.state), found), state.name)
        except HookError as error:
            raise CdiError(str(error)) from None


def noted_command(at: Tree) -> None:
    """The note that a command uses the claim."""
    found = read_claim(str(at.state), "job")
    assert found
    note_command(str(at.state), found, os.getpid())


def waiting_claims(at: Tree) -> None:
    """Since when it is gone, noted."""
    _raise(collect_claims(_places(at), Caller(Sources.programs), "boot", 600, ListedContainers).failed)


def no_pods(at: Tree) -> None:
    """The claims of the pod given back."""
    delete_pods(_places(at), Caller(Sources.programs), "boot", pod_manifest.read(POD, {}).pods)


def lost_claim_spec(at: Tree) -> None:
    """The claim without its spec."""
    os.unlink(spec_path(_places(at), "job"))


def restored_claims(at: Tree) -> None:
    """Its spec again."""
    _raise(restore_claims(_places(at), Caller(Sources.programs), "boot").failed)


def converge_units(at: Tree) -> None:
    """The units with which a host converges itself, and the file of its settings."""
    unit = ConvergeUnit(str(at.etc / "fleet-cdi/settings.json"))
    converge_service.install(unit, b"{}\n", str(at.state), False)


def no_converge_units(at: Tree) -> None:
    """None of them."""
    converge_service.uninstall(str(at.state), False)


def metrics(at: Tree) -> None:
    """The file of `fleet-cdi metrics --output`."""
    metrics_verb.run(argparse.Namespace(output=str(at.etc / "fleet.prom")), _places(at))


def labels(at: Tree) -> None:
    """The file of `fleet-cdi features --output`."""
    node_features.keep_features(str(at.etc / "labels"), _places(at).inventory, str(at.state))


def bundle(at: Tree) -> None:
    """The archive of `fleet-cdi bundle`."""
    write_new(str(at.etc / "bundle.tar.gz"), bytes(5000))


def undo(at: Tree) -> None:
    """Everything taken back but the release."""
    undoing.undo(_places(at))


class Sources:
    """The release that is installed; made once, by `prepare`."""

    release: Any = None
    newer: Any = None
    programs = ""  # where the executables are


def prepare(directory: Path) -> None:
    """Make what the writers need, in a directory of its own."""
    for name, text in SOURCES.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    Sources.release = build.build(str(directory))
    (directory / "release/version.py").write_text('VERSION = "2.0.0"\n')
    Sources.newer = build.build(str(directory))
    Sources.programs = str(directory / "programs")
    os.mkdir(Sources.programs)
    os.symlink("/bin/true", directory / "programs/rule")
    (directory / "programs/granting").write_text(GRANTING)
    (directory / "programs/granting").chmod(0o755)


Writer = Callable[[Tree], None]

# Writer -> what has to come before it.
WRITERS: dict[str, tuple[Writer, tuple[Writer, ...]]] = {
    "spec": (spec, (earlier_spec,)),
    "spec goes": (no_spec, (spec,)),
    "spec of devices": (specs_of_devices, ()),
    "refresh": (refreshed, (specs_of_devices, reboot)),
    "links by number": (links, (spec_of_node,)),
    "docker": (docker, ()),
    "docker's goes": (no_docker, (docker,)),
    "cri-o": (crio, ()),
    "device plugin's configuration": (plugin_service, ()),
    "device plugin's configuration goes": (no_plugin_service, (plugin_service,)),
    "device plugin's start": (status, ()),
    "release": (release, ()),
    "ADD": (add, ()),
    "DEL": (delete, (add,)),
    "executable's configuration": (executable, ()),
    "executable's configuration goes": (no_executable, (executable,)),
    "device out of service": (out_of_service, (specs_of_devices,)),
    "device in service": (in_service, (specs_of_devices, out_of_service)),
    "claims of pods": (pods, (executable_of_others,)),
    "claim": (claim, (executable_of_others,)),
    "claim goes": (no_claim, (executable_of_others, claim)),
    "undo": (undo, (spec, docker, crio)),
}

# Those whose files have a fixed place: they need `in_place`.
IN_PLACE: dict[str, tuple[Writer, tuple[Writer, ...]]] = {
    "refresh units": (refresh_units, ()),
    "refresh units go": (no_refresh_units, (refresh_units,)),
    "device plugin's unit": (plugin_unit, ()),
    "device plugin's unit alone": (plugin_unit_alone, (plugin_unit,)),
    "undo of units": (undo, (refresh_units, plugin_unit)),
    "converge units": (converge_units, ()),
    "converge units go": (no_converge_units, (converge_units,)),
}

# Those that are tried only where they can't write: operators start them by hand, or nothing takes back what they write.
BY_HAND: dict[str, tuple[Writer, tuple[Writer, ...]]] = {
    "release goes back": (older_release, (release, newer_release)),
    "release goes": (no_release, (release,)),
    "metrics": (metrics, (specs_of_devices,)),
    "labels": (labels, (specs_of_devices,)),
    "bundle": (bundle, ()),
    "grants gc": (collected_grants, (grant,)),
    "grants release": (released, (grant, withheld)),
    "grants accept-loss": (accepted_loss, (grant, lost_grants)),
    "grants give": (given, (grant,)),
    "claim gc": (collected_claims, (executable_of_others, claim, asked_claim)),
    "claims of pods go": (no_pods, (executable_of_others, pods)),
    "claim's container": (noted_container, (executable_of_others, claim)),
    "claim's command": (noted_command, (executable_of_others, claim)),
    "claim gc by the timer": (waiting_claims, (executable_of_others, claim, used_claim)),
    "claim restore": (restored_claims, (executable_of_others, claim, lost_claim_spec)),
}
ALL = {**WRITERS, **IN_PLACE}
EVERY = {**ALL, **BY_HAND}

# Fixed place -> what stands there instead, below `etc`.
PLACES = {refresh_unit.UNIT_DIR: "systemd", os.path.dirname(refresh_unit.RULES): "udev"}


@contextmanager
def in_place(name: str, at: Tree) -> Iterator[None]:
    """For a writer of IN_PLACE: have directories of this host at the fixed places, and an empty /run: no systemd runs.

    Only in a mount namespace of one's own (apart.py), and on a host without specs. With specs, undo asks podman, which
    takes an empty /run for a reboot, and forgets which containers run on this machine.
    """
    mounted = []
    try:
        if name in IN_PLACE:
            for place, own in PLACES.items():
                subprocess.run(["mount", "--bind", str(at.etc / own), place], check=True)
                mounted.append(place)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "fleet-cdi-test", "/run"], check=True)
            mounted.append("/run")
        yield
    finally:
        for place in mounted:
            subprocess.run(["umount", place], check=True)


def host_of(top: Path) -> Tree:
    """A host below the empty directory `top`, as a distribution leaves it."""
    at = tree(top)
    others = (at.etc / name for name in ("docker", "crio/crio.conf.d", *PLACES.values()))
    for directory in (*others, at.state.parent, at.run, at.prefix.parent):
        directory.mkdir(parents=True)
    (at.run / "dev").mkdir()
    with suppress(PermissionError):
        os.mknod(at.run / "dev/gpu", stat.S_IFCHR | 0o600, os.makedev(195, 0))
    (at.etc / "docker/daemon.json").write_text('{\n  "debug": true\n}\n')
    return at


def everything(top: Path) -> dict[str, tuple[str, bytes]]:
    """What there is below `top`: path -> type and mode, content.

    A program that the writer started, such as systemctl, may take something away meanwhile.
    """
    found: dict[str, tuple[str, bytes]] = {}
    unread, start = [os.fspath(top)], len(os.fspath(top)) + 1
    while unread:
        with suppress(FileNotFoundError), os.scandir(unread.pop()) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    mode = entry.stat(follow_symlinks=False).st_mode
                    held = b""
                    if stat.S_ISDIR(mode):
                        unread.append(entry.path)
                    elif stat.S_ISLNK(mode):
                        held = os.readlink(entry.path).encode()
                    elif stat.S_ISREG(mode):
                        held = Path(entry.path).read_bytes()
                    found[entry.path[start:]] = (oct(mode), held)
    return found
