# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real slurmctld and slurmd beside claims: jobs get what Slurm chose, and Slurm never chooses what others have.

The commands that set the host up, and the lines of slurm.conf, are those of docs/slurm.md.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import apart  # tests/harness
import pytest
import slurm_host
import yaml
from slurm_host import BLOCKS, CONF, commands

PREFIX = "/opt/cdi"
PATIENCE = 60.0  # seconds for anything that Slurm does by itself

pytestmark = [
    pytest.mark.usefixtures("slurm"),
    pytest.mark.counterpart("slurmctld", "slurmd", "slurm-client"),
    pytest.mark.skipif(os.geteuid() != 0, reason="runs slurmd and mounts over /etc/slurm: needs root"),
    pytest.mark.skipif(not os.path.exists("/dev/tty63"), reason="this machine has no 63 consoles"),
]


def sh(command, status=0):
    """Run a shell command as an operator does: its output."""
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert status is None or done.returncode == status, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout + (done.stderr if status else "")


SLURM = slurm_host.Slurm(sh)
submit, state, given, withheld, claims, is_well = (
    SLURM.submit,
    SLURM.state,
    SLURM.given,
    SLURM.withheld,
    SLURM.claims,
    SLURM.is_well,
)


def until(condition, what):
    """Wait for a condition; its value."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}\n{sh('squeue -a; sinfo -aR; scontrol -d show node', None)}"
        time.sleep(0.05)
    return value


def free_port():
    """A port that no program listens to."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def slurm(ansible_module, tmp_path_factory):
    """A host of docs/slurm.md, with its daemons running; the directory of their logs."""
    work = tmp_path_factory.mktemp("slurm")
    for name in ("etc", "state", "spool"):
        (work / name).mkdir()
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{PREFIX}/bin:{before}"
    made = not CONF.exists()
    CONF.mkdir(exist_ok=True)
    sh(f"mount --bind {work}/etc {CONF}")
    ansible_module("fleet.cdi.host_release", device_list=apart.DEVICE_LIST)
    daemons = []
    try:
        for command in (*commands(0), *commands(1)):
            sh(command)
        text = slurm_host.configuration(sh, work, free_port(), free_port())
        (CONF / "slurm.conf").write_text(text)
        for name in ("slurmctld", "slurmd"):
            with open(work / f"{name}.out", "wb") as out:
                daemons.append(subprocess.Popen([name, "-D"], stdout=out, stderr=out, start_new_session=True))
        until(lambda: sh("sinfo -h -o %T -p all", None).strip() == "idle", "the node does not come up")
        yield work
    finally:
        sh("scancel --user=root; sleep 0.3", None)
        for daemon in daemons:
            daemon.kill()
            daemon.wait()
        sh(f"umount {CONF}")
        if made:
            CONF.rmdir()
        os.environ["PATH"] = before


@pytest.fixture(autouse=True)
def nothing_left():
    """After each test, also a failed one: no job runs, and no claim is held."""
    yield
    sh("scancel --user=root", None)
    until(lambda: not sh("squeue -ah"), "jobs stay")
    for claim in claims():
        sh(f"fleet-cdi claim del {claim}", None)


def running(job):
    until(lambda: state(job) == "RUNNING", f"job {job} does not start")
    return job


def ended(job):
    until(lambda: state(job) in ("COMPLETED", "CANCELLED"), f"job {job} does not end")


def test_slurmd_reads_our_gres_conf():
    printed = subprocess.run(["slurmd", "-G"], capture_output=True, text=True, check=True).stderr
    assert re.findall(r"Type=(\w+) Count=1 .*File=(\S+)", printed) == [
        (f"tty{number}", f"/dev/tty{number}") for number in (60, 61, 62, 63)
    ]
    assert "fleet.cdi_tty" in sh("sinfo -h -o %f")


def test_jobs_get_claims_of_what_slurm_chose():
    jobs = [running(submit(f"--gres={gres}")) for gres in ("gpu:1", "gpu:tty63:1", "gpu:2")]
    until(lambda: {f"slurm-{job}": given(job) for job in jobs} == claims(), "the claims are not what Slurm chose")
    assert sorted(name for names in claims().values() for name in names) == ["tty60", "tty61", "tty62", "tty63"]
    array = submit("--gres=gpu:1 --array=1-2", "true")
    sh(f"scancel {' '.join(jobs)}")
    for job in (*jobs, array):
        ended(job)
    until(lambda: claims() == {}, "claims stay")
    assert is_well()


