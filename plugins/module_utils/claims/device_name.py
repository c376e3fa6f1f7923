# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of a claim: from any id of a caller to a CDI device name and back, and to a request-id of the protocol.

A caller names its claim as it likes: by a job, a unit of systemd, a container. A CDI device name has letters, digits,
'-', '_', '.' and ':', and starts and ends with a letter or digit (CDI SPEC.md, "CDI Devices"). An id that is such a
name stays unchanged, nearly always: `fleet.cdi/claim=job-42`. A byte that can't stand in a name is written as ':' and
two hexadecimal digits, and a name whose first byte is written so has "id:" before it.
"""

from __future__ import annotations

import re

from ..protocol import grammar
from ..records import CdiError
from ..spec.names import AGGREGATES, OURS, transient_file_name

KIND = f"{OURS}/claim"
LONGEST = 200  # bytes of a device name: the name of its file has 255 at most, with a prefix and an ending

# The patterns are compiled at their first use: most ids need none of them.
_ESCAPE = rb":([0-9a-f]{2})"
_BEFORE = b"id:"  # before a name that would start with an escape
_DIGEST = r"claim-[0-9a-f]{40}\Z"
_ALLOWED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-"  # within a CDI device name


def device_name(id_: str) -> str:
    """Return the CDI device name of the claim `id_`; `claim_id` is its inverse.

    Bytes that are not UTF-8 come as surrogates (os.fsdecode). Raises CdiError for an empty id and for one that is too
    long.
    """
    content = id_.encode("utf-8", "surrogateescape")
    if not content:
        raise CdiError("claim: found an empty id; expected a text, such as job-42")
    # A claim may not look like an aggregate, nor like a name that has the prefix.
    odd_start = not content[:1].isalnum() or id_ in AGGREGATES
    odd = {0} if odd_start else {2} if content.startswith(_BEFORE + b":") else set()
    if b":" in content:
        odd |= {match.start() for match in re.finditer(_ESCAPE, content)}
    if not content[-1:].isalnum():
        odd.add(len(content) - 1)
    odd |= {index for index, byte in enumerate(content) if byte not in _ALLOWED}
    name = b"".join(b":%02x" % byte if index in odd else bytes([byte]) for index, byte in enumerate(content))
    found = ((_BEFORE if odd_start else b"") + name).decode("ascii")
    if len(found) > LONGEST:
        raise CdiError(
            f"claim: the id {id_[:40]!r}... makes a device name of {len(found)} characters; expected at most "
            f"{LONGEST}. Choose a shorter id."
        )
    return found


def claim_id(name: str) -> str:
    """Return the id whose CDI device name is `name`."""
    content = name.encode("ascii")
    if content.startswith(_BEFORE + b":"):
        content = content[len(_BEFORE) :]
    return re.sub(_ESCAPE, lambda match: bytes([int(match[1], 16)]), content).decode("utf-8", "surrogateescape")


def qualified_name(id_: str) -> str:
    """Return what a container asks for: `fleet.cdi/claim=job-42`."""
    return f"{KIND}={device_name(id_)}"


def spec_file(id_: str) -> str:
    """Return the name of the claim's spec file, as the reference library's GenerateTransientSpecName gives it."""
    return transient_file_name(KIND, device_name(id_))


def request_id(id_: str) -> str:
    """Return the request-id of the claim `id_` for plugins: the id itself if it is one, a digest otherwise.

    A request-id has 64 letters, digits and '-' at most, so no rule for all ids can be reversed. An id that looks like a
    digest gets one, too, so two claims never share a request-id.
    """
    if grammar.is_request_id(id_) and not (id_.startswith("claim-") and re.match(_DIGEST, id_)):
        return id_
    import hashlib  # takes as long as the rest of this file

    return "claim-" + hashlib.sha256(id_.encode("utf-8", "surrogateescape")).hexdigest()[:40]
