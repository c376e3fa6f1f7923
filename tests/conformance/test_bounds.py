# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Large specs: what the reference library reads is read, and the worst of files takes bounded memory."""

from __future__ import annotations

import subprocess
import sys

import judge
import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec
from ansible_collections.fleet.cdi.plugins.module_utils.spec.text import yaml_subset

DEVICES = 10_000
MEMORY = 160  # MiB that reading may add, whatever the file says


def rich(number):
    """A device with more edits than those of the vendors' generators have."""
    return {
        "name": f"device-{number}",
        "annotations": {"vendor.com/serial": f"serial-{number}"},
        "containerEdits": {
            "env": [f"DEVICE=device-{number}"],
            "deviceNodes": [
                {"path": f"/dev/dri/card{number}", "hostPath": f"/dev/dri/card{number}", "type": "c", "gid": 44},
                {"path": f"/dev/dri/render{number}", "permissions": "rw", "fileMode": 432},
            ],
            "mounts": [{"hostPath": f"/sys/{number}", "containerPath": f"/sys/{number}", "options": ["ro", "bind"]}],
            "hooks": [
                {"hookName": name, "path": "/usr/bin/vendor-hook", "args": ["vendor-hook", name, f"card{number}"]}
                for name in ("createContainer", "startContainer")
            ],
        },
    }


def test_a_spec_of_ten_thousand_devices_is_read():
    spec = {"cdiVersion": "0.6.0", "kind": "vendor.com/gpu", "devices": [rich(number) for number in range(DEVICES)]}
    device = yaml.safe_dump([rich("NUMBER")])
    devices = "".join(device.replace("NUMBER", str(number)) for number in range(DEVICES))
    content = f"cdiVersion: 0.6.0\nkind: vendor.com/gpu\ndevices:\n{devices}".encode()
    assert len(content) > 6_000_000
    with judge.Judge("newest") as library:
        answer = library.ask(judge.reading("large.yaml", content))
    assert answer["accept"] and len(answer["devices"]) == DEVICES
    reading = codec.read(content, "large.yaml")
    assert reading.spec == spec, reading.findings[:3]


WORST = {  # a start, and what is repeated to the bound; of a dozen that were tried those that took most
    "objects": ("a:\n", "- {}\n"),
    "texts": ("a: [", "abcdefgh,"),
    "keys": ("", "{0:x}:\n"),
    "one text": ("a: ", "x"),
}
READ = """
import resource, sys
from ansible_collections.fleet.cdi.plugins.module_utils.spec import codec
import yaml
content = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
spec = codec.read(content, "worst.yaml").spec
print(spec is None, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.parametrize("worst", WORST)
def test_no_file_takes_more_memory_than(worst):
    start, repeated = WORST[worst]
    if worst == "keys":
        content = start + "".join(repeated.format(number) for number in range(1_600_000))
    else:
        content = start + repeated * (yaml_subset.LENGTH // len(repeated))
    content = content[: yaml_subset.LENGTH]
    environment = {"PYTHONPATH": str(judge.CHECKOUT / "build/pythonpath")}
    done = subprocess.run(
        [sys.executable, "-c", READ], input=content.encode(), env=environment, capture_output=True, check=True
    )
    refused, taken = done.stdout.split()
    assert refused == b"True" and int(taken) < MEMORY
