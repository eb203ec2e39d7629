"""Sends files to a server that cannot see them on its own disk."""

from __future__ import annotations

import builtins
import contextlib
import datetime
import os
import pathlib
import time
import uuid
from collections.abc import Iterator
from typing import Any

import grpc
import xxhash

from permafrost.connection import Connection
from permafrost.errors import DataLoss, InputError, PermafrostError, from_rpc
from permafrost.public import own_errors
from permafrost.v1 import dataset_pb2

# The server takes messages of 1 MiB at most.
_CHUNK = 1 << 19
# How often damaged data are sent again. A file that changes while it is sent never arrives as it was declared.
_MOST_DAMAGED = 3
_REMOVAL_SECONDS = 5.0


def _files_below(source: pathlib.Path) -> Iterator[pathlib.Path]:
    """Finds the files of a folder, including those behind links to other folders, as `permafrost upload send` does."""

    def fail(error: OSError) -> None:
        raise error

    for folder, folders, names in os.walk(source, onerror=fail, followlinks=True):
        # Skips hidden folders. File managers leave hidden names, such as .DS_Store, and the server refuses them.
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in folders:
            link = pathlib.Path(folder, name)
            if link.is_symlink() and pathlib.Path(folder).resolve().is_relative_to(link.resolve()):
                raise InputError(f"{link}: a link to a folder that it lies in")
        for path in (pathlib.Path(folder, name) for name in names if not name.startswith(".")):
            if path.is_file():
                yield path


class _Files:
    """The files of a source with their sizes and checksums."""

    def __init__(self, source: pathlib.Path, id: str | None = None) -> None:
        if source.is_file():
            self.paths = {source.name: source}
        elif source.is_dir():
            # Keeps the order of `permafrost upload send`, so that each can resume an upload of the other.
            self.paths = dict(sorted((p.relative_to(source).as_posix(), p) for p in _files_below(source)))
        else:
            raise InputError(f"{source}: not found")
        if not self.paths:
            raise InputError(f"{source}: holds no files")
        request_id = str(uuid.uuid4())
        self.start = dataset_pb2.UploadStart(request_id=request_id)
        all_files = xxhash.xxh3_64()
        for name, path in self.paths.items():
            hashed, size = xxhash.xxh3_64(), 0
            with path.open("rb") as file:
                while piece := file.read(_CHUNK):
                    hashed.update(piece)
                    size += len(piece)
            self.start.files.add(path=name, bytes=size, xxh3=hashed.hexdigest())
            all_files.update(f"{name}\n{size} {hashed.hexdigest()}\n".encode())
        if id is None:
            id = f"u{request_id}"
        elif not id:
            id = f"upload-{all_files.hexdigest()}"
        self.start.name = f"uploads/{id.removeprefix('uploads/')}"
        self.bytes = sum(file.bytes for file in self.start.files)

    def chunks(self, received: list[int]) -> Iterator[Any]:
        """Yields the start message, and then the data that the server has not received yet."""
        yield dataset_pb2.UploadDatasetRequest(start=self.start)
        for i, (path, done) in enumerate(zip(self.paths.values(), received, strict=True)):
            with path.open("rb") as file:
                file.seek(done)
                while piece := file.read(_CHUNK):
                    chunk = dataset_pb2.UploadChunk(
                        file=i, offset=done, data=piece, xxh3=xxhash.xxh3_64_intdigest(piece)
                    )
                    yield dataset_pb2.UploadDatasetRequest(chunk=chunk)
                    done += len(piece)


class Upload:
    """A snapshot of an upload. proto: everything that is known of it, as permafrost.v1.Upload."""

    def __init__(self, proto: Any) -> None:
        self.proto = proto

    @property
    def id(self) -> str:
        return str(self.proto.name.removeprefix("uploads/"))

    @property
    def complete(self) -> bool:
        """Whether the server has received everything, so that it can be imported."""
        return bool(self.proto.complete)

    @property
    def sending(self) -> bool:
        """Whether a client is sending to it now."""
        return bool(self.proto.sending)

    @property
    def bytes(self) -> int:
        """The bytes of all files, as declared."""
        return int(self.proto.bytes)

    @property
    def received_bytes(self) -> int:
        return int(self.proto.received_bytes)

    @property
    def counted_bytes(self) -> int:
        """The bytes that count against the server's --max-upload: `bytes` while a client sends and for 15 minutes
        after, then `received_bytes`."""
        return int(self.proto.counted_bytes)

    @property
    def last_use_time(self) -> datetime.datetime | None:
        """The last time at which it received a byte or an import read it, by the server's clock, in UTC."""
        if not self.proto.HasField("last_use_time"):
            return None
        moment: datetime.datetime = self.proto.last_use_time.ToDatetime(tzinfo=datetime.timezone.utc)
        return moment

    def __repr__(self) -> str:
        state = "complete" if self.complete else "sending" if self.sending else "partial"
        return f"<Upload {self.id} {state}: {self.received_bytes} of {self.bytes} bytes>"


