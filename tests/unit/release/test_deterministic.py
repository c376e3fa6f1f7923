# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The archives of a release: their bytes are written down here, so each Python that runs this makes the same."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile

import deterministic
import pytest
from deterministic import DIRECTORY, LINK, Member

MEMBERS = [
    Member("usr", mode=0o755, type=DIRECTORY),
    Member("usr/" + "long/" * 40 + "name", b"text\n"),  # longer than the field of ustar, with and without a prefix
    Member("usr/" + "x" * 120, b"text\n"),
    Member("usr/naïve", b"\0" * 513, 0o755),
    Member("link", type=LINK, target="usr/" + "x" * 120),
]
DIGEST = "21394aaa6ed6e55230357100b9ca3f1c6aeb38c64100a90197125158325e3445"


def test_a_tar_has_the_same_bytes_under_each_python():
    made = deterministic.tar(MEMBERS, 1_700_000_000)
    assert hashlib.sha256(made).hexdigest() == DIGEST
    with tarfile.open(fileobj=io.BytesIO(made)) as archive:
        found = archive.getmembers()
    assert [one.name for one in found] == [one.name for one in MEMBERS]
    assert {(one.uid, one.gid, one.uname, one.gname, one.mtime) for one in found} == {(0, 0, "", "", 1_700_000_000)}


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 200_000])
def test_a_stored_gzip_is_read_by_others(size):
    content = bytes(index % 251 for index in range(size))
    assert gzip.decompress(deterministic.gzip(content)) == content


def test_a_stored_gzip_has_the_blocks_of_the_rfc():
    made = deterministic.gzip(b"a" * 65536)
    assert len(made) == 10 + 5 + 65535 + 5 + 1 + 8
    assert made[10:15] == b"\x00\xff\xff\x00\x00" and made[15 + 65535 :][:6] == b"\x01\x01\x00\xfe\xffa"
