#!/bin/sh
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# claims.sh ENGINE [OPTION...] IMAGE|ROOT: a claim through the life of a container that always restarts. gc runs as its service does,
# by systemd and with nothing of our environment.
set -ex
engine=$1 && shift
cdi=/opt/cdi/bin/fleet-cdi
id=life-$engine

state() { $cdi claim list | sed -n "s/^$id  *\([a-z]*\) .*/\1/p"; }
collect() { systemd-run --quiet --wait --pipe $cdi claim gc; }
expect() { # STATE: wait for it
    for _second in $(seq 60); do [ "$(state)" != "$1" ] || return 0; sleep 1; done
    echo "found $(state), expected $1" && exit 1
}
kept() { expect "$1" && [ "$(collect)" = "Nothing to do." ]; }
sees() { $engine exec "$id" /bin/busybox test -c "$node"; }

$cdi claim add "$id" serial:1
node=$($cdi claim list | sed -n "s/^$id .* //p")
if [ "$engine" = podman ]; then set -- --cgroups=disabled --rootfs "$@"; fi
$engine run --detach --name "$id" --restart=always --network=none --device "fleet.cdi/claim=$id" "$@" /bin/busybox sleep 100000
sees && kept granted
$engine restart --time 0 "$id"
kept granted && sees
if [ "$engine" = docker ]; then
    systemctl reset-failed docker.service # forget earlier starts: its unit allows three a minute
    systemctl restart docker.service # ends its containers, and before 28.2 starts none with CDI devices again (moby#49989)
    [ "$(collect)" = "Nothing to do." ]
    $engine start "$id"
    kept granted && sees
    $engine kill "$id"
    systemctl stop docker.service docker.socket
    kept idle # by its files docker still has the container, which may start again
    systemctl reset-failed docker.service
    systemctl start docker.socket docker.service
    systemctl reset-failed docker.service
else
    $engine kill "$id"
fi
kept idle
$engine start "$id"
kept granted && sees
$engine rm --force "$id"
expect idle
[ "$(collect)" = "given back: $id" ]