@own_errors
class Uploads:
    """The uploads that a server keeps: `client.uploads`. The server removes an upload that was not used for a day."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> builtins.list[Upload]:
        """Returns all uploads, sorted by id."""
        request = dataset_pb2.ListUploadsRequest(page_size=1000)
        found: builtins.list[Upload] = []
        while True:
            page = self._connection.call(self._connection.datasets.ListUploads, request)
            found += [Upload(proto) for proto in page.uploads]
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def send(self, path: str | os.PathLike[str], *, id: str = "", progress: bool = True) -> str:
        """Sends a file or folder, and leaves it on the server for `client.datasets.import_upload`. Returns the
        upload's id.

        id: without it, the id is made from names and content. A repeated call then resumes the upload, even one of an
            earlier program or of `permafrost upload send`.
        Errors: ResourceExhausted beyond the server's --max-upload; AlreadyExists for an id with other files."""
        source = pathlib.Path(path)
        files = _Files(source, id)
        with _progress(source, files, progress) as bar:
            _send(self._connection, files, bar)
        return str(files.start.name.removeprefix("uploads/"))

    def delete(self, id: str) -> None:
        """Deletes an upload; a no-op if it does not exist. Errors: Unavailable while a client sends to it."""
        request = dataset_pb2.DeleteUploadRequest(name=f"uploads/{id.removeprefix('uploads/')}")
        self._connection.change(self._connection.datasets.DeleteUpload, request)

    def __iter__(self) -> Iterator[Upload]:
        return iter(self.list())

    def __repr__(self) -> str:
        return f"Uploads({self._connection.target!r})"


def _progress(source: pathlib.Path, files: _Files, shown: bool) -> Any:
    from tqdm.auto import tqdm

    return tqdm(
        desc=f"upload {source.name}",
        total=files.bytes,
        unit="B",
        unit_scale=True,
        disable=not shown,
        leave=False,
    )


@contextlib.contextmanager
def upload_folder(connection: Connection, source: pathlib.Path, progress: bool) -> Iterator[str]:
    """Sends a folder, or one file. Yields `uploads/ID`, and removes the upload from the server in the end."""
    files = _Files(source)
    try:
        with _progress(source, files, progress) as bar:
            _send(connection, files, bar)
        yield files.start.name
    finally:
        # Does not wait again for an upload that cannot be removed now, since the server removes old uploads itself.
        with contextlib.suppress(PermafrostError):
            request = dataset_pb2.DeleteUploadRequest(name=files.start.name, request_id=str(uuid.uuid4()))
            connection.call(connection.datasets.DeleteUpload, request, _REMOVAL_SECONDS)


def _send(connection: Connection, files: _Files, bar: Any) -> None:
    """Sends until everything has arrived, over as many calls as needed. A server that is lost, or has no room, gets
    `patience` seconds to take more bytes."""
    best, damaged = -1, 0
    failing_since: float | None = None
    while True:
        try:
            # A start without data returns what the server has received.
            upload = _call(connection, iter([dataset_pb2.UploadDatasetRequest(start=files.start)]))
            received = [file.received_bytes for file in upload.files]
            bar.update(sum(received) - bar.n)
            if sum(received) > best:
                best, failing_since = sum(received), None
            if not upload.complete:
                upload = _call(connection, files.chunks(received))
            if upload.complete:
                bar.update(files.bytes - bar.n)
                return
        except PermafrostError as error:
            now = time.monotonic()
            failing_since = failing_since or now
            damaged += isinstance(error, DataLoss)
            again = connection.went_away(error) or isinstance(error, DataLoss) or error.retry_after is not None
            if not again or damaged > _MOST_DAMAGED or now - failing_since > connection.patience:
                raise
            connection.pause(error)


def _call(connection: Connection, requests: Iterator[Any]) -> Any:
    try:
        return connection.datasets.UploadDataset(requests)
    except grpc.RpcError as error:
        raise from_rpc(error, connection.target) from None
