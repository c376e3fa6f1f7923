# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make conventions`: run the proof of each row of tests/conventions.yml, and write docs/conventions.md.

conventions.py           run all proofs and write the page; 1 if one fails
conventions.py NAME      one of the checks below, as a proof
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import parts
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs/conventions.md"
ROWS = CHECKOUT / "tests/conventions.yml"
HEAD = """\
<!--
Copyright (c) 2026, fleet.cdi contributors
GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
SPDX-License-Identifier: GPL-3.0-or-later
Made by `make conventions` from tests/conventions.yml: change that.
-->

# Conventions of good collections, and the proofs

`make conventions` ran each proof at commit {commit}. A part is one of `make test-all`, which ran at that commit.

| # | convention | proof | result |
|---|---|---|---|
"""
# Managed objects whose state another module returns, and modules that manage nothing that lasts.
INFO_ELSEWHERE = {
    "cdi_host": "host_report_info",
    "device_plugin_config": "device_plugin_info",
    "device_plugin_service": "device_plugin_info",
    "device_state": "device_info",
    "host_drain": "device_info",
    "pod_devices": "claim_info",
}


class Proved(NamedTuple):
    """The result of one row."""

    proof: str
    good: bool
    evidence: str


@functools.cache
def modules() -> dict[str, dict[str, Any]]:
    """Module -> its documentation, with the fragments that it extends."""
    names = [f"fleet.cdi.{path.stem}" for path in sorted((CHECKOUT / "plugins/modules").glob("*.py"))]
    done = subprocess.run(["ansible-doc", "--json", *names], capture_output=True, text=True, check=True)
    return {name.rpartition(".")[2]: one["doc"] for name, one in json.loads(done.stdout).items()}


def lacking(what: str, names: Iterator[str] | list[str], of: str) -> tuple[bool, str]:
    """(whether all have it, a line for people)."""
    missing = sorted(names)
    return not missing, f"lack {what}: {', '.join(missing)}" if missing else of


def attributes() -> tuple[bool, str]:
    """All modules state their attributes."""
    found = modules()
    without = [
        name
        for name, text in found.items()
        if not {"check_mode", "diff_mode", "async"} <= set(text.get("attributes", {}))
    ]
    return lacking("attributes", without, f"{len(found)} modules")


def info() -> tuple[bool, str]:
    """Each module that manages something has one that only reads it."""
    names = [name for name in modules() if not name.endswith("_info")]
    twins = {name: INFO_ELSEWHERE.get(name, f"{name}_info") for name in names}
    return lacking(
        "an _info module", [one for one, twin in twins.items() if twin not in modules()], f"{len(names)} of them"
    )


def _support(attribute: str, of: list[str]) -> list[str]:
    found = modules()
    return [name for name in of if found[name].get("attributes", {}).get(attribute, {}).get("support") != "full"]


def check_mode() -> tuple[bool, str]:
    """All modules have check mode."""
    return lacking("check mode", _support("check_mode", [*modules()]), f"{len(modules())} modules")


def diff_mode() -> tuple[bool, str]:
    """All modules that write have a diff."""
    writers = [name for name in modules() if not name.endswith("_info") and name not in ("host_drain",)]
    return lacking("diff mode", _support("diff_mode", writers), f"{len(writers)} modules")


def action_group() -> tuple[bool, str]:
    """The action group has all modules."""
    groups = yaml.safe_load((CHECKOUT / "meta/runtime.yml").read_text(encoding="utf-8"))["action_groups"]
    return lacking(
        "a place in the group", list(set(modules()) - set(groups["all"])), f"fleet.cdi.all has {len(groups['all'])}"
    )


