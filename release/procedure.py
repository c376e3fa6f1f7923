# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a release: `make release VERSION=0.2.0 KEY=~/.ssh/release`, or `make release VERSION=0.2.0 DRY_RUN=1` to try it.

procedure.py VERSION --key KEY      KEY: the private key of a line in release/signers, or its public half for an agent
procedure.py VERSION --dry-run      the same with a key that is thrown away, and the checkout stays as it is

All happens in a clone, in build/release/VERSION: the changelog is made from the fragments, committed and tagged; the
artifacts are built from the tag, twice; they are signed and verified; and the collection is tried in a new environment.
Only then, without --dry-run, the checkout gets the commit and the tag. Nothing is pushed or published: the last lines
say how.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import artifacts
import signature
import source
import yaml

CHECKOUT = Path(__file__).resolve().parents[1]
VERSION = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?")  # what Galaxy takes
SIGNERS = "release/signers"
NOBODY = ["-c", "user.name=Dry run", "-c", "user.email=dry-run@example.com"]


class Refused(Exception):
    """The release can't be made."""


def step(text: str) -> None:
    """Say what comes next."""
    print(f"--- {text}", flush=True)


def git(place: Path, *words: str) -> str:
    """Return what git prints. Raises CalledProcessError."""
    return source.git(place, *words).decode().strip()


class Line(NamedTuple):
    """Where a version belongs, from 1.0 on (docs/release.md, "Backports")."""

    branch: str  # for fixes of its minor release; "" before 1.0
    is_fix: bool
    is_final: bool  # no pre-release


def line_of(version: str) -> Line:
    """The line of a version that VERSION matches."""
    found = VERSION.fullmatch(version)
    assert found
    major, minor, patch, suffix = found.groups()
    return Line("" if major == "0" else f"stable-{major}.{minor}", patch != "0", not suffix)


def wrong_branch(checkout: Path, version: str) -> str:
    """What is wrong with the branch that is checked out; "" if the version may come from it."""
    branch, line = git(checkout, "branch", "--show-current") or "(none)", line_of(version)
    if line.is_fix and line.branch:
        wrong = branch != line.branch
        return f"branch {branch}: has the next minor release; expected {line.branch} for {version}" if wrong else ""
    return f"branch {branch}: has fixes alone; expected main for {version}" if branch.startswith("stable-") else ""


def check(checkout: Path, version: str) -> None:
    """Raise Refused unless this commit can become the release."""
    found = []
    if not VERSION.fullmatch(version):
        found.append(f"VERSION: found {version!r}; expected a version as 1.2.3")
    elif wrong := wrong_branch(checkout, version):
        found.append(wrong)
    changed = git(checkout, "status", "--porcelain").splitlines()
    if changed:
        found.append(f"the work tree has changes that are not committed, as {changed[0].strip()}; commit or stash them")
    if git(checkout, "tag", "--list", version):
        found.append(
            f"tag {version} exists; a release is made once. Raise the version, or delete the tag if it was never pushed"
        )
    galaxy = yaml.safe_load((checkout / "galaxy.yml").read_text(encoding="utf-8"))["version"]
    host = re.search(
        r'^VERSION = "(.*)"$', (checkout / "plugins/module_utils/release/version.py").read_text(), re.MULTILINE
    )
    image = re.search(
        r"^ *image: .*:(\S+)$", (checkout / "examples/kubernetes/daemonset.yaml").read_text(), re.MULTILINE
    )
    places = {
        "galaxy.yml": galaxy,
        "plugins/module_utils/release/version.py": host and host.group(1),
        "examples/kubernetes/daemonset.yaml": image and image.group(1),
    }
    found += [f"{path}: has version {one}; expected {version}" for path, one in places.items() if one != version]
    if version in yaml.safe_load((checkout / "changelogs/changelog.yaml").read_text(encoding="utf-8"))["releases"]:
        found.append(f"changelogs/changelog.yaml: has {version} already")
    if not list((checkout / "changelogs/fragments").glob("*.yml")):
        found.append("changelogs/fragments: is empty, so nothing has changed for users since the last release")
    if found:
        raise Refused("\n".join(found))


def tagged(checkout: Path, version: str, place: Path, person: list[str]) -> Path:
    """Clone the checkout into `place`, make the changelog there, commit and tag it; return the clone."""
    clone = place / source.UNDER
    clone.parent.mkdir(parents=True)
    git(checkout, "clone", "--quiet", "--no-local", str(checkout), str(clone))
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(place)}
    for words in (["lint"], ["release", "--version", version]):
        subprocess.run(
            ["antsibull-changelog", *words], check=True, cwd=clone, env=environment, stdout=subprocess.DEVNULL
        )
    git(clone, "add", "--update")
    git(clone, "add", "changelogs/changelog.yaml", "CHANGELOG.md", "CHANGELOG.rst")
    git(clone, *person, "commit", "--quiet", "--message", f"Release {version}")
    git(clone, *person, "tag", "--annotate", "--message", f"Release {version}", version)
    return clone


