# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What SELinux denies to containers: the table in mandatory_access.yml. tests/machines asks a real kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.system import mandatory_access
from ansible_collections.fleet.cdi.plugins.module_utils.system.mandatory_access import PolicyPlaces

CASES = yaml.safe_load(Path(__file__).with_name("mandatory_access.yml").read_text(encoding="utf-8"))
CLASS = 10  # of character devices, in these policies
BITS = {"ioctl": 1, "read": 2, "write": 3, "open": 17, "map": 24}
CONTAINER = "system_u:system_r:container_t:s0"
HOST = {
    "kernel/enforce": "1",
    "kernel/class/chr_file/index": str(CLASS),
    **{f"kernel/class/chr_file/perms/{name}": str(bit) for name, bit in BITS.items()},
    "kernel/booleans/container_use_devices": "0 0",
    "settings/config": "# comment\nSELINUX=enforcing\nSELINUXTYPE=targeted\n",
    "settings/targeted/contexts/lxc_contexts": f'process = "{CONTAINER}"\nfile = "system_u:object_r:file_t:s0"\n',
}
NODE = "/dev/null"


def places(root, files):
    for path, text in {**HOST, **files}.items():
        if text is not None:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="ascii")
    return PolicyPlaces(str(root / "kernel"), str(root / "settings"), str(root / "containers"))


def answer(allowed, permissive=False):
    """As the kernel writes an access vector: allowed, decided, two for audits, the number of the policy, flags."""
    return f"{sum(1 << BITS[name] - 1 for name in allowed):x} ffffffff 0 ffffffff 4 {int(permissive):x}"


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case, tmp_path):
    asked = []

    def ask(question):
        asked.append(question)
        if case.get("unanswered"):
            raise OSError(22, "Invalid argument")
        return answer(case["allowed"], case.get("permissive", False))

    at = places(tmp_path, case.get("files", {}))
    paths = [NODE, "/dev/zero", "/dev/there-is-none", str(tmp_path)]  # two of one label, none, and a directory
    found = mandatory_access.denials(paths, at, ask, lambda _path: case["label"])
    wanted = [(path, case["label"], tuple(case["denied"])) for path in paths[:2]] if case["denied"] else []
    assert list(found.nodes) == wanted
    assert found.container == case.get("container", CONTAINER)
    assert list(found.off) == case.get("booleans", ["container_use_devices"])
    label = case["label"] or "system_u:object_r:unlabeled_t:s0"
    assert set(asked) <= {f"{found.container} {label} {CLASS}"}
    if not case.get("unanswered"):
        assert len(asked) == case.get("questions", 1)


def test_the_answer_is_read_from_where_the_question_went(tmp_path):
    """A file has what follows the question; the kernel's has the answer to it."""
    at = places(tmp_path, {})
    question = f"{CONTAINER} system_u:object_r:tty_device_t:s0 {CLASS}"
    (tmp_path / "kernel/access").write_text("-" * len(question) + answer(["read"]), encoding="ascii")
    (one,) = mandatory_access.denials([NODE], at, label_of=lambda _path: "system_u:object_r:tty_device_t:s0").nodes
    assert one.denied == ("open", "write", "map")
    assert (tmp_path / "kernel/access").read_text(encoding="ascii").startswith(question)


def test_wrong_labels_are_those_that_restorecon_would_change(tmp_path):
    said = (
        f"Would relabel {tmp_path} from unconfined_u:object_r:usr_t:s0 to unconfined_u:object_r:bin_t:s0\n"
        f"Would relabel {tmp_path}/a from b to c from <no context> to system_u:object_r:lib_t:s0\n"
        "restorecon: something else\n"
    )
    asked = []
    found = mandatory_access.wrong_labels(
        [str(tmp_path), "/there/is/none"], lambda command: asked.append(command) or (0, said)
    )
    assert found == ((str(tmp_path), "usr_t", "bin_t"), (f"{tmp_path}/a from b to c", "", "lib_t"))
    assert asked == [["/usr/sbin/restorecon", "-n", "-v", "-R", str(tmp_path)]]
    assert mandatory_access.wrong_labels(["/there/is/none"], asked.append) == ()


def test_a_file_without_a_label_has_an_empty_one(tmp_path):
    """And one with a label has this one, where this file system can keep it."""
    assert mandatory_access.label("/proc/self/status") == ""
    with pytest.raises(FileNotFoundError):
        mandatory_access.label(str(tmp_path / "missing"))


def test_the_type_is_the_third_part():
    assert mandatory_access.type_of("system_u:object_r:dri_device_t:s0:c1,c2") == "dri_device_t"
    assert mandatory_access.type_of("") == ""
