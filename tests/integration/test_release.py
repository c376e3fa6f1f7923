# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make release` in a copy of the checkout: from a commit to a signed release that works elsewhere, and its tag."""

from __future__ import annotations

import os
import subprocess
import sys

import built_release  # tests/harness
import pytest
import signature  # release

VERSION = "0.1.0"


@pytest.fixture
def checkout(tmp_path):
    """A checkout with a key that may sign: (its directory, the key)."""
    place = built_release.with_packages(tmp_path)
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = key.with_suffix(".pub").read_text()
    (place / "release/signers").write_text(f'maintainer namespaces="{signature.NAMESPACE}" {public}')
    built_release.git(place, "add", "--all")
    built_release.git(place, "commit", "--quiet", "--message", "Name who signs")
    return place, key


def make(place, *options):
    command = [sys.executable, place / "release/procedure.py", VERSION, *options]
    environment = {**os.environ, **built_release.PERSON}
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, stdin=subprocess.DEVNULL
    )


def test_a_release_is_tried_and_then_made(checkout):
    place, key = checkout
    before = built_release.git(place, "rev-parse", "HEAD")
    dist = place / "build/release" / VERSION / "dist"

    done = make(place, "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "Exactly its device." in done.stdout or "Not run here" in done.stdout or "no container to show" in done.stdout
    )
    assert built_release.git(place, "rev-parse", "HEAD") == before and built_release.git(place, "tag") == ""
    assert built_release.git(place, "status", "--porcelain") == ""
    assert signature.verify(dist, place / "release/signers") == 1  # by a key that was thrown away

    done = make(place, "--key", key)
    assert done.returncode == 0, done.stdout + done.stderr
    assert built_release.git(place, "tag").split() == [VERSION]
    assert built_release.git(place, "rev-parse", "HEAD^").strip() == before.strip()
    assert built_release.git(place, "rev-parse", f"{VERSION}^{{commit}}") == built_release.git(
        place, "rev-parse", "HEAD"
    )
    assert built_release.git(place, "status", "--porcelain") == ""
    assert "v0.1.0" in (place / "CHANGELOG.rst").read_text() and not list(
        (place / "changelogs/fragments").glob("*.yml")
    )
    assert signature.verify(dist, place / "release/signers") == 0

    done = make(place, "--dry-run")
    assert done.returncode == 1 and "tag 0.1.0 exists" in done.stdout
