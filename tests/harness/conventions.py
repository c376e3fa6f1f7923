# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make conventions`: run the proof of each row of tests/conventions.yml, and write docs/conventions.md.

conventions.py           run all proofs and write the page; 1 if one fails
conventions.py NAME      one of the checks below, as a proof

The results of parts are those of the last `make test-all`, if nothing but the page differs from what it ran with.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import parts
import report
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

The best collections for Ansible share these conventions. `make conventions` runs the proof of each one for this
collection and writes this page. It ran on {date}. The parts (`make style`, `make lint` and so on) belong to
`make test-all`, {parts}. `conventions.py` is in `tests/harness`.

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
ATTRIBUTES = {"check_mode", "diff_mode", "async"}
# Sections of the README that Red Hat's certification asks for ("README requirements" of
# docs.ansible.com/projects/partner-certification-requirements). Its full URLs are those of the archive of a release:
# tests/unit/release/test_artifacts.py.
SECTIONS = {"Installation", "Requirements", "Support", "Release notes", "License"}
# Tags of which Galaxy wants one at least that are ours.
REQUIRED_TAGS = {"infrastructure", "linux", "tools"}


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


def lacking(what: str, names: Iterable[str], of: str) -> tuple[bool, str]:
    """(whether all have it, a line for people)."""
    missing = sorted(names)
    return not missing, f"lack {what}: {', '.join(missing)}" if missing else of


def versions() -> tuple[bool, str]:
    """`make matrix` provisioned with each ansible-core of its table but devel, and the units ran under each Python."""
    table, tested = (
        yaml.safe_load((CHECKOUT / name).read_text(encoding="utf-8"))
        for name in ("tests/matrix.yml", "docs/tested.yml")
    )
    cores = [row["core"] for row in table["cores"] if row["core"] != "devel"]
    found = {name: row["ansible_core"] for name, row in tested["cores"].items() if row.get("provision") == "passed"}
    without = {*cores} - {*found} | {*table["hosts"]} - {*tested["hosts"]}
    pythons = ", ".join(row["python"] for row in tested["hosts"].values())
    return lacking("a run", without, f"ansible-core {', '.join(found.values())}; Python of hosts {pythons}")


def documentation() -> tuple[bool, str]:
    """All modules state their attributes, and none names an option of its own without semantic markup."""
    found = modules()
    without = [name for name, text in found.items() if ATTRIBUTES - set(text.get("attributes", {})) or _plain(text)]
    return lacking("attributes or markup", without, f"{len(found)} modules")


def _plain(text: Mapping[str, Any]) -> bool:
    said = json.dumps(text)
    return any(re.search(rf"[BI]\({option}[)=]", said) for option in text.get("options", {}))  # C() is also for fields


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
    """Each role is in a scenario of Molecule; playbook provision runs role cdi_host."""
    found: dict[str, list[str]] = {path.name: [] for path in sorted((CHECKOUT / "roles").iterdir())}
    for folder in sorted(path.parent for path in CHECKOUT.glob("extensions/molecule/*/converge.yml")):
        text = (folder / "converge.yml").read_text(encoding="utf-8")
        for role, names in found.items():
            by_playbook = role == "cdi_host" and "fleet.cdi.provision" in text
            names += [folder.name] if f"fleet.cdi.{role}" in text or by_playbook else []
    shown = "; ".join(f"{role}: {', '.join(names)}" for role, names in found.items())
    return lacking("a scenario", [role for role, names in found.items() if not names], shown)


def argument_specs() -> tuple[bool, str]:
    """Each file of tasks that is an entry point of a role has its argument spec."""
    without, number = [], 0
    for role in sorted((CHECKOUT / "roles").iterdir()):
        specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
        number += len(specs)
        without += [f"{role.name}/{name}" for name in ("main", "remove") if name not in specs]
    return lacking("an argument spec", without, f"{number} entry points")


def _playbooks() -> list[str]:
    return [path.stem for path in sorted((CHECKOUT / "playbooks").glob("*.yml")) if not path.stem.endswith(".meta")]


def playbooks() -> tuple[bool, str]:
    """Each playbook passes a syntax check under its full name."""
    names = [f"fleet.cdi.{name}" for name in _playbooks()]
    done = subprocess.run(["ansible-playbook", "--syntax-check", *names], capture_output=True, text=True, check=False)
    return done.returncode == 0, ", ".join(names) if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def slices() -> tuple[bool, str]:
    """Each playbook says at its head whether slices of an inventory may run at the same time."""
    heads = {name: (CHECKOUT / f"playbooks/{name}.yml").read_text(encoding="utf-8") for name in _playbooks()}
    without = [name for name, text in heads.items() if "Hosts don't depend on each other" not in text]
    return lacking("a word on slices", without, f"{len(heads)} playbooks")


def playbook_specs() -> tuple[bool, str]:
    """Each playbook has argument specs beside it."""
    names = _playbooks()
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


