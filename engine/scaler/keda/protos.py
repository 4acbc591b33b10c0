"""The messages of KEDA's external scalers, from the interface's public documentation.

Their descriptors are built here, in a pool of their own: there is no generated code that would need one version of
protobuf.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "externalscaler"
SERVICE = f"{PACKAGE}.ExternalScaler"

_FIELD = descriptor_pb2.FieldDescriptorProto
_STRING, _BOOL, _INT64, _DOUBLE = _FIELD.TYPE_STRING, _FIELD.TYPE_BOOL, _FIELD.TYPE_INT64, _FIELD.TYPE_DOUBLE

# message -> fields in the order of their numbers; a name is a message's, in brackets if there may be several
_MESSAGES: dict[str, list[tuple[str, Any]]] = {
    "ScaledObjectRef": [("name", _STRING), ("namespace", _STRING), ("scalerMetadata", dict)],
    "IsActiveResponse": [("result", _BOOL)],
    "MetricSpec": [("metricName", _STRING), ("targetSize", _INT64), ("targetSizeFloat", _DOUBLE)],
    "GetMetricSpecResponse": [("metricSpecs", ["MetricSpec"])],
    "GetMetricsRequest": [("scaledObjectRef", "ScaledObjectRef"), ("metricName", _STRING)],
    "MetricValue": [("metricName", _STRING), ("metricValue", _INT64), ("metricValueFloat", _DOUBLE)],
    "GetMetricsResponse": [("metricValues", ["MetricValue"])],
}


class Method(NamedTuple):
    """A method of the service, with the classes of its messages."""

    name: str
    request: Any
    response: Any
    is_stream: bool = False


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="externalscaler.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, start=1):
            _add_field(message, field, number, kind)
    return file


def _add_field(message: Any, name: str, number: int, kind: Any) -> None:
    if kind is dict:  # map<string, string>, which is a message for each entry
        entry = message.nested_type.add(name=f"{name[0].upper()}{name[1:]}Entry")
        entry.options.map_entry = True
        _add_field(entry, "key", 1, _STRING)
        _add_field(entry, "value", 2, _STRING)
        kind = [f"{message.name}.{entry.name}"]
    is_many = isinstance(kind, list)
    field = message.field.add(
        name=name, number=number, label=_FIELD.LABEL_REPEATED if is_many else _FIELD.LABEL_OPTIONAL
    )
    of = kind[0] if is_many else kind
    if isinstance(of, str):
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{PACKAGE}.{of}"
    else:
        field.type = of


def _make_classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in _MESSAGES
    }


CLASSES = _make_classes()
METHODS = {
    method.name: method
    for method in (
        Method("IsActive", CLASSES["ScaledObjectRef"], CLASSES["IsActiveResponse"]),
        Method("StreamIsActive", CLASSES["ScaledObjectRef"], CLASSES["IsActiveResponse"], is_stream=True),
        Method("GetMetricSpec", CLASSES["ScaledObjectRef"], CLASSES["GetMetricSpecResponse"]),
        Method("GetMetrics", CLASSES["GetMetricsRequest"], CLASSES["GetMetricsResponse"]),
    )
}
