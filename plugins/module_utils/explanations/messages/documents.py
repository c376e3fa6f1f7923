# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about the content of documents: JSON, YAML, and the documents that fleet.cdi wrote."""

from __future__ import annotations

from ..explanation import Explanation

EXPLANATIONS = (
    Explanation(
        id="FC1051",
        title="The file is not valid JSON",
        messages=(
            "is not a JSON document (*); correct it",
            "is not valid JSON: *",
            "is not valid UTF-8 (byte *); expected JSON",
        ),
        means=(
            "The text breaks the grammar of JSON at the named place. A key that is there twice in one object "
            "counts, too."
        ),
        why=(
            "Parsers disagree about broken JSON and about a key that is there twice: two programs would read two "
            "documents."
        ),
        do=(
            "Correct the place that the message names. `python3 -m json.tool FILE` finds most faults, but not "
            "double keys."
        ),
        more="python3 -m json.tool FILE",
    ),
    Explanation(
        id="FC1052",
        title="The file is not valid YAML",
        messages=(
            "is not a YAML document (*); correct it",
            "is not YAML: *",
            "is not a manifest: *",
            ": found an alias; write its value there",
            ": found the merge key '<<'; write its keys there",
            "has the key * twice",
            "the byte * at * is not UTF-8",
        ),
        means=(
            "The text breaks the grammar of YAML at the named place, or it uses an alias, a merge key or the same key "
            "twice."
        ),
        why="A key that is there twice has no defined value. A few aliases can stand for gigabytes of text.",
        do="Correct the place that the message names. Write out the value of an alias, and the keys of a merge key.",
        more="python3 -c 'import sys, yaml; yaml.safe_load(sys.stdin)' < FILE",
    ),
    Explanation(
        id="FC1053",
        title="YAML needs PyYAML",
        messages=(
            "is YAML, and this Python has no PyYAML",
            "is not JSON, and this Python has no PyYAML for YAML",
            "is missing; install it from the distribution",
        ),
        means="A package of the distribution is missing on this host: most often python3-yaml.",
        why="The Python standard library has no reader for YAML. fleet.cdi installs no packages from elsewhere.",
        do=(
            "Install the package that the message names (`apt-get install python3-yaml`, `dnf install "
            "python3-pyyaml`), or give the document as JSON."
        ),
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1054",
        title="A document of fleet.cdi is damaged",
        messages=(
            "is damaged: *. Restore it, or move it away and",
            "is damaged (*); expected the claim that fleet-cdi wrote",
            "is damaged (*); expected the pod that fleet-cdi wrote",
            "the manifest's record of * is damaged: *",
        ),
        means=(
            "fleet.cdi wrote this file, and it does not have that content any more: an editor, a full disk or a "
            "crash changed it."
        ),
        why="The file says what belongs to whom on this host. A guess could free devices that are in use.",
        do=(
            "Restore the file from a backup. Without one, move it away and do what the message says about the "
            "things that it named."
        ),
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1055",
        title="Another release wrote the document",
        messages=("has version *; this release reads *. Use the release that wrote it.",),
        means="The file has the format of a newer (or much older) release of fleet.cdi.",
        why="A field that this release does not know would be lost at the next write.",
        do=(
            "Use the release that wrote it: `fleet-cdi --version` tells the one of this host. Run playbook "
            "fleet.cdi.provision from a controller with the newer release."
        ),
        more="fleet-cdi --version",
    ),
    Explanation(
        id="FC1056",
        title="The file is not a report of a fleet",
        messages=(
            "can't be read (*); expected a report.json of playbook fleet.cdi.report",
            "is not a report (*); expected a report.json of playbook fleet.cdi.report",
            ": found * of version *; expected * of version *",
            "is damaged (*); expected a report.json of playbook fleet.cdi.report",
        ),
        means="The variable that names an earlier report names another file, or a report of another release.",
        why="Two reports can be compared only if both have the same format.",
        do="Name the `report.json` that playbook fleet.cdi.report of this release wrote.",
        more="ansible-playbook fleet.cdi.report",
    ),
    Explanation(
        id="FC1057",
        title="The manifest is lost",
        messages=(", so fleet.cdi can't take back all that it did",),
        means=(
            "The manifest is gone, or lacks records: there are files that fleet.cdi writes only with a record in it."
        ),
        why=(
            "The manifest lists our files, and the files that were there before us. Without it nothing would be taken "
            "back, and the run would look as if all was gone."
        ),
        do=(
            "Restore the manifest from a backup. Without one, provision this host again with the same settings: the "
            "files become ours again. Then take them back. Keys in the configurations of container runtimes stay: "
            "remove them by hand."
        ),
        more="fleet-cdi doctor",
    ),
)
