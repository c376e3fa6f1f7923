# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One virtual machine in QEMU: started from an image that it never changes, reached by ssh, controlled by QMP.

What a machine writes lies in an overlay. It survives a reboot, and a power cut with another start, until `close`.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import debian_root  # tests/harness
import yaml
from image import USER, Image, image

DEFINITIONS = Path(__file__).with_name("machines.yml")
QEMU = "qemu-system-x86_64"
EMULATOR = ("qemu-system-x86", "ipxe-qemu")  # packages of a newer QEMU than that of this host
DISK_BYTES = 64 << 20
FIRST_BUS = 32  # the number of the first bus of NUMA node 0; each node's bridge has 32 numbers
KERNEL_S = 20  # seconds that a kernel may take to find no root file system
UP_S = 900.0  # seconds that a machine may take to be up, on a loaded host
SILENT_S = 120  # seconds without a word after which a machine that was up counts as frozen
# What the console says of a kernel that will not boot: the last line of a panic, whose first one has the words, too, or
# that a task has waited for four minutes, which is the second line of its kind.
LOST = re.compile(r"---\[ end Kernel panic|blocked for more than 2\d\d seconds")
TRY_UP_S = 20  # seconds for one look whether a machine that boots is up
CONSOLE_LINES = 40
# The kernel's protection against Meltdown and Spectre makes emulation slower and protects nobody here.
KERNEL = "root=/dev/vda rw console=ttyS0 quiet mitigations=off no5lvl systemd.show_status=false"
SSH_CONFIG = """\
Host machine
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile {directory}/key
    IdentitiesOnly yes
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
    ConnectTimeout {connect_s}
    ServerAliveInterval 10
    ServerAliveCountMax 12
    ControlMaster auto
    ControlPersist 600
    ControlPath {directory}/ssh
"""
Done = subprocess.CompletedProcess[str]


class Silent(OSError):
    """A machine that was up answers no more: its kernel stands still, or its emulator does."""


def definition(name: str) -> dict[str, Any]:
    """The entry of machines.yml with this name. Raises KeyError."""
    found: dict[str, Any] = yaml.safe_load(DEFINITIONS.read_text(encoding="utf-8"))[name]
    return {"name": name, **found}


def image_of(known: Mapping[str, Any]) -> Image:
    """The image that a machine starts from, made if there is none yet. Raises OSError."""
    packages = [*known["runtimes"], *known.get("packages", ())]
    return image(known.get("image", known["name"]), known["suite"], packages, known.get("commands", ()))


