# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about the settings of roles, and the options of modules."""

from __future__ import annotations

from ..explanation import Explanation

EXPLANATIONS = (
    Explanation(
        id="FC1101",
        title="A value is not the expected one",
        messages=(
            ": found *; expected",
            "found the unknown *; expected one of",
            ": is missing; expected",
            ": is set; expected",
            ": is empty; expected",
            ": is not a resource name; expected",
            "is missing; every such entry needs it",
            "found the unknown *; did you mean",
            "found a layer of * with a name like that of",
            "There are more faults than these *; correct these first",
        ),
        means="The message names the field, the value found, and the values that are allowed.",
        why=(
            "A wrong value is refused before anything is changed. Otherwise a typing error would take effect on "
            "every host."
        ),
        do=(
            "Correct the field in your settings, in the task or in the file that the message names. If it ends with "
            "a question (`did you mean ...?`), the answer is most often yes."
        ),
        more="ansible-doc -t module fleet.cdi.cdi_host",
    ),
    Explanation(
        id="FC1102",
        title="The controller has no jsonschema",
        messages=("the controller's Python can't import jsonschema",),
        means=(
            "The check of the settings runs on the controller, with the Python of Ansible. That Python has no "
            "jsonschema."
        ),
        why="The check compares all settings with one schema before any host is touched.",
        do="Install jsonschema for the Python that the message names, with the command in the message.",
        more="ansible --version",
    ),
    Explanation(
        id="FC1103",
        title="A variable of the role is not set",
        messages=("is not set; expected the name of a variable that is set",),
        means="The lookup fleet.cdi.setting was asked for a variable that no file and no default sets.",
        why="An empty value would look like a decision of the administrator.",
        do="Check the spelling of the variable, or set it in group_vars or host_vars.",
        more="ansible-inventory --host HOST",
    ),
    Explanation(
        id="FC1104",
        title="The task sets an option that Ansible fills in",
        messages=("is filled in by * itself; remove it from the task",),
        means="The action plugin sets this option. A value in the task would be lost.",
        why="The option carries the release of the controller, which a task can't know.",
        do="Remove the option from the task.",
        more="ansible-doc -t module fleet.cdi.host_release",
    ),
    Explanation(
        id="FC1105",
        title="Two options exclude each other",
        messages=(
            "found release_on_stop and keep; expected one of them",
            "found --release-on-stop with --for *; expected one of them",
            "spec_dirs: is given with state disabled, which reads none",
            "is given with state disabled",
        ),
        means="Both options are valid, but not together.",
        why="They say opposite things, and fleet.cdi does not choose between them.",
        do="Leave out one of the two. The message says what each of them would do.",
        more="fleet-cdi claim --help",
    ),
    Explanation(
        id="FC1106",
        title="A reason is missing",
        messages=("reason: found none; expected one line that tells",),
        means="A device can be taken out of service only with a reason.",
        why="The next operator sees the device missing and has to know why.",
        do="Write one line: the fault of the device, and who knows more.",
        more="fleet-cdi devices",
    ),
    Explanation(
        id="FC1107",
        title="A time is not understood, or is over",
        messages=(
            "until: found *; expected a date or a time of UTC",
            "until: found *, which is over; expected a time to come",
            "until: * is over, so * is in service",
        ),
        means="A device is out of service until a time. The time has another form, or is in the past.",
        why="A time in the past would end the state at once.",
        do=(
            "Write a date (2026-12-01), a time of UTC (2026-12-01T18:00Z), or a duration on the command line (12h, 3d)."
        ),
        more="fleet-cdi device --help",
    ),
    Explanation(
        id="FC1108",
        title="The file of settings can be changed by others",
        messages=("so other users can change these settings of root",),
        means="Root, or a timer, brings this host to the state of this file. Another user may write to the file.",
        why="That user would control root.",
        do="Give the file to root: `chown root: FILE && chmod go-w FILE`.",
        more="ls -l FILE",
    ),
    Explanation(
        id="FC1109",
        title="A host has no entry for devices",
        messages=("so no device is offered *; expected entries by name",),
        means="A warning. `cdi_host_devices` and the variables like it have no entry for this host.",
        why="The role would install everything and offer nothing. Most often a group is missing in the inventory.",
        do="Add an entry such as `gpus: {profile: drm}` to a group of the host.",
        more="ansible-inventory --host HOST",
    ),
    Explanation(
        id="FC1110",
        title="A variable has a new name",
        messages=("The variable * has a new name, *. Rename it in your settings.",),
        means="A warning. Your settings use the old name of a variable. It still works in this release.",
        why=(
            "Names of variables change only with a time in which both work. The message of Ansible says with which "
            "release that time ends."
        ),
        do="Rename the variable in group_vars and host_vars. The value stays the same.",
        more="ansible-inventory --host HOST",
    ),
    Explanation(
        id="FC1111",
        title="A template in the settings has no value",
        messages=("which has no value before a host is contacted: *",),
        means=(
            "A setting is a template, and a variable in it is not defined. The end of the message is what Ansible says."
        ),
        why=(
            "The settings are checked before the first host is contacted. An undefined variable would stop the run in "
            "the middle."
        ),
        do=(
            "Define the variable, or correct its name. Facts of a host, such as `ansible_facts`, may stand in a "
            "template: they are known later."
        ),
        more="ansible-inventory --host HOST",
    ),
)
