# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start fleet-cdi: with all of the host's Python, or light for the verbs that run for each container.

The launcher starts Python without site-packages (-S). Searching them, and the module typing, take as long as a claim's
own work.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIGHT = ("claim",)  # verbs that need no package of the host, besides PyYAML, which is looked for at its use


def main(argv: Sequence[str], release: str, defaults: Mapping[str, Any]) -> int:
    """Run `argv` as cli.main does; a light verb ends the process at once."""
    light = verb_of(argv) in LIGHT
    if light:
        import gc

        from ..cdi_plugin import light_typing

        gc.disable()  # this process ends before a collection would help
        light_typing.install()
    else:
        import site

        site.main()
    from . import main as command

    status = command.main(argv, release, defaults)
    if light:
        sys.stderr.flush()
        os._exit(status)  # without the shutdown of the interpreter; stdout is flushed
    return status


def verb_of(argv: Sequence[str]) -> str:
    """Return the first word that is neither an option nor the value of one; options before the verb have values."""
    words = iter(argv)
    for word in words:
        if not word.startswith("-"):
            return word
        if "=" not in word:
            next(words, None)
    return ""
