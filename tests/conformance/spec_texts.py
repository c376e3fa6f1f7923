# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Specs as JSON and YAML text, and changes to the text and to its bytes."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Callable

import yaml


def to_json(rng: Random, spec: Any) -> str:
    return json.dumps(spec, indent=rng.choice((None, None, 1, 2, "\t")), ensure_ascii=rng.random() < 0.1)


def to_yaml(rng: Random, spec: Any) -> str:
    if rng.random() < 0.3 and isinstance(spec, dict) and isinstance(spec.get("devices"), list):
        shared = [
            item["containerEdits"] for item in spec["devices"] if isinstance(item, dict) and "containerEdits" in item
        ]
        for item in spec["devices"]:
            if isinstance(item, dict) and shared and rng.random() < 0.5:
                item["containerEdits"] = shared[0]  # PyYAML makes an alias of it
    dumper = DUMPERS[rng.choice((None, None, '"', "'"))]
    return yaml.dump(
        spec,
        Dumper=dumper,
        sort_keys=False,
        allow_unicode=rng.random() < 0.9,
        width=rng.choice((40, 200)),
        default_flow_style=rng.choice((None, True, False)),
    )


def quoting(style: Any) -> Any:
    """A dumper that writes all text in this style."""

    class Dumper(yaml.CSafeDumper):
        """PyYAML's own would quote numbers too, and tag them."""

    Dumper.add_representer(
        str, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)
    )
    return Dumper


DUMPERS = {style: quoting(style) for style in (None, '"', "'")}


def around(before: str, after: str) -> Callable[[Random, str], str]:
    return lambda _rng, text: before + text + after


def inserting(*parts: str) -> Callable[[Random, str], str]:
    """One of `parts` somewhere."""

    def change(rng: Random, text: str) -> str:
        at = rng.randint(0, len(text))
        return text[:at] + rng.choice(parts) + text[at:]

    return change


def in_string(*parts: str) -> Callable[[Random, str], str]:
    """One of `parts` right after some quotation mark."""

    def change(rng: Random, text: str) -> str:
        at = [index for index, character in enumerate(text) if character == '"'] or [0]
        spot_ = rng.choice(at) + 1
        return text[:spot_] + rng.choice(parts) + text[spot_:]

    return change


def substituting(*pairs: tuple[str, str]) -> Callable[[Random, str], str]:
    """One of these replaced, where it first stands."""

    def change(rng: Random, text: str) -> str:
        old, new = rng.choice([pair for pair in pairs if pair[0] in text] or [("", "")])
        return text.replace(old, new, 1)

    return change


def bomb(rng: Random, text: str) -> str:
    """Annotations of which most come from aliases, more or less."""
    width, depth = rng.choice(((2, 3), (9, 2), (30, 2), (60, 1), (9, 7)))
    lines = ["x0: &x0 [a, b]"] + [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * width)}]" for n in range(1, depth + 1)]
    return "\n".join(lines) + "\n" + text


def shared_variables(rng: Random, _text: str) -> str:
    """A good spec whose devices share their edits by aliases; with many of them all but nothing is written out."""
    count = rng.choice((2, 20, 300, 300))
    devices = "".join(f"- {{name: d{number}, containerEdits: *e}}\n" for number in range(count))
    own = ", ".join(f"A{number}=1" for number in range(rng.choice((1, 30, 100, 100))))
    return (
        f"cdiVersion: 0.3.0\nkind: a.com/gpu\ndevices:\n- {{name: d, containerEdits: &e {{env: [{own}]}}}}\n{devices}"
    )


SPEC_TEXT = """\
cdiVersion: 0.5.0
kind: a.com/gpu
devices:
- name: {name}
  containerEdits:
    deviceNodes:
    - {{path: /dev/a, {fields}}}
"""


def hand_written(rng: Random, _text: str) -> str:
    """YAML as people write it, with scalars that parsers take for all sorts of things."""
    scalars = (
        "0",
        "7",
        "10",
        "01",
        "1_0",
        "0x1f",
        "0b1",
        "0o17",
        "1e3",
        "1.",
        ".5",
        "1.5",
        "+1",
        "-1",
        "1:0",
        "0:1",
        "190:20:30",
        "08",
        "2001-01-01",
        "12e03",
        "0x",
        "0b2",
        "1_",
        ".inf",
        "y",
        "no",
        "On",
        "true",
        "~",
        "a",
        "1a",
        "1.1.0",
        "=",
        "<<",
        "!",
        "0.0",
        "9223372036854775807",
        "9223372036854775808",
        "99999999999999999999",
        "1e400",
        "-1e400",
        "9" * 5000,
        "0" + "7" * 5000,
        "0" * 5000 + "7",
    )
    field = rng.choice(("major", "uid", "fileMode", "hostPath", "type", "permissions"))
    return SPEC_TEXT.format(name=rng.choice(scalars), fields=f"{field}: {rng.choice(scalars)}")


def merging(rng: Random, _text: str) -> str:
    """A merge key, with and without a key that it overrides."""
    own = rng.choice(("", ", name: b", ", containerEdits: {env: [B=2]}"))
    merged = rng.choice(("*d", "[*d]", "[*d, *d]", "5"))
    devices = f"devices:\n- &d {{name: a, containerEdits: {{env: [A=1]}}}}\n- {{<<: {merged}{own}}}\n"
    return f"cdiVersion: 0.3.0\nkind: a.com/gpu\n{devices}"


def indenting(rng: Random, text: str) -> str:
    """One line moved to the right, to the left or joined with the one before."""
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    lines[at] = rng.choice((" " + lines[at], "  " + lines[at], "\t" + lines[at], lines[at].lstrip(), lines[at][1:]))
    return "\n".join(lines) if rng.random() < 0.7 else "\n".join(lines[:at]) + " " + "\n".join(lines[at:])


