# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about the ledger: who holds which devices."""

from __future__ import annotations

from ..explanation import Explanation

EXPLANATIONS = (
    Explanation(
        id="FC1451",
        title="The ledger may have lost grants",
        messages=(
            "was damaged and may have lost grants, so none are made",
            "others may be lost, so none are made",
            "it was rebuilt with * grants",
        ),
        means="The store of grants was damaged and rebuilt, and its log did not have everything.",
        why="A device that looks free may be in use. fleet.cdi grants nothing until you say which grants are valid.",
        do=(
            "Give it the list of all valid requests (`fleet-cdi grants gc FILE --complete`). If no container with "
            "devices runs, `fleet-cdi grants accept-loss`."
        ),
        more="fleet-cdi grants list",
    ),
    Explanation(
        id="FC1452",
        title="Another release wrote the ledger",
        messages=("has schema version *; this release reads", "has schema version * and needs a release that knows"),
        means="The format of the store is newer or older than this release reads.",
        why="To write it with another format could lose grants.",
        do=(
            "Activate the release again, which migrates an older store (playbook fleet.cdi.provision). For a newer "
            "store use the release that wrote it."
        ),
        more="fleet-cdi --version",
    ),
    Explanation(
        id="FC1453",
        title="The ledger lies at a place that can't be used",
        messages=(
            "lies on a network file system",
            "is not a directory; expected the state directory",
            "is not a regular file (*); expected a file of the ledger, or none",
            "expected root's or this user's",
        ),
        means=(
            "The state directory, or a file of the ledger in it, is of another type or owner, or on a network file "
            "system."
        ),
        why=(
            "Grants are of one host and have to outlast a power cut. Locks of network file systems do not promise that."
        ),
        do=(
            "Move the FIFO, directory or link at that path away, or set `state_dir` to a local directory of root, such "
            "as /var/lib/cdi."
        ),
        more="findmnt -T /var/lib/cdi",
    ),
    Explanation(
        id="FC1454",
        title="The ledger is busy",
        messages=(
            "another process holds it for too long",
            "another process keeps it locked",
            "other processes write to it without its lock",
            "another process made it at the same time, without its lock",
        ),
        means="Another process uses the store, and does not end within the limit or ignores the lock.",
        why="Two writers at once could grant one device twice.",
        do="Find the process. A backup program or a shell with sqlite3 can be the cause: end it.",
        more="fuser -v /var/lib/cdi/ledger.db",
    ),
    Explanation(
        id="FC1455",
        title="SQLite can't use the store",
        messages=(
            "Look at the kernel's log and try again",
            "DEL works meanwhile",
            "as the user who owns the store",
            "Another program keeps the store locked",
            "DEL takes it back",
            "Raise the limit on open files and try again",
            "the store must not be a symlink",
            "Free some memory and try again",
            "Make it readable and writable for this user",
            "is damaged again: *",
        ),
        means="An operation on the store failed. The message has the reason and the next step.",
        why="A grant counts only when it is on disk.",
        do="Free space, make the file system writable or run as root, as the message says. Then try again.",
        more="df /var/lib/cdi",
    ),
    Explanation(
        id="FC1456",
        title="Devices are still granted",
        messages=(
            "devices are granted to * request(s); give them back first",
            "devices may be granted again; others could not be torn down and are withheld",
        ),
        means="The ledger would be removed, or the device plugin's grants forgotten, while devices are in use.",
        why="Two containers could get the same device.",
        do="End the containers and give the devices back, or use `force` if you know that nothing uses them.",
        more="fleet-cdi grants list",
    ),
    Explanation(
        id="FC1457",
        title="The request is not finished",
        messages=(
            "is being given back, or could not be (",
            "its devices are being set up, or that was interrupted. Delete it first",
            "was deleted meanwhile; its devices are free for others",
            "another call has been working on it for",
        ),
        means="An ADD or DEL of the same request-id runs, or was interrupted.",
        why="Setup and teardown commands of one device must not run at the same time.",
        do="Wait, or call DEL for the request again. DEL may be repeated without harm.",
        more="fleet-cdi grants list",
    ),
    Explanation(
        id="FC1458",
        title="The request-id is in use with other amounts",
        messages=(
            "expected the same amount. Delete it first, or use another request-id",
            "this request has * already; ask for new ones only",
        ),
        means="A request-id has devices, and the new call asks for another number of the same resource.",
        why="A repeated call has to give the same answer. It can't add to a grant.",
        do="Use another request-id, or DEL the first one.",
        more="fleet-cdi grants list",
    ),
    Explanation(
        id="FC1459",
        title="The kind belongs to another owner",
        messages=(
            "of its devices; expected none outside",
            "owner: found *; expected one of",
            "owner of *: found *; expected of",
            "belongs to *; found a request of",
            "holds devices of it, so it is not for",
        ),
        means="Each kind has an owner: kubernetes, claims or external. Another one asks for its devices.",
        why="Two systems that hand out the same devices would do it twice.",
        do=(
            "Give the kind to the owner that you mean: `fleet-cdi grants give KIND OWNER`, when nothing of it is "
            "granted."
        ),
        more="fleet-cdi grants list",
    ),
    Explanation(
        id="FC1460",
        title="The devices exclude each other",
        messages=(
            "can't be held beside the recorded holds",
            "no device was picked; expected at least one",
            "expected resource-specs and amounts",
            "its driver reports no *; expected",
        ),
        means=(
            "The chosen devices overlap devices that are held, or have no such capacity. This is an error of a program."
        ),
        why="The ledger locks hardware, and refuses a second lock.",
        do="Run it again. If it happens again, report it with the output of `fleet-cdi bundle`.",
        more="fleet-cdi grants list --json",
    ),
    Explanation(
        id="FC1461",
        title="Another holder has the hardware",
        messages=(": * holds *",),
        means="A request, a pod or a claim of a DRA driver holds this device, or another device of the same hardware.",
        why="A device never goes to two holders at the same time.",
        do=(
            "Wait until the holder gives the device back. If the holder does not exist any more, free it with "
            "`fleet-cdi grants gc FILE`."
        ),
        more="fleet-cdi grants list",
    ),
    Explanation(
        id="FC1462",
        title="A device is withheld",
        messages=(
            "is withheld: put it right, then `fleet-cdi grants release",
            "expected the configuration that tells how the device is torn down",
        ),
        means=(
            "The last holder gave the device back, and its teardown command failed, or the configuration that names "
            "the command can't be read. The message begins with the words of the command, or with the file."
        ),
        why="The next user could find data or a state that the last user left.",
        do="Do by hand what the command should have done. Then free the device: `fleet-cdi grants release DEVICE`.",
        more="fleet-cdi grants list",
    ),
    Explanation(
        id="FC1463",
        title="No inventory tells which device it is",
        messages=(
            "no inventory of this boot tells if that is this device",
            "and no inventory of this boot has the device",
        ),
        means=(
            "The device plugin knows this device only by the nodes in its spec, because the inventory or a pool is "
            "missing, damaged or of another boot. A spec that fleet.cdi writes may be that of another boot then. The "
            "ledger and the list of devices out of service name devices by ids, and nothing tells which of these has "
            "the nodes."
        ),
        why="A pod could get a device that someone holds, or one that is out of service.",
        do="Run `fleet-cdi refresh` on the host. The device plugin notices it by itself.",
        more="fleet-cdi doctor",
    ),
)
