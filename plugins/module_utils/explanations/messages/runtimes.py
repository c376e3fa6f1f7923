# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about container runtimes and their configurations."""

from __future__ import annotations

from ..explanation import Explanation

EXPLANATIONS = (
    Explanation(
        id="FC1351",
        title="The configuration of the runtime is broken",
        messages=(
            "line *: *; expected TOML. Repair it, nothing was changed",
            "is not valid UTF-8 (byte *); expected TOML",
            "line *: *; expected a JSON object. Repair it, nothing was changed",
            "expected a table. Repair it, nothing was changed",
            "expected a whole number. Repair it",
            "expected an object. Repair it, nothing was changed",
            "expected a list of directories. Repair it, nothing was changed",
            "expected true or false. Repair it, nothing was changed",
            "found the key *; expected *. Repair it, nothing was changed",
            "imports: found no file *; expected one, as containerd does not start without it",
        ),
        means="fleet.cdi has to set one key in this file, and the file breaks its grammar or has another type there.",
        why="The runtime itself would not start with this file, or would read another value.",
        do="Correct the file at the named line. Nothing was changed.",
        more="journalctl -u UNIT",
    ),
    Explanation(
        id="FC1352",
        title="The key can't be set without changing more",
        messages=(
            "can't be set without changing more. Set it by hand",
            "can't be taken out without changing more. Remove it by hand",
            "Set it there by hand, nothing was changed",
            "found dotted keys in an inline table, which nothing can be added to here",
        ),
        means="The file is valid, and the key can be written there only with a change of other lines.",
        why="fleet.cdi changes its own key and keeps every other byte, comments too.",
        do="Write the key by hand where the message says, then run again: fleet.cdi sees that it is set.",
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1353",
        title="An option of the command line overrules the file",
        messages=(
            "on the command line of * overrules every file",
            "is on the command line of *, which starts with a key set there or in the file, never both",
            "is set here and by * on the command line of *, which does not start with both",
            "has no effect on *: * and * overrule it",
        ),
        means="The unit of the runtime starts it with an option that sets the same thing.",
        why="The daemon takes the option and ignores the file, or refuses to start with both.",
        do="Remove the option from the unit (`systemctl edit UNIT`), or set the wanted value there.",
        more="systemctl cat UNIT",
    ),
    Explanation(
        id="FC1354",
        title="The release of the runtime has no CDI, or not this setting",
        messages=(
            "has no CDI at all; *",
            "its directories are fixed, *; * is wanted",
            "always reads CDI, and has no switch",
            "is written anew at every start of *, and imports no directory",
        ),
        means="This release of the runtime can't do what the settings ask for.",
        why="A key that the runtime does not know has no effect, and looks as if it had.",
        do="Upgrade the runtime, leave it out of the settings, or do what the message proposes.",
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1355",
        title="The runtime is not installed there",
        messages=(
            "is not installed here (*",
            "Install it first, name the installation that is meant, or leave it out",
            "installation: found *; expected one of * for",
            "runtimes: found the runtime *; expected one of",
            "runtimes: found the version * of *; expected its release as text",
        ),
        means="The settings name a runtime, an installation of it, or a version that this host does not have.",
        why="A configuration for a runtime that is not there would be a file that nothing reads.",
        do="Install the runtime, or correct the name. The message lists the possible ones.",
        more="ansible-doc -t module fleet.cdi.container_runtime",
    ),
    Explanation(
        id="FC1356",
        title="The runtime does not take the new configuration",
        messages=(
            "does not take its configuration (exit status",
            "takes its configuration to say CDI",
            "is as it was before",
            "does not run with the new configuration",
        ),
        means="fleet.cdi wrote the file, asked the runtime what it reads in it, and got another answer or an error.",
        why="A daemon that does not start stops every container of the host. So the file is put back as it was.",
        do="Read the words of the runtime in the message. Most often another file of its configuration is broken.",
        more="journalctl -u UNIT",
    ),
    Explanation(
        id="FC1357",
        title="The daemon can't be restarted",
        messages=(
            "runs, but none of its systemd units does",
            "`systemctl * *` failed (exit status",
            "can't be stopped: *",
            "systemctl: this host has no such program",
            "failed (exit status *): *",
        ),
        means="The daemon has to read its new configuration, and systemd could not restart it, or does not manage it.",
        why="Until then containers are started with the old configuration.",
        do=(
            "Read the log of the unit. For a daemon that other means start, use `restart: never` and restart it "
            "yourself."
        ),
        more="systemctl status UNIT",
    ),
    Explanation(
        id="FC1358",
        title="The version of the runtime can't be told",
        messages=("can't tell its version: *",),
        means="A warning. The program was found and did not answer `--version`.",
        why="Specs are written so that every runtime of the host reads them. This one is left out of that.",
        do="Repair or remove the program, or name the runtimes and versions in the settings.",
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1359",
        title="The containers of an engine can't be told",
        messages=("its containers can't be told",),
        means="Podman, docker or the CRI did not answer, or not in time; or docker does not run, and a container of "
        "it does, of which its files do not tell.",
        why="Without the answer, fleet.cdi does not know if a claim or a device is still in use. It keeps the claim, "
        "keeps what the settings drop (`on_held`), and undo touches nothing without force while a container of this "
        "engine may run.",
        do="Start the daemon if it should run. If the engine was removed, remove its data, too.",
        more="systemctl status docker",
    ),
    Explanation(
        id="FC1360",
        title="A newer release of the runtime",
        messages=("is newer than *, the last that this collection knows",),
        means="A warning. fleet.cdi was tested with older releases of this runtime.",
        why="A new release usually reads what the last known one read. Nobody has tried it yet.",
        do="Nothing, if containers get their devices. Upgrade fleet.cdi when you can.",
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1361",
        title="A runtime has CDI off, and the settings turn it on",
        messages=("cdi_host_runtime_settings enables CDI, but the configuration of this runtime still disables it",),
        means="The role set its key, and another file or an option of the command line overrules it.",
        why="Containers of this runtime would get no device by a CDI name.",
        do=(
            "Look at `enabled_by` of module fleet.cdi.container_runtime_info: it names the file that decides. Remove "
            "the key there."
        ),
        more="fleet-cdi doctor",
    ),
)