def certified() -> tuple[bool, str]:
    """What Red Hat's certification asks, as far as files show it: no ignored check, metadata, dependencies."""
    lint = yaml.safe_load((CHECKOUT / ".ansible-lint").read_text(encoding="utf-8"))
    galaxy = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text(encoding="utf-8"))
    needs = (CHECKOUT / "meta/ee-requirements.txt").read_text(encoding="utf-8")
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    content = "".join(
        path.read_text(encoding="utf-8") for name in ("roles", "playbooks") for path in (CHECKOUT / name).rglob("*.yml")
    )
    wrong = {
        "rules of ansible-lint that are not skipped": "skip_list" in lint or "# noqa" in content,
        "the profile production": lint["profile"] != "production",
        "a lint of all content": bool({"plugins/", "roles/", "playbooks/", "extensions/"} & {*lint["exclude_paths"]}),
        "sanity without ignored tests": any(CHECKOUT.glob("tests/sanity/ignore*")),
        "no .ansible-lint-ignore": (CHECKOUT / ".ansible-lint-ignore").exists(),
        "a tag that Galaxy asks for": not REQUIRED_TAGS & {*galaxy["tags"]},
        "a licence, and no other collection": not galaxy["license"] or bool(galaxy["dependencies"]),
        "no upper limit and no ansible in its Python packages": bool(re.search(r"^ansible|==|<", needs, re.MULTILINE)),
        "the sections of a README": bool(SECTIONS - {*re.findall(r"^## (.*)$", readme, re.MULTILINE)}),
        "no installation of Ansible by pip in the README": "pip install" in readme,
        "a changelog": not (CHECKOUT / "changelogs/changelog.yaml").exists(),
    }
    return lacking(
        "", [what for what, bad in wrong.items() if bad], f"{len(wrong)} of {len(wrong)} rules that files show"
    )


CHECKS: Mapping[str, Callable[[], tuple[bool, str]]] = {
    one.__name__: one
    for one in (
        versions,
        documentation,
        info,
        check_mode,
        diff_mode,
        action_group,
        targets,
        scenarios,
        argument_specs,
        playbooks,
        playbook_specs,
        slices,
        facts,
        certified,
    )
}


def proofs(row: Mapping[str, str]) -> str:
    """The proofs of a row, as its cell shows them."""
    shown = {
        "check": "conventions.py {}",
        "run": "{}",
        "pytest": "pytest {}",
        "make": "make {}",
        "part": "make {}",
    }
    return ", ".join(f"`{shown[kind].format(row[kind])}`".replace("|", "\\|") for kind in shown if kind in row)


def cheap(row: Mapping[str, str]) -> Proved:
    """Run the proofs of a row that take no time."""
    evidence, good = [], True
    if "check" in row:
        good, line = CHECKS[row["check"]]()
        evidence.append(line)
    if "run" in row:
        command = ["bash", "-o", "pipefail", "-c", row["run"]]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT)
        said = (done.stdout.strip() or done.stderr.strip()).splitlines()
        evidence.append(said[-1].strip() if said else f"status {done.returncode}")
        good = good and done.returncode == 0
    return Proved(proofs(row), good, "; ".join(evidence))


def prove(row: Mapping[str, str], results: Mapping[str, Any]) -> Proved:
    """Run all proofs of a row."""
    shown, good, first = cheap(row)
    evidence = [first] if first else []
    if "pytest" in row:
        command = [sys.executable, "-m", "pytest", "-q", *row["pytest"].split()]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT)
        tests = report.tests(done.stdout)
        evidence.append(report.counted(done.stdout).removeprefix(", ") or f"status {done.returncode}")
        good = good and done.returncode == 0 and tests["passed"] > 0
    if "make" in row:
        make = ["make", "--no-print-directory", "-C", str(CHECKOUT), row["make"]]
        status = subprocess.run(make, capture_output=True, check=False).returncode
        evidence.append("passed" if status == 0 else "failed")
        good = good and status == 0
    if "part" in row:
        status = results.get(row["part"], {"status": None})["status"]
        evidence.append({None: "not run", 0: "passed"}.get(status, "failed"))
        good = good and status == 0
    return Proved(shown, good, "; ".join(evidence))


def line(number: int, row: Mapping[str, str], proved: Proved) -> str:
    """The line of a row on the page."""
    unmet = row.get("unmet", "")
    verdict = "no" if not proved.good or (unmet and not proved.proof) else "in part" if unmet else "yes"
    said = ". ".join(text for text in (proved.evidence.replace("|", "\\|"), unmet and f"Not yet: {unmet}") if text)
    return f"| {number} | {row['convention']} | {proved.proof} | **{verdict}**: {said} |"


def rows() -> list[dict[str, str]]:
    """The table of conventions."""
    found: list[dict[str, str]] = yaml.safe_load(ROWS.read_text(encoding="utf-8"))
    return found


def main(arguments: list[str]) -> int:
    """Run one check, or all proofs."""
    if arguments:
        good, said = CHECKS[arguments[0]]()
        print(said)
        return 0 if good else 1
    date, results = parts.kept({str(PAGE.relative_to(CHECKOUT))})
    when = f"which ran with the same files on {date}" if date else "which has not run with these files yet"
    lines, verdicts = [], {"yes": 0, "in part": 0, "no": 0}
    for number, row in enumerate(rows(), 1):
        lines.append(line(number, row, prove(row, results)))
        verdicts[re.findall(r"\*\*(yes|in part|no)\*\*", lines[-1])[0]] += 1
        print(lines[-1], flush=True)
    text = HEAD.format(date=time.strftime("%Y-%m-%d"), parts=when) + "".join(f"{one}\n" for one in lines)
    PAGE.write_text(text, encoding="utf-8")
    print(json.dumps({"conventions": len(lines), **verdicts}))
    known = sum("unmet" in row for row in rows())
    return int(verdicts["in part"] + verdicts["no"] > known)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
