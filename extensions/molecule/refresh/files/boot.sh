#!/bin/sh
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# What a boot does on a machine, for a container that starts again: another boot id, and device nodes with the numbers that
# drivers give them this time (/srv/test/numbers: path, major, minor).
set -e
cat /proc/sys/kernel/random/uuid > /run/boot-id
mount --bind /run/boot-id /proc/sys/kernel/random/boot_id
while read -r node major minor; do mknod "$node" c "$major" "$minor"; done < /srv/test/numbers
