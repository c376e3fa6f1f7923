# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start fleet-cdi: with all of Python, or light for what runs often.

The launcher starts Python without site-packages (-S). Searching them, and the module typing, take as long as a claim's
own work. Ansible runs `call cdi_host` on each host of a fleet; it takes a fifth less CPU with a light start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIGHT = (["claim"], ["call", "cdi_host"])  # the first words of commands that start light
ALONE = "claim"  # needs no package of the host, besides PyYAML, which is looked for at its use


def main(argv: Sequence[str], release: str, defaults: Mapping[str, Any]) -> int:
    """Run `argv` as cli.main does; a light command ends the process at once."""
    _open_standard_handles()
    words = words_of(argv)
    light = any(words[: len(first)] == first for first in LIGHT)
    if words[:1] != [ALONE]:
        import site

        site.main()
    if light:
        import gc

        from .. import light_typing

        gc.disable()  # this process ends before a collection would help
        light_typing.install()
    from . import main as command

    status = command.main(argv, release, defaults)
    if light:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # without the shutdown of the interpreter
    return status


def _open_standard_handles() -> None:
    """Open the standard handles that we were started without, so that no file of ours gets their numbers.

    To read or write the closed ones fails, as it does for other programs; errors for a closed stderr are lost.
    """
    for name, flags, mode in (("stdin", os.O_WRONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8", errors="backslashreplace"))


def words_of(argv: Sequence[str]) -> list[str]:
    """Return the first two words that are neither an option nor its value; options before the verb have values."""
    found: list[str] = []
    words = iter(argv)
    for word in words:
        if not word.startswith("-"):
            found.append(word)
        elif not found and "=" not in word:
            next(words, None)
        if len(found) == 2:
            break
    return found
