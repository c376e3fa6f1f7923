# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A grammar of good specs: valid for the reference library, whatever warnings of ours they deserve."""

from __future__ import annotations

import string
from random import Random
from typing import Any, Callable

from ansible_collections.fleet.cdi.plugins.module_utils.spec import model

ALNUM = string.ascii_letters + string.digits


def word(rng: Random, inside: str = "", most: int = 8) -> str:
    """A name: letters and digits at both ends, `inside` too between."""
    between = "".join(rng.choice(ALNUM + inside) for _index in range(rng.randrange(most)))
    return rng.choice(ALNUM) + between + rng.choice(ALNUM)


def path(rng: Random) -> str:
    return "".join(f"/{word(rng, '._-')}" for _index in range(rng.randint(1, 4)))


def text(rng: Random) -> str:
    return rng.choice(
        (
            "",
            "x",
            "a b",
            "1",
            "yes",
            "~",
            "1:0",
            "0x1f",
            "#no",
            "- a",
            "é",
            "😀",
            'say "a"',
            "it's",
            "{a: b}",
            word(rng),
        )
    )


def variables(rng: Random) -> list[str]:
    return [
        f"{name}={text(rng)}" for name in dict.fromkeys(word(rng, "_").upper() for _index in range(rng.randint(1, 3)))
    ]


def some(rng: Random, item: Callable[[], Any], most: int = 2) -> list[Any]:
    return [item() for _index in range(rng.randint(1, most))]


def optional(rng: Random, **fields: Callable[[], Any]) -> dict[str, Any]:
    return {key: make() for key, make in fields.items() if rng.random() < 0.3}


def node(rng: Random, at: int) -> dict[str, Any]:

    def number() -> int:
        return rng.choice((0, 1, 44, 226, 2**31, 2**32 - 1))

    fields = optional(
        rng,
        type=lambda: rng.choice("bcup"),
        major=number,
        minor=number,
        fileMode=lambda: rng.choice((0o660, 0o666, 0)),
        permissions=lambda: rng.choice(("r", "rw", "rwm", "mr", "")),
        uid=number,
        gid=number,
    )
    if fields.get("type") == "u":
        fields["major"] = 4
    host = optional(rng, hostPath=lambda: path(rng)) if at >= 2 else {}
    return {"path": path(rng), **fields, **host}


def mount(rng: Random, at: int) -> dict[str, Any]:
    kinds = optional(rng, type=lambda: rng.choice(("none", "bind", "tmpfs", ""))) if at >= 1 else {}
    options = optional(rng, options=lambda: ["ro", "rbind"])
    return {"hostPath": path(rng), "containerPath": path(rng), **options, **kinds}


def hook(rng: Random) -> dict[str, Any]:
    names = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
    fields = optional(
        rng, args=lambda: some(rng, lambda: text(rng)), env=lambda: variables(rng), timeout=lambda: rng.randint(1, 9)
    )
    return {"hookName": rng.choice(names), "path": path(rng), **fields}


def rdt(rng: Random, at: int) -> dict[str, Any]:
    fields = optional(
        rng,
        closID=lambda: rng.choice(("/" if at > 5 else "one", word(rng, "._-"), "")),
        l3CacheSchema=lambda: "L3:0=f;1=f",
        memBwSchema=lambda: "MB:0=50",
    )
    if at >= 7:
        return {
            **fields,
            **optional(rng, schemata=lambda: rng.choice(([], ["L3:0=f"])), enableMonitoring=lambda: rng.random() < 0.5),
        }
    if at < 6:
        return {**fields, **optional(rng, enableCMT=lambda: rng.random() < 0.5, enableMBM=lambda: True)}
    return fields


def edits(rng: Random, at: int) -> dict[str, Any]:
    """The container edits that version number `at` has."""
    found = optional(
        rng,
        env=lambda: variables(rng),
        deviceNodes=lambda: some(rng, lambda: node(rng, at)),
        hooks=lambda: some(rng, lambda: hook(rng)),
        mounts=lambda: some(rng, lambda: mount(rng, at)),
    )
    if at >= 4:
        found.update(
            optional(
                rng, intelRdt=lambda: rdt(rng, at), additionalGids=lambda: some(rng, lambda: rng.randint(1, 2**32 - 1))
            )
        )
    if at >= 7:
        found.update(
            optional(rng, netDevices=lambda: [{"hostInterfaceName": f"eth{n}", "name": f"net{n}"} for n in range(2)])
        )
    return found


def annotations(rng: Random) -> dict[str, str]:
    return {
        rng.choice(("", "a.com/", "x-y.b.org/")) + word(rng, "._-"): text(rng) for _index in range(rng.randint(1, 2))
    }


def good_spec(rng: Random) -> dict[str, Any]:
    """A spec that declares a version which has all that it uses."""
    at = rng.choice((0, 1, 2, 3, 4, 4, 5, 5, 6, 7, 7, 7))
    devices = []
    for number in range(rng.randint(1, 4)):
        name = f"{word(rng, '._:-')}{number}" if at >= 2 else f"d{word(rng, '._:-')}{number}"
        own = edits(rng, at) or {"env": variables(rng)}
        devices.append(
            {
                "name": name,
                "containerEdits": own,
                **(optional(rng, annotations=lambda: annotations(rng)) if at >= 3 else {}),
            }
        )
    vendor = ".".join(rng.choice(string.ascii_letters) + word(rng, "-") for _index in range(rng.randint(1, 3)))
    class_ = rng.choice(string.ascii_letters) + word(rng, "_-." if at >= 3 else "_-")
    spec = {
        "cdiVersion": rng.choice(("", "", "", "v")) + model.VERSIONS[at],
        "kind": f"{vendor}/{class_}",
        "devices": devices,
        **optional(rng, containerEdits=lambda: edits(rng, at)),
        **(optional(rng, annotations=lambda: annotations(rng)) if at >= 3 else {}),
    }
    keys = list(spec)
    rng.shuffle(keys)
    return {key: spec[key] for key in keys}
