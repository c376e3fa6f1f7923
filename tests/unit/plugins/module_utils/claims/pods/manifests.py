# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random pod manifests that are right, for properties of all of them."""

from __future__ import annotations

from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods.pod_manifest import OPAQUE, REFERENCE

RESOURCES = {"acme.com/gpu": "gpu", "acme.com/console": "tty"}
NAMES = [f"{OPAQUE}gpu", f"{OPAQUE}tty", f"{OPAQUE}gpu-memory", "acme.com/console"]
LABELS = st.sampled_from(["a", "b-c", "a-b", "c", "x" * 63])
NAMESPACES = st.sampled_from([None, "default", "team-a"])


def requests(least=0):
    """Requests of one spelling for each resource."""
    some = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3) | st.just("2"), min_size=least, max_size=3)
    return some.filter(lambda found: not {NAMES[1], NAMES[3]} <= set(found))


def metadata(name, namespace):
    return {"name": name, **({} if namespace is None else {"namespace": namespace})}


@st.composite
def manifests(draw, most_pods=3):
    """Some ResourceRequests, and pods that use them."""
    names = draw(st.lists(LABELS, max_size=3, unique=True))
    namespace = draw(NAMESPACES)
    documents = [
        {
            "kind": "ResourceRequest",
            "metadata": metadata(name, namespace),
            "spec": {"resources": {"requests": draw(requests(1))}},
        }
        for name in names
    ]
    for pod in draw(st.lists(LABELS, min_size=1, max_size=most_pods, unique=True)):
        of_pod = draw(requests())
        containers = []
        for number, name in enumerate(draw(st.lists(LABELS, min_size=1, max_size=3, unique=True))):
            shared = [{REFERENCE: name} for name in names if draw(st.booleans())]
            shared += [name for name in of_pod if not number or draw(st.booleans())]
            containers.append({"name": name, "resources": {"requests": draw(requests()), "shared": shared}})
        spec = {"resources": {"requests": {"cpu": 1, **of_pod}}, "containers": containers}
        documents.append({"kind": "Pod", "metadata": metadata(pod, namespace), "spec": spec})
    return documents
