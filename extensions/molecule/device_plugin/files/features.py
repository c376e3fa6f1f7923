# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every feature of the plugin on this host, one after the other, in the sandbox in which systemd runs it.

features.py [METRICS-URL]    prints {"features": {name: "ok" or what went wrong}, "probes": what probe.py found,
                             "openers": what it found in the service that looks at processes,
                             "instance", "mounts", "network": these namespaces of the host}
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import node

RESOURCE, CLEAN = "example.com/test", "example.com/clean"
SPEC = "/etc/cdi/example.com-test.json"
PROBED = "/var/lib/test-probe"
PLUGINS = "/var/lib/kubelet/device-plugins"
QUICK = "/run/systemd/system/fleet-cdi-device-plugin@.service.d"
LOOKING = "/run/fleet-cdi-openers.socket"
PROBE = "/run/systemd/system/fleet-cdi-openers@.service.d"
PATIENCE = 20.0  # seconds; less than the 30 in which the plugin looks without being told of anything


def ask(do, **more):
    """One question to the kubelet."""
    return node.ask({"do": do, **more})


def allocatable(number: int, resource: str = RESOURCE) -> None:
    """The kubelet comes to have so many devices."""
    found = ask("wait", resource=resource, allocatable=number, seconds=PATIENCE)
    assert found["ok"], f"{resource}: {ask('capacity')['allocatable']}, expected {number}"


def until(what, *arguments):
    """Wait until a function of no effect returns something."""
    end = time.monotonic() + PATIENCE
    while True:
        found = what(*arguments)
        if found or time.monotonic() > end:
            return found
        time.sleep(0.1)