def targets() -> tuple[bool, str]:
    """Each module runs in an integration target."""
    folders = sorted((CHECKOUT / "tests/integration/targets").iterdir())
    texts = "".join(path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.yml"))
    without = [name for name in modules() if f"fleet.cdi.{name}:" not in texts]
    return lacking("an integration target", without, f"{len(folders)} targets")


def scenarios() -> tuple[bool, str]:
    """Each role is in a scenario of Molecule."""
    texts = "".join(path.read_text(encoding="utf-8") for path in (CHECKOUT / "extensions/molecule").rglob("*.yml"))
    roles = [path.name for path in sorted((CHECKOUT / "roles").iterdir())]
    without = [role for role in roles if f"fleet.cdi.{role}" not in texts and "fleet.cdi.provision" not in texts]
    return lacking("a scenario", without, ", ".join(roles))


def argument_specs() -> tuple[bool, str]:
    """Each file of tasks that is an entry point of a role has its argument spec."""
    without, number = [], 0
    for role in sorted((CHECKOUT / "roles").iterdir()):
        specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
        number += len(specs)
        without += [f"{role.name}/{name}" for name in ("main", "remove") if name not in specs]
    return lacking("an argument spec", without, f"{number} entry points")


def playbooks() -> tuple[bool, str]:
    """Each playbook passes a syntax check under its full name."""
    names = [path.stem for path in sorted((CHECKOUT / "playbooks").glob("*.yml")) if not path.stem.endswith(".meta")]
    bad = []
    for name in names:
        done = subprocess.run(
            ["ansible-playbook", "--syntax-check", f"fleet.cdi.{name}"], capture_output=True, text=True, check=False
        )
        bad += [name] if done.returncode else []
    return lacking("a good syntax", bad, ", ".join(f"fleet.cdi.{name}" for name in names))


def playbook_specs() -> tuple[bool, str]:
    """Each playbook has argument specs beside it."""
    names = [path.stem for path in sorted((CHECKOUT / "playbooks").glob("*.yml")) if not path.stem.endswith(".meta")]
    without = [name for name in names if not (CHECKOUT / f"playbooks/{name}.meta.yml").exists()]
    return lacking("argument specs", without, f"{len(names)} playbooks")


def facts() -> tuple[bool, str]:
    """No playbook gathers facts, and no role reads them."""
    plays = [one for path in (CHECKOUT / "playbooks").glob("*.yml") for one in _plays(path)]
    gathering = [one["name"] for one in plays if one.get("gather_facts") is not False and "import_playbook" not in one]
    used = [
        str(path.relative_to(CHECKOUT))
        for path in (CHECKOUT / "roles").rglob("*.yml")
        if "ansible_facts" in path.read_text(encoding="utf-8")
    ]
    return lacking("gather_facts: false", [*gathering, *used], f"{len(plays)} plays, no role reads facts")


def _plays(path: Path) -> list[dict[str, Any]]:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [one for one in document if isinstance(one, dict) and "hosts" in one] if isinstance(document, list) else []


CHECKS: Mapping[str, Callable[[], tuple[bool, str]]] = {
    one.__name__: one
    for one in (
        attributes,
        info,
        check_mode,
        diff_mode,
        action_group,
        targets,
        scenarios,
        argument_specs,
        playbooks,
        playbook_specs,
        facts,
    )
}


def prove(row: Mapping[str, str], results: Mapping[str, Any]) -> Proved:
    """Run the proof of one row."""
    if "unmet" in row:
        return Proved("", True, f"no: {row['unmet']}")
    proofs, evidence, good = [], [], True
    if "run" in row:
        done = subprocess.run(["bash", "-o", "pipefail", "-c", row["run"]], capture_output=True, text=True, check=False)
        said = (done.stdout.strip() or done.stderr.strip()).splitlines()
        proofs.append(f"`{row['run']}`".replace("|", "\\|"))
        evidence.append(said[-1].strip() if said else "")
        good = done.returncode == 0
    if "pytest" in row:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *row["pytest"].split()], capture_output=True, text=True, check=False
        )
        proofs.append(f"`pytest {row['pytest']}`")
        evidence.append(done.stdout.strip().splitlines()[-1].partition(" in ")[0])
        good = good and done.returncode == 0
    if "part" in row:
        one = results.get(row["part"], {"status": "not run at this commit"})
        proofs.append(f"`make {row['part']}`")
        evidence.append("passed" if one["status"] == 0 else f"failed ({one['status']})")
        good = good and one["status"] == 0
    return Proved(", ".join(proofs), good, "; ".join(evidence))


def main(arguments: list[str]) -> int:
    """Run one check, or all proofs."""
    if arguments:
        good, line = CHECKS[arguments[0]]()
        print(line)
        return 0 if good else 1
    at = parts.commit()
    results = parts.kept(at) if at else {}
    lines, bad = [], 0
    for number, row in enumerate(yaml.safe_load(ROWS.read_text(encoding="utf-8")), 1):
        proved = prove(row, results)
        bad += not proved.good
        print(f"{'good' if proved.good else 'BAD '} {number:2} {row['convention']}: {proved.evidence}", flush=True)
        verdict = "yes" if proved.good and "unmet" not in row else "no"
        shown = proved.evidence.replace("|", "\\|")
        lines.append(f"| {number} | {row['convention']} | {proved.proof} | {verdict}: {shown.removeprefix('no: ')} |\n")
    PAGE.write_text(HEAD.format(commit=at[:12] or "(a checkout with changes)") + "".join(lines), encoding="utf-8")
    print(json.dumps({"conventions": len(lines), "good": len(lines) - bad}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
