# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make demo` and `make demo-undo` in a copy of the checkout, in every order. The README's first promise."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import counterparts
import footprint
import mirror
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SPECS = Path("/var/run/cdi")
ROOTS = Path("/var/lib/fleet-cdi/demo")  # where root's demo keeps everything else
USER = 65534  # an ordinary one
# Specs of somebody else, which the demo may neither change nor be stopped by: path -> text.
FOREIGN = {
    "/etc/cdi/vendor.com-card.json": """
{"cdiVersion": "0.3.0", "kind": "vendor.com/card", "devices": [{"name": "0", "containerEdits": {"env": ["CARD=0"]}}]}
""",
    "/var/run/cdi/nvidia.yaml": """
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
  - name: all
    containerEdits:
      deviceNodes:
        - path: /dev/null
""",
    "/var/run/cdi/broken.json": "{",
}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="looks at what the demo writes to /var/run/cdi: needs root")


@pytest.fixture
def demo(tmp_path):
    """Run a target in a copy of the checkout, on a machine with specs of somebody else: demo(target) -> its output."""
    for name in ("fleet.cdi", "another"):
        mirror.mirror(CHECKOUT, tmp_path / name)
    for path, text in FOREIGN.items():
        Path(path).write_text(text)

    def make(
        target: str,
        status: int = 0,
        path: str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        checkout: str = "fleet.cdi",
    ) -> str:
        python = os.path.join(sys.base_prefix, "bin", "python3")  # as on a machine where nothing was prepared
        command = ["make", "--no-print-directory", "-C", str(tmp_path / checkout), f"PYTHON={python}", target]
        # HOME is empty, and nothing of the environment that runs the tests may help.
        environment = {"PATH": path, "HOME": str(tmp_path)}
        keep = {name: os.environ[name] for name in ("PIP_INDEX_URL", "PIP_CONFIG_FILE", "LANG") if name in os.environ}
        done = subprocess.run(
            command, capture_output=True, text=True, env={**environment, **keep}, stdin=subprocess.DEVNULL, check=False
        )
        assert bool(done.returncode) == bool(status), done.stdout + done.stderr
        return done.stdout + done.stderr

    yield make
    make("demo-undo")
    assert not ROOTS.exists() and not (tmp_path / "fleet.cdi/build").exists()
    for path in FOREIGN:
        Path(path).unlink()


def test_demo_and_its_undo_each_twice(demo):
    """In whatever order: what is there after an undo is what was there before, so any other order is one of these."""
    before = footprint.look()
    demo("demo-undo")
    assert footprint.look() == before
    first = demo("demo")
    assert "fleet.cdi/tty=tty13" in first and "podman run --rm --device" in first
    if not counterparts.missing(("podman", "runc", "busybox-static")):
        assert first.count("Exactly its device.") == 2 and "given back: job-42" in first
    written = footprint.look()
    assert {Path(path).parent for path in written.keys() - before.keys()} == {SPECS.resolve()}
    assert "changed=0 " in demo("demo")
    assert footprint.look() == written
    for checkout in ("another", "fleet.cdi"):
        demo("demo-undo", checkout=checkout)
        assert footprint.look() == before
        assert not ROOTS.exists()


def test_in_a_checkout_of_an_ordinary_user(demo, tmp_path):
    """`git clone`, then `sudo make demo`: what root trusts may not lie where that user can change it."""
    for at, names, files in os.walk(tmp_path / "fleet.cdi"):
        for name in (".", *names, *files):
            os.chown(os.path.join(at, name), USER, USER, follow_symlinks=False)
    before = footprint.look()
    assert str(ROOTS) in demo("demo")
    assert not (tmp_path / "fleet.cdi/build").exists()
    for at, _names, files in os.walk(ROOTS.parent):
        for path in (at, *(os.path.join(at, name) for name in files)):
            found = os.lstat(path)
            assert found.st_uid == 0 and (os.path.islink(path) or not found.st_mode & 0o022), path
    written = footprint.look()
    # What a demo before this rule left. Where others can change it, nothing in it is run, or believed, or removed.
    older = tmp_path / "fleet.cdi/build/demo"
    shutil.move(ROOTS, older)
    said = demo("demo-undo", status=1)
    assert f"{older} stays" in said and f"can change {tmp_path / 'fleet.cdi'}" in said
    assert footprint.look() == written and older.exists()
    shutil.move(older, tmp_path / "another/build/demo")
    demo("demo-undo", checkout="another")
    assert footprint.look() == before and not (tmp_path / "another/build/demo").exists()
    older.parent.rmdir()


def test_what_a_user_s_own_demo_made_is_left_to_that_user(demo, tmp_path):
    theirs = tmp_path / "fleet.cdi/build/demo"
    theirs.mkdir(parents=True)
    os.chown(theirs, USER, USER)
    assert "as that user" in demo("demo-undo")
    assert theirs.exists()
    shutil.rmtree(theirs.parent)


BROKEN = {
    "no program": "\x7fELF",
    "a library is missing": "#!/bin/sh\necho podman: error while loading libgpgme.so.11 >&2\nexit 127\n",
    "it crashes": "#!/bin/sh\nkill -SEGV $$\n",
}


# On a busy machine podman may lose what a brief container prints. This one loses it of every other container.
FORGETFUL = """\
#!/bin/sh
for word in "$@"; do
    if [ "$word" = run ] && mkdir {0}/lost 2>/dev/null; then exec {1} "$@" >/dev/null; fi
done
rmdir {0}/lost 2>/dev/null
exec {1} "$@"
"""


@pytest.mark.counterpart("podman", "runc", "busybox-static")
def test_a_container_whose_output_is_lost_runs_again(demo, tmp_path):
    podman = tmp_path / "bin/podman"
    podman.parent.mkdir()
    podman.write_text(FORGETFUL.format(tmp_path, shutil.which("podman")))
    podman.chmod(0o755)
    said = demo("demo", path=f"{podman.parent}:/usr/sbin:/usr/bin:/sbin:/bin")
    assert said.count("Exactly its device.") == 2


@pytest.mark.counterpart("busybox-static")
def test_a_broken_podman_is_named_and_no_traceback(demo, tmp_path):
    podman = tmp_path / "bin/podman"
    podman.parent.mkdir()
    for text in BROKEN.values():
        podman.write_text(text)
        podman.chmod(0o755)
        said = demo("demo", status=1, path=f"{podman.parent}:/usr/sbin:/usr/bin:/sbin:/bin")
        assert f"{podman} can't start any container here" in said and "make demo-undo" in said
        assert "Traceback" not in said
