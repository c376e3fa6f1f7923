# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Define the kubelet's three gRPC interfaces: device plugin v1beta1, plugin registration v1, pod resources v1.

Sources: api.proto of deviceplugin/v1beta1, pluginregistration/v1 and podresources/v1 in pkg/apis of k8s.io/kubelet
0.36; KEP-4009 added `cdi_devices`. The tables replace generated code: code from protoc fails on older or newer
runtimes, and descriptors from a table work on all (docs/architecture.md, section 5). Of podresources the tables have
only the fields that we read; protobuf skips unknown fields. Needs python3-grpcio.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Callable

VERSION = "v1beta1"  # the only version that kubelets accept
KUBELET_SOCKET = "kubelet.sock"  # in the directory of plugins
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"  # the exact texts that kubelets compare with
LONGEST = 4 * 1024 * 1024  # bytes of a message; a kubelet drops a longer one and the resource stays at 0

# Package -> message -> field -> (number, type); "*" before a type: repeated; "map": string to string.
MESSAGES: Mapping[str, Mapping[str, Mapping[str, tuple[int, str]]]] = {
    "v1beta1": {
        "Empty": {},
        "DevicePluginOptions": {
            "pre_start_required": (1, "bool"),
            "get_preferred_allocation_available": (2, "bool"),
        },
        "RegisterRequest": {
            "version": (1, "string"),
            "endpoint": (2, "string"),
            "resource_name": (3, "string"),
            "options": (4, "DevicePluginOptions"),
        },
        "NUMANode": {"ID": (1, "int64")},
        "TopologyInfo": {"nodes": (1, "*NUMANode")},
        "Device": {"ID": (1, "string"), "health": (2, "string"), "topology": (3, "TopologyInfo")},
        "ListAndWatchResponse": {"devices": (1, "*Device")},
        "ContainerPreferredAllocationRequest": {
            "available_deviceIDs": (1, "*string"),
            "must_include_deviceIDs": (2, "*string"),
            "allocation_size": (3, "int32"),
        },
        "PreferredAllocationRequest": {"container_requests": (1, "*ContainerPreferredAllocationRequest")},
        "ContainerPreferredAllocationResponse": {"deviceIDs": (1, "*string")},
        "PreferredAllocationResponse": {"container_responses": (1, "*ContainerPreferredAllocationResponse")},
        "ContainerAllocateRequest": {"devices_ids": (1, "*string")},
        "AllocateRequest": {"container_requests": (1, "*ContainerAllocateRequest")},
        "Mount": {"container_path": (1, "string"), "host_path": (2, "string"), "read_only": (3, "bool")},
        "DeviceSpec": {"container_path": (1, "string"), "host_path": (2, "string"), "permissions": (3, "string")},
        "CDIDevice": {"name": (1, "string")},
        "ContainerAllocateResponse": {
            "envs": (1, "map"),
            "mounts": (2, "*Mount"),
            "devices": (3, "*DeviceSpec"),
            "annotations": (4, "map"),
            "cdi_devices": (5, "*CDIDevice"),
        },
        "AllocateResponse": {"container_responses": (1, "*ContainerAllocateResponse")},
        "PreStartContainerRequest": {"devices_ids": (1, "*string")},
        "PreStartContainerResponse": {},
    },
    "pluginregistration": {
        "InfoRequest": {},
        "PluginInfo": {
            "type": (1, "string"),
            "name": (2, "string"),
            "endpoint": (3, "string"),
            "supported_versions": (4, "*string"),
        },
        "RegistrationStatus": {"plugin_registered": (1, "bool"), "error": (2, "string")},
        "RegistrationStatusResponse": {},
    },
    "v1": {
        "ListPodResourcesRequest": {},
        "AllocatableResourcesRequest": {},
        "ContainerDevices": {"resource_name": (1, "string"), "device_ids": (2, "*string")},
        "CDIDevice": {"name": (1, "string")},
        "ClaimResource": {
            "cdi_devices": (1, "*CDIDevice"),
            "driver_name": (2, "string"),
            "pool_name": (3, "string"),
            "device_name": (4, "string"),
        },
        "DynamicResource": {
            "claim_name": (2, "string"),
            "claim_namespace": (3, "string"),
            "claim_resources": (4, "*ClaimResource"),
        },
        "ContainerResources": {
            "name": (1, "string"),
            "devices": (2, "*ContainerDevices"),
            "dynamic_resources": (5, "*DynamicResource"),
        },
        "PodResources": {"name": (1, "string"), "namespace": (2, "string"), "containers": (3, "*ContainerResources")},
        "ListPodResourcesResponse": {"pod_resources": (1, "*PodResources")},
        "AllocatableResourcesResponse": {"devices": (1, "*ContainerDevices")},
    },
}

