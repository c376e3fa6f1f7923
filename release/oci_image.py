# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device plugin's image: an OCI layout in a tar, made without a registry and without root; nothing runs in it.

The first layer is Debian's packages, unpacked (debian_packages.py). The second one is the release, installed by its own
code. There is no byte code in it: it would depend on the Python that compiled it.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import debian_packages
from deterministic import DIRECTORY, FILE, LINK, Member, tar
from sbom import LICENSE, time_of
from source import Commit

MEDIA = "application/vnd.oci.image"
NAME = "fleet-cdi-device-plugin"
PLACE = f"registry.example.com/{NAME}"  # as the manifests in examples/kubernetes call it
PREFIX = "/opt/cdi"
# What the packages' scripts would make.
MADE = (
    Member("etc/passwd", b"root:x:0:0:root:/root:/usr/sbin/nologin\n"),
    Member("etc/group", b"root:x:0:\n"),
    Member("var/run", type=LINK, mode=0o777, target="/run"),
    Member("var/lock", type=LINK, mode=0o777, target="/run/lock"),
)


class Image(NamedTuple):
    """The image: its archive, the digest by which a registry knows it, and the files in it by their path."""

    archive: bytes
    digest: str  # sha256:...
    files: Mapping[str, bytes]


def base(packages: Mapping[str, Mapping[str, Member]]) -> dict[str, Member]:
    """Return what the packages (name -> its entries) make together. Raises ValueError if two have different files."""
    found: dict[str, Member] = {}
    for package, members in packages.items():
        for name, member in members.items():
            there = found.setdefault(name, member)
            if there != member and not there.type == member.type == DIRECTORY:
                raise ValueError(f"{name}: two packages bring it, and {package} another one")
    found.update({member.name: member for member in MADE})
    return found


def installed(archive: bytes, release: str, options: Mapping[str, Any]) -> dict[str, Member]:
    """Return the files of the release, installed below PREFIX as module host_release would in the image.

    The code of the release makes them in a temporary directory. Raises CdiError, OSError.
    """
    from ansible_collections.fleet.cdi.plugins.module_utils.release import host, host_release, install, launcher

    python = host.Interpreter(options["python"], "", "", ())
    launchers = launcher.texts(options["python"], host_release.launcher_defaults(dict(options)))
    with tempfile.TemporaryDirectory() as place:
        prefix = os.path.realpath(place) + PREFIX
        install.present(prefix, release, python, launchers, _run, archive, on_path=False)
        found = dict(_below(Path(place)))
    lock, record = f"{PREFIX}/lib/.fleet-cdi.lock"[1:], f"{PREFIX}/lib/.fleet-cdi.json"[1:]
    del found[lock]
    document = json.loads(found[record].content)
    made = [path[len(prefix) - len(PREFIX) :] for path in document["directories"] if path.startswith(prefix)]
    text = json.dumps({**document, "directories": made}, indent=2, sort_keys=True) + "\n"
    found[record] = found[record]._replace(content=text.encode())
    return found


def _run(command: list[str]) -> tuple[int, str, str]:
    """Run what the installation tries, with the Python of this machine; nothing is compiled."""
    if "compileall" in command:
        return 0, "", ""
    variables = [word for word in command if "=" in word and not word.startswith("-")]
    words = [word for word in command if word not in (*variables, "/usr/bin/env")]
    done = subprocess.run(
        [sys.executable, "-IS", *words],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **dict(variable.split("=", 1) for variable in variables)},
    )
    return done.returncode, done.stdout, done.stderr


def _below(place: Path) -> list[tuple[str, Member]]:
    """Return what lies below a directory, with the modes that an installation by root gives."""
    found = []
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        if path.is_symlink():
            member = Member(name, b"", 0o777, LINK, os.readlink(path))
        elif path.is_dir():
            member = Member(name, b"", 0o755, DIRECTORY)
        else:
            member = Member(name, path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644)
        found.append((name, member))
    return found


def _layer(members: Mapping[str, Member], epoch: int) -> bytes:
    return tar([member for _name, member in sorted(members.items())], epoch)


