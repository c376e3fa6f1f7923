# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU time of reading and checking specs of many devices, beside the CDI reference library on the same file.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. The baseline is the library's
newest release in a running Go program; without Go there is none, and a line on stderr says so.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Optional

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "build/pythonpath"), str(CHECKOUT / "tests/harness")]

import judge
import yaml
from measure import line

from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec

DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
TIMES = 5


def spec(count: int) -> dict[str, Any]:
    """A spec as generators of vendors write them: nodes, a variable, a hook and an annotation for each device."""
    devices = [
        {
            "name": f"0000:{number >> 8:02x}:{number >> 3 & 31:02x}.{number & 7}",
            "annotations": {"vendor.com/serial": f"S{number:012d}"},
            "containerEdits": {
                "env": [f"DEVICE={number}"],
                "deviceNodes": [
                    {"path": f"/dev/dri/card{number}", "hostPath": f"/dev/dri/card{number}", "type": "c", "gid": 44},
                    {"path": f"/dev/dri/renderD{128 + number}", "permissions": "rw"},
                ],
                "mounts": [
                    {"hostPath": f"/sys/{number}", "containerPath": f"/sys/{number}", "options": ["ro", "bind"]}
                ],
                "hooks": [
                    {
                        "hookName": "createContainer",
                        "path": "/usr/bin/vendor-hook",
                        "args": ["vendor-hook", "create-symlinks", "--link", f"../card{number}::/dev/dri/{number}"],
                        "env": ["VENDOR_HOOK_LOG=/var/log/vendor-hook"],  # else reading it finds a hook without one
                    }
                ],
            },
        }
        for number in range(count)
    ]
    return {"cdiVersion": "0.6.0", "kind": "vendor.com/gpu", "devices": devices}


def ours(name: str, content: bytes, valid: bool = True) -> float:
    """Seconds of CPU time that one reading takes, the least of TIMES."""
    taken = []
    for _time in range(TIMES):
        start = time.process_time()
        reading = codec.read(content, name)
        taken.append(time.process_time() - start)
        assert (reading.spec is not None and not reading.findings) == valid
    return min(taken)


def theirs(name: str, content: bytes) -> Optional[float]:
    """The same by the reference library; None where it can't be built."""
    try:
        judge.build()
    except judge.Unavailable as why:
        print(f"SKIPPED in bench: the reference library beside us ({why})", file=sys.stderr)
        return None
    with judge.Judge("newest") as library:
        request = {**judge.reading(name, content), "mode": "time", "count": 1}
        return float(min(library.ask(request)["seconds"] for _time in range(TIMES)))


def main() -> None:
    """Print the lines of all cases."""
    for count in (1000, 10_000):
        document = spec(count)
        files = {"json": codec.encode(document), "yaml": yaml.dump(document, Dumper=DUMPER).encode()}
        for ending, content in files.items():
            name = f"{count} devices.{ending}"
            line(f"read {name}", "s", ours(name, content), theirs(name, content))
    for ending in ("json", "yaml"):
        once, twice = (
            ("{" + ", ".join(f'"key{number}": 1' for number in (*range(16000), last)) + "}").encode()
            for last in (16000, 15999)
        )
        name = f"16000 keys.{ending}"
        line(f"refuse {name}, one twice, beside none twice", "s", ours(name, twice, False), ours(name, once, False))


if __name__ == "__main__":
    main()
