"""Sets the fields of any message from keyword arguments. A new field of the server needs no change here."""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import partial
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from permafrost.errors import InputError, Violation, shown


def fill(message: Message, values: Mapping[str, Any], what: str) -> None:
    """Sets the fields of `message`. A key is the name of a field, or of a field of an inner message, such as
    `learning_rate` for `optimizer.learning_rate`. An enum's value goes by its short name ("mse" for LOSS_MSE). A
    message may be given as a dict, or as the short name of its first enum ("adamw" for an OptimizerSpec). A duration
    is a timedelta or seconds. A time is a datetime, an RFC 3339 text, or a timedelta from now.

    what: the caller's name for errors, such as "submit". Errors: InputError that names the field and the accepted
    values.
    """
    own = message.DESCRIPTOR.fields_by_name
    # The fields of inner messages. A name that two of them have is refused as ambiguous.
    inner: dict[str, list[FieldDescriptor]] = {}
    for field in own.values():
        if _is_single_message(field):
            for name in () if _is_time(field) else field.message_type.fields_by_name:
                inner.setdefault(name, []).append(field)
    for name, value in values.items():
        if value is None:
            continue
        if name in own:
            _set(message, own[name], value, name)
        elif len(inner.get(name, ())) == 1:
            parent = inner[name][0]
            child = getattr(message, parent.name)
            _set(child, child.DESCRIPTOR.fields_by_name[name], value, f"{parent.name}.{name}")
        elif name in inner:
            ways = " or ".join(f"{parent.name}={{{name!r}: ...}}" for parent in inner[name])
            raise InputError(f"{what}: {name}: is a field of several; say {ways}")
        else:
            raise InputError(f"{what}: {name}: there is no such field{_nearest(name, [*own, *inner])}")


def too_large(message: Message, most: int) -> InputError:
    """Returns the error for a message of more than `most` bytes. It names the field that takes the most of them."""
    path, size = [], message.ByteSize()
    part: Any = message
    while isinstance(part, Message):
        sizes = [(_bytes_of(field, value), field.name, value) for field, value in part.ListFields()]
        if not sizes:
            break
        size, name, part = max(sizes, key=lambda entry: entry[0])
        path.append(name)
    field = ".".join(path)
    told = f"{size} bytes, and a request has room for {most} in all"
    return InputError(f"{field}: {told}", violations=[Violation(field, told)])


def _bytes_of(field: FieldDescriptor, value: Any) -> int:
    """Returns roughly how many bytes of the message the field takes."""
    if isinstance(value, Mapping):
        return sum(_bytes_of(field, part) for entry in value.items() for part in entry)
    if field.is_repeated and not isinstance(value, (str, bytes, Message)):
        return sum(_bytes_of(field, part) for part in value)
    if isinstance(value, Message):
        return int(value.ByteSize())
    return len(value.encode()) if isinstance(value, str) else len(value) if isinstance(value, bytes) else 8


def enum_name(descriptor: EnumDescriptor, number: int) -> str:
    """Returns the short name of an enum's value: "succeeded" for STATE_SUCCEEDED."""
    value = descriptor.values_by_number.get(number)
    return value.name.removeprefix(_prefix(descriptor)).lower() if value else str(number)


def metric_values(metrics: Iterable[Any]) -> dict[str, float]:
    """Returns MetricValues as {"mae": ...}, in the same order."""
    return {
        enum_name(metric.DESCRIPTOR.fields_by_name["metric"].enum_type, metric.metric): metric.value
        for metric in metrics
    }


def set_labels(target: MutableMapping[str, str], labels: Mapping[Any, Any], what: str) -> None:
    """Copies labels into `target`. Errors: InputError for a key or a value that is not a text."""
    for key, value in labels.items():
        for part in (key, value):
            if not isinstance(part, str):
                raise InputError(
                    f"{what}: labels: {shown(key)}: {shown(part)} is no text; accepted: {shown(str(part))}"
                )
        target[key] = value


