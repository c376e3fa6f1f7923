# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sign and verify the artifacts of a release, without a network: SHA256SUMS names them, and SHA256SUMS.sig signs it.

ssh-keygen does it, because each controller of Ansible has OpenSSH, from 8.2 on; minisign and cosign would have to be
installed, and a signature by sigstore needs its services at the time of the release.

signature.py sign DIR KEY            KEY: a private key, or a public one whose private half an agent has
signature.py verify DIR SIGNERS      SIGNERS: allowed signers, as in ssh-keygen(1); exit code 1 for any difference
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

SUMS = "SHA256SUMS"
SIGNATURE = f"{SUMS}.sig"
NAMESPACE = "fleet-cdi-release"  # a signature for something else, as a commit, is none for a release


def sign(directory: Path, key: Path) -> None:
    """Write SHA256SUMS.sig. Raises CalledProcessError if the key can't sign."""
    (directory / SIGNATURE).unlink(missing_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(directory / SUMS)],
        check=True,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )


def signer(directory: Path, signers: Path) -> str:
    """Return the name of the signer whose key signed SHA256SUMS; "" if that is none of `signers`."""
    ask = ["ssh-keygen", "-Y", "find-principals", "-f", str(signers), "-s", str(directory / SIGNATURE)]
    asked = subprocess.run(ask, check=False, capture_output=True, text=True)
    name = (asked.stdout.splitlines() or [""])[0]
    if asked.returncode != 0 or not name:
        return ""
    verify = ["ssh-keygen", "-q", "-Y", "verify", "-f", str(signers), "-I", name, "-n", NAMESPACE]
    verify += ["-s", str(directory / SIGNATURE)]
    done = subprocess.run(verify, check=False, capture_output=True, input=(directory / SUMS).read_bytes())
    return name if done.returncode == 0 else ""


def problems(directory: Path) -> list[str]:
    """Return what differs from SHA256SUMS. A signature of this list says nothing about files that it does not name."""
    listed = dict(line.split("  ", 1)[::-1] for line in (directory / SUMS).read_text(encoding="utf-8").splitlines())
    there = {path.name: path for path in directory.iterdir() if path.name not in (SUMS, SIGNATURE)}
    found = [f"{name}: is missing" for name in sorted(listed.keys() - there.keys())]
    found += [f"{name}: is not in {SUMS}" for name in sorted(there.keys() - listed.keys())]
    for name in sorted(listed.keys() & there.keys()):
        if not there[name].is_file() or hashlib.sha256(there[name].read_bytes()).hexdigest() != listed[name]:
            found.append(f"{name}: is not the file that {SUMS} names")
    return found


def verify(directory: Path, signers: Path) -> int:
    """Say who signed the files, and what is wrong with them; 1 if anything is."""
    name = signer(directory, signers)
    if not name:
        print(f"{directory / SIGNATURE}: is no signature of {SUMS} by a key in {signers}")
        return 1
    found = problems(directory)
    print("\n".join(found) or f"{directory}: signed by {name}, and every file is the one that was signed")
    return 1 if found else 0


def main(action: str, directory: str, key: str) -> int:
    """The command line."""
    if action == "sign":
        sign(Path(directory), Path(key))
        return 0
    return verify(Path(directory), Path(key))


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("sign", "verify"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
