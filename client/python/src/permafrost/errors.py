"""The errors that this package raises: one class for each canonical code, and three of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2


@dataclass(frozen=True)
class Violation:
    """A field that was refused, and why."""

    field: str
    description: str


# The most characters of a message. A longer one mostly repeats a value, and says nothing more about what is wrong
# with it.
_MOST = 4000


def shown(value: Any) -> str:
    """Returns a value as errors show it: its repr, cut if long."""
    text = repr(value[:200] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= 80 else text[:77] + "..."


class PermafrostError(Exception):
    """A failure that the server or the connection reported; `str()` is one line.

    code: the canonical code, such as "INVALID_ARGUMENT".
    violations: the fields that were refused.
    reason, metadata: for programs, such as "DATASET_NOT_FOUND" and {"dataset": "zinc"}.
    retry_after: seconds after which a retry may succeed; None if the server gave no time.
    """

    code = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        violations: Sequence[Violation] = (),
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        line = " ".join(message.split())
        super().__init__(line if len(line) <= _MOST else line[: _MOST - 3] + "...")
        self.code = code or type(self).code
        self.violations = tuple(violations)
        self.reason = reason
        self.metadata = dict(metadata or {})
        self.retry_after = retry_after


class InvalidArgument(PermafrostError):
    code = "INVALID_ARGUMENT"


class NotFound(PermafrostError):
    code = "NOT_FOUND"


class AlreadyExists(PermafrostError):
    code = "ALREADY_EXISTS"


class PermissionDenied(PermafrostError):
    code = "PERMISSION_DENIED"


class Unauthenticated(PermafrostError):
    """The call has no token, or one that is unknown, expired or revoked."""

    code = "UNAUTHENTICATED"


class FailedPrecondition(PermafrostError):
    code = "FAILED_PRECONDITION"


class ResourceExhausted(PermafrostError):
    code = "RESOURCE_EXHAUSTED"


class Unavailable(PermafrostError):
    """No server answers, or it is about to stop."""

    code = "UNAVAILABLE"


class DeadlineExceeded(PermafrostError):
    code = "DEADLINE_EXCEEDED"


class Cancelled(PermafrostError):
    code = "CANCELLED"


class Aborted(PermafrostError):
    code = "ABORTED"


class DataLoss(PermafrostError):
    code = "DATA_LOSS"


class Internal(PermafrostError):
    code = "INTERNAL"


class Unimplemented(PermafrostError):
    """The server is older than this package."""

    code = "UNIMPLEMENTED"


class InputError(PermafrostError, ValueError):
    """An argument cannot be sent. The client found this before it asked the server. The `field` of a violation is a
    row and column, or the name of an argument."""

    code = "INPUT"


class ImportFailed(PermafrostError):
    """An import that the server accepted has failed; the message names file, line and value."""

    code = "IMPORT_FAILED"


class JobFailed(PermafrostError):
    """A job that was waited for has failed or was cancelled."""

    code = "JOB_FAILED"


_OF_CODE = {
    cls.code: cls
    for cls in (
        InvalidArgument,
        NotFound,
        AlreadyExists,
        PermissionDenied,
        Unauthenticated,
        FailedPrecondition,
        ResourceExhausted,
        Unavailable,
        DeadlineExceeded,
        Cancelled,
        Aborted,
        DataLoss,
        Internal,
        Unimplemented,
    )
}
_DETAILS_KEY = "grpc-status-details-bin"


def needs(what: str, extra: str, error: ImportError) -> InputError:
    """Returns the error for a missing package of an extra."""
    return InputError(f"{what} needs the package {error.name}: pip install 'permafrost-client[{extra}]'")


def from_rpc(error: grpc.RpcError, target: str) -> PermafrostError:
    """Returns the exception for a failed call. Error details that cannot be parsed are left out."""
    code: grpc.StatusCode = error.code()
    name = code.name
    message = error.details() or name
    fields: dict[str, Any] = {"violations": [], "reason": "", "metadata": {}, "retry_after": None}
    answered = False
    for key, value in error.trailing_metadata() or ():
        if key != _DETAILS_KEY:
            continue
        answered = True
        try:
            _read_details(status_pb2.Status.FromString(value), fields)
        except DecodeError:
            continue
    if code is grpc.StatusCode.UNAVAILABLE and not answered:
        message = (
            f"no server answers at {target} (start permafrostd, or name another with Client(target=...) or "
            f"PERMAFROST_SERVER): {message}"
        )
    elif code is grpc.StatusCode.DEADLINE_EXCEEDED and not answered:
        message = (
            f"no answer from {target} in time (wait longer with Client(timeout=SECONDS)); "
            "what the call was to change may have been changed all the same"
        )
    return _OF_CODE.get(name, PermafrostError)(message, code=name, **fields)


def _read_details(status: status_pb2.Status, fields: dict[str, Any]) -> None:
    for packed in status.details:
        bad_request = error_details_pb2.BadRequest()
        info = error_details_pb2.ErrorInfo()
        retry = error_details_pb2.RetryInfo()
        if packed.Unpack(bad_request):
            fields["violations"] += [Violation(v.field, v.description) for v in bad_request.field_violations]
        elif packed.Unpack(info):
            fields["reason"] = info.reason
            fields["metadata"] = dict(info.metadata)
        elif packed.Unpack(retry):
            fields["retry_after"] = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