def _nearest(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
    return f"; the nearest is {near[0]}" if near else ""


def _is_single_message(field: FieldDescriptor) -> bool:
    return field.type == FieldDescriptor.TYPE_MESSAGE and not field.is_repeated


def _is_time(field: FieldDescriptor) -> bool:
    return field.message_type in (Duration.DESCRIPTOR, Timestamp.DESCRIPTOR)


def _prefix(descriptor: EnumDescriptor) -> str:
    """Returns the common prefix of an enum's names, such as LOSS_ for LOSS_UNSPECIFIED."""
    return str(next(v.name for v in descriptor.values if v.number == 0)).removesuffix("UNSPECIFIED")


def _enum_number(descriptor: EnumDescriptor, value: Any, name: str) -> int:
    if isinstance(value, int):
        return value
    short = str(value).replace("-", "_").upper()
    for candidate in (short, _prefix(descriptor) + short):
        if candidate in descriptor.values_by_name:
            return int(descriptor.values_by_name[candidate].number)
    accepted = ", ".join(enum_name(descriptor, v.number) for v in descriptor.values if v.number)
    raise InputError(f"{name}: {shown(value)} is none of {accepted}")


def _set(message: Message, field: FieldDescriptor, value: Any, name: str) -> None:
    if field.is_repeated:
        if isinstance(value, str) or not hasattr(value, "__iter__"):
            value = [value]
        target = getattr(message, field.name)
        del target[:]
        for i, item in enumerate(value):
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                _merge(target.add(), item, f"{name}[{i}]")
            else:
                _guard(partial(_append, target, field, item, name), f"{name}[{i}]", item)
        return
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        child = getattr(message, field.name)
        child.SetInParent()
        _merge(child, value, name)
        return
    _guard(lambda: setattr(message, field.name, _scalar(field, value, name)), name, value)


def _append(target: Any, field: FieldDescriptor, item: Any, name: str) -> None:
    target.append(_scalar(field, item, name))


def _scalar(field: FieldDescriptor, value: Any, name: str) -> Any:
    if field.type == FieldDescriptor.TYPE_ENUM:
        return _enum_number(field.enum_type, value, name)
    # Notebooks often pass numpy's numbers.
    return value.item() if hasattr(value, "item") and not isinstance(value, (str, bytes)) else value


def _guard(assign: Callable[[], None], name: str, value: Any) -> None:
    try:
        assign()
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name}: {shown(value)}: {error}") from None


def _set_time(message: Message, value: Any, name: str) -> None:
    """Sets a Duration from a timedelta or seconds, or a Timestamp from a datetime, RFC 3339 text, or a timedelta from
    now."""
    ahead = value if isinstance(value, datetime.timedelta) else None
    if isinstance(message, Duration):
        if ahead is None and isinstance(value, (int, float)) and not isinstance(value, bool):
            ahead = datetime.timedelta(seconds=value)
        if ahead is None:
            raise InputError(f"{name}: {shown(value)}: a datetime.timedelta or seconds are expected")
        message.FromTimedelta(ahead)
        return
    if isinstance(value, str):
        _guard(lambda: message.FromJsonString(value), name, value)
        return
    moment = datetime.datetime.now(datetime.timezone.utc) + ahead if ahead is not None else value
    if not isinstance(moment, datetime.datetime) or moment.tzinfo is None:
        raise InputError(
            f"{name}: {shown(value)}: a datetime.datetime with a time zone, a text of RFC 3339, or a "
            "datetime.timedelta from now on is expected"
        )
    message.FromDatetime(moment)


def _merge(message: Message, value: Any, name: str) -> None:
    if isinstance(value, type(message)):
        message.CopyFrom(value)
    elif isinstance(message, (Duration, Timestamp)):
        _set_time(message, value, name)
    elif isinstance(value, Mapping):
        fill(message, value, name)
    elif isinstance(value, str):
        enums = [f for f in message.DESCRIPTOR.fields if f.type == FieldDescriptor.TYPE_ENUM and not f.is_repeated]
        if not enums:
            raise InputError(f"{name}: {shown(value)}: a dict of its fields is expected")
        _set(message, enums[0], value, name)
    else:
        raise InputError(f"{name}: {shown(value)}: a dict of its fields is expected")
