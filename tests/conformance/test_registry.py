# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our registry against the reference library's cache, on the same directories: which file provides which name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import judge
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry
from ansible_collections.fleet.cdi.plugins.module_utils.spec.seen.linked import by_release

SETS = int(os.environ.get("REGISTRIES", "600"))
FILES = ("a.json", "b.json", "c.yaml", "d.yml", "e.txt", ".f.json", "g.json.tmp", "H.json")
KINDS = ("vendor.com/gpu", "vendor.com/nic", "other.org/gpu")


def spec(rng):
    """A valid spec with a few of a few names, so that many meet."""
    names = rng.sample(("x", "v", "z", "w"), rng.randint(1, 3))
    return {
        "cdiVersion": rng.choice(("0.5.0", "0.6.0", "v0.7.0")),
        "kind": rng.choice(KINDS),
        "devices": [{"name": name, "containerEdits": {"env": ["A=1"]}} for name in names],
    }


def as_yaml(document):
    return f"cdiVersion: {document['cdiVersion']}\nkind: {document['kind']}\ndevices:\n" + "".join(
        f"- name: {device['name']}\n  containerEdits:\n    env:\n    - A=1\n" for device in document["devices"]
    )


def put_spec(rng, path, _directories):
    document = spec(rng)
    path.write_text(as_yaml(document) if path.suffix == ".yaml" and rng.random() < 0.7 else json.dumps(document))


def put_broken(rng, path, _directories):
    path.write_bytes(rng.choice((b"", b"{", b"[]", b"null", b'{"cdiVersion": "9.9.9"}', b"\xff\xfe", b"{}")))


def put_symlink(rng, path, directories):
    """To a sibling, to a spec of another directory, to nothing, or to itself.

    Not from x.json to YAML: the reference reads it, we don't (rules.yml, json).
    """
    alike = [name for name in FILES[:3] if name.endswith(path.suffix)] or ["none"]
    path.symlink_to(rng.choice((*alike, rng.choice(directories) / alike[0], "none", path.name)))


def put_directory(rng, path, directories):
    """Named like a spec, with a spec inside that doesn't count."""
    path.mkdir()
    put_spec(rng, path / "inner.json", directories)


def put_other_device(rng, path, _directories):
    """A file with one name more than its sibling: some of its names conflict and some don't."""
    document = spec(rng)
    document["devices"].append({"name": f"only-{path.name[0]}", "containerEdits": {"env": ["A=1"]}})
    path.write_text(json.dumps(document))


PUT = (*[put_spec] * 6, put_other_device, put_broken, put_symlink, put_directory)


def make(rng, root):
    """A set of directories: (their paths, which of them are none)."""
    directories = [root / str(index) for index in range(rng.randint(1, 3))]
    bad = set()
    for directory in directories:
        state = rng.choice(("there",) * 8 + ("missing", "a file"))
        if state == "there":
            directory.mkdir()
        elif state == "a file":
            directory.write_text("not a directory")
            bad.add(str(directory))
    for directory in directories:
        for name in rng.sample(FILES, rng.randint(0, 4)) if directory.is_dir() else ():
            rng.choice(PUT)(rng, directory / name, directories)
    if rng.random() < 0.05:
        directories.append(directories[0])  # one directory twice: the same file at two priorities
    return [str(directory) for directory in directories], bad


def seen(found, row):
    """Our registry in the words of the judge, which stands for `row`.

    A directory named x.json is an error of ours alone (registry.py says why).
    """
    view = registry.resolve(found.directories, found.specs, found.errors, by_release([row]), found.unread)
    unread = {at for one in found.unread if row in one.releases for at in one.priorities}
    nothing = set(view.directories) - {path for at, path in enumerate(view.directories) if at not in unread}
    failed = {path for path in found.errors if not os.path.isdir(path) or os.path.islink(path)}
    failed = {path for path in failed if os.path.dirname(path) not in nothing}
    failed |= {path for paths in view.conflicts.values() for path in paths}
    return view.devices, failed - set(found.directories)


@pytest.mark.parametrize("program, row", [("newest", "1.1.1"), ("0.8", "0.8.0")])
def test_the_registry_is_the_reference_librarys(tmp_path, program, row):
    rng, differences = Random(7), []
    sets = []
    for index in range(SETS):
        root = tmp_path / str(index)
        root.mkdir()
        sets.append(make(rng, root))
    with judge.Judge(program) as library:
        answers = library.ask_all(judge.registering(directories) for directories, _bad in sets)
    counts = dict.fromkeys(("conflicts", "shadowed", "errors", "devices"), 0)
    for (directories, bad), answer in zip(sets, answers):
        found = registry.load(directories)
        assert bad <= found.errors.keys(), "a directory that can't be listed is told"
        if (answer.get("providers", {}), set(answer.get("failed", ()))) != seen(found, row):
            differences.append((directories, answer, seen(found, row)))
        for key in counts:
            counts[key] += bool(getattr(found, key))
    assert not differences, f"{len(differences)} of {SETS}; the first: {differences[0]}"
    assert min(counts.values()) > SETS // 20, counts


def test_no_directory_at_all(tmp_path):
    assert registry.load([]).devices == {} == registry.load([str(Path(tmp_path, "none"))]).devices
