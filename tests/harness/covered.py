# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say how much of `plugins` these parts ran, by the files of coverage.py that they left.

covered.py PART...     status 1 below the floor in pyproject.toml (`fail_under`), or where there are no such files

What runs under a host's own Python, in containers and on virtual machines is not seen.
"""

from __future__ import annotations

import io
import sys

import coverage

FLOOR = "report:fail_under"


def main(parts: list[str]) -> int:
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
    verdict = "FAILED" if total < floor else "passed"
    what = f"of the lines and branches in plugins are run by {', '.join(parts)}"
    print(f"coverage {verdict}: {total:.1f} % {what}; the floor is {floor:g} %")
    return int(total < floor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
