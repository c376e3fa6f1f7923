# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests with real programs share: modules run by the real ansible, on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import apart  # tests/harness
import pytest
from container_output import Output  # tests/harness

CHECKOUT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session", autouse=True)
def own_directories():
    """/etc/cdi, /var/run/cdi and others are empty and nobody else's: nothing of the host is seen or changed."""
    return apart.enter()


@pytest.fixture(scope="module", autouse=True)
def empty_directories(own_directories):
    """They are empty for each file of tests, whatever the one before left."""
    if own_directories:
        apart.empty()


@pytest.fixture(scope="session")
def ansible_environment(tmp_path_factory):
    """Variables for the real ansible, with this collection and nothing of the machine's own settings."""
    return {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "build/pythonpath"),
        "ANSIBLE_HOME": str(tmp_path_factory.mktemp("ansible")),
        "ANSIBLE_NOCOLOR": "1",
    }


@pytest.fixture(scope="session")
def ansible_module(ansible_environment):
    """Run one module of the collection: ansible_module("fleet.cdi.spec", kind=...) -> its result.

    `failed=True` expects a failure; `check=True` runs it in check mode; `variables` are more for Ansible.
    """

    def run(module, failed=False, check=False, variables=None, **options):
        if module == "fleet.cdi.host_release":
            options.setdefault("command_link", False)  # /usr/local is the host's
        start = [str(Path(sys.executable).parent / "ansible"), "localhost", "-m", module]
        start += ["-e", f"ansible_python_interpreter={sys.executable}", *(["--check"] if check else [])]
        start += ["-e", json.dumps(variables)] if variables else []
        start += ["-a", json.dumps(options)] if options else []
        done = subprocess.run(start, capture_output=True, text=True, env=ansible_environment, check=False)
        assert " => " in done.stdout, done.stdout + done.stderr
        head, _arrow, document = done.stdout.partition(" => ")
        assert head.endswith("FAILED!") == failed, done.stdout + done.stderr
        return json.loads(document)

    return run


@pytest.fixture(scope="session")
def container(tmp_path_factory):
    """Run a shell command in a container that holds nothing but busybox: container(command, *options) -> done.

    It is removed at its end, unless `keep`.
    """
    root = tmp_path_factory.mktemp("rootfs")
    (root / "bin").mkdir()
    shutil.copy(shutil.which("busybox"), root / "bin" / "busybox")
    (root / "bin" / "sh").symlink_to("busybox")

    def run(command, *options, keep=False):
        said = Output(tmp_path_factory.mktemp("container") / "said")
        # Without CAP_SYS_RESOURCE the default limits can't be set; lower ones always can.
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
        start = [
            "podman",
            "--runtime",
            "runc",
            "run",
            *([] if keep else ["--rm"]),
            "--network=none",
            *limits,
            said.volume,
            *options,
            "--rootfs",
            str(root),
            *("/bin/sh", "-c", said.of(command)),
        ]
        return said.added(subprocess.run(start, capture_output=True, text=True, check=False))

    return run
