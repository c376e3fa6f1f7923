# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say how much of `plugins` the unit and contract tests ran, by the files of coverage.py that they left.

covered.py     status 1 below the floor in pyproject.toml (`fail_under`), or where there are no such files

What runs under a host's own Python, in containers and on virtual machines is not seen: integration, molecule and the
machines run more.
"""

from __future__ import annotations

import io
import sys

import coverage

FLOOR = "report:fail_under"
WHAT = "of the lines and branches in plugins are run by the unit and contract tests"


def main() -> int:
    """Combine what is there, and compare the total with the floor."""
    found = coverage.Coverage()
    floor = float(str(found.get_option(FLOOR)))
    try:
        found.load()  # what was combined before
        found.combine()
        found.save()
        total = found.report(file=io.StringIO())
    except coverage.exceptions.CoverageException as error:
        print(f"coverage FAILED: {error}")
        return 1
    print(f"coverage {'FAILED' if total < floor else 'passed'}: {total:.1f} % {WHAT}; the floor is {floor:g} %")
    return int(total < floor)


if __name__ == "__main__":
    sys.exit(main())
