"""Several servers. Each job goes to the server that can begin it first."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from permafrost import fields
from permafrost.client import Client
from permafrost.errors import (
    FailedPrecondition,
    InputError,
    InvalidArgument,
    NotFound,
    PermafrostError,
    ResourceExhausted,
)
from permafrost.job import Job
from permafrost.jobs import job_request
from permafrost.modules import is_module
from permafrost.public import own_errors
from permafrost.v1 import job_pb2

if TYPE_CHECKING:
    from permafrost.datasets import Dataset

_NAMESPACE = uuid.UUID("5d1b1a52-7c0e-4b8e-9d5f-2f6f3c1f8a10")
_ENDED = ("unspecified", "succeeded", "failed", "cancelled")
_UNFINISHED = [
    name
    for value in job_pb2.Job.State.DESCRIPTOR.values
    if (name := fields.enum_name(job_pb2.Job.State.DESCRIPTOR, value.number)) not in _ENDED
]


@own_errors
class Servers:
    """Several servers with equal data. Threads: all methods are thread-safe. It is a context manager; `close()` ends
    it.

    targets: HOST:PORT or unix:PATH of each server, or a `Client`, which `close()` closes too.
    options: arguments for each `Client` that is made: timeout, token_file, ca_cert ...
    """

    def __init__(self, targets: Sequence[Client | str], **options: Any) -> None:
        if isinstance(targets, str) or not targets:
            raise InputError(f"Servers: targets: {targets!r}; accepted: a list of addresses or clients")
        self.clients = [target if isinstance(target, Client) else Client(target, **options) for target in targets]

    def submit(
        self,
        dataset: Dataset | str,
        model: Any = None,
        *,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Job:
        """Queues a job on the server that can begin it first; `Job.target` says which one.

        The first choice is an idle server, then the one with the fewest jobs ahead of this one, then the first named.
        A server that refuses the job for its memory, device or limits is skipped with a warning. Dataset and program
        must be equal on all servers.
        model, labels, spec: as in `Jobs.submit`. A torch.nn.Module is refused: name a program that all servers have.
            init_from is refused, since its weights are on one server only.
        id: a repeated call with the same id and spec returns the earlier job.
        Errors: those of `Jobs.submit`; FailedPrecondition if a server drains or has other data; Unavailable if a
        server is away, since it may have the job.
        """
        if is_module(model):
            raise InputError("submit: model: a module; accepted: a program that all servers have")
        if spec.get("init_from") is not None:
            raise InputError("submit: init_from: its weights are on one server")
        request = job_request(dataset, model, id, spec, labels)
        if id is not None:
            request.request_id = _repeatable_id(request)
            for client in self.clients:
                try:
                    with _naming(client):
                        client.jobs.get(id)
                except NotFound:
                    continue
                return client.jobs._submit(request)
        return self._place(request).jobs._submit(request)

    def queue(self) -> dict[str, list[Job]]:
        """Returns the unfinished jobs by server: those on the device, then queued ones by priority and age, then
        paused ones. A server that does not answer is left out with a warning."""
        found = {}
        for client in self.clients:
            try:
                found[client.target] = sorted(client.jobs.list(*_UNFINISHED), key=_turn)
            except PermafrostError as error:
                warnings.warn(str(error), stacklevel=2)
        return found

    def _place(self, request: Any) -> Client:
        """Returns the server for the job, by the rule of client/server_group.h."""
        seen: dict[Any, Client] = {}
        loads: list[tuple[bool, int, int]] = []
        for client in self.clients:
            with _naming(client):
                info = client.server_info()
                if info.draining:
                    raise FailedPrecondition("the server is draining and takes no jobs")
                waiting = [job for job in client.jobs.list(*_UNFINISHED) if job.state != "paused"]
            other = seen.setdefault((info.process_id, info.state_dir, info.start_time.ToNanoseconds()), client)
            if other is not client:
                raise InputError(f"submit: {client.target} and {other.target} are the same server; name each once")
            ahead = sum(job.proto.spec.priority >= request.spec.priority for job in waiting)
            loads.append((bool(waiting), ahead, len(loads)))
        self._check_equal(request.spec.dataset, lambda client, name: client.datasets.get(name).content_checksum)
        if request.spec.model.program:
            self._check_equal(request.spec.model.program, lambda client, name: client.programs.get(name).xxh3)
        refusals: list[PermafrostError] = []
        for _, _, index in sorted(loads):
            client = self.clients[index]
            try:
                with _naming(client):
                    client.jobs._create(request, validate_only=True)
            except (InvalidArgument, ResourceExhausted) as error:
                refusals.append(error)
                continue
            for refusal in refusals:
                warnings.warn(f"passed over: {refusal}", stacklevel=3)
            return client
        raise refusals[0]

    def _check_equal(self, name: str, checksum: Callable[[Client, str], str]) -> None:
        found = {}
        for client in self.clients:
            with _naming(client):
                found[client.target] = checksum(client, name.partition("/")[2])
        if len(set(found.values())) > 1 or "" in found.values():
            told = ", ".join(f"{target} {value or 'none'}" for target, value in found.items())
            raise FailedPrecondition(f"{name}: accepted: equal content on all servers; checksums: {told}")

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def __enter__(self) -> Servers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Servers({[client.target for client in self.clients]!r})"


def _turn(job: Job) -> tuple[int, int, int]:
    group = {"queued": 1, "paused": 2}.get(job.state, 0)
    return (group, -job.proto.spec.priority, job.proto.create_time.ToNanoseconds())


def _repeatable_id(request: Any) -> str:
    """Returns an id that is equal for equal jobs of one id, so that the server finds the first job. The server does
    not compare the fields that are cleared here."""
    spec = job_pb2.JobSpec()
    spec.CopyFrom(request.spec)
    for name in ("deadline", "max_runtime", "priority"):
        spec.ClearField(name)
    return str(uuid.uuid5(_NAMESPACE, f"{request.job_id} {spec.SerializeToString(deterministic=True).hex()}"))


@contextmanager
def _naming(client: Client) -> Iterator[None]:
    """Adds the server's address to errors."""
    try:
        yield
    except PermafrostError as error:
        raise type(error)(
            f"{client.target}: {error}",
            code=error.code,
            violations=error.violations,
            reason=error.reason,
            metadata=error.metadata,
            retry_after=error.retry_after,
        ) from error
