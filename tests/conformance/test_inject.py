# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inject against the reference library: the same specs, the same request, the same OCI JSON.

Stricter we are in one way only: a mount, hook or network interface that is missing on the host is an error.
"""

from __future__ import annotations

import copy
import json
import os
import stat
from collections import Counter
from random import Random

import judge
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec, inject, registry
from ansible_collections.fleet.cdi.plugins.module_utils.spec.errors import MissingResource, UnknownDevice, UnknownKind

REQUESTS = int(os.environ.get("INJECTIONS", "2400"))

NODES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/tty", "/dev/urandom")
NO_NODES = ("/dev/fleet-cdi-none", "/etc/passwd", "/dev/fd")
CONTAINER_PATHS = ("/dev/a", "/dev/b", "/dev/null", "/dev/dir/c")
DESTINATIONS = ("/", "/a", "/a/", "/a/b", "//a/b", "/a//b", "/a/../b/c", "/c/./d/e", "b", "/z", "/z/y/x")
VARIABLES = ("A=1", "A=2", "B=1", "PATH=/bin", "C=", "D==x", "E=a=b")
KINDS = ("vendor.com/gpu", "vendor.com/nic", "other.org/gpu")
NAMES = ("x", "v", "w")


def some(rng, make, most=3):
    return [make(rng) for _time in range(rng.randint(1, most))]


def maybe(rng, document, key, make, chance=0.5):
    if rng.random() < chance:
        document[key] = make()


def device_node(rng):
    node = {"path": rng.choice(CONTAINER_PATHS)}
    maybe(rng, node, "hostPath", lambda: rng.choice(NODES * 8 + NO_NODES), 0.95)
    maybe(rng, node, "type", lambda: rng.choice("cccccccbup"), 0.3)
    maybe(rng, node, "major", lambda: rng.choice((0, 1, 195)), 0.3)
    if node.get("type") == "u":
        node["major"] = 5  # without one no device is given, see below
    maybe(rng, node, "minor", lambda: rng.choice((0, 3, 255)), 0.3)
    maybe(rng, node, "fileMode", lambda: rng.choice((0, 0o666, 0o4755)), 0.3)
    maybe(rng, node, "permissions", lambda: rng.choice(("", "r", "rw", "rwm", "mm")), 0.4)
    maybe(rng, node, "uid", lambda: rng.choice((0, 7)), 0.2)
    maybe(rng, node, "gid", lambda: rng.choice((0, 7)), 0.2)
    return node


def mount(rng):
    host = ("/usr", "/etc/passwd", "/") * 10 + ("/fleet-cdi-none",)
    entry = {"hostPath": rng.choice(host), "containerPath": rng.choice(DESTINATIONS)}
    maybe(rng, entry, "type", lambda: rng.choice(("", "none", "bind", "tmpfs")))
    maybe(rng, entry, "options", lambda: rng.sample(("ro", "bind", "rbind", "idmap", "ridmap", "nosuid"), 2), 0.7)
    return entry


def hook(rng):
    stages = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
    paths = ("/bin/sh",) * 30 + ("/bin/fleet-cdi-none", "/etc/passwd")
    entry = {"hookName": rng.choice(stages), "path": rng.choice(paths)}
    maybe(rng, entry, "args", lambda: ["sh", "-c", rng.choice("ab")])
    maybe(rng, entry, "env", lambda: [rng.choice(VARIABLES)])
    maybe(rng, entry, "timeout", lambda: rng.choice((0, 30)))
    return entry


def intel_rdt(rng):
    entry = {}
    maybe(rng, entry, "closID", lambda: rng.choice(("one", "/", "")))
    maybe(rng, entry, "l3CacheSchema", lambda: "L3:0=f")
    maybe(rng, entry, "memBwSchema", lambda: "MB:0=7")
    maybe(rng, entry, "schemata", lambda: rng.choice(([], ["a"], ["a", "b"])))
    maybe(rng, entry, "enableMonitoring", lambda: rng.random() < 0.5)
    return entry


def net_device(rng):
    return [{"hostInterfaceName": "lo", "name": rng.choice(("eth0", "eth1"))}]


def edits(rng):
    found = {}
    maybe(rng, found, "env", lambda: some(rng, lambda rng: rng.choice(VARIABLES), 4))
    maybe(rng, found, "deviceNodes", lambda: some(rng, device_node, 2))
    maybe(rng, found, "netDevices", lambda: net_device(rng), 0.2)
    maybe(rng, found, "mounts", lambda: some(rng, mount), 0.4)
    maybe(rng, found, "hooks", lambda: some(rng, hook, 2), 0.3)
    maybe(rng, found, "intelRdt", lambda: intel_rdt(rng), 0.2)
    maybe(rng, found, "additionalGids", lambda: some(rng, lambda rng: rng.choice((0, 5, 7, 44))), 0.2)
    return found


def specs(rng):
    """Files of one or two directories: name -> document."""
    files = {}
    for name in rng.sample(("etc/a.json", "etc/b.json", "run/a.json", "run/c.json"), rng.randint(1, 3)):
        devices = [{"name": one, "containerEdits": edits(rng) or {"env": ["X=1"]}} for one in rng.sample(NAMES, 2)]
        files[name] = {"cdiVersion": "1.1.0", "kind": rng.choice(KINDS), "devices": devices}
        maybe(rng, files[name], "containerEdits", lambda: edits(rng))
    return dict(sorted(files.items()))


def oci_device(rng):
    device = {"path": rng.choice(CONTAINER_PATHS), "type": "c", "major": 9, "minor": 9}
    maybe(rng, device, "fileMode", lambda: 0o600)
    return device


def oci_spec(rng):
    """A part of what config.json may be; of everything that edits touch, something is sometimes there already."""
    document = {"ociVersion": "1.2.0"}
    process = {"cwd": "/", "user": {"uid": rng.choice((0, 1000)), "gid": rng.choice((0, 100))}}
    maybe(rng, process, "env", lambda: some(rng, lambda rng: rng.choice((*VARIABLES, "BARE")), 5))
    maybe(rng, process["user"], "additionalGids", lambda: [rng.choice((5, 44))])
    maybe(rng, document, "process", lambda: process, 0.8)
    maybe(rng, document, "mounts", lambda: some(rng, oci_mount, 6))
    maybe(rng, document, "hooks", lambda: {"poststop": [{"path": "/bin/before"}]}, 0.3)
    linux = {}
    maybe(rng, linux, "devices", lambda: some(rng, oci_device, 4))
    maybe(rng, linux, "resources", lambda: {"devices": [{"allow": False, "access": "rwm"}]})
    maybe(rng, linux, "namespaces", lambda: [{"type": rng.choice(("user", "mount"))}, {"type": "pid"}])
    maybe(rng, linux, "intelRdt", lambda: {"closID": "before", "memBwSchema": "before"}, 0.3)
    maybe(rng, linux, "netDevices", lambda: {"lo": {"name": "before"}, "eth9": {}}, 0.3)
    maybe(rng, document, "linux", lambda: linux, 0.8)
    return document


def oci_mount(rng):
    entry = {"destination": rng.choice(DESTINATIONS), "source": "before"}
    maybe(rng, entry, "options", lambda: ["ro"])
    return entry


def request(rng):
    """(specs, names, OCI spec). Mostly names that are there, now and then one that is not."""
    files = specs(rng)
    defined = [f"{spec['kind']}={device['name']}" for spec in files.values() for device in spec["devices"]]
    unknown = (*(f"{kind}=nobody" for kind in KINDS), "no.such/kind=x")
    names = [rng.choice(unknown) if rng.random() < 0.04 else rng.choice(defined) for _time in range(rng.randint(1, 4))]
    return files, names, oci_spec(rng)


def ours(files, names, oci):
    """What inject answers: a document or an error."""
    directories = list(dict.fromkeys(os.path.dirname(name) for name in files))
    before = copy.deepcopy(oci)
    try:
        found = [
            registry.SpecFile(name, directories.index(os.path.dirname(name)), codec.decode(encoded(spec), name))
            for name, spec in files.items()
        ]
        return inject.inject(oci, names, registry.resolve(directories, found, {}))
    except CdiError as error:
        return error
    finally:
        assert oci == before, "all or nothing: the input is as it was"


def encoded(spec):
    return json.dumps(spec).encode()


def is_missing(path):
    """Whether a path is none that a container could get: absent, no node, not executable."""
    if not os.path.exists(path):
        return True
    mode = os.lstat(path).st_mode
    return not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and not (stat.S_ISREG(mode) and mode & 0o111)


def disagreement(answer, found, canonical):
    """(what sort of case this is, what is not as it must be)."""
    said = answer.get("error", "")
    if isinstance(found, dict):
        if not answer["accept"]:
            return "accepted", f"the library says {said}"
        return "accepted", "" if answer["oci"] == canonical else f"{canonical}\nand not\n{answer['oci']}"
    unresolved = said.partition("unresolvable CDI devices ")[2]
    if isinstance(found, (UnknownDevice, UnknownKind)):
        return type(found).__name__, "" if unresolved == ", ".join(found.subjects) else f"{found}: {said}"
    if not isinstance(found, MissingResource) or unresolved:
        return "other", f"{found!r}: {said}"
    if answer["accept"]:
        return "stricter", "" if all(map(is_missing, found.subjects)) else f"nothing is missing: {found}"
    return "missing", "" if "failed to inject devices" in said else said


def test_the_same_oci_json_or_the_same_error():
    rng, counts, differences = Random(11), Counter(), []
    requests = [request(rng) for _time in range(REQUESTS)]
    found = [ours(*one) for one in requests]
    with judge.Judge("newest") as library:
        answers = library.ask_all(
            judge.injecting([(name, encoded(spec)) for name, spec in files.items()], names, oci)
            for files, names, oci in requests
        )
        # Fields in Go's order, with what it leaves out or always writes: our document, with no devices injected.
        documents = [one if isinstance(one, dict) else {} for one in found]
        canonical = [answer["oci"] for answer in library.ask_all(judge.injecting([], [], one) for one in documents)]
    for one, answer, got, text in zip(requests, answers, found, canonical):
        sort, problem = disagreement(answer, got, text)
        counts[sort] += 1
        if problem:
            differences.append((one, problem))
    assert not differences, f"{len(differences)} of {REQUESTS}; the first: {json.dumps(differences[0], indent=1)}"
    assert counts["accepted"] > REQUESTS * 0.5, counts
    assert min(counts[sort] for sort in ("UnknownDevice", "UnknownKind", "missing", "stricter")) > REQUESTS // 100, (
        counts
    )


@pytest.mark.parametrize("library", judge.PINS)
@pytest.mark.parametrize(
    ("node", "gives"),
    [
        ({"path": "/dev/fleet-cdi-none", "type": "c", "major": 195, "minor": 7}, True),
        ({"path": "/dev/fleet-cdi-none", "type": "b", "major": 8}, True),
        ({"path": "/dev/fleet-cdi-none", "type": "u", "major": 4, "minor": 1}, True),
        ({"path": "/dev/fleet-cdi-none", "type": "p"}, True),
        ({"path": "/etc/passwd", "type": "c", "major": 195}, True),
        ({"path": "/dev/fleet-cdi-none", "type": "c", "minor": 7}, False),
        ({"path": "/dev/fleet-cdi-none", "major": 195, "minor": 7}, False),
        ({"path": "/dev/fleet-cdi-none"}, False),
        ({"path": "/dev/null", "type": "u"}, False),
        ({"path": "/dev/null", "type": "u", "minor": 3}, False),
        ({"path": "/dev/fleet-cdi-none", "type": "u", "major": 0}, False),
    ],
)
def test_a_node_that_is_absent_is_given_where_the_spec_says_all_of_it(library, node, gives):
    device = {"name": "x", "containerEdits": {"deviceNodes": [node]}}
    files = {"etc/a.json": {"cdiVersion": "0.3.0", "kind": KINDS[0], "devices": [device]}}
    names = [f"{KINDS[0]}=x"]
    with judge.Judge(library) as running:
        (answer,) = running.ask_all([judge.injecting([("etc/a.json", encoded(files["etc/a.json"]))], names, {})])
        assert answer["accept"] is gives, answer
        if not gives:
            assert isinstance(ours(files, names, {}), CdiError)
            return
        (canonical,) = running.ask_all([judge.injecting([], [], ours(files, names, {}))])
    assert answer["oci"] == canonical["oci"]


def test_fields_that_only_old_libraries_know():
    """enableCMT and enableMBM: the newest library refuses their specs, 0.8 copies them into the OCI spec."""
    device = {"name": "x", "containerEdits": {"intelRdt": {"closID": "one", "enableCMT": True, "enableMBM": True}}}
    files = {"etc/a.json": {"cdiVersion": "0.7.0", "kind": KINDS[0], "devices": [device]}}
    with judge.Judge("0.8") as library:
        specs_ = [(name, encoded(spec)) for name, spec in files.items()]
        (answer,) = library.ask_all([judge.injecting(specs_, ["vendor.com/gpu=x"], {})])
        (canonical,) = library.ask_all([judge.injecting([], [], ours(files, ["vendor.com/gpu=x"], {}))])
    assert answer["oci"] == canonical["oci"]
    assert answer["oci"]["linux"]["intelRdt"] == {"closID": "one", "enableCMT": True, "enableMBM": True}