def image(layers: Mapping[str, Mapping[str, Member]], version: str, repository: str, commit: Commit) -> Image:
    """Return the image of these layers (what made it -> its entries)."""
    tars = [_layer(members, commit.epoch) for members in layers.values()]
    created = time_of(commit)
    labels = {
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.licenses": LICENSE,
        "org.opencontainers.image.revision": commit.id,
        "org.opencontainers.image.source": repository,
        "org.opencontainers.image.title": NAME,
        "org.opencontainers.image.version": version,
    }
    config = {
        "architecture": debian_packages.ARCHITECTURE,
        "os": "linux",
        "created": created,
        "config": {
            "Entrypoint": [f"{PREFIX}/bin/fleet-cdi", "plugin", "run"],
            "Env": ["PATH=/usr/sbin:/usr/bin"],
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [_digest(one) for one in tars]},
        "history": [{"created": created, "created_by": by} for by in layers],
    }
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, kind: str) -> dict[str, Any]:
        blobs[f"blobs/sha256/{_digest(content).partition(':')[2]}"] = content
        return {"mediaType": f"{MEDIA}.{kind}", "digest": _digest(content), "size": len(content)}

    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.manifest.v1+json",
        "config": blob(_json(config), "config.v1+json"),
        "layers": [blob(one, "layer.v1.tar") for one in tars],
    }
    head = blob(_json(manifest), "manifest.v1+json")
    head["annotations"] = {
        "org.opencontainers.image.ref.name": version,
        "io.containerd.image.name": f"{PLACE}:{version}",
    }
    index = {"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": [head]}
    directories = [Member(name, b"", 0o755, DIRECTORY) for name in ("blobs", "blobs/sha256")]
    files = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json(index),
        **dict(sorted(blobs.items())),
    }
    archive = tar([*directories, *(Member(name, content) for name, content in files.items())], commit.epoch)
    contents = {m.name: m.content for members in layers.values() for m in members.values() if m.type == FILE}
    return Image(archive, head["digest"], contents)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def built(tree: Path, cache: Path, archive: bytes, release: str, info: Mapping[str, Any], commit: Commit) -> Image:
    """Return the image with this release; `cache` has the packages, and `info` is what galaxy.yml says."""
    options = runpy.run_path(str(tree / "examples/kubernetes/release.py"))["OPTIONS"]
    packages = debian_packages.locked(tree / "release/debian.json")
    brought = {
        package.name: debian_packages.unpacked(package, debian_packages.content_of(package, cache))
        for package in packages
    }
    layers = {
        f"Debian {debian_packages.SUITE}: {len(packages)} packages of release/debian.json": base(brought),
        f"fleet.cdi {release}": installed(archive, release, options),
    }
    return image(layers, info["version"], info["repository"], commit)


def manifests(tree: Path, version: str, digest: str) -> bytes:
    """Return the manifests of examples/kubernetes in one file, with the image by its digest. Raises ValueError."""
    texts = [
        (tree / f"examples/kubernetes/{name}.yaml").read_text(encoding="utf-8") for name in ("configmap", "daemonset")
    ]
    text, tagged = "".join(texts), f"{PLACE}:{version}"
    if text.count(tagged) != 1:
        raise ValueError(f"examples/kubernetes/daemonset.yaml: expected the image {tagged} once")
    return text.replace(tagged, f"{PLACE}@{digest}").encode()


def components(packages: list[debian_packages.Package]) -> list[dict[str, Any]]:
    """Return the packages as components of a bill of materials."""
    return [
        {
            "bom-ref": package.purl,
            "type": "library",
            "name": package.name,
            "version": package.version,
            "purl": package.purl,
            "hashes": [{"alg": "SHA-256", "content": package.sha256}],  # of the package, not of a file
        }
        for package in packages
    ]


def inputs(packages: list[debian_packages.Package]) -> list[dict[str, Any]]:
    """Return the packages as inputs of the provenance."""
    return [{"uri": package.purl, "digest": {"sha256": package.sha256}} for package in packages]
