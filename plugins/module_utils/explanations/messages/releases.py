# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about releases on a host, and about the host itself."""

from __future__ import annotations

from ..explanation import Explanation

EXPLANATIONS = (
    Explanation(
        id="FC1751",
        title="No release is active on this host",
        messages=(
            "no release is active; run the role cdi_host once",
            "no release is active, so nothing can put these devices back into service",
            "does not exist; install the release first (module fleet.cdi.host_release)",
            "Install the release first (module fleet.cdi.host_release)",
        ),
        means="The code of fleet.cdi is not installed on this host, or not under this prefix.",
        why="Executables, hooks and units run this code.",
        do="Run playbook fleet.cdi.provision, or role fleet.cdi.cdi_host.",
        more="ls -l /opt/cdi/lib",
    ),
    Explanation(
        id="FC1752",
        title="Another release is active on this host",
        messages=("One host has one release",),
        means="The controller has another release than the host.",
        why="Two releases that write the same files would undo each other's work.",
        do="Run fleet.cdi.host_release first (the role does), or use the other controller.",
        more="fleet-cdi --version",
    ),
    Explanation(
        id="FC1753",
        title="The distribution is not supported",
        messages=("/etc/os-release: found ID *", "distributions: found *; expected lists of VERSION_ID"),
        means="fleet.cdi supports the distributions that the message lists.",
        why="It was not made for the paths, packages and runtimes of others.",
        do="Use a listed one. To try another at your own risk, add it to `distributions`.",
        more="cat /etc/os-release",
    ),
    Explanation(
        id="FC1754",
        title="Python is missing or too old",
        messages=(
            "is not Python >= 3.9",
            "a release needs >= 3.9. Name a newer one",
            "expected the host's Python >= 3.9",
            "python: found *; expected an absolute path without quotes",
        ),
        means="A release runs on the Python of the host, 3.9 or newer.",
        why="The code and its byte code are made for it.",
        do="Install a newer Python from the distribution, and name it with option `python`.",
        more="python3 --version",
    ),
    Explanation(
        id="FC1755",
        title="A file or link is in the way of the installation",
        messages=(
            "is there already and is not ours; expected nothing, or a link to",
            "is not a link that fleet.cdi made. Move it away, or choose another prefix",
            "is not a directory; choose another prefix, or move it away",
            "expected a directory, as code that runs as root goes there",
        ),
        means="A path of the installation has a file or link of another program.",
        why="fleet.cdi replaces nothing that it did not make.",
        do="Move it away, or choose another `prefix`.",
        more="ls -l /opt/cdi",
    ),
    Explanation(
        id="FC1756",
        title="The release was not activated",
        messages=(
            "archive: holds release *; expected",
            "archive: is damaged (*); expected release",
            "can't byte-compile the release",
            "pages failed (exit status",
            "was not activated",
            "expected a file system that is not mounted noexec",
            "what was active before still is",
            "release: found *; expected <version>-<12 hex digits>",
            "is not a source file of a release",
            "not a release of fleet.cdi",
        ),
        means="The archive was damaged on its way, or the new release failed its first run on this host.",
        why="A release that can't run is never made active. The one before still works.",
        do=(
            "Run it again. If it fails in the same way, read the words of the program, and check space and mount "
            "options of the prefix."
        ),
        more="findmnt -T /opt/cdi",
    ),
    Explanation(
        id="FC1757",
        title="There is no release to go back to",
        messages=(
            "there is no previous release to go back to",
            "was changed since it was installed; install a release with state=present instead",
            "lib/previous: found none; expected the release before",
        ),
        means="`state: previous` needs the release before, unchanged. It was removed or changed.",
        why="Changed code of root is not trusted.",
        do="Install the release that you want from a controller that has it.",
        more="ls -l /opt/cdi/lib",
    ),
    Explanation(
        id="FC1758",
        title="Another process changes the releases",
        messages=(
            "another process changed the releases just now; run again",
            "another process has been changing the releases for",
        ),
        means="Two runs install or remove a release at the same time.",
        why="Half of each would be no release.",
        do="Wait for the other run, then run again.",
        more="fuser -v /opt/cdi/lib",
    ),
    Explanation(
        id="FC1759",
        title="The ledger could not be migrated",
        messages=("The release is active; grants are refused until the store can be used",),
        means="The new release is active, and the store of grants still has the old format.",
        why="Migration happens at activation, and never while a grant is made.",
        do="Do what the message says about the store, then run it again. `state: previous` goes back.",
        more="fleet-cdi grants migrate",
    ),
    Explanation(
        id="FC1760",
        title="Things that need the release are still there",
        messages=("Remove these first, or run playbook fleet.cdi.remove",),
        means="Specs, units or configurations of this host run the code that would be removed.",
        why="Containers with hooks of a removed release do not start.",
        do="Remove them first. Playbook fleet.cdi.remove removes everything in the right order.",
        more="fleet-cdi undo --check",
    ),
    Explanation(
        id="FC1761",
        title="A package can't be installed",
        messages=("could not be installed: *",),
        means="The role installs a few packages of the distribution. The package manager failed.",
        why="The device plugin needs gRPC. Discovery works without pyudev, and lacks what only udev knows.",
        do="Install the package by hand, or set cdi_host_install_packages to false.",
        more="apt-get install python3-pyudev",
    ),
    Explanation(
        id="FC1762",
        title="A package of the distribution is missing",
        messages=(
            "missing for *. The device plugin does not run without",
            "would be installed from the distribution (*",
        ),
        means="The device plugin needs python3-grpcio. In check mode, the message says only what a run would install.",
        why="The role is told not to install packages, or it runs in check mode.",
        do=(
            "Install the package by hand, or set `cdi_host_install_packages` (for role cdi_device_plugin alone: "
            "`cdi_device_plugin_install_packages`) to true."
        ),
        more='python3 -c "import grpc"',
    ),
    Explanation(
        id="FC1763",
        title="Something is left on this host",
        messages=("Left on this host: *", "Solve this and run the playbook again"),
        means=(
            "The removal is not complete. The message names the rest and the reason: a request holds a device, a "
            "container runs, or another tool changed a file."
        ),
        why="To remove the rest would end running work, or would lose the change of another tool.",
        do=(
            "Solve what the message names and run the playbook again. To remove all of it at any cost, set "
            "`cdi_host_force` to true."
        ),
        more="fleet-cdi undo --check",
    ),
    Explanation(
        id="FC1764",
        title="The records of this host are in another directory",
        messages=("where this host has its records: what was changed on it",),
        means=(
            "The state directory has the manifest and the ledger. `state_dir` (of role cdi_host: "
            "`cdi_host_state_dir`) names another directory than the commands of this host use."
        ),
        why=(
            "A new ledger knows no grant, so a device that a request holds would be granted to another one, too. A new "
            "manifest knows no change, so a removal would leave specs and units without the code."
        ),
        do=(
            "Set the old directory again, for all roles and tasks of the host. To move the records, run playbook "
            "fleet.cdi.remove with the old directory, and then fleet.cdi.provision with the new one."
        ),
        more="cat /opt/cdi/bin/fleet-cdi",
    ),
    Explanation(
        id="FC1765",
        title="This host has its release below another prefix",
        messages=("where this host has its release: containers, specs and units",),
        means=(
            "`cdi_host_prefix` names another directory than the one with the release that this host uses. That is the "
            "one in the unit of the refresh, or without a refresh the usual `/opt/cdi`."
        ),
        why=(
            "Containers that were made keep the path of the hook, and other tools may have paths below the old prefix. "
            "So its release can't be removed in passing, and nothing would upgrade or remove it later."
        ),
        do=(
            "Set the old prefix again. To move the release, run playbook fleet.cdi.remove with the old prefix, and "
            "then fleet.cdi.provision with the new one."
        ),
        more="cat /etc/systemd/system/fleet-cdi-refresh.service",
    ),
    Explanation(
        id="FC1766",
        title="A changed file keeps the release from running",
        messages=("was changed or removed since the release was installed, which can't run now",),
        means="The command could not start. The message names the first file that differs from what was installed.",
        why="The release runs from these files, so what it would do now is not known.",
        do="Install the release again. If nobody here changed the file, find out who did: it is root's.",
        more="ansible-playbook fleet.cdi.provision",
    ),
    Explanation(
        id="FC1767",
        title="Force took what was in use or was changed",
        messages=("back what was in use or was changed since: *",),
        means=(
            "A removal without force leaves what the message names: claims and grants whose devices are held, specs of "
            "running containers, and files that were changed since fleet.cdi wrote them. This one had `cdi_host_force`."
        ),
        why="What uses such a device goes on for now, and does not start again. A change of a file is lost.",
        do="Check what the message names. Without `cdi_host_force` a removal refuses and names them.",
        more="fleet-cdi undo --check",
    ),
)
