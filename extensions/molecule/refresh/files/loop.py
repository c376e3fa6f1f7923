# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""loop.py add|remove NUMBER...: loop devices of the kernel, by loop(4). What is done already is fine."""

from __future__ import annotations

import errno
import fcntl
import os
import sys

CALLS = {"add": (0x4C80, errno.EEXIST), "remove": (0x4C81, errno.ENODEV)}  # LOOP_CTL_ADD, LOOP_CTL_REMOVE

call, done = CALLS[sys.argv[1]]
control = os.open("/dev/loop-control", os.O_RDWR)
for number in sys.argv[2:]:
    try:
        fcntl.ioctl(control, call, int(number))
    except OSError as error:
        if error.errno != done:
            raise