def build(clone: Path, version: str, place: Path) -> source.Commit:
    """Build the tag twice, then with another path, umask, time zone and locale. Raises Refused if the builds differ."""
    commit = artifacts.made(clone, version, place / "dist")
    with tempfile.TemporaryDirectory() as again:
        other = Path(again) / "another clone"
        git(clone, "clone", "--quiet", "--no-local", str(clone), str(other))
        (other / "build").mkdir()
        (other / artifacts.CACHE).symlink_to(clone / artifacts.CACHE)
        environment = {**os.environ, "TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
        command = [sys.executable, str(other / "release/artifacts.py"), version, str(Path(again) / "dist")]
        subprocess.run(command, check=True, env=environment, umask=0o077, stdout=subprocess.DEVNULL)
        if (Path(again) / "dist" / artifacts.SUMS).read_bytes() != (place / "dist" / artifacts.SUMS).read_bytes():
            raise Refused(f"two builds of {version} differ; `make reproducible` shows which artifacts")
    return commit


def throw_away_key(place: Path) -> tuple[Path, Path]:
    """Make a key and the file of signers that names it: (key, signers)."""
    key, signers = place / "key", place / "signers"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "dry-run", "-f", str(key)], check=True)
    signers.write_text(f'dry-run namespaces="{signature.NAMESPACE}" {Path(f"{key}.pub").read_text()}')
    return key, signers


def open_branch(checkout: Path, version: str) -> list[str]:
    """Make the branch for fixes of a new minor release, at its tag; return its name, or nothing."""
    line = line_of(version)
    is_there = line.branch and git(checkout, "branch", "--list", line.branch)
    if not line.branch or line.is_fix or not line.is_final or is_there:
        return []
    git(checkout, "branch", line.branch, f"{version}^{{commit}}")
    return [line.branch]


def release(checkout: Path, version: str, key: Path | None) -> None:
    """Make the release; without a key try it. Raises Refused, CalledProcessError."""
    place = checkout / "build/release" / version
    step(f"Check that this commit can become {version}")
    check(checkout, version)
    signers = checkout / SIGNERS
    if key and not signers.exists():
        raise Refused(
            f'{SIGNERS}: is missing; commit a line for the key: NAME namespaces="{signature.NAMESPACE}" ssh-ed25519 ...'
        )
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    step(f"Make the changelog, commit and tag it in a clone in {place}")
    clone = tagged(checkout, version, place, [] if key else NOBODY)
    (clone / "build").mkdir()
    (checkout / artifacts.CACHE).mkdir(parents=True, exist_ok=True)
    (clone / artifacts.CACHE).symlink_to(checkout / artifacts.CACHE)
    step("Build the artifacts from the tag, twice")
    commit = build(clone, version, place)
    step("Sign and verify them")
    chosen, allowed = (key, signers) if key else throw_away_key(place)
    signature.sign(place / "dist", chosen)
    if signature.verify(place / "dist", allowed):
        raise Refused("the signature is not one by a key in " + str(allowed))
    step("Try the collection in a new environment")
    apart = [sys.executable, str(clone / "tests/harness/apart.py")]
    archive = next((place / "dist").glob("*.tar.gz"))
    done = subprocess.run(
        [*apart, sys.executable, str(clone / "release/trial.py"), str(archive), commit.id], check=False
    )
    if done.returncode:
        raise Refused("the collection does not work in a new environment; see above")
    if not key:
        step(f"Tried: {version} can be released. The checkout is as it was; the artifacts are in {place / 'dist'}")
        return
    step("Take the commit and the tag into this checkout")
    git(checkout, "fetch", "--quiet", str(clone), f"refs/tags/{version}:refs/tags/{version}")
    git(checkout, "merge", "--quiet", "--ff-only", version)
    branches = open_branch(checkout, version)
    step(f"Made: {version}, in {place / 'dist'}. Now publish it:")
    print(f"git push origin {' '.join(['HEAD', version, *branches])}")
    print(f"ansible-galaxy collection publish {archive}")
    print("Attach all files of that directory to the release of the forge. Then raise the version for the next one.")


def main(arguments: list[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--key", type=Path)
    way.add_argument("--dry-run", action="store_true")
    given = parser.parse_args(arguments)
    try:
        release(CHECKOUT, given.version, given.key)
    except Refused as problem:
        print(f"REFUSED: {problem}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
