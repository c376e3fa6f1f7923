# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container images that an attacker could have made, from a seed; and the words that a spec could have for them.

Every trick is one function (random numbers, root directory of the image, directory of the host that it aims at). A new
trick is a new row of TRICKS.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

# What the hook reads or writes, or has been told to.
FOLDERS = (
    "etc/ld.so.conf.d",
    "usr/local/cuda/compat",
    "usr/lib",
    "opt/lib",
    "lib",
    "dev/dri",
    "etc/nvidia",
    "dev",
    "etc",
    "opt",
)
FILES: tuple[str, ...] = (
    "etc/ld.so.conf",
    "etc/ld.so.cache",
    "etc/ld.so.conf.d/a.conf",
    "etc/ld.so.conf.d/00-fleet-cdi.conf",
    "opt/lib/liba.so.1.0",
)
FILES += (
    "usr/local/cuda/compat/libcuda.so.570.1.1",
    "dev/nvidia0",
    "etc/debian_version",
    "lib/ld-musl-x86_64.so.1",
    "opt/lib/link",
)
DIGITS = (0, 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
ODD_TEXT = b"/a\n,\x00\xff\x1b[31mred\nhwcap 1 x\ninclude\n=\ninclude \x00\n#\n/lib\xe2\x80\xae\n/b = c\n"
LARGE = 1 << 33  # bytes; the file system stores none of them

Trick = Callable[[random.Random, Path, Path], None]


def place(root: Path, name: str, directory: bool = False) -> Path:
    """Where `name` is to be made in the image, in real directories of its own; what was there is gone."""
    path = root
    for part in Path(name).parts[:-1]:
        path = path / part
        if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
            path.unlink()
        path.mkdir(exist_ok=True)
    path = path / Path(name).name
    if not path.is_symlink() and path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if directory:
        path.mkdir()
    return path


def targets(outside: Path) -> tuple[str, ...]:
    """What a symlink of the image may say to get out, or to make trouble."""
    up = "../" * 12
    return (
        *(str(outside), f"{outside}/folder", f"{outside}/secret", f"{up}{outside}", f"/..{outside}/folder"),
        *(
            f"/proc/1/root{outside}",
            f"/proc/self/root{outside}/folder",
            f"/proc/self/cwd/{up}{outside}",
            "/proc/self/fd/3",
        ),
        *(
            "/proc/self/exe",
            "/proc/thread-self/root",
            "/sys/kernel",
            "/sys",
            "..",
            ".",
            "/",
            "opt",
            "/opt/lib/link",
            "x" * 4095,
        ),
        *("/dev/zero", "/etc/passwd", "/etc/ld.so.cache", "\n\x1b[2J", "a/" * 2000),
    )


def link(rng: random.Random, root: Path, outside: Path) -> None:
    place(root, rng.choice(FOLDERS + FILES)).symlink_to(rng.choice(targets(outside)))


def chain(rng: random.Random, root: Path, outside: Path) -> None:
    """Symlinks that lead to each other, the last one out or back."""
    count = rng.choice((2, 5, 39, 41, 60))
    for number in range(count):
        place(root, f"c{number}").symlink_to(f"/c{number + 1}")
    place(root, f"c{count}").symlink_to(rng.choice((*targets(outside), "c0")))
    place(root, rng.choice(FOLDERS + FILES)).symlink_to("/c0")


def special(rng: random.Random, root: Path, _outside: Path) -> None:
    """Something that is no file: opening it may wait for ever, reading it may have no end."""
    path = place(root, rng.choice(FILES))
    sort = rng.randrange(4)
    if sort == 0:
        os.mkfifo(path)
    elif sort == 1:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as one:  # the path may be too long
            one.bind(str(path))
    elif sort == 2:
        with contextlib.suppress(OSError):  # not everywhere may root make nodes
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, rng.choice((3, 5, 7, 9))))
    else:
        path.mkdir(mode=rng.choice((0o755, 0)))