SNIPPETS = (
    *(
        "\n",
        "\n  ",
        "  ",
        "\t",
        " #",
        "# x\n",
        ": ",
        ":",
        "- ",
        "? ",
        "|\n   ",
        ">-\n  ",
        "'",
        '"',
        "\\",
        "\\N",
        "\\\n",
    ),
    *(
        "&a ",
        "*a",
        "<<: ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "!",
        "!!str ",
        "%",
        "@",
        "`",
        "---\n",
        "--- ",
        "...\n",
        "\r",
        "\r\n",
    ),
    *("~", "null", "0", "é", "=", "  - ", "key: ", "\n\n", " \n", "'' ", '"" '),
)
ODD = (
    "\x7f",
    "\x80",
    "\x85",
    "\x9f",
    "\u2028",
    "\u2029",
    "\ufeff",
    "\ufffe",
    "\uffff",
    "\t",
    "\x01",
    "\ud800",
    "\r",
    "é",
)
COMMON_TEXT: dict[str, Callable[[Random, str], str]] = {
    "odd character": inserting(*ODD),
    "odd character in string": in_string(*ODD),
    "escape": in_string(
        "\\/",
        "\\u00e9",
        "\\ud83d\\ude00",
        "\\ud800",
        "\\u0000",
        "\\u2028",
        "\\x41",
        "\\e",
        "\\\\/",
        '\\"',
        "\\U0001F600",
    ),
    "punctuation": inserting(*'{}[],:"#&*!|>%@`-? \n'),
    "byte order mark": around("\ufeff", ""),
    "duplicate-key": substituting(
        ('"kind":', '"kind": "b.com/x", "kind":'),
        ('"name":', '"name": "x", "name":'),
        ("kind: ", "kind: b.com/x\nkind: "),
        ('"env":', '"env": [], "env":'),
        ("devices:", "devices: []\ndevices:"),
    ),
    "cut off": lambda rng, text: text[: rng.randrange(len(text) + 1)],
    "spaces": lambda rng, text: (
        rng.choice((" ", "\n", "\r\n", "\t")) + text + rng.choice((" ", "\n\n", "\r\n", "\t", "\n\t"))
    ),
}
JSON_TEXT: dict[str, Callable[[Random, str], str]] = {
    **COMMON_TEXT,
    "json-for-yaml": substituting(
        ('"kind":', '"kind"\n:'),
        ('"name":', '"name"\t:'),
        ('"kind":', '"kind"' + " " * 1100 + ":"),
        ('/"', '\\/"'),
        (":", " :\t"),
    ),
    "long key": substituting(
        ('"devices"', '"annotations": {"' + "k" * 1100 + '": "v"}, "devices"'),
        ('"devices"', '"annotations": {"' + "k" * 800 + '": "v"}, "devices"'),
    ),
    "comment": around("", "\n# the end"),
    "trailing": around("", " {"),
    "trailing comma": substituting(("]", ",]"), ("}", ",}")),
    "yaml": lambda _rng, text: text.replace('"kind"', "kind", 1),
    "numbers": substituting(
        ("true", "True"), (": 0", ": -0"), (": 1", ": 01"), ("44", "0x2c"), ("660", "NaN"), ("1", "1e0")
    ),
}
YAML_TEXT: dict[str, Callable[[Random, str], str]] = {
    **COMMON_TEXT,
    "unquoted": lambda _rng, text: text.replace("'", ""),
    "tags": substituting(
        ("kind: ", "kind: !!str "), ("devices:", "devices: !!seq"), ("name: ", "name: !x "), ("kind: ", "!!str kind: ")
    ),
    "directive": around("%YAML 1.1\n---\n", ""),
    "second document": around("---\n", "---\n{"),
    "garbage": around("", "...\nkind: [\n"),
    "comment": around("# first\n", "# last\n"),
    "yaml-size": shared_variables,
    "yaml-size again": shared_variables,
    "yaml-size once more": shared_variables,
    "bomb again": bomb,
    "bomb": bomb,
    "hand-written": hand_written,
    "hand-written again": hand_written,
    "merge": merging,
    "question": inserting("?", "? ", "a?b", "?\n "),
    "snippet": inserting(*SNIPPETS),
    "snippets": lambda rng, text: inserting(*SNIPPETS)(rng, inserting(*SNIPPETS)(rng, text)),
    "indented": indenting,
    "key": substituting(
        ("kind: ", "? kind\n: "),
        ("annotations: {", "annotations: {yes: a, "),
        ("annotations:\n", "annotations:\n  5: a\n"),
        ("devices:", "1: 2\ndevices:"),
        ("devices:", "&a devices:"),
    ),
    "json": lambda _rng, text: json.dumps(yaml.safe_load(text), default=str),
}


def splice(rng: Random, content: bytes, part: bytes, instead_of: int = 0) -> bytes:
    """`part` somewhere, in the place of so many bytes."""
    at = rng.randrange(len(content) + 1)
    return content[:at] + part + content[at + instead_of :]


BYTES: dict[str, Callable[[Random, bytes], bytes]] = {
    "utf-16": lambda rng, content: content.decode("utf-8", "replace").encode(
        rng.choice(("utf-16", "utf-16-le", "utf-32"))
    ),
    "a byte": lambda rng, content: splice(rng, content, bytes([rng.randrange(256)]), 1),
    "no utf-8": lambda rng, content: splice(rng, content, rng.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"))),
    "nul": lambda _rng, content: content + b"\0",
    "empty": lambda rng, _content: rng.choice(
        (b"", b"\n", b"\xef\xbb\xbf", b"null", b"---\n", b"[" * 20000, b"{" * 3000, b'{"a":' * 2000)
    ),
}
