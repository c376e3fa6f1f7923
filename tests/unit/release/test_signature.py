# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Signatures of a release, with keys that live as long as a test: what was signed is accepted, and nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import page  # tests/harness
import pytest
import signature


def key(directory, name):
    """Make a key: (path of the private one, its line in a file of allowed signers)."""
    path = directory / f"key of {name}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path], check=True)
    return path, f'{name} namespaces="{signature.NAMESPACE}" {path.with_name(path.name + ".pub").read_text()}'


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    place = tmp_path_factory.mktemp("keys")
    ours, line = key(place, "release@fleet-cdi.example")
    other, _line = key(place, "somebody@example.com")
    (place / "signers").write_text(line)
    return place / "signers", ours, other


@pytest.fixture
def signed(built, keys, tmp_path):
    """A copy of a signed release."""
    place = tmp_path / "dist"
    shutil.copytree(built.out, place)
    signature.sign(place, keys[1])
    return place


def refused(place, keys, capsys):
    status = signature.main("verify", str(place), str(keys[0]))
    return capsys.readouterr().out if status == 1 else ""


def test_a_signed_release_is_accepted_and_its_signer_named(signed, keys, capsys):
    assert signature.main("verify", str(signed), str(keys[0])) == 0
    assert "signed by release@fleet-cdi.example" in capsys.readouterr().out


@pytest.mark.parametrize("end", [".tar.gz", ".zip", ".sha256", ".cdx.json", "provenance.json"])
def test_one_flipped_bit_is_refused(signed, keys, capsys, end):
    path = next(path for path in sorted(signed.iterdir()) if path.name.endswith(end))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert f"{path.name}: is not the file that SHA256SUMS names" in refused(signed, keys, capsys)


@pytest.mark.parametrize("name", ["SHA256SUMS", "SHA256SUMS.sig"])
def test_one_flipped_bit_of_the_list_or_the_signature_is_refused(signed, keys, capsys, name):
    content = bytearray((signed / name).read_bytes())
    content[len(content) // 2] ^= 1
    (signed / name).write_bytes(content)
    assert "is no signature of SHA256SUMS" in refused(signed, keys, capsys)


def test_a_missing_and_an_added_file_are_refused(signed, keys, capsys):
    (signed / "provenance.json").unlink()
    (signed / "more.tar.gz").write_bytes(b"")
    said = refused(signed, keys, capsys)
    assert "provenance.json: is missing" in said and "more.tar.gz: is not in SHA256SUMS" in said


def test_the_key_of_somebody_else_is_refused(signed, keys, capsys):
    signature.sign(signed, keys[2])
    assert "is no signature of SHA256SUMS" in refused(signed, keys, capsys)


def test_a_signature_for_another_purpose_is_refused(signed, keys, capsys):
    (signed / "SHA256SUMS.sig").unlink()
    command = ["ssh-keygen", "-q", "-Y", "sign", "-n", "git", "-f", keys[1], signed / "SHA256SUMS"]
    subprocess.run(command, check=True, capture_output=True)
    assert "is no signature of SHA256SUMS" in refused(signed, keys, capsys)


def test_a_release_without_a_signature_is_refused(signed, keys, capsys):
    (signed / "SHA256SUMS.sig").unlink()
    assert "is no signature of SHA256SUMS" in refused(signed, keys, capsys)


def test_a_key_that_can_not_sign_is_an_error(signed, keys):
    with pytest.raises(subprocess.CalledProcessError):
        signature.sign(signed, keys[0])


def test_the_commands_of_the_page_verify_a_release(signed, keys):
    """docs/release.md, "Signatures": with the checkout, and without."""
    text = (Path(__file__).resolve().parents[3] / "docs/release.md").read_text(encoding="utf-8")
    steps = [step for block in page.blocks(text) if block.language == "console" for step in page.steps(block)]
    words = {"dist": str(signed), "signers": str(keys[0]), "NAME": "release@fleet-cdi.example"}
    typed = 0
    for step in steps:
        if not re.search("signature.py|ssh-keygen|--strict SHA256SUMS", step.command):
            continue
        command = " ".join(words.get(word, word) for word in step.command.split())
        place = Path(__file__).resolve().parents[3] if "signature.py" in command else signed
        done = subprocess.run(command, shell=True, cwd=place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        typed += 1
    assert typed == 3
