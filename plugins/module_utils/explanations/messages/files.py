# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about files and directories, and system calls on them."""

from __future__ import annotations

from ..explanation import Explanation

EXPLANATIONS = (
    Explanation(
        id="FC1001",
        title="The path is not a regular file",
        messages=(
            "is not a regular file (*); expected one, or none",
            "is a symlink to *; expected a regular file. Remove the link.",
            "* is not a regular file (*)",
        ),
        means=(
            "fleet.cdi wants to read or replace the file at this path. A symlink, a directory, a device or a FIFO "
            "is there."
        ),
        why=(
            "Root follows no link that another user may have made: it would read or replace another file. A FIFO "
            "would make the reader wait forever."
        ),
        do=(
            "Look at the path. If another tool needs the link, name the real path in the settings. If not, move it "
            "away and run again."
        ),
        more="ls -ld PATH",
    ),
    Explanation(
        id="FC1002",
        title="A directory on the way is not trusted",
        messages=(
            "belongs to user *, group * and has mode *; expected a directory of * that nobody else can write to",
            "is a symlink of user * to *; expected one of *, or a directory",
            "* is a symlink; expected a directory. Name the real path.",
        ),
        means=(
            "fleet.cdi opens a path name by name. One directory or link on the way belongs to another user, or "
            "others can write to it."
        ),
        why=(
            "Another user could put another file there between two steps of root. Root would then write or run that "
            "file."
        ),
        do=(
            "Give the directory to root and take away the right to write: `chown root: DIR && chmod go-w DIR`. Or "
            "choose another place in the settings."
        ),
        more="namei -l PATH",
    ),
    Explanation(
        id="FC1003",
        title="A program of root can be changed by others",
        messages=(
            "can be written by others (mode *); expected only by root",
            "belongs to user *; expected root. Change its owner (chown).",
        ),
        means="fleet.cdi would run this program as root. Another user owns it or may write to it.",
        why="Root would run what that user writes into the file.",
        do="Find out who changed the owner or the mode. Then correct it: `chown root: FILE && chmod go-w FILE`.",
        more="namei -l FILE",
    ),
    Explanation(
        id="FC1004",
        title="The system refuses the operation",
        messages=(
            "can't * it: *",
            "can't be listed: *",
            "could not be written to it",
            "it has the hosts of an earlier run",
            "[Errno *] *",
            "can't be opened (*",
            "can't be locked (*)",
            "found a path below the working directory, which was removed",
        ),
        means="A system call on this path failed. The text behind the colon is the reason of the kernel.",
        why="fleet.cdi does not go on without the file: the host would be half changed.",
        do=(
            "`Permission denied`: run as root (`sudo`, or `become: true` in a playbook). `No space left`: free some "
            "space. `Read-only file system`: find out why it is read-only, or choose another place. `Input/output "
            "error`: read the kernel's log."
        ),
        more="findmnt -T PATH",
    ),
    Explanation(
        id="FC1005",
        title="Another process keeps a lock",
        messages=("another process has held this lock for * s; expected it to be done by then",),
        means="Two runs work on the same files. The other one has not ended within the limit.",
        why="Two writers at the same time could lose what one of them wrote.",
        do=(
            "Find the process. If it works, wait and run again. If it hangs, end it: fleet.cdi repairs an "
            "interrupted run at the next one."
        ),
        more="fuser -v PATH",
    ),
    Explanation(
        id="FC1006",
        title="Another tool changed a file of fleet.cdi",
        messages=(
            "was changed since fleet.cdi wrote it",
            "was removed since fleet.cdi wrote it",
            "was changed or removed since fleet.cdi set it; it is not taken back",
            "is not ours: fleet.cdi has no record of writing it. It stays unchanged.",
        ),
        means="The file is not the one that fleet.cdi wrote, or fleet.cdi never wrote it.",
        why=(
            "The change may be on purpose. fleet.cdi does not overwrite or remove the work of others without being "
            "told."
        ),
        do=(
            "Look at the file. If the change may go, use `cdi_host_force` (role cdi_host), `force: true` (module) or "
            "`--force` (undo). If it is wanted, move it to a file of its own."
        ),
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1007",
        title="The file is too large",
        messages=("is larger than *; expected a smaller file", "is larger than * MiB; expected one specification"),
        means="The file has more bytes than a document of its kind ever has.",
        why="A reader with a limit can't be made to use all memory of the host.",
        do=(
            "Look at the file: it is probably another file, or a tool appends to it. Name the right one, or write "
            "it again."
        ),
        more="ls -l PATH",
    ),
    Explanation(
        id="FC1008",
        title="A file can't be read",
        messages=("can't be read: *", "can't be read (*)"),
        means="The file is missing, or this user may not read it. The text tells which.",
        why="The command needs its content, and does not guess it.",
        do="Check the path for a typing error. Run as root, or make the file readable.",
        more="namei -l PATH",
    ),
    Explanation(
        id="FC1009",
        title="Another process changed the file at the same time",
        messages=("was changed by another process just now; nothing was changed",),
        means="Between the plan and the write, the file became another one.",
        why=(
            "fleet.cdi compared the file with what it had read. To write now would lose the change of the other "
            "process."
        ),
        do="Run it again. If it happens each time, two tools manage the same file: give it to one of them.",
        more="fuser -v PATH",
    ),
    Explanation(
        id="FC1010",
        title="A new file would replace one",
        messages=(
            "; expected a new name. Choose another one, or remove it.",
            "found a file of another program; expected one of `fleet-cdi metrics`, or none",
        ),
        means=(
            "A file with this name exists. The support archive is written to a new file only; `fleet-cdi metrics` also "
            "replaces a file of its own."
        ),
        why="Root does not overwrite a file that was named by mistake.",
        do="Choose another name with `--output`, or remove the file.",
        more="ls -l FILE",
    ),
    Explanation(
        id="FC1011",
        title="A path is not absolute",
        messages=(
            "expected an absolute path",
            "expected the absolute path of a directory",
            "is not an absolute path in its shortest form",
            "no plain absolute path",
        ),
        means="A setting or an option needs a path that begins with `/`, without `..` and control characters.",
        why=(
            "The program that uses the path later runs in another directory, so a relative path would mean another "
            "file."
        ),
        do="Write the complete path.",
        more="realpath PATH",
    ),
    Explanation(
        id="FC1012",
        title="A program can't be run",
        messages=("can't be run (*). Check the path",),
        means="The path of a program, or a link on the way to it, leads nowhere, or leads in a circle.",
        why="fleet.cdi runs a program only if it knows which file that is.",
        do="Correct the path, or install the program.",
        more="namei -l PATH",
    ),
    Explanation(
        id="FC1013",
        title="The manifest would be too large",
        messages=("would be larger than * MiB, because it keeps the content of files that others wrote",),
        means="fleet.cdi would replace a file of someone else, and keep its content in the manifest. It is too large.",
        why="The manifest could not be read again. Then nothing could be undone, and each later run would fail.",
        do="Move the large file away, or give the new one another name.",
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1014",
        title="The directory of the metrics does not exist",
        messages=("whose directory does not exist; expected one that node_exporter reads",),
        means=(
            "Each refresh replaces this file. Its directory belongs to node_exporter, so fleet.cdi does not make it."
        ),
        why="The refresh does its own work without the file, and its service does not fail. Only this warning tells.",
        do="Install node_exporter, make the directory that it reads, or name that in `cdi_host_metrics_file`.",
        more="systemctl cat prometheus-node-exporter",
    ),
)
