# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of CDI specs, by cause. Each finding names the value found and the value expected (spec/validate.py)."""

from __future__ import annotations

from .explanation import Explanation

VALIDATE = "fleet-cdi validate FILE"

_BY_CAUSE = (
    Explanation(
        id="FC4001",
        title="The file can't be read",
        messages=(),
        means="The path does not exist, may not be read, is too large, or is not a regular file.",
        why="Runtimes skip such a file without a word.",
        do="Correct the path, or run as root.",
        more="namei -l FILE",
        rules=("unreadable",),
    ),
    Explanation(
        id="FC4002",
        title="The name of the file",
        messages=(),
        means="A spec has a name that ends in .json or .yaml.",
        why="Runtimes skip other files.",
        do="Rename the file.",
        more="ls -l /etc/cdi",
        rules=("file-name",),
    ),
    Explanation(
        id="FC4003",
        title="The text is not JSON or YAML that all parsers read alike",
        messages=(),
        means=(
            "The text breaks the grammar, has a key twice, is very large, or uses features of YAML that parsers "
            "read in different ways."
        ),
        why=(
            "The reference library has two YAML parsers in its releases. A file that they read differently gives "
            "other devices in other runtimes."
        ),
        do="Write plain JSON: two spaces, double quotes, each key once. `python3 -m json.tool` checks it.",
        more=VALIDATE,
        rules=(
            "utf-8",
            "json",
            "json-for-yaml",
            "yaml",
            "yaml-subset",
            "yaml-size",
            "duplicate-key",
        ),
    ),
    Explanation(
        id="FC4004",
        title="The version of CDI",
        messages=(),
        means=(
            "`cdiVersion` is unknown, begins with a v, is too low for the fields in the file, or not every runtime "
            "knows it or a field."
        ),
        why="A runtime refuses a version that it does not know, and ignores or refuses fields that are newer.",
        do="Set the version that the finding names, or remove the field.",
        more=VALIDATE,
        rules=(
            "version",
            "semantic-version",
            "minimum-version",
            "field-since",
            "field-until",
            "root-class",
            "not-every-runtime",
        ),
    ),
    Explanation(
        id="FC4005",
        title="A field is missing, unknown or of another type",
        messages=(),
        means="A field has a wrong spelling or type, is null, or is required and not there.",
        why="Releases of the reference library refuse it, crash, or read another value.",
        do="Correct the field at the JSON pointer that the finding names.",
        more=VALIDATE,
        rules=(
            "type",
            "null",
            "null-item",
            "required",
            "unknown-field",
            "key-case",
            "unquoted",
            "text",
            "not-empty",
        ),
    ),
    Explanation(
        id="FC4006",
        title="The name of the kind or of a device",
        messages=(),
        means=(
            "The kind is not `vendor/class`, or a device name has characters that are not allowed or is there twice."
        ),
        why=(
            "The name is what containers ask for. Some releases of the reference library crash on names of one letter."
        ),
        do="Choose another name: letters, digits, '-', '_' and '.', with a DNS name as vendor.",
        more=VALIDATE,
        rules=(
            "kind",
            "one-letter",
            "vendor-dns",
            "class-length",
            "device-name",
            "unique-names",
        ),
    ),
    Explanation(
        id="FC4007",
        title="Devices without content",
        messages=(),
        means="The spec has no devices, or a device has no edits.",
        why="The reference library refuses the file.",
        do="Add a device, or one edit to the device: an environment variable is enough.",
        more=VALIDATE,
        rules=("no-devices", "some-edit"),
    ),
    Explanation(
        id="FC4008",
        title="A device node",
        messages=(),
        means=(
            "The type or the permissions of a device node are not those of the specification, or a node of type u "
            "has no major."
        ),
        why="No runtime can give such a node to a container.",
        do="Use type b, c, u or p, and permissions of the letters r, w and m. Or leave them out.",
        more=VALIDATE,
        rules=(
            "node-type",
            "unbuffered-major",
            "permissions",
        ),
    ),
    Explanation(
        id="FC4009",
        title="A path or a mount",
        messages=(),
        means="A path is not absolute.",
        why="A runtime looks for a relative source in the bundle of the container.",
        do="Write the complete path.",
        more=VALIDATE,
        rules=("absolute-path", "absolute-source"),
    ),
    Explanation(
        id="FC4010",
        title="The environment of the container",
        messages=(),
        means="An item is not NAME=value, or one variable has two values.",
        why="Which of two values a container gets depends on the runtime.",
        do="Write each variable once.",
        more=VALIDATE,
        rules=("environment", "unique-environment"),
    ),
    Explanation(
        id="FC4011",
        title="A hook",
        messages=(),
        means="The name of a hook is unknown, its timeout is not positive, or it has no environment.",
        why=(
            "Some runtimes give a hook without `env` the environment of the image. LD_PRELOAD of the image then "
            "runs code on the host as root (as in CVE-2025-23266)."
        ),
        do='Use a name of the OCI specification and a positive timeout. Add `"env": ["PATH=/usr/bin:/bin"]`.',
        more=VALIDATE,
        rules=(
            "hook-name",
            "not-negative",
            "positive",
            "hook-environment",
        ),
    ),
    Explanation(
        id="FC4012",
        title="Groups, interfaces and resctrl",
        messages=(),
        means=(
            "An additional group is 0, a network interface is named twice, or `closID` is not the name of a directory."
        ),
        why="Group 0 is ignored. The others can't be applied to a container.",
        do="Correct the value that the finding names.",
        more=VALIDATE,
        rules=(
            "gid-zero",
            "unique-interfaces",
            "clos-id",
        ),
    ),
    Explanation(
        id="FC4013",
        title="Annotations",
        messages=(),
        means=(
            "A key of an annotation is not as Kubernetes has them, or all annotations together are larger than 256 KiB."
        ),
        why="SPEC.md applies the rules of Kubernetes.",
        do="Shorten the key or the value.",
        more=VALIDATE,
        rules=("annotation-keys", "annotation-size"),
    ),
)

# A finding ends with the name of its rule in brackets (spec/validate.py).
EXPLANATIONS = tuple(one._replace(messages=tuple(f"[{rule}]" for rule in one.rules)) for one in _BY_CAUSE)
