# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The provenance of a release: an in-toto statement (v1) with a predicate of SLSA provenance (v1).

It says from which commit, with which other inputs and by which steps the artifacts were made. It has no time and no
machine, so each build gives the same file. It is not signed by itself: SHA256SUMS has its digest, and is signed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from source import Commit

NAME = "provenance.json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"


def statement(
    artifacts: Mapping[str, bytes], repository: str, commit: Commit, others: Sequence[Mapping[str, Any]] = ()
) -> bytes:
    """Return the statement about the artifacts. `others`: further inputs, as ResourceDescriptor of in-toto."""
    here = f"{repository}/blob/{commit.id}"
    source = {"uri": f"git+{repository}", "digest": {"gitCommit": commit.id}}
    predicate = {
        "buildDefinition": {
            "buildType": f"{repository}/blob/main/docs/release.md#artifacts-of-a-release",
            "externalParameters": {"source": source},
            "internalParameters": {"SOURCE_DATE_EPOCH": commit.epoch},
            "resolvedDependencies": [source, *others],
        },
        "runDetails": {"builder": {"id": f"{here}/release/artifacts.py"}},
    }
    subjects = [
        {"name": name, "digest": {"sha256": hashlib.sha256(content).hexdigest()}}
        for name, content in sorted(artifacts.items())
    ]
    document = {"_type": STATEMENT, "subject": subjects, "predicateType": PREDICATE, "predicate": predicate}
    return (json.dumps(document, indent=1) + "\n").encode()
