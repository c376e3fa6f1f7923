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
DIST = f"build/release/{VERSION}/dist"
TRIED = ("Exactly its device.", "Not run here", "no container to show")  # how the trial of the collection ends


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


def test_a_release_is_made(checkout):
    place, key = checkout
    before = built_release.git(place, "rev-parse", "HEAD")

    done = make(place, "--key", key)
    assert done.returncode == 0, done.stdout + done.stderr
    assert any(said in done.stdout for said in TRIED), done.stdout
    assert built_release.git(place, "tag").split() == [VERSION]
    assert built_release.git(place, "rev-parse", "HEAD^") == before
    assert built_release.git(place, "rev-parse", f"{VERSION}^{{commit}}") == built_release.git(
        place, "rev-parse", "HEAD"
    )
    assert built_release.git(place, "status", "--porcelain") == ""
    assert "v0.1.0" in (place / "CHANGELOG.rst").read_text() and not list(
        (place / "changelogs/fragments").glob("*.yml")
    )
    assert signature.verify(place / DIST, place / "release/signers") == 0

    done = make(place, "--dry-run")
    assert done.returncode == 1 and "tag 0.1.0 exists" in done.stdout


@pytest.mark.skipif(not os.environ.get("NIGHTLY"), reason="builds what the test before builds: make nightly")
def test_a_dry_run_leaves_the_checkout(checkout):
    place, _key = checkout
    before = built_release.git(place, "rev-parse", "HEAD")

    done = make(place, "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert any(said in done.stdout for said in TRIED), done.stdout
    assert built_release.git(place, "rev-parse", "HEAD") == before and built_release.git(place, "tag") == ""
    assert built_release.git(place, "status", "--porcelain") == ""
    assert signature.verify(place / DIST, place / "release/signers") == 1  # by a key that was thrown away
