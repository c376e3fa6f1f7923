# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of the users in passwd(5) of this host.

The name services are not asked: a directory server that does not answer (LDAP) would stop a look at the host for
minutes. Users who are in such a directory alone have no name here.
"""

from __future__ import annotations

from collections.abc import Iterator

from .. import documents
from ..records import CdiError

PASSWD = "/etc/passwd"
LIMIT = 4 << 20  # bytes of the file
LONGEST = 256  # characters of a name: LOGIN_NAME_MAX of Linux


def local_users(path: str = PASSWD) -> dict[int, str]:
    """Return uid -> name; empty if the file can't be read. The first line of a uid counts, as in getpwuid(3)."""
    try:
        content = documents.content(path, LIMIT) or b""
    except CdiError:
        return {}
    found: dict[int, str] = {}
    for uid, name in _entries(content.decode("utf-8", "replace")):
        found.setdefault(uid, name)
    return found


def _entries(text: str) -> Iterator[tuple[int, str]]:
    for line in text.split("\n"):
        name, _password, uid, *_rest = [*line.split(":"), "", ""]
        decimal = uid.isascii() and uid.isdecimal() and len(uid) <= 10
        # A line that begins with + or - belongs to NIS.
        if decimal and name.isprintable() and 0 < len(name) <= LONGEST and name[0] not in "+-#":
            yield int(uid), name