def said(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


def admitted(pod: str, resource: str) -> dict:
    """The answer of a kubelet that has a pod of a device, and has told so: what it never listed is held for longer."""
    answer = ask("admit", pod=pod, resources={resource: 1})
    assert answer["ok"], answer
    assert until(lists_since, time.monotonic()), "the plugin does not ask what pods have"
    return answer


def lists_since(moment: float) -> bool:
    """Whether the plugin has taken a list of what pods have: it asks for the next one when it is done with this."""
    return len(ask("events", what="List", since=moment)["events"]) > 1


def holds() -> list[str]:
    """The resource of each hold by Kubernetes in the ledger."""
    grants = json.loads(said("/opt/cdi/bin/fleet-cdi", "grants", "list", "--json"))["grants"]
    return sorted(one["key"]["plugin"] for one in grants if one["key"]["resource_type"] == "kubernetes")


def main_process(instance: str) -> str:
    """Its process id."""
    return said("systemctl", "show", "--property=MainPID", "--value", f"fleet-cdi-device-plugin@{instance}").strip()


def sockets_and_specs(_instance):
    """Sockets in the kubelet's directory; the spec directories and the inventory read; both resources registered."""
    allocatable(2)
    allocatable(1, CLEAN)


def polling_is_not_needed(instance):
    """inotify works."""
    with open(f"/run/cdi-device-plugin/{instance}.json", encoding="utf-8") as file:
        assert json.load(file)["polling"] is False


def hot_plug(_instance):
    """A device more in a spec, and gone again."""
    with open(SPEC, encoding="utf-8") as file:
        before = file.read()
    document = json.loads(before)
    document["devices"].append({"name": "more", "containerEdits": {"deviceNodes": [{"path": "/dev/full"}]}})
    try:
        replace(SPEC, json.dumps(document))
        allocatable(3)
    finally:
        replace(SPEC, before)
    allocatable(2)


def replace(path: str, content: str) -> None:
    """A file as a whole."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(content)
    os.rename(path + ".new", path)


def nodes(_instance):
    """A node that goes away makes the device unhealthy, and healthy when it is back."""
    os.rename("/dev/test1", "/dev/test1.away")
    try:
        allocatable(1)
    finally:
        os.rename("/dev/test1.away", "/dev/test1")
    allocatable(2)


def udev(instance):
    """It listens for the events of udev: a socket of its in the netlink family for those is in group 2."""
    with open("/proc/net/netlink", encoding="ascii") as file:
        rows = [line.split() for line in file]
    ours = [row for row in rows if row[1] == "15" and row[2] == main_process(instance) and int(row[3], 16) & 2]
    assert ours, f"no socket of process {main_process(instance)}; the log says {log(instance)}"


def log(instance: str) -> str:
    """The last lines of its log."""
    return said(
        "journalctl", "--quiet", "--no-pager", "--output=cat", "--lines=5", "-u", f"fleet-cdi-device-plugin@{instance}"
    )


def allocation_and_ledger(_instance):
    """A pod gets a device by its CDI name; the ledger has it, and frees it when the pod is gone."""
    answer = admitted("one", RESOURCE)
    assert "example.com/test=" in json.dumps(answer["containers"]), answer
    assert holds() == [RESOURCE], holds()
    ask("delete", pod="one")
    assert until(lambda: not holds()), holds()


def commands(_instance):
    """setup runs when a device is given to somebody, teardown when it is taken from them."""
    for name in os.listdir(PROBED):
        os.unlink(os.path.join(PROBED, name))
    admitted("two", CLEAN)
    assert os.listdir(PROBED) == ["ADD.json"], os.listdir(PROBED)
    ask("delete", pod="two")
    assert until(lambda: "DEL.json" in os.listdir(PROBED)), log(_instance)
    assert until(lambda: not holds()), holds()


def kubelet_restart(_instance):
    """The directory is wiped and the sockets come again."""
    ask("restart")
    allocatable(2)
    allocatable(1, CLEAN)


def reload(instance):
    """SIGHUP is taken, and nothing ends by it."""
    before = main_process(instance)
    subprocess.run(["systemctl", "reload", f"fleet-cdi-device-plugin@{instance}"], check=True)
    allocatable(2)
    assert main_process(instance) == before


def directory_made_anew(instance):
    """The kubelet's directory is another one: the sandbox has that of before, so systemd starts the plugin again."""
    before = main_process(instance)
    subprocess.run(["systemctl", "stop", "kubelet"], check=True)
    shutil.rmtree(PLUGINS)
    os.mkdir(PLUGINS, 0o750)
    subprocess.run(["systemctl", "start", "kubelet"], check=True)
    assert until(kubelet_answers), "the kubelet does not answer"
    ask("admit", pod="without devices", containers={"main": {}})
    allocatable(2)
    allocatable(1, CLEAN)
    assert main_process(instance) not in (before, "0")


def kubelet_answers() -> bool:
    """Whether it can be asked."""
    try:
        return bool(ask("capacity"))
    except OSError:
        return False


def frozen_process(instance):
    """Systemd ends one that says nothing any more, here after less time than usual, and starts another."""
    os.makedirs(QUICK, exist_ok=True)
    replace(f"{QUICK}/quick.conf", "[Service]\nWatchdogSec=3\nTimeoutAbortSec=1\n")
    try:
        restarted(instance)
        before = main_process(instance)
        time.sleep(7)  # twice as long as it may be silent
        assert main_process(instance) == before, log(instance)
        os.kill(int(before), signal.SIGSTOP)
        assert until(lambda: main_process(instance) not in (before, "0")), log(instance)
        allocatable(2)
    finally:
        shutil.rmtree(QUICK)
        restarted(instance)


def restarted(instance: str) -> None:
    """It runs by the unit as it is now."""
    subprocess.run(["systemctl", "daemon-reload"], check=True)
    subprocess.run(["systemctl", "restart", f"fleet-cdi-device-plugin@{instance}"], check=True)
    allocatable(2)


def occupied(instance):
    """The log names who has a device open, systemd among them, which only somebody else than the daemon may look at.

    So it does when the process that looks was ended. All devices here are the null device under other names.
    """
    for _time in range(2):
        before = occupied_said(instance)
        admitted("open", RESOURCE)
        ask("delete", pod="open")
        assert until(lambda then=before: occupied_said(instance) > then), log(instance)
        assert until(lambda: not holds()), holds()
        subprocess.run(["systemctl", "kill", "--signal=KILL", "fleet-cdi-openers@*.service"], check=True)


def occupied_said(instance: str) -> int:
    """How often its log has named systemd."""
    lines = said("journalctl", "--quiet", "--no-pager", "--output=cat", "-u", f"fleet-cdi-device-plugin@{instance}")
    return sum("event=occupied" in line and "pid 1 (systemd" in line for line in lines.splitlines())


def answered(question: bytes) -> bytes:
    """What the process that looks at others says, until it ends."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(PATIENCE)
        channel.connect(LOOKING)
        channel.sendall(question)
        channel.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: channel.recv(1 << 16), b""))


def only_root_asks(_instance):
    """It sees every process, in its sandbox; another user is not let in."""
    found, processes, unseen, _trouble = json.loads(answered(b'[["c", 1, 3]]\n'))
    assert processes and not unseen, (processes, unseen)
    assert 1 in [one[0] for one in found[0][3]], found
    asks = f"import os, socket; os.setuid(65534); socket.socket(socket.AF_UNIX).connect({LOOKING!r})"
    done = subprocess.run([sys.executable, "-c", asks], check=False, capture_output=True, text=True)
    assert "PermissionError" in done.stderr, done


def probed_where_processes_are_looked_at() -> dict:
    """What probe.py finds in that sandbox."""
    os.makedirs(PROBE)
    try:
        replace(f"{PROBE}/probe.conf", "[Service]\nExecStart=\nExecStart=/usr/bin/python3 /srv/test/probe.py openers\n")
        subprocess.run(["systemctl", "daemon-reload"], check=True)
        return json.loads(answered(b""))
    finally:
        shutil.rmtree(PROBE)
        subprocess.run(["systemctl", "daemon-reload"], check=True)


FEATURES = {
    "sockets in the kubelet's directory, spec directories": sockets_and_specs,
    "inotify": polling_is_not_needed,
    "hot plug": hot_plug,
    "nodes in /dev": nodes,
    "events of udev": udev,
    "allocation, ledger, podresources": allocation_and_ledger,
    "who has devices open": occupied,
    "who may ask that": only_root_asks,
    "setup and teardown": commands,
    "a kubelet that is started again": kubelet_restart,
    "reload": reload,
    "a directory that is made anew": directory_made_anew,
    "a process that is frozen": frozen_process,
}


def tried(feature, *arguments) -> str:
    """ "ok", or what went wrong."""
    try:
        feature(*arguments)
    except (AssertionError, OSError, ValueError, KeyError, subprocess.CalledProcessError) as error:
        return f"{type(error).__name__}: {error}"
    return "ok"


def metrics(url: str) -> None:
    """They are there, and count."""
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        text = answer.read().decode()
    assert f'devices{{resource="{RESOURCE}",state="healthy"}} 2' in text, text


def main(url: str = "") -> None:
    """Print all."""
    instance = next((name for name in "ab" if main_process(name) != "0"), "")
    # A kubelet that lists no pod at all is not believed so soon that what they had is free.
    ask("admit", pod="without devices", containers={"main": {}})
    found = {name: tried(feature, instance) for name, feature in FEATURES.items()}
    if url:
        found["metrics"] = tried(metrics, url)
    probes = {}
    if os.path.exists(os.path.join(PROBED, "ADD.json")):
        with open(os.path.join(PROBED, "ADD.json"), encoding="ascii") as file:
            probes = json.load(file)
    spaces = {"mounts": os.readlink("/proc/1/ns/mnt"), "network": os.readlink("/proc/1/ns/net")}
    everything = {"features": found, "probes": probes, "openers": probed_where_processes_are_looked_at(), **spaces}
    sys.stdout.write(json.dumps({**everything, "instance": instance}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
