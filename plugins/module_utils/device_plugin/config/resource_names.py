# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check names of extended resources by the rules of the kubelet.

The rules are IsExtendedResourceName in pkg/apis/core/v1/helper of k8s.io/kubernetes, and IsQualifiedName of
k8s.io/apimachinery, which it calls with "requests." before the name.
"""

from __future__ import annotations

import re

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*\Z")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z")

LONGEST_NAME = 63
LONGEST_DOMAIN = 253 - len("requests.")

NATIVE = "kubernetes.io/"  # at any place: example-kubernetes.io/x counts, too
QUOTA = "requests."


def why_no_resource(name: str) -> str:
    """Return the rule that `name` breaks as the name of an extended resource, "" if the kubelet accepts it."""
    domain, slash, rest = name.partition("/")
    if not slash:
        return "a domain and a name, as in example.com/gpu"
    if NATIVE in name:
        return "a domain that does not end in kubernetes.io, which Kubernetes keeps for itself"
    if name.startswith(QUOTA):
        return f"a domain that does not start with {QUOTA!r}, which Kubernetes keeps for quotas"
    if len(domain) > LONGEST_DOMAIN or not _DOMAIN.match(domain):
        return f"a domain of at most {LONGEST_DOMAIN} lower-case letters, digits, '-' and '.'"
    if len(rest) > LONGEST_NAME or not _NAME.match(rest):
        return f"a name of at most {LONGEST_NAME} letters, digits, '-', '_' and '.' behind one slash"
    return ""