def sparse(rng: random.Random, root: Path, _outside: Path) -> None:
    path = place(root, rng.choice(FILES))
    path.write_bytes(
        rng.choice((b"", b"/opt/lib\n", b"\x7fELF\x02\x01\x01", ODD_TEXT, b"include /etc/ld.so.conf.d/*\n"))
    )
    os.truncate(path, rng.choice((LARGE, 1 << 40, (1 << 20) + 1)))


def many_lines(rng: random.Random, root: Path, _outside: Path) -> None:
    """Text of a few megabytes, each line of which is one more directory."""
    path = place(root, rng.choice(("etc/ld.so.conf", "etc/ld.so.conf.d/a.conf", "etc/ld.so.conf.d/00-fleet-cdi.conf")))
    size = rng.choice((1 << 16, 1 << 20, 3 << 20))
    sort = rng.randrange(3)
    if sort == 0:
        path.write_bytes(b"".join(b"/d%d\n" % number for number in range(size // 9)))
    elif sort == 1:
        path.write_bytes(b"/" + b"x" * size)
    else:
        path.write_bytes(b"include /etc/ld.so.conf.d/*.conf\n" * (size // 33))


def many_names(rng: random.Random, root: Path, _outside: Path) -> None:
    """A directory with thousands of files."""
    name, pattern = rng.choice(
        (
            ("etc/ld.so.conf.d", "{}.conf"),
            ("usr/local/cuda/compat", "libcuda.so.570.{}"),
            ("dev", "nvidia{}"),
            ("opt/lib", "lib{}.so.1"),
            ("lib", "ld-musl{}"),
        )
    )
    folder = place(root, name, directory=True)
    first = folder / pattern.format(0)
    first.write_bytes(rng.choice((b"", b"/opt/lib\n" * 100, ODD_TEXT)))
    padding = rng.choice(("", "0" * 200))
    for number in range(1, rng.choice((100, 2000, 6000))):
        os.link(first, folder / pattern.format(f"{padding}{number}"))


def includes(rng: random.Random, root: Path, outside: Path) -> None:
    """Configuration of the dynamic linker that includes itself, the host, or everything."""
    texts = (
        "include /etc/ld.so.conf\n",
        f"include {outside}/*\n{outside}/folder\n",
        f"include /proc/1/root{outside}/secret\n/proc/1/root{outside}/folder\n",
        "include ../../../../etc/passwd\ninclude /../*\n",
        "include /*/*/*/*/*\ninclude [a-\ninclude *\n",
        "include \n/\n//\n/./..\n/opt/lib/../../..\n" + "/a" * 3000,
    )
    place(root, "etc/ld.so.conf").write_text("".join(rng.sample(texts, rng.randint(1, len(texts)))))
    for number in range(rng.choice((0, 3, 200))):
        place(root, f"etc/ld.so.conf.d/{number}.conf").write_text(rng.choice(texts) * rng.choice((1, 50)))


def odd_text(rng: random.Random, root: Path, _outside: Path) -> None:
    path = place(root, rng.choice(("etc/ld.so.conf", "etc/ld.so.conf.d/a.conf", "etc/ld.so.conf.d/00-fleet-cdi.conf")))
    path.write_bytes(rng.choice((ODD_TEXT, rng.randbytes(5000), ODD_TEXT * 1000, b"\xff\xfe/\x00a\x00")))


def note(rng: random.Random) -> bytes:
    """What a hostile libcuda says of itself."""
    return rng.choice(
        (
            b'{"Driver": [535], "CUDA Version": "12.8"}',
            b"[" * 200_000,
            b'{"a":' * 100_000,
            b'{"Driver": [' + b"9" * 6000 + b"]}",
            b'{"Driver": {"a": 1}, "CUDA Version": ["x"]}',
            b'{"Driver": [1e999, NaN, null], "CUDA Version": 1}',
            b'{"Driver": [535]' + b" " * 900_000 + b"}",
            b"\xff\xfe{}",
            b'"\\ud800"',
        )
    )


def elf(rng: random.Random) -> bytes:
    """An ELF file for 64 bits with a note for CUDA's compatibility, some of its numbers wrong (elf(5))."""
    names = b"\0.shstrtab\0.note.cuda.fwd_compatibility\0"
    owner, text = b"NVIDIA Corporation\0", note(rng)
    body = len(owner).to_bytes(4, "little") + len(text).to_bytes(4, "little") + b"\1\0\0\0"
    body += owner + b"\0" * (-len(owner) % 8) + text
    table, content = bytearray(64), b""
    for name, sort, held in ((1, 3, names), (11, 7, body)):
        fields = (
            (name, 4),
            (sort, 4),
            (0, 8),
            (0, 8),
            (64 + len(content), 8),
            (len(held), 8),
            (0, 4),
            (0, 4),
            (8, 8),
            (0, 8),
        )
        table += b"".join(value.to_bytes(size, "little") for value, size in fields)
        content += held
    head = bytearray(b"\x7fELF\2\1\1".ljust(16, b"\0") + b"\3\0\x3e\0\1\0\0\0" + bytes(16))
    head += (64 + len(content)).to_bytes(8, "little") + bytes(10)
    head += (64).to_bytes(2, "little") + (3).to_bytes(2, "little") + (1).to_bytes(2, "little")
    for _time in range(rng.choice((0, 1, 1, 3))):
        where = rng.choice((head, table))
        at, size = rng.choice(
            (
                (32, 8),
                (40, 8),
                (54, 2),
                (56, 2),
                (58, 2),
                (60, 2),
                (62, 2),
                (88, 8),
                (96, 8),
                (152, 8),
                (160, 8),
                (176, 8),
            )
        )
        if at + size <= len(where):
            where[at : at + size] = (rng.choice(DIGITS) & (256**size - 1)).to_bytes(size, "little")
    return bytes(head) + content + bytes(table)


def libraries(rng: random.Random, root: Path, _outside: Path) -> None:
    """Libraries that ldconfig reads, and those that decide on CUDA's compatibility."""
    name = rng.choice(("usr/local/cuda/compat/libcuda.so.570.1.1", "opt/lib/liba.so.1.0", "usr/lib/libb.so.2"))
    path = place(root, name)
    path.write_bytes(elf(rng) if rng.random() < 0.8 else b"\x7fELF" + rng.randbytes(3000))
    if rng.random() < 0.2:
        os.truncate(path, LARGE)


def modes(rng: random.Random, root: Path, _outside: Path) -> None:
    for name in rng.sample(FOLDERS, 3):
        path = root / name
        if not path.is_symlink() and path.is_dir():
            path.chmod(rng.choice((0, 0o777, 0o4755, 0o1777)))


def python(_rng: random.Random, root: Path, _outside: Path) -> None:
    """Modules by the names that Python imports first."""
    for name in ("os.py", "site.py", "sitecustomize.py", "encodings/__init__.py", "_signal.py", "opt/lib/os.py"):
        place(root, name).write_text("raise SystemExit('of the image')\n")


TRICKS: tuple[Trick, ...] = (
    *(link, link, link, chain, special, special, sparse, many_lines, many_names, includes, odd_text),
    *(libraries, libraries, libraries, modes, python),
)


def fill(rng: random.Random, root: Path, outside: Path) -> list[str]:
    """Make an image in the empty directory `root`; the names of its tricks."""
    for name in ("etc/ld.so.conf.d", "opt/lib", "usr/lib", "lib", "dev/dri", "proc", "sys", "tmp"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "etc/debian_version").write_text("12\n")
    tricks = rng.choices(TRICKS, k=rng.randint(1, 5))
    for trick in tricks:
        with contextlib.suppress(
            FileExistsError, NotADirectoryError, PermissionError
        ):  # one trick in the way of another
            trick(rng, root, outside)
    return [trick.__name__ for trick in tricks]


def words(rng: random.Random, outside: Path) -> list[str]:
    """What a spec asks of the hook, in this image: an honest spec, as the attacker has the image alone."""
    some = {
        "--link": [
            "libcuda.so.1::/usr/lib/libcuda.so",
            "target::/opt/lib/link",
            "../card0::/dev/dri/by-path/card",
            f"x::{outside}/folder/new",
        ],
        "--device-link": ["../nvidia0::/dev/dri/link"],
        "--folder": ["/opt/lib", "/usr/lib/vendor", f"{outside}/folder"],
        "--chmod": ["755:/opt/lib", "711:/dev/dri", f"777:{outside}/folder", "700:/etc"],
        "--cuda-compat": ["550.54.15"],
        "--application-profile": [""],
    }
    more = [
        ["create-symlinks", "--link", "libcuda.so.1::/usr/lib/libcuda.so"],
        ["update-ldcache", "--folder", "/opt/lib", "--folder", "/usr/lib/vendor"],
        ["update-ldcache"],
        ["enable-cuda-compat", "--host-driver-version=550.54.15", "--host-cuda-version=12.4"],
        ["update-application-profile"],
        ["chmod", "--mode", "755", "--path", "/opt/lib"],
    ]
    if rng.random() < 0.3:
        return rng.choice(more)
    chosen = ["createContainer"]
    for option in rng.sample(sorted(some), rng.randint(1, len(some))):
        if some[option] == [""]:
            chosen.append(option)
        else:
            chosen += [f"{option}={value}" for value in rng.sample(some[option], rng.randint(1, len(some[option])))]
    return chosen


def variables(rng: random.Random, canary: str, library: bool) -> list[str]:
    """The environment that the author of an image gives it, to get at what runs before the container does."""
    some = {
        "LD_DEBUG": "LD_DEBUG=statistics",  # which has the dynamic linker itself write a file
        "PYTHONPATH": "PYTHONPATH=.",
        "PYTHONHOME": "PYTHONHOME=.",
        "PYTHONSTARTUP": "PYTHONSTARTUP=/os.py",
        "PYTHONINSPECT": "PYTHONINSPECT=1",
        "GLIBC_TUNABLES": "GLIBC_TUNABLES=glibc.malloc.check=3:glibc.malloc.arena_max=1",
        "LD_LIBRARY_PATH": "LD_LIBRARY_PATH=.:opt/lib:",
        "LD_BIND_NOW": "LD_BIND_NOW=1",
        "GCONV_PATH": "GCONV_PATH=.",
        "LC_ALL": "LC_ALL=C",
        "MALLOC_PERTURB_": "MALLOC_PERTURB_=85",
        **({"LD_PRELOAD": "LD_PRELOAD=./evil.so", "LD_AUDIT": "LD_AUDIT=./evil.so"} if library else {}),
    }
    chosen = {"LD_DEBUG", *rng.sample(sorted(some), rng.randint(1, len(some)))}
    return [*(some[name] for name in sorted(chosen)), f"LD_DEBUG_OUTPUT={canary}"]


@contextlib.contextmanager
def swapping(rng: random.Random, root: Path, outside: Path) -> Iterator[None]:
    """Swap a directory of the image for a link to the host, again and again, as who shares a volume with it can."""
    if rng.random() < 0.6:
        yield
        return
    name = rng.choice(("opt/lib", "etc/ld.so.conf.d", "usr/lib", "etc", "opt"))
    other, over = root / "tmp/other", threading.Event()

    def swap() -> None:
        with contextlib.suppress(OSError):
            other.unlink(missing_ok=True)
            other.symlink_to(outside / "folder")
        while not over.is_set():
            # There is a rename that exchanges two names, renameat2(2), but Python has it not: by a third name then.
            for old, new in ((root / name, root / "tmp/real"), (other, root / name)):
                with contextlib.suppress(OSError):
                    old.rename(new)
            for old, new in ((root / name, other), (root / "tmp/real", root / name)):
                with contextlib.suppress(OSError):
                    old.rename(new)
            over.wait(0.0002)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
