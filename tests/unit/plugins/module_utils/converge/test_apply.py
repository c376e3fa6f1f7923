# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A look at the host, and its plan, hold from before the lock to the change, unless another process came in between."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge import apply as apply_file
from ansible_collections.fleet.cdi.plugins.module_utils.converge import module_diff
from ansible_collections.fleet.cdi.plugins.module_utils.converge.change import Plan, plan_file
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import digest, locked_manifest


@pytest.fixture
def planned(tmp_path):
    file, state = tmp_path / "file", str(tmp_path / "state")
    manifests = []

    def plan(manifest):
        manifests.append(manifest)
        return Plan(str(file), plan_file(str(file), b"new", manifest, force=True), ())

    return file, state, manifests, plan


def test_a_host_that_nobody_else_changes_is_planned_once(planned):
    file, state, manifests, plan = planned
    apply_file.apply(plan, state, False)
    assert len(manifests) == 1 and file.read_bytes() == b"new"


RIGHTS = [
    pytest.param(lambda path: path.chmod(0o666), id="mode"),
    pytest.param(
        lambda path: os.chown(path, 1000, -1),
        id="owner",
        marks=pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away: needs root"),
    ),
]


@pytest.mark.parametrize("change", RIGHTS)
def test_a_file_that_others_may_write_is_written_anew(planned, change):
    """Programs of root trust its content, and its owner could change that unseen."""
    file, state, _manifests, plan = planned
    apply_file.apply(plan, state, False)
    assert apply_file.apply(plan, state, False).changes == ()
    change(file)
    assert apply_file.apply(plan, state, True).changes
    (done,) = apply_file.apply(plan, state, False).changes
    assert module_diff.text(done)["prepared"] == module_diff.CORRECTED
    assert (file.stat().st_mode & 0o777, file.stat().st_uid) == (0o644, os.geteuid())
    assert apply_file.apply(plan, state, False).changes == ()


@pytest.mark.parametrize("what", ["manifest", "file"])
def test_a_change_in_between_is_planned_for(planned, monkeypatch, what):
    file, state, manifests, plan = planned

    def locked(state_dir):
        with locked_manifest(state_dir) as manifest:
            if what == "manifest":
                manifest.write(str(file), b"of another run")
        if what == "file":
            file.write_bytes(b"of another tool")
        return locked_manifest(state_dir)

    monkeypatch.setattr(apply_file, "locked_manifest", locked)
    done = apply_file.apply(plan, state, False)
    assert len(manifests) == 2 and file.read_bytes() == b"new"
    assert done.changes[0].before == (b"of another run" if what == "manifest" else b"of another tool")


@pytest.fixture
def noted(tmp_path):
    """Call apply with a plan that writes what a look at another file finds: noted(in the middle of the first look)."""
    source, file, state = tmp_path / "source", tmp_path / "file", str(tmp_path / "state")
    looks = []

    def write(content):
        with locked_manifest(state) as manifest:
            manifest.write(str(source), content)

    def plan(manifest, meanwhile):
        looks.append(source.read_bytes())
        if looks[1:] == []:
            meanwhile()
        return Plan(str(file), plan_file(str(file), b"saw " + looks[-1], manifest), ())

    def call(meanwhile):
        apply_file.apply(lambda manifest: plan(manifest, meanwhile), state, False)
        return file.read_bytes(), len(looks)

    call.write, call.source, call.state = write, source, state
    write(b"one")
    return call


class TestAnotherLook:
    def test_there_is_none_if_nobody_else_writes(self, noted):
        assert noted(lambda: None) == (b"saw one", 1)

    def test_what_another_process_wrote_meanwhile_is_looked_at(self, noted):
        assert noted(lambda: noted.write(b"two")) == (b"saw two", 2)

    def test_records_that_are_as_before_do_not_hide_it(self, noted):
        noted.write(b"two")

        def there_and_back():
            noted.write(b"one")
            noted.write(b"two")

        assert noted(there_and_back) == (b"saw two", 2)

    def test_a_process_that_was_writing_when_the_look_began_may_write_after_it(self, noted):
        """Its manifest is saved already, its file is not: after the look, the manifest is still the same."""
        with ExitStack() as writing:
            manifest = writing.enter_context(locked_manifest(noted.state))
            manifest.files[str(noted.source)]["applied"].insert(0, digest(b"two"))
            manifest.note_links({"/dev/char/1:3": {"target": "../null", "boot_id": ""}})  # saves it

            def end():
                noted.source.write_bytes(b"two")
                writing.close()

            assert noted(end) == (b"saw two", 2)


def test_a_record_from_a_backup_is_corrected(planned):
    """The file is as wanted, and the manifest lists an older content: without a correction it drifts for ever."""
    file, state, _manifests, plan = planned
    apply_file.apply(plan, state, False)
    with locked_manifest(state) as manifest:
        manifest.write(str(file), b"old")
    file.write_bytes(b"new")
    with locked_manifest(state) as manifest:
        manifest.files[str(file)]["applied"] = manifest.files[str(file)]["applied"][:1]
        manifest.note_links({"/dev/char/1:3": {"target": "../null", "boot_id": ""}})  # saves it
        assert not manifest.owns(str(file))
    assert len(apply_file.apply(plan, state, False).changes) == 1
    with locked_manifest(state) as manifest:
        assert manifest.owns(str(file))
    assert apply_file.apply(plan, state, False).changes == ()