def test_the_page_works():
    for command in commands(2)[:2]:
        said = sh(command)
    assert re.search(r"slurm-\d+ +granted +slurm:2 with /dev/tty60, /dev/tty61", said)
    sh(commands(2)[2])
    add, queue, node, delete = commands(3)
    until(lambda: claims() == {}, "the claim of the job stays")
    sh(add)
    (name,) = claims()["web"]
    assert len(sh(queue).splitlines()) == 2
    assert f"gpu:{name}:1(IDX:" in sh(node)
    sh(delete)
    until(lambda: f"gpu:{name}:0(IDX:" in sh(node), "Slurm does not get the device back")


def test_a_container_of_a_job_sees_its_devices_alone(container):
    job = running(submit("--gres=gpu:2"))
    until(lambda: claims().get(f"slurm-{job}"), "no granted claim")
    done = container("busybox ls /dev", "--device", f"fleet.cdi/claim=slurm-{job}")
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"^tty6\d$", done.stdout, re.MULTILINE)) == given(job)
    sh("fleet-cdi claim gc")
    assert f"slurm-{job}" in claims(), "gc freed the devices of a job between two of its containers"
    sh(f"scancel {job}")
    until(lambda: claims() == {}, "the claim stays")
    assert container("true", "--device", f"fleet.cdi/claim=slurm-{job}").returncode != 0


def test_slurm_never_chooses_what_others_hold():
    """Claims come and go while jobs for all devices are queued: nothing is drained, nothing is held twice."""
    sh("fleet-cdi claim add pod tty:1")
    (name,) = claims()["pod"]
    waits = submit("--gres=gpu:4", "true")
    typed = submit(f"--gres=gpu:{name}:1", "true")
    short = [submit("--gres=gpu:3", "true"), submit("--gres=gpu:1", "true")]
    sh(f"scontrol hold {waits}; scontrol release {waits}")
    for job in short:
        until(lambda job=job: state(job) == "COMPLETED", f"job {job} does not get what is left")
    assert (state(waits), state(typed)) == ("PENDING", "PENDING") and is_well()
    sh("fleet-cdi claim del pod")
    for job in (waits, typed):
        until(lambda job=job: state(job) == "COMPLETED", f"job {job} does not get what was given back")
    assert is_well() and until(lambda: claims() == {}, "claims stay") is True


def test_a_claim_is_refused_a_device_that_slurm_gave_away():
    """A job has the device, and its prolog has not run: the ledger does not know yet."""
    job = running(submit("--gres=gpu:4"))
    until(lambda: claims().get(f"slurm-{job}"), "no granted claim")
    sh(f"fleet-cdi claim del slurm-{job}")  # as if the prolog had not come to it
    refused = sh("fleet-cdi claim add late tty:1", 2)
    assert "Slurm does not give up gpu:tty60:1" in refused
    assert claims() == {} and sh("squeue -ah -p cdi") == ""
    sh(f"scancel {job}")
    ended(job)
    assert is_well()


def as_slurmd(context, job, **more):
    """Run the script of Prolog and Epilog as slurmd does, with its variables alone."""
    variables = {"SLURM_SCRIPT_CONTEXT": f"{context}_slurmd", "SLURM_JOB_ID": str(job), "SLURM_JOB_UID": "1000"}
    command = [f"{PREFIX}/bin/slurm-job"]
    return subprocess.run(
        command, env={**variables, **more}, capture_output=True, text=True, check=False, timeout=PATIENCE
    )


