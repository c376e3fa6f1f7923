# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The provenance of a release names its artifacts and its commit, in the words of in-toto and SLSA."""

from __future__ import annotations

import hashlib
import json

import pytest
from jsonschema import Draft202012Validator

# https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md and https://slsa.dev/spec/v1.0/provenance: the
# fields that these make obligatory, and the form of those that we use.
DIGEST = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string", "pattern": "^[0-9a-f]+$"}}
RESOURCE = {
    "type": "object",
    "required": ["uri", "digest"],
    "properties": {"uri": {"type": "string"}, "digest": DIGEST},
}
SCHEMA = {
    "type": "object",
    "required": ["_type", "subject", "predicateType", "predicate"],
    "additionalProperties": False,
    "properties": {
        "_type": {"const": "https://in-toto.io/Statement/v1"},
        "subject": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "object", "required": ["name", "digest"], "properties": {"digest": DIGEST}},
        },
        "predicateType": {"const": "https://slsa.dev/provenance/v1"},
        "predicate": {
            "type": "object",
            "required": ["buildDefinition", "runDetails"],
            "properties": {
                "buildDefinition": {
                    "type": "object",
                    "required": ["buildType", "externalParameters"],
                    "properties": {
                        "buildType": {"type": "string", "format": "uri"},
                        "externalParameters": {"type": "object"},
                        "resolvedDependencies": {"type": "array", "items": RESOURCE},
                    },
                },
                "runDetails": {
                    "type": "object",
                    "required": ["builder"],
                    "properties": {"builder": {"type": "object", "required": ["id"]}},
                },
            },
        },
    },
}


@pytest.fixture
def statement(built):
    return json.loads(built.files["provenance.json"])


def test_it_has_the_form_of_the_specifications(statement):
    Draft202012Validator(SCHEMA).validate(statement)
    del statement["predicate"]["runDetails"]
    assert not Draft202012Validator(SCHEMA).is_valid(statement)


def test_its_subjects_are_all_other_files(statement, built):
    others = built.files.keys() - {"provenance.json", "SHA256SUMS"}
    wanted = {name: {"sha256": hashlib.sha256(built.files[name]).hexdigest()} for name in others}
    assert {one["name"]: one["digest"] for one in statement["subject"]} == wanted


def test_it_names_the_commit(statement, commit):
    first = statement["predicate"]["buildDefinition"]["resolvedDependencies"][0]
    assert first["digest"] == {"gitCommit": commit}
    assert commit in statement["predicate"]["runDetails"]["builder"]["id"]
