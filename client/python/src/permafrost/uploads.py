"""Files sent to a server that does not see them."""

from __future__ import annotations

import contextlib
import pathlib
import time
import uuid
from collections.abc import Iterator
from typing import Any

import grpc
import xxhash

from permafrost.connection import Connection
from permafrost.errors import DataLoss, InputError, PermafrostError, from_rpc
from permafrost.v1 import dataset_pb2

# The server takes messages of 1 MiB at most.
_CHUNK = 1 << 19
# A file that changes while it is sent never arrives as it was declared.
_MOST_DAMAGED = 3
_REMOVAL_SECONDS = 5.0


class _Files:
    """The files of a source with their sizes and checksums."""

    def __init__(self, source: pathlib.Path) -> None:
        if source.is_file():
            self.paths = {source.name: source}
        elif source.is_dir():
            found = sorted(p for p in source.rglob("*") if p.is_file())
            named = {p.relative_to(source): p for p in found}
            # What a file manager leaves, such as .DS_Store; the server takes no such names.
            hidden = {p for p in named if any(part.startswith(".") for part in p.parts)}
            self.paths = {p.as_posix(): path for p, path in named.items() if p not in hidden}
        else:
            raise InputError(f"{source}: not found")
        if not self.paths:
            raise InputError(f"{source}: holds no files")
        id = uuid.uuid4()
        self.start = dataset_pb2.UploadStart(name=f"uploads/u{id}", request_id=str(id))
        for name, path in self.paths.items():
            hashed, size = xxhash.xxh3_64(), 0
            with path.open("rb") as file:
                while piece := file.read(_CHUNK):
                    hashed.update(piece)
                    size += len(piece)
            self.start.files.add(path=name, bytes=size, xxh3=hashed.hexdigest())
        self.bytes = sum(file.bytes for file in self.start.files)

    def chunks(self, received: list[int]) -> Iterator[Any]:
        """The start, and what has not been received."""
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


@contextlib.contextmanager
def upload_folder(connection: Connection, source: pathlib.Path, progress: bool) -> Iterator[str]:
    """Sends a folder, or one file; gives `uploads/ID`, and removes it from the server in the end."""
    from tqdm.auto import tqdm

    files = _Files(source)
    try:
        with tqdm(
            desc=f"upload {source.name}",
            total=files.bytes,
            unit="B",
            unit_scale=True,
            disable=not progress,
            leave=False,
        ) as bar:
            _send(connection, files, bar)
        yield files.start.name
    finally:
        # What cannot be removed now the server removes itself when it is old: it is not waited for again.
        with contextlib.suppress(PermafrostError):
            request = dataset_pb2.DeleteUploadRequest(name=files.start.name, request_id=str(uuid.uuid4()))
            connection.call(connection.datasets.DeleteUpload, request, _REMOVAL_SECONDS)


def _send(connection: Connection, files: _Files, bar: Any) -> None:
    """Until all has come, over as many calls as that takes. A server that is lost, or has no room, has `patience`
    seconds to take more bytes."""
    best, damaged = -1, 0
    failing_since: float | None = None
    while True:
        try:
            # A start alone tells what has come.
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