def test_runs_of_one_job_are_told_apart():
    gpus = {"SLURM_JOB_GPUS": "1"}
    assert as_slurmd("prolog", 900, SLURM_JOB_RESTART_COUNT="0", **gpus).stderr == ""
    assert as_slurmd("prolog", 900, SLURM_JOB_RESTART_COUNT="0", **gpus).returncode == 0
    assert claims() == {"slurm-900": ["tty61"]}
    again = {"SLURM_JOB_GPUS": "2,3", "SLURM_JOB_RESTART_COUNT": "1"}
    assert as_slurmd("prolog", 900, **again).stderr == ""
    assert claims() == {"slurm-900": ["tty62", "tty63"]}
    assert as_slurmd("epilog", 900, SLURM_JOB_RESTART_COUNT="0", **gpus).returncode == 0
    assert claims() == {"slurm-900": ["tty62", "tty63"]}, "a late epilog freed the devices of a newer run"
    for _twice in range(2):
        assert as_slurmd("epilog", 900, **again).returncode == 0
    assert claims() == {}


@pytest.mark.parametrize(
    "variables, error",
    [
        ({"SLURM_JOB_GPUS": "9"}, "SLURM_JOB_GPUS: found '9'; expected indexes below 4"),
        ({"SLURM_JOB_GPUS": "0;id"}, "SLURM_JOB_GPUS: found '0;id'"),
        ({"SLURM_JOB_ID": "../x", "SLURM_JOB_GPUS": "0"}, "SLURM_JOB_ID: found '../x'; expected a number"),
        ({"SLURM_SCRIPT_CONTEXT": "", "SLURM_JOB_GPUS": "0"}, "expected prolog_slurmd or epilog_slurmd"),
    ],
)
def test_odd_variables_are_refused(variables, error):
    done = as_slurmd("prolog", 901, **variables)
    assert done.returncode == 2 and error in done.stderr and claims() == {}


def test_what_a_user_chooses_reaches_nothing():
    """The name, comment, environment and directory of a job are its user's. None of them changes the claim."""
    more = {
        "SLURM_JOB_PARTITION": "cdi",
        "SLURM_JOB_COMMENT": "gpu:tty60:1",
        "SLURM_JOB_NAME": "fleet.cdi-x",
        "SLURM_JOB_GPUS": "0",
    }
    assert as_slurmd("prolog", 902, **more).returncode == 0
    assert claims() == {"slurm-902": ["tty60"]}, "a user's job passed for one that withholds"
    assert as_slurmd("epilog", 902, **more).returncode == 0 and claims() == {}
    command = ["sbatch", "--partition=cdi", "--output=/dev/null", "--wrap", "true"]
    refused = subprocess.run(
        command, user=65534, group=65534, extra_groups=[], capture_output=True, text=True, check=False, cwd="/"
    )
    assert refused.returncode != 0 and "permission denied" in refused.stderr


def test_a_device_that_is_held_fails_the_prolog_with_its_reason():
    """Without setup, as a host that is not set up by the page: the node drains, and its log says why."""
    sh(
        "CDI_VERSION=0.0.2 CDI_COMMAND=ADD CDI_REQUEST=slurm:1 CDI_REQUEST_ID=other CDI_REQUEST_DEVICES=/dev/tty62 "
        "generic-tty < /etc/cdi/slurm.d/tty.conf"
    )
    done = as_slurmd("prolog", 903, SLURM_JOB_GPUS="2")
    assert done.returncode == 2 and "only devices with /dev/tty62 were asked for" in done.stderr
    assert "grants list" in done.stderr and claims() == {}
    assert as_slurmd("prolog", 904, SLURM_JOB_GPUS="3").returncode == 0
    assert as_slurmd("epilog", 904).returncode == 0
    sh("CDI_VERSION=0.0.2 CDI_COMMAND=DEL CDI_REQUEST_ID=other generic-tty < /etc/cdi/slurm.d/tty.conf")


PLUGIN = "fleet.cdi/tty"  # the kind, and the resource of the kubelet


