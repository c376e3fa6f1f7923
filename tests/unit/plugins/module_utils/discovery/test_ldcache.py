# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The linker's cache: what the real ldconfig writes is read, and bytes of any other sort end in bounded time."""

from __future__ import annotations

import shutil
import struct
import subprocess
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import ldcache
from ansible_collections.fleet.cdi.tests.unit.trees.nvidia import elf

LDCONFIG = shutil.which("ldconfig", path="/sbin:/usr/sbin")


@pytest.mark.skipif(LDCONFIG is None, reason="no ldconfig here")
@pytest.mark.parametrize("format_", ["new", "compat"])
def test_what_ldconfig_writes(tmp_path, format_):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        (folder / "libone.so.1.2.3").write_bytes(elf("libone.so.1"))
    (folders[0] / "libnone.so").write_bytes(b"not ELF")
    config, cache = tmp_path / "ld.so.conf", tmp_path / "ld.so.cache"
    config.write_text("".join(f"{folder}\n" for folder in folders))
    arguments = [LDCONFIG, "-c", format_, "-f", str(config), "-C", str(cache)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0 and format_ == "compat":
        pytest.skip(f"this ldconfig writes no cache for old glibc: {done.stderr}")
    found = ldcache.libraries(cache.read_bytes())
    assert [path for path in found if path.startswith(str(tmp_path))] == [f"{one}/libone.so.1" for one in folders]
    listed = subprocess.run([LDCONFIG, "-p", "-C", str(cache)], capture_output=True, text=True, check=True).stdout
    # The first line names the cache, which may have a number in its path.
    of_64_bits = [line for line in listed.splitlines()[1:] if "64" in line.partition("=>")[0]]
    assert set(found) == {line.partition("=> ")[2] for line in of_64_bits}


def cache(*entries, header=ldcache.MAGIC, count=None, old=b""):
    """A cache of (flags, path)."""
    size, texts, table = len(header) + 28 + 24 * len(entries), b"", b""
    for flags, path in entries:
        table += struct.pack("<iIIIQ", flags, size + len(texts), size + len(texts), 0, 0)
        texts += path + b"\0"
    return old + header + struct.pack("<I24x", len(entries) if count is None else count) + table + texts


X86, ARM, POWER, I386, X32 = 0x0303, 0x0A03, 0x0503, 0x0003, 0x0803
OLD = b"ld.so-1.7.0\0" + struct.pack("<I", 1) + bytes(12) + bytes(4)  # one library, and four bytes to the new table


@pytest.mark.parametrize("old", [b"", OLD], ids=["", "behind a table for old glibc"])
def test_libraries_of_64_bits_each_once(old):
    entries = [(X86, b"/a.so.1"), (I386, b"/b"), (X32, b"/c"), (ARM, b"/d"), (POWER, b"/e"), (X86, b"/a.so.1")]
    odd = [(0x0300, b"/no-elf"), (X86, b"relative"), (X86, b""), (X86, b"/a\nb"), (X86, b"/\xff"), (X86, b"/" * 5000)]
    assert ldcache.libraries(cache(*entries, *odd, old=old)) == ["/a.so.1", "/d", "/e"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a cache"),
        (b"\x7fELF" + bytes(100), "not a cache"),
        (b"ld.so-1.7.0\0" + b"\xff" * 4, "not a cache"),
        (b"ld.so-1.7.0\0", "not a cache"),
        (ldcache.MAGIC, "not a cache"),
        (cache(header=b"glibc-ld.so.cache1.2"), "not a cache"),
        (cache((X86, b"/a"), count=2**32 - 1), "too short for the 4294967295 libraries"),
    ],
)
def test_what_is_no_cache(content, says):
    with pytest.raises(ValueError, match=says):
        ldcache.libraries(content)


def test_a_path_beyond_the_file_is_left_out():
    entry = struct.pack("<iIIIQ", X86, 2**32 - 1, 2**32 - 1, 0, 0)
    assert ldcache.libraries(ldcache.MAGIC + struct.pack("<I24x", 1) + entry) == []


def test_paths_that_share_bytes_do_not_fill_the_memory():
    """Each entry begins one byte further in one long path."""
    count = (ldcache.LIMIT - 5000) // 24
    start = 48 + 24 * count
    table = b"".join(struct.pack("<iIIIQ", X86, 0, start + number % 4000, 0, 0) for number in range(count))
    content = ldcache.MAGIC + struct.pack("<I24x", count) + table + b"/" * 4094 + b"\0"
    tracemalloc.start()
    with pytest.raises(ValueError, match="longer than the file"):
        ldcache.libraries(content)
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_a_list_or_a_value_error(content, with_magic):
    try:
        found = ldcache.libraries(ldcache.MAGIC + content if with_magic else content)
    except ValueError:
        return
    assert all(path.startswith("/") for path in found)