@functools.cache
def accelerator(kernel: Path) -> str:
    """How QEMU runs the CPUs of a machine here: `kvm` where that works, `tcg` elsewhere.

    /dev/kvm may be there and run firmware, and still stop at the first kernel. So `kernel` is started, without a disk.
    """
    command = [QEMU, "-accel", "kvm", "-machine", "q35", "-cpu", "host", "-m", "512", "-nodefaults", "-display", "none"]
    command += ["-no-user-config", "-no-reboot", "-kernel", str(kernel), "-append", "console=ttyS0 panic=-1"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([*command, "-serial", "stdio"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            for _second in range(KERNEL_S):
                ended = process.poll() is not None
                log.seek(0)
                said = log.read()
                if b"Kernel panic" in said:  # it has no root file system
                    return "kvm"
                if ended or b"internal error" in said:
                    return "tcg"
                time.sleep(1)
        finally:
            process.kill()
            process.wait()
    return "tcg"


class Control:
    """QEMU's monitor: commands and answers as JSON lines on a socket (QMP)."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        try:
            self.socket.connect(str(path))
            self.lines = self.socket.makefile("r", encoding="utf-8")
            self.lines.readline()  # the greeting
            self.ask("qmp_capabilities")
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, command: str, **arguments: Any) -> Any:
        """Run a command and return its answer. Raises OSError if QEMU refuses it or ends."""
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        for line in self.lines:
            answer = json.loads(line)
            if "error" in answer:
                raise OSError(f"{command} {arguments}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
        raise OSError(f"{command}: QEMU ended")


def options(known: Mapping[str, Any]) -> list[str]:
    """QEMU's options for CPUs, memory, NUMA nodes, PCIe ports and devices of a definition."""
    nodes, memory, processors = known["numa_nodes"], known["memory"], known["processors"]
    made = ["-m", str(memory), "-smp", str(processors), *known.get("options", ())]
    for node in range(nodes):
        share = processors // nodes
        made += ["-object", f"memory-backend-ram,id=memory{node},size={memory // nodes}M"]
        made += ["-numa", f"node,nodeid={node},memdev=memory{node},cpus={node * share}-{(node + 1) * share - 1}"]
    for node in range(nodes):
        made += ["-device", f"pxb-pcie,id=node{node},bus=pcie.0,numa_node={node},bus_nr={FIRST_BUS * (node + 1)}"]
    made += ["-chardev", "null,id=serial"]
    disks = itertools.count()

    def device(text: str) -> list[str]:
        if "{disk}" not in text:
            return ["-device", text]
        name = f"disk{next(disks)}"
        empty = f"null-co,node-name={name},size={DISK_BYTES},read-zeroes=on"
        return ["-blockdev", empty, "-device", text.format(disk=name)]

    for text in known["chipset"]:
        made += device(text)
    for number, (name, port) in enumerate(known["pcie"].items()):
        bridge = f"node{port['numa_node']}" if "numa_node" in port else "pcie.0"
        made += ["-device", f"pcie-root-port,id={name},bus={bridge},chassis={number + 1},slot={number + 1}"]
        for text in port.get("devices", ()):
            made += device(text if "bus=" in text else f"{text},bus={name}")
    return made


class Machine:
    """A machine by its definition. `start` it, and `close` it at the end."""

    def __init__(self, known: Mapping[str, Any], directory: Optional[Path] = None) -> None:
        """Make the overlay, unless `directory`, with files of this machine, has it. Raises OSError without an image."""
        self.known = known
        self.image = image_of(known)
        self.directory = directory or Path(tempfile.mkdtemp(prefix="fleet-cdi-"))  # a socket has a short path
        self.overlay = self.directory / "disk.qcow2"
        self.console = self.directory / "console.log"
        self.config = self.directory / "ssh_config"
        self.process: Optional[subprocess.Popen[bytes]] = None
        self._losses = 0  # on this console
        if not self.overlay.exists():
            base = ["-F", "raw", "-b", str(self.image.disk)]
            make = ["qemu-img", "create", "-q", "-f", "qcow2", *base, str(self.overlay)]
            subprocess.run(make, check=True, stdin=subprocess.DEVNULL)
            shutil.copy(self.image.key, self.directory / "key")  # ssh wants a file that only its user can read

    def start(self, port: int = 0, stays: bool = False) -> None:
        """Switch the machine on; `wait_up` waits for it. `port` of 127.0.0.1 leads to its sshd; 0 takes a free one.

        With `stays` it goes on when the terminal or the process group of this process ends.
        """
        if not port:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
        how = accelerator(self.image.kernel)
        command = [QEMU, "-machine", "q35", "-accel", how, "-cpu", "host" if how == "kvm" else "max"]
        command += ["-no-user-config", "-nodefaults", "-display", "none"]
        command += ["-serial", f"file:{self.console}", "-qmp", f"unix:{self.directory}/qmp,server=on,wait=off"]
        command += ["-kernel", str(self.image.kernel), "-initrd", str(self.image.initrd)]
        command += ["-append", " ".join([KERNEL, *self.known["kernel"]])]
        command += ["-drive", f"if=none,id=root,file={self.overlay},cache=unsafe"]
        command += ["-device", "virtio-blk-pci,drive=root,bus=pcie.0"]
        # restrict: the machine reaches no network, and only the forwarded port reaches the machine.
        command += ["-netdev", f"user,id=network,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"]
        command += ["-device", "virtio-net-pci,netdev=network,bus=pcie.0", "-device", "virtio-rng-pci,bus=pcie.0"]
        command += options(self.known)
        if "emulator" in self.known:
            newer = debian_root.made(self.known["emulator"], EMULATOR)
            command = newer.command(command, (str(self.directory), str(self.image.disk.parent)), {}, "/")
        values = {"port": port, "user": USER, "directory": self.directory, "connect_s": SILENT_S}
        self.config.write_text(SSH_CONFIG.format(**values), encoding="utf-8")
        (self.directory / "qmp").unlink(missing_ok=True)
        self.console.unlink(missing_ok=True)
        self._losses = 0
        with (self.directory / "qemu.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=stays
            )

    def control(self, command: str, **arguments: Any) -> Any:
        """Ask QEMU (QMP). Raises OSError."""
        with Control(self.directory / "qmp") as control:
            return control.ask(command, **arguments)

    def _ssh(self, command: str, stdin: str = "", seconds: float = 300, *options: str) -> Done:
        """Run a shell command as the ordinary user.

        Status 255 means that ssh failed, 124 that the command did not end in time.
        """
        start = ["ssh", "-F", str(self.config), *options, "machine", command]
        try:
            return subprocess.run(start, input=stdin, capture_output=True, text=True, check=False, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            return subprocess.CompletedProcess(start, 124, "", f"no end in {error.timeout} s")

    def attempt(self, command: str, stdin: str = "") -> Done:
        """Run a shell command as the ordinary user. Raises Silent if the machine does not answer.

        Status 124 means that the command did not end within 300 seconds.
        """
        done = self._ssh(command, stdin)
        if done.returncode == 255:
            raise Silent(f"{command}: {done.stderr.strip()}")
        return done

    def run(self, command: str, stdin: str = "") -> str:
        """Run a shell command as the ordinary user and return what it printed. Raises OSError if it fails."""
        done = self.attempt(command, stdin)
        if done.returncode:
            raise OSError(f"{command}: status {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def root(self, command: str, stdin: str = "") -> str:
        """Run a shell command as root, as `run` does for the user."""
        return self.run(f"sudo sh -c {_quoted(command)}", stdin)

    def boot_id(self) -> str:
        """The kernel's id of this boot; "" if the machine does not answer."""
        one_look = f"ConnectTimeout={TRY_UP_S}"
        done = self._ssh("cat /proc/sys/kernel/random/boot_id", "", TRY_UP_S + 10, "-o", one_look)
        return done.stdout.strip() if done.returncode == 0 else ""

    def wait_up(self, not_boot: str = "") -> float:
        """Wait until ssh answers in another boot than `not_boot`. Returns the seconds. Raises OSError."""
        started = time.monotonic()
        while (now := self.boot_id()) in ("", not_boot):
            if self.process is None or self.process.poll() is not None:
                raise OSError(f"QEMU ended: {(self.directory / 'qemu.log').read_text(errors='replace')[-2000:]}")
            self._start_again_if_lost()
            if time.monotonic() - started > UP_S:
                raise OSError(f"the machine is not up: {self.console.read_text(errors='replace')[-2000:]}")
            self.hang_up()
            time.sleep(1)
        assert now
        return time.monotonic() - started

    def _start_again_if_lost(self) -> None:
        """Reset a machine whose kernel panicked or hangs, once. Raises OSError the next time, and without emulation.

        Emulation loses patches that a booting kernel makes to its own code.
        """
        said = self.console.read_text(errors="replace") if self.console.exists() else ""
        losses = len(LOST.findall(said))
        if losses == self._losses:
            return
        if losses > 1 or accelerator(self.image.kernel) != "tcg":
            raise OSError(f"the kernel does not boot: {said[-4000:]}")
        self._losses = losses
        warnings.warn(f"a machine was reset, because its kernel did not boot: {said[:300]}", stacklevel=2)
        self.control("system_reset")

    def standstill(self) -> str:
        """What tells why the machine is silent: QEMU's word, where its CPUs are, the console's end."""
        try:
            with Control(self.directory / "qmp") as control:
                said = [str(control.ask("query-status"))]
                for cpu in range(self.known["processors"]):
                    shown = control.ask("human-monitor-command", **{"command-line": "info registers", "cpu-index": cpu})
                    said += [f"CPU {cpu}:", *[line for line in shown.splitlines() if line.startswith(("RIP=", "EIP="))]]
        except OSError as error:
            said = [f"QEMU does not answer: {error}"]
        return "\n".join([*said, *self.console.read_text(errors="replace").splitlines()[-CONSOLE_LINES:]])

    def hang_up(self) -> None:
        """Close the shared ssh connection: after a reboot it leads nowhere."""
        subprocess.run(["ssh", "-F", str(self.config), "-O", "exit", "machine"], capture_output=True, check=False)

    def reboot(self) -> float:
        """Reboot in order and wait until the machine is up again. Returns the seconds. Raises OSError."""
        before, started = self.boot_id(), time.monotonic()
        self._ssh("sudo systemctl reboot", "", 30)
        self.hang_up()
        self.wait_up(before)
        return time.monotonic() - started

    def cut_power(self) -> None:
        """Switch off at once: nothing is written any more. `start` switches on again, with the same disk."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
            self.hang_up()

    def plug(self, port: str, driver: str, **properties: Any) -> str:
        """Put a device into a free port; "{disk}" is an empty disk. Returns its id for `unplug`. Raises OSError."""
        name = f"plugged-{time.monotonic_ns()}"  # a device that is gone leaves its disk, with this name
        if properties.get("drive") == "{disk}":
            properties["drive"] = f"{name}-disk"
            self.control(
                "blockdev-add", driver="null-co", size=DISK_BYTES, **{"node-name": f"{name}-disk", "read-zeroes": True}
            )
        self.control("device_add", driver=driver, id=name, bus=port, **properties)
        return name

    def unplug(self, name: str) -> None:
        """Press the attention button of the device's slot: the machine's kernel lets go of it. Raises OSError."""
        self.control("device_del", id=name)

    def close(self) -> None:
        """Switch off and remove the machine's files."""
        self.cut_power()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def variables(self) -> dict[str, Any]:
        """For Ansible: the ordinary user comes in by ssh and becomes root by sudo."""
        return {
            "ansible_host": "machine",
            "ansible_ssh_common_args": f"-F {self.config}",
            "ansible_user": USER,
            "ansible_become": True,
            "ansible_python_interpreter": "/usr/bin/python3",
        }


def _quoted(command: str) -> str:
    """A word for sh."""
    return "'" + command.replace("'", "'\\''") + "'"


def lacking() -> str:
    """Why no machine can be started here; "" if one can."""
    import counterparts  # tests/harness

    missing = counterparts.missing(counterparts.needed_by(["machines"]))
    if missing:
        return f"missing packages: {' '.join(missing)} (make machines INSTALL=1)"
    return "" if os.geteuid() == 0 else "making an image of a machine needs root"
