# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages of cdi-hook, which prepares a container before it starts."""

from __future__ import annotations

from ...layout import USUAL
from ..explanation import Explanation

HOOK = f"{USUAL.prefix}/bin/cdi-hook"

EXPLANATIONS = (
    Explanation(
        id="FC1401",
        title="The hook was called with words that it does not take",
        messages=(
            "expected one of *, or --help",
            "found no --directory; expected that of the claim",
            "expected target::link",
            "expected a mode in octal",
            "expected seconds, from 1 to",
            "found nothing after it; expected a value",
        ),
        means="A spec calls cdi-hook with an argument that it does not know.",
        why="A container that starts without the wanted change would fail later and less clearly.",
        do=(
            "If fleet.cdi wrote the spec, write it again with the installed release: `fleet-cdi refresh`. If not, "
            "correct the `args` of the hook."
        ),
        more=f"{HOOK} --help",
    ),
    Explanation(
        id="FC1402",
        title="The state of the container is not that of an OCI runtime",
        messages=(
            "expected the state of a container",
            "expected the container's process, as at createRuntime",
            "expected the id of a container",
            "has no root.path; expected the root directory of a container",
            "the state of container *: found pid *, which no process has",
            "is larger than * MiB; expected a JSON object",
        ),
        means=(
            "An OCI runtime gives its hooks the state of the container on standard input. This was another document."
        ),
        why="The state says which directory is the root of the container. The hook works nowhere else.",
        do="Let a runtime call the hook: it is not for shells. If a runtime did, report its name and version.",
        more="runc --version",
    ),
    Explanation(
        id="FC1403",
        title="The root directory would be the host's own",
        messages=(
            "is the host's own root directory; expected the container's",
            "expected another one than the host's",
            "expected the container's root directory",
        ),
        means="The state names the root directory of the host, or a directory that can't be entered.",
        why="The hook runs as root and would change files of the host.",
        do="Look at `root.path` in config.json of the container.",
        more="runc state CONTAINER",
    ),
    Explanation(
        id="FC1404",
        title="The image has a path that leads astray",
        messages=(
            "leads into /* of the container; expected a path of its own files",
            "symlinks lead to it, perhaps in a circle",
            "directories deep in the image; expected less",
            "is not a file of the container",
            "found a file of more than * bytes in the image",
            "in it and in what it includes, each time; expected less",
            "; expected less",
        ),
        means="Symlinks or sizes in the image are far from what images have. The image may be an attack.",
        why="The hook reads and writes in the image as root, within bounds.",
        do="Look at the path in the image. Do not use an image that you do not know.",
        more="podman image inspect IMAGE",
    ),
    Explanation(
        id="FC1405",
        title="ldconfig fails for the container",
        messages=("failed for the container (", "expected the host's ldconfig, or its path as --ldconfig-path"),
        means="The hook runs the host's ldconfig on the files of the container, in a sandbox, and that failed.",
        why="Without the cache, programs do not find the libraries of the driver.",
        do=(
            "Read the words of ldconfig in the message. An image with a broken library can cause it: try another image."
        ),
        more="ldconfig -p",
    ),
    Explanation(
        id="FC1406",
        title="The mode of a device node is not set by a hook",
        messages=("is a device node; expected fileMode of deviceNodes in the CDI spec for it",),
        means="`chmod` of the hook is for directories and files, and the path is a device node.",
        why="The container may share the node with the host. The mode would change for every user of the host.",
        do="Set `fileMode` in `deviceNodes` of the spec.",
        more="fleet-cdi specs",
    ),
    Explanation(
        id="FC1407",
        title="The hook could not change a file of the container",
        messages=(
            "can't link * to *: *",
            "can't set the mode of *: *",
            "; it stays *",
            "the container's EGL may look for GPUs",
        ),
        means="The system refused a change in the root of the container. The text behind the colon is the reason.",
        why="A hook that skips it would start a container that fails later.",
        do="Check for a read-only root, a full disk or a security policy.",
        more="journalctl -t audit",
    ),
    Explanation(
        id="FC1408",
        title="The claim is over, or is not for this user",
        messages=("is closed or missing, so the claim is over", "only containers that root starts can use this claim"),
        means="The container asks for a claim that was given back, or that was made for containers of root.",
        why="Another container may have the devices now.",
        do="Make another claim and another container with it. For an ordinary user: `fleet-cdi claim add --for USER`.",
        more="fleet-cdi claim list",
    ),
    Explanation(
        id="FC1409",
        title="The hook took too long",
        messages=("so the container can't start; --timeout allows more",),
        means="The hook was not done within its limit, and ended itself.",
        why="A hook that hangs would keep the runtime waiting forever.",
        do="Look for a slow disk or a very large image. `--timeout` in the `args` of the hook allows more seconds.",
        more=f"{HOOK} --help",
    ),
    Explanation(
        id="FC1410",
        title="An error of cdi-hook itself",
        messages=("an error of cdi-hook itself",),
        means="The hook failed in a way that its authors did not foresee.",
        why="It ends instead of going on in an unknown state, so the container does not start.",
        do="Please report it with the whole line and the name of the image.",
        more=f"{HOOK} --version",
    ),
    Explanation(
        id="FC1411",
        title="Several libraries could be meant",
        messages=("which one is meant nobody knows, so none is preferred",),
        means="A note. A directory of compatibility libraries in the image has several files where one is expected.",
        why="The hook does not choose between two drivers.",
        do="Leave one of them in the image.",
        more="podman run IMAGE ls /usr/local/cuda/compat",
    ),
    Explanation(
        id="FC1412",
        title="Hooks that specs name are missing on this host",
        messages=("name hooks that do not run on this host: *",),
        means=(
            "A spec asks the runtime to run a program before the container starts. This program is not there, or can "
            "not be executed."
        ),
        why="A runtime starts no container if a hook of it fails.",
        do="Install the program of the hook: the message names its path. Or remove the spec that names it.",
        more="fleet-cdi doctor",
    ),
    Explanation(
        id="FC1413",
        title="A spec still names the hook",
        messages=("names the hook *, and no container with such a device",),
        means="The role was to remove the program cdi-hook, and a spec of this host still needs it.",
        why="Without the program, no container with a device of this spec would start.",
        do="Remove the spec first, with module fleet.cdi.spec and `state: absent`, or with playbook fleet.cdi.remove.",
        more="fleet-cdi specs",
    ),
    Explanation(
        id="FC1414",
        title="ldconfig is missing on this host",
        messages=("/sbin/ldconfig: is missing",),
        means=(
            "The program ldconfig makes the list by which a container finds its libraries. This host does not have it."
        ),
        why="The libraries that a spec mounts would be in the container, and no program would find them.",
        do="Install the package that the message names: libc-bin on Debian and Ubuntu, glibc on Enterprise Linux.",
        more="ls -l /sbin/ldconfig",
    ),
)
