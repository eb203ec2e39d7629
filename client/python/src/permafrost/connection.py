"""Finds the server, and calls it. Failed calls raise the errors of `permafrost.errors`."""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import pathlib
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, Union

import grpc

from permafrost import fields
from permafrost.errors import Aborted, Cancelled, InputError, PermafrostError, ResourceExhausted, Unavailable, from_rpc
from permafrost.v1 import dataset_pb2_grpc, graph_cache_pb2_grpc, job_pb2_grpc, program_pb2_grpc, server_pb2_grpc

_LOG = logging.getLogger("permafrost")
DEFAULT_TARGET = "127.0.0.1:7433"
# The server refuses a request of more bytes than this.
MOST_BYTES = 1 << 20
_Response = TypeVar("_Response")


@dataclass(frozen=True)
class Credentials:
    """How a connection is protected, and the token that identifies the caller. Errors name a file or a variable,
    never its content."""

    token: str = field(default="", repr=False)
    tls: bool = False
    ca_cert: bytes | None = None
    client_cert: bytes | None = None
    client_key: bytes | None = field(default=None, repr=False)


_Path = Union[str, "os.PathLike[str]", None]


def find_credentials(
    target: str,
    token: str | None = None,
    token_file: _Path = None,
    tls: bool | None = None,
    ca_cert: _Path = None,
    client_cert: _Path = None,
    client_key: _Path = None,
) -> Credentials:
    """Takes each credential from its argument, else from PERMAFROST_TOKEN, PERMAFROST_TOKEN_FILE, PERMAFROST_TLS,
    PERMAFROST_CA_CERT, PERMAFROST_CLIENT_CERT or PERMAFROST_CLIENT_KEY. Errors: InputError for a file that cannot be
    read, a certificate without its key, or a token that would travel in plain text."""

    def content(name: str, path: _Path) -> bytes | None:
        path = path or os.environ.get(f"PERMAFROST_{name.upper()}") or None
        try:
            return None if path is None else pathlib.Path(path).read_bytes()
        except OSError as error:
            raise InputError(f"{name}: {path}: cannot read: {error.strerror}") from None

    if token is None and token_file is None:
        token = os.environ.get("PERMAFROST_TOKEN") or None
    if token is None:
        token = (content("token_file", token_file) or b"").decode(errors="replace")
    token = token.strip()
    if not all(33 <= ord(character) <= 126 for character in token):
        raise InputError("token: is none: accepted: one line, as pft_...")
    ca, cert, key = content("ca_cert", ca_cert), content("client_cert", client_cert), content("client_key", client_key)
    if (cert is None) != (key is None):
        raise InputError("client_cert and client_key: one is given without the other: accepted: both")
    if tls is None:
        tls = os.environ.get("PERMAFROST_TLS", "").lower() in ("1", "true", "yes", "t", "y")
    tls = tls or ca is not None or cert is not None
    if token and not tls and not _stays_here(target):
        raise InputError(f"token: it would travel to {target} in plain text: accepted: ca_cert or tls, or no token")
    return Credentials(token, tls, ca, cert, key)


def _stays_here(target: str) -> bool:
    """Returns whether data for this target never leave this machine."""
    host = target.rpartition(":")[0].strip("[]")
    try:
        return target.startswith("unix:") or host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _tell_passed_over(ended: Any) -> None:
    """Warns if the server skipped state changes because this client read them too slowly."""
    for key, value in ended.trailing_metadata() or ():
        if key == "permafrost-dropped-states":
            _LOG.warning("%s changes were passed over: they came faster than they were taken", value)


