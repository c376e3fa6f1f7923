#!/bin/sh
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# tools.sh EXAMPLES ROOT: claims with other tools than an engine's command line: a command of the host (claim exec), and podman's
# quadlet with the files of examples/quadlet. The executable `serial` grants one of two consoles.
set -ex
examples=$1 root=$2
cdi=/opt/cdi/bin/fleet-cdi

none() { [ "$($cdi claim list)" = "No claims on this host." ]; }
status() { # STATUS COMMAND...: it ends with this status
    expected=$1 && shift
    found=0 && "$@" || found=$?
    [ "$found" = "$expected" ]
}
wait_for() { # COMMAND...: until it succeeds
    for _second in $(seq 600); do ! "$@" || return 0; sleep 0.1; done
    exit 1
}
ended() { ! grep -lsF "$1" /proc/[0-9]*/cmdline; } # WORD: no process has it in its command line

# A command sees its console and no other device, also as root.
(: < /dev/kmsg) # may be opened here
# shellcheck disable=SC2016 # variables of the inner shell
status 7 $cdi claim exec --reuse tools serial:1 -- sh -exc '
    [ "$FLEET_CDI_CLAIM" = fleet.cdi/claim=tools ]
    : < "$FLEET_CDI_DEVICES"
    : < /dev/null
    for other in /dev/tty62 /dev/tty63 /dev/kmsg; do
        [ "$other" = "$FLEET_CDI_DEVICES" ] || if (: < "$other"); then exit 1; fi
    done
    if mknod /tmp/other c 1 11; then exit 1; fi
    exit 7'
none
status 127 $cdi claim exec serial:1 -- no-such-command
status 125 $cdi claim exec serial:3 -- true
none

# It gets signals, and what it leaves is ended.
$cdi claim exec serial:1 -- sh -c 'trap "exit 9" TERM; setsid sleep 12345 & touch /tmp/ready; while :; do sleep 0.1; done' &
wait_for test -e /tmp/ready
rm /tmp/ready
kill -TERM $!
status 9 wait $!
none
ended 12345

# If fleet-cdi is killed, the command is killed, and gc ends what it left before it gives the device back.
$cdi claim exec serial:2 -- sh -c 'setsid sleep 12346 & touch /tmp/ready; exec sleep 12347' &
wait_for test -e /tmp/ready
rm /tmp/ready
kill -KILL $!
wait_for ended 12347
$cdi claim list | grep idle
if ended 12346; then exit 1; fi
$cdi claim gc | grep "given back: exec-"
none
ended 12346

# podman has quadlet since 4.4: the devices come with the unit, stay when its container is started again, and go with the unit.
[ -x /usr/lib/systemd/system-generators/podman-system-generator ] || exit 0
rooted="Rootfs=$root\nExec=/bin/busybox sleep 100000\nNetwork=none\nPodmanArgs=--stop-timeout=0"
rooted="$rooted\nGlobalArgs=--runtime=runc --storage-driver=vfs --cgroup-manager=cgroupfs"
mkdir -p /etc/containers/systemd /etc/systemd/system/fleet-cdi-claim@web.service.d
sed "s|^Image=.*|$rooted|" "$examples/web.container" > /etc/containers/systemd/web.container
cp "$examples/fleet-cdi-claim@.service" /etc/systemd/system
cd /etc/systemd/system/fleet-cdi-claim@web.service.d
sed 's|gpu:1|serial:1|' "$examples/fleet-cdi-claim@web.service.d/request.conf" > request.conf
systemctl daemon-reload
conmon() { systemctl show --property=MainPID --value web.service; }
container() { podman --storage-driver=vfs inspect --format '{{.State.Pid}}' systemd-web; }
sees() {
    nodes=$(find "/proc/$(container)/root/dev" -name 'tty6*')
    [ "${nodes##*/root}" = "$($cdi claim list | sed -n 's/^web .* //p')" ]
}
another() { [ "$(conmon)" != "$1" ] && systemctl --quiet is-active web.service; }
systemctl start web.service
sees
before=$(conmon)
kill -KILL "$before"
wait_for another "$before" # systemd starts the container again
systemctl is-active fleet-cdi-claim@web.service
sees
systemctl stop web.service
wait_for none
rm -r /etc/containers/systemd/web.container /etc/systemd/system/fleet-cdi-claim@*
systemctl daemon-reload
