# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take secrets out of documents and texts, by the names that stand before their values.

Pure. A name looks secret if it contains a word of WORDS or ends with one of ENDS; letters of any case, without "-", "_"
and ".". A value that no name announces is not found: docs/day2.md says so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

REDACTED = "[redacted]"
WORDS = ("token", "secret", "passw", "passphrase", "credential", "private", "cookie", "apikey", "authorization")
ENDS = ("key", "keys", "pass", "pwd", "pat", "auth", "pin", "sas", "dsn")
# Names in our own documents that look secret and are not: the name of a grant, the names of keys that we set.
OURS = ("key", "keys")

_NAME = r"-{0,2}[A-Za-z_][A-Za-z0-9_.-]*"
_WHOLE = re.compile(rf"({_NAME})=(.*)", re.DOTALL)  # NAME=value, --option=value: the value may have blanks
_NAMED = re.compile(rf"(?<![A-Za-z0-9_.-]){_NAME}[\"']?\s{{0,4}}[=:]\s{{0,4}}")  # in a text, before a value
_VALUE = re.compile(r"\"[^\"]*\"|'[^']*'|[^\s,;&]+")
_AFTER_WORD = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)  # RFC 6750, RFC 7617
_USER = re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]*://[^\s/:@]*):[^\s/@]*@")  # RFC 3986, userinfo
_PEM = re.compile(r"-----BEGIN [^-]*PRIVATE KEY-----.*?(-----END [^-]*-----|\Z)", re.DOTALL)  # RFC 7468


def looks_secret(name: str) -> bool:
    """Tell if the value of this name may be a secret."""
    plain = re.sub(r"[-_.]", "", name).lower()
    return any(word in plain for word in WORDS) or plain.endswith(ENDS)


def redacted_text(text: str) -> str:
    """Return `text` without secrets: environment, option, log line or any other text."""
    whole = _WHOLE.fullmatch(text)
    if whole and looks_secret(whole[1]):
        return f"{whole[1]}={REDACTED}"
    text = _USER.sub(rf"\1:{REDACTED}@", _PEM.sub(REDACTED, text))
    text = _AFTER_WORD.sub(rf"\1 {REDACTED}", text)
    return "".join(_without_values(text))


def redacted_lines(text: str) -> list[str]:
    """Return the lines of a log without secrets. A private key has many lines; one without an end takes the rest."""
    return [redacted_text(line) for line in _PEM.sub(REDACTED, text).splitlines()]


def _without_values(text: str) -> Iterator[str]:
    """Yield the pieces of a text, without the values behind names that look secret."""
    at = 0
    for named in _NAMED.finditer(text):
        if named.start() < at or not looks_secret(named[0].rstrip(" \t\r\n=:\"'")):
            continue
        value = _VALUE.match(text, named.end())
        if value:
            yield text[at : named.end()] + REDACTED
            at = value.end()
    yield text[at:]


def redacted(value: Any, plain: Collection[str] = ()) -> Any:
    """Return a JSON document without secrets. A mapping or list below a name in `plain` is read on.

    All that is below another name that looks secret goes, and the word after an option that looks secret.
    """
    if isinstance(value, dict):
        return {redacted_text(name): _below(name, one, plain) for name, one in value.items()}
    if isinstance(value, list):
        return [REDACTED if _is_option(value, index) else redacted(one, plain) for index, one in enumerate(value)]
    return redacted_text(value) if isinstance(value, str) else value


def _below(name: str, value: Any, plain: Collection[str]) -> Any:
    if value in (None, True, False, "", [], {}) or not looks_secret(name):
        return redacted(value, plain)
    if name in plain and isinstance(value, (dict, list)):
        return redacted(value, plain)
    return REDACTED


def _is_option(words: Sequence[Any], index: int) -> bool:
    """Tell if the word before this one is an option that looks secret, without a value of its own."""
    before = words[index - 1] if index else ""
    return isinstance(before, str) and before.startswith("-") and "=" not in before and looks_secret(before)