@pytest.fixture(scope="module")
def kubelet(slurm, ansible_module):
    """A kubelet, and the device plugin as the page configures it; the consoles are offered to pods."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "contract"))
    from kubelet import Kubelet  # tests/contract
    from personality import NEW

    (block,) = (block.text for block in BLOCKS if block.language == "yaml")
    variables = yaml.safe_load(block)
    devices = {"consoles": {"profile": "tty", "num_system_reserved": 59}}
    ansible_module("fleet.cdi.spec", kind=PLUGIN, devices=devices, device_list=apart.DEVICE_LIST)
    for command in commands(4):
        sh(command)
    work = slurm / "kubelet"
    for name in ("p", "r", "l", "run"):
        (work / name).mkdir(parents=True)
    sockets = {"registry_dir": str(work / "r"), "pod_resources": str(work / "l/k.sock")}
    resource = variables["cdi_device_plugin_resources"][PLUGIN]
    settings = {
        "version": 1,
        "plugin_dir": str(work / "p"),
        **sockets,
        "spec_dirs": ["/etc/cdi", "/var/run/cdi"],
        "inventory": apart.DEVICE_LIST,
        "state_dir": "/var/lib/cdi",
        "run_dir": str(work / "run"),
        "occupied": "ignore",
        "grace": 1,
        "resources": {PLUGIN: {**resource, "health": {"hold_down": 0, "linger": 1}}},
    }
    (work / "plugin.json").write_text(json.dumps(settings))
    node = Kubelet(str(work / "p"), NEW._replace(wipe_after=0.02), **sockets, dial=1.0, loop=0.1)
    node.start()
    with open(work / "plugin.log", "wb") as log:
        command = [f"{PREFIX}/bin/fleet-cdi", "plugin", "run", "--config", str(work / "plugin.json")]
        plugin = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    yield node
    for pod in [*node.pods]:
        node.delete(pod)
    until(lambda: not withheld(), "the devices of pods stay withheld")
    plugin.kill()
    plugin.wait()
    node.stop()


def offered(kubelet):
    """The consoles that the kubelet may give to pods, or has given."""
    with kubelet.books.lock:
        return set(kubelet.books.healthy.get(PLUGIN, ()))


def test_the_devices_of_pods_are_taken_out_of_slurm_and_come_back(kubelet):
    until(lambda: len(offered(kubelet)) == 4, "the kubelet does not know the consoles")
    names = sorted(name.partition("=")[2] for name in kubelet.run("pod", **{PLUGIN: 3})["cdi_devices"])
    assert withheld() == names
    (left,) = {"tty60", "tty61", "tty62", "tty63"} - set(names)
    waits = submit("--gres=gpu:2", "true")
    short = submit("--gres=gpu:1")
    running(short)
    until(lambda: claims() == {f"slurm-{short}": [left]}, "the job does not get what the pod left")
    assert state(waits) == "PENDING" and is_well()
    until(lambda: left not in offered(kubelet), "the kubelet may give away what a job has")
    sh(f"scancel {short}")
    kubelet.delete("pod")
    until(lambda: state(waits) == "COMPLETED", "the job does not get what the pod had")
    until(lambda: withheld() == [] and len(offered(kubelet)) == 4, "not all comes back")
    assert is_well()


def test_a_job_wins_against_a_pod_and_nothing_has_to_be_put_right(kubelet):
    """Slurm has given all devices to a job whose prolog has not claimed them yet: the kubelet takes them for free."""
    from admission import Rejected

    until(lambda: len(offered(kubelet)) == 4, "the kubelet does not know the consoles")
    job = running(submit("--gres=gpu:4"))
    until(lambda: claims().get(f"slurm-{job}"), "no granted claim")
    until(lambda: not offered(kubelet), "the kubelet does not see them taken")
    sh(f"fleet-cdi claim del slurm-{job}")
    until(lambda: len(offered(kubelet)) == 4, "the kubelet does not see them free")
    with pytest.raises(Rejected, match="Slurm does not give up"):
        kubelet.run("late", **{PLUGIN: 1})
    assert json.loads(sh("fleet-cdi grants list --json"))["grants"] == []
    assert withheld() == []
    sh(f"scancel {job}")
    ended(job)
    after = running(submit("--gres=gpu:4"))
    until(lambda: len(claims().get(f"slurm-{after}", ())) == 4, "the next job does not get them")
    until(lambda: not offered(kubelet), "the kubelet does not see that the next job has them")
    sh(f"scancel {after}")
    ended(after)
    assert is_well()
    until(lambda: len(offered(kubelet)) == 4 and claims() == {}, "the kubelet does not get them back")
    assert kubelet.run("next", **{PLUGIN: 1})
    kubelet.delete("next")
    until(lambda: withheld() == [], "the device stays withheld")
