# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifest of examples/kubernetes: as an API server of the newest kubelet's version takes it, and true to the code.

What validates is Kubernetes' own (tests/conformance/kubelet/manifest). That its pod works is test_daemonset.py's part.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import kubelets
import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration

NEEDED = ("dev", "sys", "usr", "opt/cdi")  # nodes, what is said of them, files that specs name
FOLDER = Path(__file__).resolve().parents[2] / "examples/kubernetes"
MANIFEST = "".join((FOLDER / name).read_text() for name in ("configmap.yaml", "daemonset.yaml"))


@pytest.fixture(scope="module")
def validate():
    """What the API server's code says of a text, and the exit status."""
    target = kubelets.BUILT / "manifest"
    try:
        kubelets.go_build(target, ["./manifest"])
    except kubelets.Unavailable as why:
        pytest.skip(str(why))

    def run(text):
        found = subprocess.run([target], input=text, capture_output=True, text=True, check=False)
        return found.returncode, found.stdout.splitlines()

    return run


def test_an_api_server_takes_it(validate):
    assert validate(MANIFEST) == (0, ["ConfigMap", "DaemonSet"])


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        (
            "startupProbe: {httpGet:",
            "startupProbe: {httpGte:",
            'unknown field "spec.template.spec.containers[0].startup',
        ),
        ("maxSurge: 1", "maxSurge: 0", "maxUnavailable: Required value: cannot be 0 when maxSurge is 0"),
        ("{name: state, mountPath", "{name: stale, mountPath", 'volumeMounts[10].name: Not found: "stale"'),
    ],
)
def test_it_would_not_take_anything(validate, right, wrong, says):
    text = MANIFEST
    assert right in text
    status, said = validate(text.replace(right, wrong))
    assert status == 1 and says in said[-1]


@pytest.fixture
def documents():
    """The config map's settings, and the container of the daemon set."""
    settings, daemon_set = (one for one in yaml.safe_load_all(MANIFEST) if one)
    pod = daemon_set["spec"]["template"]["spec"]
    return json.loads(settings["data"]["device-plugin.json"]), pod, pod["containers"][0]


def test_its_configuration_is_one(documents):
    document, _pod, container = documents
    settings = configuration.parse(document, "the config map")
    assert container["args"] == ["--config", configuration.PATH]
    assert settings.metrics == f":{container['ports'][0]['containerPort']}"


def test_what_the_configuration_names_is_mounted(documents):
    """Each place where the plugin looks or writes, with the right to do so, from the same place of the node."""
    document, pod, container = documents
    settings = configuration.parse(document, "the config map")
    volumes = {one["name"]: one.get("hostPath", {}).get("path") for one in pod["volumes"]}
    mounts = {one["mountPath"]: (volumes[one["name"]], one.get("readOnly", False)) for one in container["volumeMounts"]}
    node = {mount: place for mount, place in mounts.items() if mount.startswith(f"{settings.root}/")}
    assert all(place == (mount[len(settings.root) :], True) for mount, place in node.items())
    needed = {f"{settings.root}/{one}" for one in NEEDED}
    assert set(node) == {*settings.spec_dirs, os.path.dirname(settings.inventory), *needed}
    for path in (settings.plugin_dir, settings.state_dir, settings.run_dir):
        assert mounts[path] == (path, False), (
            "the kubelet, executables and `fleet-cdi` of the node know it by that name"
        )
    assert mounts[str(Path(settings.pod_resources).parent)][0] == "/var/lib/kubelet/pod-resources"


def test_it_may_do_nothing_but_that(documents):
    _document, pod, container = documents
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]} and security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"] and "privileged" not in security
    assert not any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC", "automountServiceAccountToken"))
