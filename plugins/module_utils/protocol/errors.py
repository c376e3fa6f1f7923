# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The error codes of the protocol and our own codes, and the error that has one.

CDI proposal 2017, "Well-known error codes": 0 to 99 are the proposal's, codes from 100 on the plugin's own.
docs/executables.md shows this table to users; a test compares the two.
"""

from __future__ import annotations

from ..records import CdiError

VERSION = 1
CONFIG_VERSION = 2
COMMAND = 3
RESOURCE_SPEC = 4
REQUEST_ID = 5
UNFULFILLED = 100
INVENTORY = 101
STORE = 102
OWNER = 103
SETUP = 104
TEARDOWN = 105
DELEGATION = 106
CONTENT = 107
TIME = 108
IN_USE = 109
INTERNAL = 110

# Code -> the `message` of a reply. Those of 1, 3, 4 and 5 are the words of the proposal's examples.
MESSAGES = {
    VERSION: "Incompatible CDI version",
    CONFIG_VERSION: "Incompatible CDI version of the config",
    COMMAND: "Command unsupported",
    RESOURCE_SPEC: "resource-spec unsupported",
    REQUEST_ID: "Unknown request ID",
    UNFULFILLED: "Request cannot be fulfilled",
    INVENTORY: "No inventory of this boot",
    STORE: "Store unusable",
    OWNER: "Devices belong to another owner",
    SETUP: "Setup failed",
    TEARDOWN: "Teardown failed",
    DELEGATION: "Delegation failed",
    CONTENT: "Invalid environment or config",
    TIME: "Time limit exceeded",
    IN_USE: "Request ID in use",
    INTERNAL: "Internal error",
}


class ProtocolError(CdiError):
    """The error in an executable's reply: a code of MESSAGES, and details."""

    def __init__(self, code: int, details: str = "", message: str = "") -> None:
        self.code = code
        self.message = message or MESSAGES[code]
        self.details = details
        super().__init__(f"{self.message} (error {code}){': ' if details else ''}{details}")