# Service -> method -> (request, response, whether the response is a stream), all of the service's package.
SERVICES: Mapping[str, Mapping[str, tuple[str, str, bool]]] = {
    "v1beta1.Registration": {"Register": ("RegisterRequest", "Empty", False)},
    "v1beta1.DevicePlugin": {
        "GetDevicePluginOptions": ("Empty", "DevicePluginOptions", False),
        "ListAndWatch": ("Empty", "ListAndWatchResponse", True),
        "GetPreferredAllocation": ("PreferredAllocationRequest", "PreferredAllocationResponse", False),
        "Allocate": ("AllocateRequest", "AllocateResponse", False),
        "PreStartContainer": ("PreStartContainerRequest", "PreStartContainerResponse", False),
    },
    "pluginregistration.Registration": {
        "GetInfo": ("InfoRequest", "PluginInfo", False),
        "NotifyRegistrationStatus": ("RegistrationStatus", "RegistrationStatusResponse", False),
    },
    "v1.PodResourcesLister": {
        "List": ("ListPodResourcesRequest", "ListPodResourcesResponse", False),
        "GetAllocatableResources": ("AllocatableResourcesRequest", "AllocatableResourcesResponse", False),
    },
}


class Package:
    """The message classes of a package as attributes. Made at the first use, so that an import needs no protobuf."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()  # make the classes once: messages of two makings don't mix

    def __getattr__(self, message: str) -> Any:
        if message not in MESSAGES[self._name]:
            raise AttributeError(f"{self._name} has no message {message}")
        with self._lock:
            if message not in self.__dict__:
                self.__dict__.update(_classes(self._name))
        return self.__dict__[message]


def _classes(package: str) -> dict[str, Any]:
    """Return message name -> class."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name=f"fleet.cdi/{package}.proto", package=package, syntax="proto3")
    for name, fields in MESSAGES[package].items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _add_field(message, f".{package}.", field, number, kind)
    pool = descriptor_pool.DescriptorPool()  # not the default pool, which may have the host's own copy of the API
    pool.Add(file)
    # GetMessageClass exists from 3.22 on. Debian 12 has only the older function; protobuf from 5 on has only this one.
    make = getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory(pool).GetPrototype
    return {name: make(pool.FindMessageTypeByName(f"{package}.{name}")) for name in MESSAGES[package]}


def _add_field(message: Any, scope: str, name: str, number: int, kind: str) -> None:
    field = message.field.add(name=name, number=number, label=3 if kind[0] == "*" or kind == "map" else 1)
    kind = kind.lstrip("*")
    scalars = {"string": 9, "bool": 8, "int32": 5, "int64": 3}  # descriptor.proto, FieldDescriptorProto.Type
    if kind == "map":
        entry = message.nested_type.add(name=name.title().replace("_", "") + "Entry")
        entry.options.map_entry = True
        _add_field(entry, scope, "key", 1, "string")
        _add_field(entry, scope, "value", 2, "string")
        field.type, field.type_name = 11, f"{scope}{message.name}.{entry.name}"
    elif kind in scalars:
        field.type = scalars[kind]
    else:
        field.type, field.type_name = 11, scope + kind


v1beta1 = Package("v1beta1")
registration = Package("pluginregistration")
podresources = Package("v1")
_PACKAGES = {"v1beta1": v1beta1, "pluginregistration": registration, "v1": podresources}


def handler(service: str, methods: Mapping[str, Callable[..., Any]]) -> Any:
    """Return a handler for grpc.server or grpc.aio.server that serves `methods` of `service`, by their names."""
    import grpc

    package = _PACKAGES[service.partition(".")[0]]
    handlers = {}
    for name, method in methods.items():
        request, response, streams = SERVICES[service][name]
        make = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
        handlers[name] = make(
            method, getattr(package, request).FromString, getattr(package, response).SerializeToString
        )
    return grpc.method_handlers_generic_handler(service, handlers)


def stub(channel: Any, service: str) -> SimpleNamespace:
    """Return the methods of `service` over `channel` (grpc.Channel or grpc.aio.Channel), by their names."""
    package = _PACKAGES[service.partition(".")[0]]
    found = {}
    for name, (request, response, streams) in SERVICES[service].items():
        call = channel.unary_stream if streams else channel.unary_unary
        found[name] = call(
            f"/{service}/{name}", getattr(package, request).SerializeToString, getattr(package, response).FromString
        )
    return SimpleNamespace(**found)
