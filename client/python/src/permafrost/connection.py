"""Where the server is, and calls to it whose errors are those of `permafrost.errors`."""

from __future__ import annotations

import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc

from permafrost.errors import Aborted, InputError, PermafrostError, Unavailable, from_rpc
from permafrost.v1 import dataset_pb2_grpc, graph_cache_pb2_grpc, job_pb2_grpc, server_pb2_grpc

DEFAULT_TARGET = "127.0.0.1:7433"
_Response = TypeVar("_Response")


def find_target(target: str | None, state_dir: str | os.PathLike[str] | None) -> str:
    """The first of these that is given: `target`, the endpoint.json of `state_dir`, $PERMAFROST_SERVER, the daemon's
    default address."""
    if target is not None:
        return target
    if state_dir is not None:
        path = pathlib.Path(state_dir) / "endpoint.json"
        try:
            return str(json.loads(path.read_text())["grpc"])
        except FileNotFoundError:
            raise Unavailable(f"{path}: not found; no permafrostd serves from this state directory") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: says no address: {error}") from None
    return os.environ.get("PERMAFROST_SERVER") or DEFAULT_TARGET


class Connection:
    """A channel to one server and its stubs. Threads: all methods are safe anywhere."""

    def __init__(self, target: str, timeout: float, patience: float) -> None:
        self.target = target
        self.timeout = timeout
        # How long a server that went away is waited for while something of it is followed.
        self.patience = patience
        self.channel = grpc.insecure_channel(
            target,
            options=[
                # A job of a million epochs has a history beyond gRPC's default of 4 MiB.
                ("grpc.max_receive_message_length", -1),
                # The daemon is near; a proxy set for the web would only stand in the way.
                ("grpc.enable_http_proxy", 0),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 1000),
            ],
        )
        self.datasets = dataset_pb2_grpc.DatasetServiceStub(self.channel)
        self.jobs = job_pb2_grpc.JobServiceStub(self.channel)
        self.caches = graph_cache_pb2_grpc.GraphCacheServiceStub(self.channel)
        self.server = server_pb2_grpc.ServerServiceStub(self.channel)

    def call(self, method: Callable[..., _Response], request: Any, timeout: float | None = None) -> _Response:
        """The answer to one request."""
        try:
            return method(request, timeout=timeout or self.timeout)
        except grpc.RpcError as error:
            raise from_rpc(error, self.target) from None

    def stream(self, method: Callable[..., Any], request: Any) -> Iterator[Any]:
        """The answers of a server stream, without a time limit. Closing the iterator cancels the call."""
        call = method(request)
        try:
            yield from call
        except grpc.RpcError as error:
            raise from_rpc(error, self.target) from None
        finally:
            call.cancel()

    def follow(self, method: Callable[..., Any], make_request: Callable[[], Any]) -> Iterator[Any]:
        """As `stream`, but begun anew, with another request, where the server goes away and is back in time."""
        lost_at: float | None = None
        while True:
            try:
                for response in self.stream(method, make_request()):
                    lost_at = None
                    yield response
                return
            except (Unavailable, Aborted) as error:
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > self.patience:
                    raise
                self.pause(error)

    def patiently(self, attempt: Callable[[], _Response]) -> _Response:
        """What `attempt` returns, tried again while no server answers or the server asks for it, `patience` at most."""
        began = time.monotonic()
        while True:
            try:
                return attempt()
            except PermafrostError as error:
                again = isinstance(error, Unavailable) or error.retry_after is not None
                if not again or time.monotonic() - began > self.patience:
                    raise
                self.pause(error)

    def pause(self, error: PermafrostError) -> None:
        """Before another try: as long as the server asked for, else until it is there, some seconds at most."""
        if error.retry_after is not None:
            time.sleep(min(5.0, error.retry_after))
            return
        # A call alone would only learn that the last attempt to connect failed.
        ready = grpc.channel_ready_future(self.channel)
        try:
            ready.result(timeout=1.0)
        except grpc.FutureTimeoutError:
            ready.cancel()
        # A server that refuses at once is not asked without end.
        time.sleep(0.05)
