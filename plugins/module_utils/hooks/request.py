# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The request to a hook: the words after its name.

One process does everything for a container: `createContainer` takes the options of every action. The other forms are
those of NVIDIA's nvidia-cdi-hook (1.20.1, cmd/nvidia-cdi-hook), for specs that others wrote.
"""

from __future__ import annotations

from .error import HookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

COMMON = ("--timeout", "--container-spec")
# Action -> the options that it takes besides the common ones.
COMMANDS = {
    "createContainer": (
        *("--link", "--device-link", "--cuda-compat", "--folder", "--ldconfig-path"),
        *("--chmod", "--application-profile"),
    ),
    "create-symlinks": ("--link",),
    "update-ldcache": ("--folder", "--ldconfig-path"),
    "chmod": ("--mode", "--path"),
    "enable-cuda-compat": ("--host-driver-version", "--host-cuda-version", "--cuda-compat-container-root"),
    "update-application-profile": (),
    "use-claim": ("--directory",),
}
SWITCHES = ("--application-profile",)  # options without a value
USAGE = """\
usage: cdi-hook createContainer [option]...   all that a spec has to do, as its createContainer hook
       cdi-hook create-symlinks | update-ldcache | chmod | enable-cuda-compat | update-application-profile [option]...
       cdi-hook use-claim --directory DIR            as the createRuntime hook of a claim
       cdi-hook --version

The state of the container (OCI runtime specification) is read from standard input.

  --link TARGET::LINK         a symlink LINK to TARGET; replaces an existing file
  --device-link TARGET::LINK  the same, if TARGET is in the container
  --cuda-compat VERSION       prefer the container's CUDA compatibility libraries to those of driver VERSION where they
                              are meant for it
  --folder DIR                search DIR for libraries
  --ldconfig-path FILE        the host's ldconfig (/sbin/ldconfig)
  --chmod MODE:PATH           the mode of a directory or file, in octal; one that is missing stays so
  --application-profile       tell NVIDIA's EGL and Vulkan which GPUs the container has
  --directory DIR             of the claim: note there that the container uses it, or fail if the claim is over
  --timeout SECONDS           for all of it (30)
  --container-spec FILE       the state, instead of standard input
"""
LONGEST = 30
LONGEST_OF_ALL = 3600


class HookRequest:
    """The actions for one container, in the order of execution."""

    def __init__(self) -> None:
        self.links: list[tuple[str, str]] = []  # (target, link)
        self.device_links: list[tuple[str, str]] = []
        self.driver = ""  # the host's version, for which a container may have compatibility libraries
        self.cuda = ""
        self.compat = "/usr/local/cuda/compat"
        self.folders: list[str] = []
        self.wants_cache = False
        self.ldconfig = "/sbin/ldconfig"
        self.modes: list[tuple[int, str]] = []
        self.wants_profile = False
        self.claim = ""  # the directory of the claim that the container uses
        self.timeout = LONGEST
        self.state = ""  # a file with the container's state; "" is standard input


def parse(words: Sequence[str]) -> HookRequest:
    """Return the request in `words`, which begin with the command. Raises HookError."""
    command = words[0] if words else ""
    if command not in COMMANDS:
        raise HookError(f"found {command!r}; expected one of {', '.join(COMMANDS)}, or --help")
    request = HookRequest()
    mode = ""
    paths: list[str] = []
    for option, value in _options(command, words[1:]):
        if option == "--mode":
            mode = value
        elif option == "--path":
            paths.append(_path(option, value))
        else:
            SETTERS[option](request, value)
    if command == "chmod":
        number = _mode("--mode", mode)
        request.modes += [(number, path) for path in paths]
    if command == "use-claim" and not request.claim:
        raise HookError("use-claim: found no --directory; expected that of the claim")
    # Without a folder, too, the linker must find libraries that the spec mounts.
    request.wants_cache = command == "update-ldcache" or bool(request.folders)
    request.wants_profile = request.wants_profile or command == "update-application-profile"
    return request


def _options(command: str, words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (option, value); the value stands after the option or after a "=" in it."""
    known = (*COMMANDS[command], *COMMON)
    left = iter(words)
    for word in left:
        option, equals, value = word.partition("=")
        if option not in known:
            raise HookError(f"{command}: found {word!r}; expected one of {', '.join(known)}")
        if option not in SWITCHES and not equals:
            found = next(left, None)
            if found is None:
                raise HookError(f"{command}: {option}: found nothing after it; expected a value")
            value = found
        yield option, value


def _pair(option: str, text: str) -> tuple[str, str]:
    target, colons, link = text.partition("::")
    if not (target and colons and link) or "::" in link:
        raise HookError(f"{option}: found {text!r}; expected target::link")
    return target, link


def _path(option: str, text: str) -> str:
    if not text.startswith("/") or "\n" in text:
        raise HookError(f"{option}: found {text!r}; expected an absolute path")
    return text


def _mode(option: str, text: str) -> int:
    if not 0 < len(text) <= 5 or set(text) - set("01234567") or int(text, 8) > 0o7777:
        raise HookError(f"{option}: found {text!r}; expected a mode in octal, as in 755")
    return int(text, 8)


def _chmod(request: HookRequest, text: str) -> None:
    mode, _colon, path = text.partition(":")
    request.modes.append((_mode("--chmod", mode), _path("--chmod", path)))


def _timeout(request: HookRequest, text: str) -> None:
    if not text.isascii() or not text.isdecimal() or not 0 < int(text[:9]) <= LONGEST_OF_ALL:
        raise HookError(f"--timeout: found {text!r}; expected seconds, from 1 to {LONGEST_OF_ALL}")
    request.timeout = int(text)


def _set(name: str) -> Callable[[HookRequest, str], None]:
    return lambda request, text: setattr(request, name, text)


# Option -> how it changes a request.
SETTERS: dict[str, Callable[[HookRequest, str], None]] = {
    "--link": lambda request, text: request.links.append(_pair("--link", text)),
    "--device-link": lambda request, text: request.device_links.append(_pair("--device-link", text)),
    "--cuda-compat": _set("driver"),
    "--host-driver-version": _set("driver"),
    "--host-cuda-version": _set("cuda"),
    "--cuda-compat-container-root": lambda request, text: setattr(request, "compat", _path("--cuda-compat-...", text)),
    "--folder": lambda request, text: request.folders.append(_path("--folder", text)),
    "--ldconfig-path": lambda request, text: setattr(request, "ldconfig", _path("--ldconfig-path", text)),
    "--chmod": _chmod,
    "--application-profile": lambda request, _text: setattr(request, "wants_profile", True),
    "--directory": lambda request, text: setattr(request, "claim", _path("--directory", text)),
    "--timeout": _timeout,
    "--container-spec": _set("state"),
}
