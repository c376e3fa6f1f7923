# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run brings a host to the state of its settings, says what it did, and changes nothing the second time."""

from __future__ import annotations

import json
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.claims import store
from ansible_collections.fleet.cdi.plugins.module_utils.claims.device_name import spec_file
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import GRANTED, ClaimRecord, WantedClaim
from ansible_collections.fleet.cdi.plugins.module_utils.cli import main as main_verbs
from ansible_collections.fleet.cdi.plugins.module_utils.cli.main import main
from ansible_collections.fleet.cdi.plugins.module_utils.converge.host import device_plugin, plugins, removal
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import cdi_plugin, device_state
from ansible_collections.fleet.cdi.plugins.module_utils.converge.last_refresh import (
    LastRefresh,
    note_path,
    note_refresh,
)
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import (
    converge_unit,
    device_plugin_service,
    units,
)
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import guard, host, needed_by
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import detect, installations
from ansible_collections.fleet.cdi.plugins.module_utils.system import systemd
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.host.conftest import (
    Answer,
    entry,
    settings_in,
)

TWO = {"one": entry(1), "two": entry(2)}
ALL_PARTS = ("release", "driver", "specs", "runtimes", "plugins", "refresh", "device_plugin")


def changed(result: dict[str, Any]) -> list[str]:
    """Return the parts that changed something."""
    assert result["changed"] == any(result["parts"].values())
    return [name for name, one in result["parts"].items() if one]


def headers(result: dict[str, Any]) -> list[str]:
    """Return the names of the changed files."""
    return [Path(part["after_header"]).name for part in result["diff"]]


@pytest.mark.parametrize("check", [True, False])
def test_settings_that_offer_no_device_are_a_warning(answer: Answer, check: bool) -> None:
    _done, warnings = answer(check=check)
    assert len(warnings) == 1 and warnings[0].startswith("cdi_host_devices: found no entry, so no device is offered")
    _done, warnings = answer(["runtimes"], check=check)  # the specs are not asked for
    assert warnings == []
    _done, warnings = answer(check=check, devices={"one": entry(1)})
    assert not any("found no entry" in text for text in warnings)


def test_check_mode_shows_what_a_run_does_and_a_second_run_does_nothing(answer: Answer, prefix: Path) -> None:
    previewed, _warnings = answer(check=True, devices=TWO)
    assert not list(prefix.parent.glob("cdi/*"))
    done, _warnings = answer(devices=TWO)
    assert previewed == done
    assert tuple(done["parts"]) == ALL_PARTS and changed(done) == ["specs"]
    assert headers(done) == ["test.fleet.cdi-kind1.json", "test.fleet.cdi-kind2.json", "inventory.json"]
    assert done["devices"] == {f"test.fleet.cdi/kind{number}": {"healthy": 2} for number in (1, 2)}
    again, _warnings = answer(devices=TWO)
    assert not changed(again) and again["diff"] == []


def test_what_the_settings_no_longer_ask_for_goes_in_the_same_run(answer: Answer, prefix: Path) -> None:
    answer(devices=TWO)
    kept, _warnings = answer(devices={"one": entry(1)}, prune=False)
    assert not changed(kept)
    done, _warnings = answer(devices={"one": entry(1)})
    assert changed(done) == ["specs"] and done["problems"] == []
    assert [path.name for path in (prefix.parent / "cdi").iterdir()] == ["test.fleet.cdi-kind1.json"]


