# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet-cdi completion: the scripts for bash and zsh. They ask `fleet-cdi complete`, so they hold for every release."""

from __future__ import annotations

import sys
from typing import Any

from ..layout import Layout
from ..records import CdiError

# bash replaces only what follows the last of COMP_WORDBREAKS, so it gets what follows the last ":" or "=" of a word.
BASH = r"""# bash completion of fleet-cdi; fleet-cdi completion bash
_fleet_cdi() {
    local kind line current before words
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    [[ ${COMP_LINE:0:COMP_POINT} == *[[:blank:]] ]] && words+=("")
    current=${words[${#words[@]} - 1]}
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ -z $kind ]]; then
            kind=$line
        elif [[ ${line%%$'\t'*} == "$current"* ]]; then
            COMPREPLY+=("${line%%$'\t'*}")
        fi
    done < <("$1" complete "${words[@]:1}" 2>/dev/null)
    if [[ $kind == words ]]; then
        before=${current%"${current##*[:=]}"}
        COMPREPLY=("${COMPREPLY[@]#"$before"}")
    elif [[ -n $kind ]]; then
        [[ $kind != user ]] && compopt -o filenames
        [[ $current == --*=* ]] && current=${current#*=}
        while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -A "$kind" -- "$current")
    fi
}
complete -F _fleet_cdi fleet-cdi
"""

ZSH = r"""#compdef fleet-cdi
# zsh completion of fleet-cdi; fleet-cdi completion zsh
_fleet_cdi() {
    local -a lines offered shown
    local kind line
    lines=("${(@f)$("$words[1]" complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    kind=$lines[1]
    if [[ $kind == words ]]; then
        for line in "${(@)lines[2,-1]}"; do
            offered+=("${line%%$'\t'*}")
            shown+=("${line%%$'\t'*}${${line#*$'\t'}:+  -- ${line#*$'\t'}}")
        done
        compadd -l -d shown -a offered
        return
    fi
    [[ $PREFIX == --*=* ]] && compset -P '--*='
    case $kind in
        file) _files ;;
        directory) _directories ;;
        user) _users ;;
    esac
}
if [[ $funcstack[1] == _fleet-cdi ]]; then
    _fleet_cdi "$@"
else
    compdef _fleet_cdi fleet-cdi
fi
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH}


def run(arguments: Any, paths: Layout) -> int:  # noqa: ARG001 - every verb gets the paths
    """Print the script for a shell. Raises CdiError."""
    if arguments.shell not in SCRIPTS:
        raise CdiError(f"completion: found {arguments.shell!r}; expected {' or '.join(SCRIPTS)}")
    sys.stdout.write(SCRIPTS[arguments.shell])
    return 0
