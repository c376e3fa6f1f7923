# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device plugin's image: what it takes of a package, its layout, and the manifests that name it."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from pathlib import Path

import debian_packages
import oci_image
import pytest
import yaml
from debian_packages import Package
from deterministic import DIRECTORY, LINK, Member
from source import Commit

TREE = Path(__file__).resolve().parents[3]
COMMIT = Commit("0" * 40, 1_700_000_000)
LAYERS = {
    "one": {"usr": Member("usr", b"", 0o755, DIRECTORY), "usr/a": Member("usr/a", b"A")},
    "two": {"b": Member("b", b"B")},
}


def packed(members, compression):
    """A tar as dpkg-deb writes it: (name, type, mode, content or target)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{compression}") as archive:
        for name, kind, mode, content in members:
            head = tarfile.TarInfo(f"./{name}")
            head.type, head.mode, head.mtime = kind, mode, 12345
            if kind == tarfile.REGTYPE:
                head.size = len(content)
            else:
                head.linkname = content.decode()
            archive.addfile(head, io.BytesIO(content))
    return buffer.getvalue()


def deb(*members):
    """A package with these files."""
    control = packed([("control", tarfile.REGTYPE, 0o644, b"Package: a\n")], "xz")
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": control, "data.tar.xz": packed(members, "xz")}
    found = b"!<arch>\n"
    for name, content in parts.items():
        found += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode() + content
        found += b"\n" * (len(content) % 2)
    return found


def package_of(content, name="a"):
    digest = hashlib.sha256(content).hexdigest()
    return Package(name, "1.0-1", f"pool/{name}.deb", digest, hashlib.sha1(content).hexdigest())


def test_what_is_taken_of_a_package():
    content = deb(
        ("usr", tarfile.DIRTYPE, 0o2755, b""),
        ("usr/su", tarfile.REGTYPE, 0o4755, b"su"),
        ("usr/hard", tarfile.LNKTYPE, 0o755, b"./usr/su"),
        ("usr/soft", tarfile.SYMTYPE, 0o777, b"su"),
        ("usr/share/doc/a/copyright", tarfile.REGTYPE, 0o644, b"free"),
        ("usr/share/doc/a/changelog.gz", tarfile.REGTYPE, 0o644, b""),
        ("usr/share/man/man1/a.1.gz", tarfile.REGTYPE, 0o644, b""),
    )
    assert debian_packages.unpacked(package_of(content), content) == {
        "usr": Member("usr", b"", 0o755, DIRECTORY),
        "usr/su": Member("usr/su", b"su", 0o755),
        "usr/hard": Member("usr/hard", b"su", 0o755),
        "usr/soft": Member("usr/soft", b"", 0o777, LINK, "su"),
        "usr/share/doc/a/copyright": Member("usr/share/doc/a/copyright", b"free"),
        "var/lib/dpkg/status.d/a": Member("var/lib/dpkg/status.d/a", b"Package: a\n"),
    }


def test_a_device_node_in_a_package_is_refused():
    content = deb(("dev/mem", tarfile.CHRTYPE, 0o600, b""))
    with pytest.raises(ValueError, match="dev/mem: is neither a file"):
        debian_packages.unpacked(package_of(content), content)


def test_two_packages_with_the_same_file_are_refused():
    with pytest.raises(ValueError, match="usr/a: two packages bring it, and two another one"):
        oci_image.base({"one": {"usr/a": Member("usr/a", b"A")}, "two": {"usr/a": Member("usr/a", b"B")}})


def test_the_digest_decides_about_a_package(tmp_path, monkeypatch):
    content = deb()
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool/a.deb").write_bytes(content)
    monkeypatch.setenv("FLEET_CDI_DEBIAN_MIRROR", tmp_path.as_uri())
    monkeypatch.setattr(debian_packages, "BY_SHA1", (tmp_path / "snapshot").as_uri())
    package, cache = package_of(content), tmp_path / "cache"
    debian_packages.fetch([package], cache)
    assert debian_packages.content_of(package, cache) == content
    (cache / package.sha256).write_bytes(b"other")
    with pytest.raises(ValueError, match="is not what its name says"):
        debian_packages.content_of(package, cache)
    (cache / package.sha256).unlink()
    (tmp_path / "pool/a.deb").write_bytes(b"of the next release")
    with pytest.raises(OSError, match=r"a\.deb: has another digest; .*snapshot/"):
        debian_packages.fetch([package], cache)
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / package.sha1).write_bytes(content)  # what the mirror has no more
    debian_packages.fetch([package], cache)
    assert debian_packages.content_of(package, cache) == content


def test_the_list_of_packages_has_what_the_plugin_needs():
    found = {package.name: package for package in debian_packages.locked()}
    assert set(debian_packages.WANTED) <= found.keys()
    for package in found.values():
        assert re.fullmatch("[0-9a-f]{64}", package.sha256) and re.fullmatch("[0-9a-f]{40}", package.sha1)
        assert package.path.startswith("pool/main/") and package.path.endswith(".deb")


def blobs(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {one.name: opened.extractfile(one).read() for one in opened if one.isfile()}


def test_the_layout_holds_together():
    made = oci_image.image(LAYERS, "1.2.3", "https://example.com/x", COMMIT)
    found = blobs(made.archive)
    assert json.loads(found.pop("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
    (head,) = json.loads(found.pop("index.json"))["manifests"]
    for name, content in found.items():
        assert name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"

    def blob(one):
        content = found.pop(one["digest"].replace("sha256:", "blobs/sha256/"))
        assert one["size"] == len(content)
        return content

    manifest = json.loads(blob(head))
    config = json.loads(blob(manifest["config"]))
    assert head["digest"] == made.digest
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]  # they are not compressed
    assert config["config"]["Labels"]["org.opencontainers.image.revision"] == COMMIT.id
    for layer in manifest["layers"]:
        blob(layer)
    assert found == {}
    assert made.files == {"usr/a": b"A", "b": b"B"}


def test_the_same_layers_give_the_same_image_and_others_another_one():
    one = oci_image.image(LAYERS, "1.2.3", "https://example.com/x", COMMIT)
    turned = {name: dict(reversed(members.items())) for name, members in LAYERS.items()}
    assert oci_image.image(turned, "1.2.3", "https://example.com/x", COMMIT) == one
    other = {**LAYERS, "two": {"b": Member("b", b"C")}}
    assert oci_image.image(other, "1.2.3", "https://example.com/x", COMMIT).digest != one.digest


def test_the_manifests_differ_from_the_examples_in_the_image_alone():
    version = yaml.safe_load((TREE / "galaxy.yml").read_text())["version"]
    made = list(yaml.safe_load_all(oci_image.manifests(TREE, version, "sha256:abc")))
    examples = [
        yaml.safe_load((TREE / f"examples/kubernetes/{name}.yaml").read_text()) for name in ("configmap", "daemonset")
    ]
    (container,) = made[1]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"{oci_image.PLACE}@sha256:abc"
    container["image"] = f"{oci_image.PLACE}:{version}"
    assert made == examples
    with pytest.raises(ValueError, match="expected the image"):
        oci_image.manifests(TREE, "9.9.9", "sha256:abc")