def test_what_was_deleted_and_is_not_asked_for_is_forgotten(
    answer: Answer, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else `doctor` finds it missing after each run, and an upgrade never ends well."""
    monkeypatch.setattr(plugins, "Layout", partial(Layout, config_dir=str(tmp_path / "etc")))
    monkeypatch.setattr(converge_unit, "UNIT_DIR", str(tmp_path / "units"))
    terminals = {"tty/generic-tty": {}, "tty/rule": {"args": {"profile": "misc"}}}
    answer(devices=TWO, plugins=terminals)
    (prefix.parent / "cdi/test.fleet.cdi-kind2.json").unlink()
    (tmp_path / "etc/tty.d/rule.conf").unlink()
    less = {"devices": {"one": entry(1)}, "plugins": {"tty/generic-tty": {}}}
    previewed, _warnings = answer(check=True, **less)
    done, _warnings = answer(**less)
    assert changed(done) == ["specs", "plugins"] and previewed["parts"] == done["parts"]
    assert {"test.fleet.cdi-kind2.json", "rule.conf"} <= {*headers(done)}
    again, _warnings = answer(**less)
    assert not changed(again)
    left = [path for path in read_manifest(settings_in(prefix.parent)["state_dir"]).files if not Path(path).exists()]
    assert left == []


@pytest.mark.parametrize("check", [True, False])
def test_a_configuration_that_was_changed_and_is_not_asked_for_stays_with_a_warning(
    answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    monkeypatch.setattr(plugins, "Layout", partial(Layout, config_dir=str(tmp_path / "etc")))
    less = {"plugins": {"tty/generic-tty": {}}}
    answer(plugins={**less["plugins"], "tty/rule": {"args": {"profile": "misc"}}})
    path = tmp_path / "etc/tty.d/rule.conf"
    path.write_text(path.read_text() + "\n")
    done, warnings = answer(["plugins"], check=check, **less)
    why = f"{path}: was changed since fleet.cdi wrote it, so it stays, and its executable still grants by it; "
    assert [text for text in warnings if text.startswith(why)] and path.exists() and not changed(done)
    path.unlink()  # as the warning says
    done, warnings = answer(["plugins"], check=check, **less)
    assert not any(str(path) in text for text in warnings)


def test_another_prefix_is_refused_before_anything_is_changed(
    answer: Answer, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host has one release: else the first one stays, also after a removal."""
    monkeypatch.setattr(needed_by, "host_prefix", lambda: str(prefix))
    answer(devices=TWO)
    for state, part in (("present", "release"), ("absent", "removal")):
        for check in (True, False):
            done, _warnings = answer(devices=TWO, prefix=str(tmp_path / "other"), state=state, check=check)
            assert done["failed"] and not done["changed"] and list(done["parts"]) == [part]
            assert done["msg"].startswith(f"{part}: prefix: found {tmp_path}/other; expected {prefix}, where")
    assert not (tmp_path / "other").exists() and not changed(answer(devices=TWO)[0])


def test_check_mode_counts_a_spec_in_the_part_that_writes_it(
    answer: Answer, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refresh of part `plugins` would write it too, if part `specs` were not before it."""
    monkeypatch.setattr(plugins, "Layout", partial(Layout, config_dir=str(tmp_path / "etc")))
    wanted = {"devices": TWO, "plugins": {"tty/rule": {"args": {"profile": "misc"}}}}
    answer(**wanted)
    spec = prefix.parent / "cdi/test.fleet.cdi-kind2.json"
    spec.unlink()
    assert changed(answer(check=True, **wanted)[0]) == ["specs"]
    assert changed(answer(["plugins"], check=True, **wanted)[0]) == ["plugins"]
    assert changed(answer(**wanted)[0]) == ["specs"]
    spec.unlink()
    assert changed(answer(["plugins"], **wanted)[0]) == ["plugins"] and spec.exists()


def test_another_device_list_leaves_nothing_of_the_old_one(
    answer: Answer, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else `doctor` finds it missing after the next boot, and no run puts that right."""
    monkeypatch.setattr(plugins, "Layout", partial(Layout, config_dir=str(tmp_path / "etc")))
    wanted = {"devices": TWO, "plugins": {"tty/rule": {"args": {"profile": "misc"}}}}
    answer(**wanted)
    old = Path(settings_in(prefix.parent)["device_list"])
    assert old.exists() and list(old.with_suffix(".d").iterdir())
    note_refresh(str(old), LastRefresh(1, 1.0, True, 0))
    new = {**wanted, "device_list": str(tmp_path / "run/list.json")}
    previewed, _warnings = answer(["specs", "plugins"], check=True, **new)
    assert changed(previewed) == ["release", "specs", "plugins"]
    done, _warnings = answer(["specs", "plugins"], **new)
    assert done["parts"] == previewed["parts"] and done["diff"] == previewed["diff"]
    assert not old.exists() and not old.with_suffix(".d").exists() and not Path(note_path(str(old))).exists()
    assert len(json.loads((tmp_path / "run/list.json").read_text())["devices"]) == 4
    assert len(list((tmp_path / "run/list.d").iterdir())) == 1
    assert not changed(answer(**new)[0]) and changed(answer(**wanted)[0]) == ["release", "specs", "plugins"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has claims")
@pytest.mark.parametrize("module", ["cdi_host", "cdi_plugin", "device_state"])
def test_a_refresh_in_a_module_has_the_prefix_and_the_spec_directories_of_the_host(
    answer: Answer, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """Else it calls executables that are not there, and writes specs of claims that nobody reads."""
    usual = partial(Layout, config_dir=str(tmp_path / "etc"))
    for room in (plugins, device_state, main_verbs):
        monkeypatch.setattr(room, "Layout", usual)
    places = {name: settings_in(prefix.parent)[name] for name in ("state_dir", "device_list")}
    pool = {"profile": "rule", "match": {"subsystem": "mem", "node": ["/dev/null", "/dev/zero"]}}
    wanted = {"devices": TWO, "plugins": {"gpu/rule": {"args": pool}}}
    answer(**wanted)
    defaults = {"state_dir": places["state_dir"], "inventory": places["device_list"], "prefix": str(prefix)}
    defaults["spec_dirs"] = [str(prefix.parent / "cdi")]
    assert main(["claim", "add", module, "gpu:1"], "test", defaults) == 0
    spec = prefix.parent / f"cdi/fleet.cdi-claim_{module}.json"
    before = spec.read_text()
    assert f"{prefix}/bin/cdi-hook" in before
    spec.unlink()
    options = {**places, "prefix": str(prefix), "release": None, "config_dir": str(tmp_path / "etc")}
    options.update({"resource_type": "gpu", "name": "more", "plugin": "rule", "args": pool, "description": None})
    options.update({"cdi_version": "0.0.2", "force": False, "on_held": "keep", "managed_by": "", "state": "present"})
    monkeypatch.setattr(guard, "check", lambda *_arguments: [])
    try:
        if module == "cdi_host":
            answer(**{**wanted, "plugins": {**wanted["plugins"], "gpu/more": {"plugin": "rule", "args": pool}}})
        elif module == "cdi_plugin":
            cdi_plugin.answer(options, False)
        else:
            out = {"device": "/dev/zero", "state": "disabled", "reason": "fan", "until": ""}
            device_state.answer({**options, **out}, False)
        assert spec.read_text() == before
    finally:
        assert main(["claim", "del", module], "test", defaults) == 0


def test_only_the_wanted_parts_run(answer: Answer) -> None:
    done, _warnings = answer(["runtimes"], devices=TWO)
    assert list(done["parts"]) == ["release", "runtimes"] and not done["changed"]
    with pytest.raises(CdiError, match="^parts: found an empty list; expected some of driver, "):
        answer([], devices=TWO)


def test_a_part_that_fails_is_named_and_ends_the_run(answer: Answer, prefix: Path) -> None:
    mine = prefix.parent / "cdi" / "test.fleet.cdi-kind1.json"
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("{}")
    try:
        done, _warnings = answer(devices=TWO)
    finally:
        mine.unlink()
    assert done["failed"] and list(done["parts"])[-1] == "specs"
    (problem,) = done["problems"]
    assert (problem["part"], problem["code"]) == ("specs", "kind-unchanged")
    assert done["msg"].startswith("specs: test.fleet.cdi/kind1: ") and re.search(r" \[FC\d{4}\]$", problem["message"])
    assert headers(done) == ["test.fleet.cdi-kind2.json", "inventory.json"]


def test_a_required_device_that_is_missing_changes_nothing(answer: Answer, prefix: Path) -> None:
    missing = {**entry(3), "match": {"subsystem": "mem", "node": "/dev/absent"}, "required": True}
    done, _warnings = answer(devices={**TWO, "three": missing})
    assert done["msg"].startswith("specs: devices entry 'three': found no device, but has required: true")
    assert not list(prefix.parent.glob("cdi/*")) and not done["changed"]


def test_wrong_settings_change_nothing(answer: Answer) -> None:
    with pytest.raises(CdiError, match="settings: refresh_grace: found 'soon'"):
        answer(devices=TWO, refresh_grace="soon")


def test_the_runtimes_are_asked_once(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ask(path: str) -> detect.DetectedRuntimes:
        asked.append(path)
        return detect.DetectedRuntimes((), ())

    monkeypatch.setattr(detect, "detect", ask)
    done, _warnings = answer(
        devices=TWO, runtime_settings={"podman": {"state": "disabled"}, "docker": {"state": "absent"}}
    )
    assert done["problems"] == [] and len(asked) == 1


def test_a_directory_that_no_runtime_searches_is_said(
    answer: Answer, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers would not find the devices, and only doctor on the host said so."""
    podman = detect.Runtime("podman", "5.4.2", "/usr/bin/podman", "0.8.0")
    monkeypatch.setattr(detect, "detect", lambda _path: detect.DetectedRuntimes((podman,), ()))
    usual = installations.INSTALLATIONS["podman"]["system"]
    monkeypatch.setitem(
        installations.INSTALLATIONS, "podman", {"system": usual._replace(config=str(tmp_path / "containers.conf"))}
    )

    def said(**settings: Any) -> list[str]:
        return [text for text in answer(["specs"], **settings)[1] if "no runtime looks for specs" in text]

    (warning,) = said(devices=TWO)
    assert warning.startswith(f"{prefix.parent}/cdi: no runtime looks for specs here; podman 5.4.2 looks in ")
    assert "cdi_host_spec_dir" in warning
    assert said(devices={}) == []
    named = {"podman": {"spec_dirs": [f"{prefix.parent}/cdi"]}}
    assert said(devices=TWO, runtime_settings=named) == [], "the part runtimes sees to it"


def test_another_installation_of_a_runtime_takes_the_place_of_the_one_before(
    answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role takes back what it set in an installation that the settings no longer name."""
    kinds = {}
    for name, usual in installations.INSTALLATIONS["docker"].items():
        program = tmp_path / name / "dockerd"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        kinds[name] = usual._replace(config=str(tmp_path / f"{name}.json"), programs=(str(program.parent),))
    monkeypatch.setitem(installations.INSTALLATIONS, "docker", kinds)
    found = [detect.Runtime("docker", "27.5.1", f"{tmp_path}/{name}/dockerd", "0.8.0") for name in kinds]
    monkeypatch.setattr(detect, "detect", lambda _path: detect.DetectedRuntimes(tuple(found), ()))

    def run(check: bool = False, **one: Any) -> dict[str, Any]:
        done, _warnings = answer(["runtimes"], check, runtime_settings={"docker": one})
        assert done["problems"] == []
        return done

    def enabled() -> list[str]:
        return [path.name for path in sorted(tmp_path.glob("*.json")) if "cdi" in path.read_text()]

    assert run()["changed"] and enabled() == ["system.json"]
    previewed = run(check=True, installation="snap")
    done = run(installation="snap")
    assert done["diff"] == previewed["diff"] and enabled() == ["snap.json"]
    assert not run(installation="snap")["changed"]
    assert run(installation="snap", state="absent")["changed"] and enabled() == []
    other = str(tmp_path / "other.json")
    previewed = run(check=True, config=other)
    done = run(config=other)
    assert done["diff"] == previewed["diff"] and enabled() == ["other.json"]
    assert not run(config=other)["changed"] and not run(check=True, config=other)["changed"]
    found.clear()  # and one that is not installed any more
    previewed = run(check=True, installation="snap", state="absent")
    done = run(installation="snap", state="absent")
    assert done["changed"] and done["diff"] == previewed["diff"] and enabled() == []


def test_a_package_that_may_not_be_installed_is_named(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(host.PACKAGES, "device_plugin", {"no_such_module": "python3-none"})
    done, _warnings = answer(device_plugin={})
    (problem,) = done["problems"]
    assert problem["code"] == "package-missing" and "python3-none: missing for " in problem["message"]
    assert list(done["parts"]) == ["release"]
    asked, _warnings = answer(device_plugin={}, install_packages=True)
    assert asked["again"] and asked["needs_packages"]["required"] == ["python3-none"]
    shown, warnings = answer(check=True, device_plugin={"wait": 0}, install_packages=True)
    assert "again" not in shown and shown["parts"]["release"]
    assert any("python3-none: would be installed from the distribution" in text for text in warnings)


def test_check_mode_looks_once_at_a_device_plugin_that_stays(
    answer: Answer, prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(host.PACKAGES, "device_plugin", {})
    monkeypatch.setattr(device_plugin_service, "answer", lambda *_given: ({"changed": False, "diff": []}, []))
    monkeypatch.setattr(device_plugin, "PAUSE", 1000.0)
    paths = {name: f"{prefix.parent}/{name}" for name in ("config", "kubelet_dir")}
    wanted = {"wait": 60, "resources": {"v.com/gpu": {"kinds": ["v.com/gpu"]}}, **paths}
    done, _warnings = answer(["device_plugin"], check=True, device_plugin=wanted)
    assert [problem["code"] for problem in done["problems"]] == [device_plugin.NOT_READY]


def test_a_host_without_pyudev_goes_on(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(host.PACKAGES, "discovery", {"no_such_module": "python3-pyudev"})
    done, _warnings = answer(devices=TWO)
    assert changed(done) == ["specs"] and done["missing_packages"] == ["python3-pyudev"] and "again" not in done
    asked, _warnings = answer(devices=TWO, install_packages=True)
    assert asked["needs_packages"] == {"required": [], "optional": ["python3-pyudev"]}
    shown, warnings = answer(check=True, devices=TWO, install_packages=True)
    assert not shown["changed"] and "python3-pyudev: would be installed from the distribution" in " ".join(warnings)


def test_the_command_of_a_host_does_the_same(
    answer: Answer, prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del answer  # only undone afterwards
    file = tmp_path / "settings.yml"
    document = {**settings_in(prefix.parent), "devices": TWO}
    file.write_text("# in YAML\n" + json.dumps(document))
    defaults = {"state_dir": document["state_dir"], "inventory": "", "spec_dirs": [], "prefix": str(prefix)}

    def run(*arguments: str) -> tuple[int, str]:
        status = main(["converge", "--settings", str(file), *arguments], "test", defaults)
        return status, capsys.readouterr().out

    assert run("--check") == (0, "would be changed: specs\n")
    status, out = run("--diff")
    assert status == 0 and "test.fleet.cdi/kind1: + null, + zero (" in out
    assert run() == (0, "Nothing to change.\n")
    status, out = run("--json", "--part", "specs")
    assert status == 0 and json.loads(out)["parts"] == {"release": False, "specs": False}
    assert run("--part", "spec")[0] == run("--part", "", "--check")[0] == 2
    file.write_text(json.dumps({**document, "devises": {}}))
    assert run()[0] == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="asks for the owner root")
@pytest.mark.parametrize(("owner", "mode"), [(0, 0o666), (0, 0o664), (65534, 0o644)])
def test_root_takes_no_settings_that_others_can_write(
    prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], owner: int, mode: int
) -> None:
    """Also in a run that a person starts once: the settings name the programs that root runs."""
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({**settings_in(prefix.parent), "devices": TWO}))
    file.chmod(mode)
    os.chown(file, owner, -1)
    defaults = {"state_dir": "", "inventory": "", "spec_dirs": [], "prefix": str(prefix)}
    for path in (file, tmp_path / "link"):
        if path != file:
            path.symlink_to(file)
        assert main(["converge", "--settings", str(path), "--check"], "test", defaults) == 2
        said = (
            f"{path}: found owner {owner}, mode {mode:04o}, so other users can change these settings of root; expected"
        )
        out, error = capsys.readouterr()
        assert out == "" and error.startswith(f"fleet-cdi: {said}") and error.endswith("[FC1108]\n"), error


@pytest.mark.skipif(os.geteuid() != 0, reason="asks for the owner root")
@pytest.mark.parametrize(("owner", "mode"), [(0, 0o777), (65534, 0o755), (0, 0o1777)])
@pytest.mark.parametrize("links", [1, 2])
def test_root_takes_no_settings_by_a_link_that_others_can_replace(
    prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], owner: int, mode: int, links: int
) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({**settings_in(prefix.parent), "devices": TWO}))
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(mode)
    (theirs / "link").symlink_to(file)
    os.chown(theirs / "link", 65534, -1, follow_symlinks=False)
    os.chown(theirs, owner, -1)
    (tmp_path / "mine").symlink_to(theirs / "link")
    path = theirs / "link" if links == 1 else tmp_path / "mine"
    defaults = {"state_dir": "", "inventory": "", "spec_dirs": [], "prefix": str(prefix)}
    assert main(["converge", "--settings", str(path), "--check"], "test", defaults) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.startswith(f"fleet-cdi: {path}: {theirs}") and error.endswith("[FC1002]\n"), error


def test_a_host_converges_itself_from_the_settings_of_a_run(
    answer: Answer, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file says what the run was told, so the host does the same by itself, and then nothing more."""
    for module in (units, converge_unit):
        monkeypatch.setattr(module, "UNIT_DIR", str(tmp_path / "units"))
    monkeypatch.setattr(units.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(systemd, "booted", lambda: False)
    monkeypatch.setattr(systemd, "enabled", lambda _run, names: names)
    monkeypatch.setattr(units, "start", lambda *_arguments: None)
    file = tmp_path / "etc/settings.json"
    done, warnings = answer(devices=TWO, converge_file=str(file), force=True, on_held="drop")
    assert changed(done) == ["specs", "refresh"] and not any("metrics" in text for text in warnings)
    saved = json.loads(file.read_text())
    assert saved["devices"] == TWO and not {"force", "on_held", "grace", "install_packages"} & saved.keys()
    again, _warnings = answer(devices=TWO, converge_file=str(file))
    assert not changed(again)
    lost = str(tmp_path / "none/fleet_cdi.prom")
    _done, warnings = answer(check=True, devices=TWO, converge_file=str(file), refresh=True, metrics_file=lost)
    assert any(f"found {lost}, whose directory does not exist" in text for text in warnings)

    def run() -> tuple[int, str, str]:
        defaults = {"state_dir": "", "inventory": "", "spec_dirs": [], "prefix": str(prefix)}
        status = main(["converge", "--settings", str(file)], "test", defaults)
        return status, *capsys.readouterr()

    assert run()[:2] == (0, "Nothing to change.\n")
    spec = prefix.parent / "cdi/test.fleet.cdi-kind1.json"
    spec.unlink()
    assert run()[:2] == (0, "changed: specs\n") and spec.exists()
    file.write_text(json.dumps({**saved, "devices": {"one": entry(1)}}))  # the site's own tool writes it now
    assert run()[:2] == (0, "changed: specs\n")
    file.write_text(json.dumps({name: value for name, value in saved.items() if name != "converge_file"}))
    assert run()[1] == "changed: specs\nchanged: refresh\n"
    assert file.exists() and not list((tmp_path / "units").glob("*"))


@pytest.mark.parametrize("check", [True, False])
def test_files_that_no_refresh_writes_are_a_warning(answer: Answer, check: bool) -> None:
    files = {"metrics_file": "/srv/fleet_cdi.prom", "feature_file": "/srv/features.d/fleet-cdi"}
    done, warnings = answer(["refresh"], check=check, **files)
    assert done["problems"] == [] and [text.partition("; expected an empty text")[0] for text in warnings] == [
        f"cdi_host_{name}: found {path} and cdi_host_refresh false" for name, path in files.items()
    ]


def test_a_removal_ends_claims_by_force_alone(answer: Answer, prefix: Path) -> None:
    state_dir = str(prefix.parent / "state")
    answer(devices=TWO)
    os.makedirs(os.path.dirname(store.claim_path(state_dir, "job")), 0o700)
    store.write_claim(state_dir, ClaimRecord(WantedClaim("job", {"gpu": 1}), state=GRANTED))
    refused, _warnings = answer(devices=TWO, state="absent", check=True)
    assert refused["failed"] and "claim job has devices. Give it back (`fleet-cdi claim del job`)" in refused["msg"]
    ended, warnings = answer(devices=TWO, state="absent", check=True, force=True)
    assert store.claim_path(state_dir, "job") in ended["removed"] and ended["forced"] == ["claim job has devices"]
    assert warnings[0] == ("cdi_host_force would take back what was in use or was changed since: claim job has devices")
    shown = ended["diff"][0]["prepared"].splitlines()
    assert shown[0] == "ended: claim job" and f"removed: {prefix.parent}/cdi/test.fleet.cdi-kind1.json" in shown
    os.unlink(store.claim_path(state_dir, "job"))


def test_a_removal_knows_the_directories_of_the_host(
    answer: Answer, prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of devices by its variable, and the spec directories by the command of the host."""
    answer(devices=TWO)
    monkeypatch.setattr(removal.host_release, "answer", lambda *_arguments: ({"changed": False}, []))
    os.makedirs(os.path.dirname(store.claim_path(str(prefix.parent / "state"), "job")), 0o700)
    ended = prefix.parent / "state/claims.ended"
    ended.write_text("")
    stray = prefix.parent / "cdi" / spec_file("job")  # its claim has no record
    stray.write_text("{}")
    done, _warnings = answer(devices=TWO, state="absent", force=True)
    assert done["problems"] == [] and str(stray) in done["removed"]
    assert not ended.exists() and not stray.exists()


def test_a_removal_that_can_not_end_a_claim_does_not_ask_for_force_again(answer: Answer, prefix: Path) -> None:
    """The reason has the phrase of another message, and ends with a full stop."""
    state_dir = str(prefix.parent / "state")
    answer(devices=TWO)
    path = store.claim_path(state_dir, "job")
    os.makedirs(os.path.dirname(path), 0o700)
    Path(path).write_text("{")
    for force in (False, True):
        left, _warnings = answer(devices=TWO, state="absent", check=True, force=force)
        assert left["failed"] and left["msg"].endswith("[FC1763]") and ".." not in left["msg"]
        assert ("cdi_host_force=true" in left["msg"]) != force
        assert "Solve this and run the playbook again" in left["msg"]
    os.unlink(path)