class _Call(NamedTuple):
    """The details of a call that gRPC lets an interceptor change."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class _TokenGiver(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
):
    """Adds the token to each call."""

    def __init__(self, token: str) -> None:
        self._header = ("authorization", f"Bearer {token}")

    def _give(self, proceed: Callable[..., Any], details: Any, request: Any) -> Any:
        metadata = [*(details.metadata or ()), self._header]
        wait, compression = getattr(details, "wait_for_ready", None), getattr(details, "compression", None)
        call = _Call(details.method, details.timeout, metadata, details.credentials, wait, compression)
        return proceed(call, request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = _give


def find_target(target: str | None, state_dir: str | os.PathLike[str] | None) -> str:
    """Returns the first of these that is given: `target`, the address in the endpoint.json of `state_dir`,
    $PERMAFROST_SERVER, the daemon's default address. From endpoint.json it takes the unix socket if the address needs
    a token or TLS."""
    if target is not None:
        return target
    if state_dir is not None:
        path = pathlib.Path(state_dir) / "endpoint.json"
        try:
            endpoint = json.loads(path.read_text())
            guarded = endpoint.get("auth") == "token" or endpoint.get("tls")
            return f"unix:{endpoint['socket']}" if guarded and endpoint.get("socket") else str(endpoint["grpc"])
        except FileNotFoundError:
            raise Unavailable(f"{path}: not found; no permafrostd serves from this state directory") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: says no address: {error}") from None
    return os.environ.get("PERMAFROST_SERVER") or DEFAULT_TARGET


class Connection:
    """A channel to one server and its stubs. Threads: all methods are thread-safe."""

    def __init__(self, target: str, timeout: float, patience: float, credentials: Credentials | None = None) -> None:
        self.target = target
        self.timeout = timeout
        # The seconds to wait for a server that went away while a stream or a change is under way.
        self.patience = patience
        self._closed = False
        options = [
            # A job of a million epochs has a history beyond gRPC's default of 4 MiB.
            ("grpc.max_receive_message_length", -1),
            # The daemon is near, so a proxy that is set for the web is ignored.
            ("grpc.enable_http_proxy", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        credentials = credentials or Credentials()
        if credentials.tls:
            security = grpc.ssl_channel_credentials(
                credentials.ca_cert, credentials.client_key, credentials.client_cert
            )
            self.channel = grpc.secure_channel(target, security, options=options)
        else:
            self.channel = grpc.insecure_channel(target, options=options)
        calls = self.channel
        if credentials.token:
            calls = grpc.intercept_channel(self.channel, _TokenGiver(credentials.token))
        self.datasets = dataset_pb2_grpc.DatasetServiceStub(calls)
        self.jobs = job_pb2_grpc.JobServiceStub(calls)
        self.caches = graph_cache_pb2_grpc.GraphCacheServiceStub(calls)
        self.programs = program_pb2_grpc.ProgramServiceStub(calls)
        self.server = server_pb2_grpc.ServerServiceStub(calls)

    def close(self) -> None:
        """Closes the channel. Calls in progress end with Cancelled."""
        self._closed = True
        self.channel.close()

    def went_away(self, error: PermafrostError) -> bool:
        """Returns whether the server failed rather than the request. A server that dies may also cancel the calls
        that it serves."""
        return isinstance(error, (Unavailable, Cancelled)) and not self._closed

    def call(self, method: Callable[..., _Response], request: Any, timeout: float | None = None) -> _Response:
        """Sends one request, and returns the answer."""
        try:
            return method(request, timeout=timeout or self.timeout)
        except grpc.RpcError as error:
            refused = from_rpc(error, self.target)
            if isinstance(refused, ResourceExhausted) and not refused.reason and request.ByteSize() > MOST_BYTES:
                raise fields.too_large(request, MOST_BYTES) from None
            raise refused from None

    def change(self, method: Callable[..., _Response], request: Any) -> _Response:
        """Makes a call that changes something, and returns the answer. Retries while the server is away; the random
        request_id makes retries safe."""
        request.request_id = str(uuid.uuid4())
        return self.patiently(lambda: self.call(method, request))

    def stream(self, method: Callable[..., Any], request: Any) -> Iterator[Any]:
        """Yields the answers of a server stream, without a time limit. Closing the iterator cancels the call."""
        call = method(request)
        try:
            yield from call
            _tell_passed_over(call)
        except grpc.RpcError as error:
            raise from_rpc(error, self.target) from None
        finally:
            call.cancel()

    def follow(self, method: Callable[..., Any], make_request: Callable[[], Any]) -> Iterator[Any]:
        """Like `stream`, but starts the stream again, with a new request, if the server goes away and returns within
        `patience`."""
        lost_at: float | None = None
        while True:
            try:
                for response in self.stream(method, make_request()):
                    lost_at = None
                    yield response
                return
            except PermafrostError as error:
                if not (self.went_away(error) or isinstance(error, Aborted)):
                    raise
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > self.patience:
                    raise
                self.pause(error)

    def patiently(self, attempt: Callable[[], _Response]) -> _Response:
        """Returns the result of `attempt`. Retries for at most `patience` seconds while no server answers, or the
        server asks for a retry."""
        began = time.monotonic()
        while True:
            try:
                return attempt()
            except PermafrostError as error:
                again = self.went_away(error) or error.retry_after is not None
                if not again or time.monotonic() - began > self.patience:
                    raise
                self.pause(error)

    def pause(self, error: PermafrostError) -> None:
        """Waits before a retry: as long as the server asked for, at most 5 s, else until the server is reachable, at
        most 1 s."""
        if error.retry_after is not None:
            time.sleep(min(5.0, error.retry_after))
            return
        # A call alone would only report that the last attempt to connect failed.
        ready = grpc.channel_ready_future(self.channel)
        try:
            ready.result(timeout=1.0)
        except grpc.FutureTimeoutError:
            ready.cancel()
        # Keeps retries apart when a server refuses at once.
        time.sleep(0.05)
