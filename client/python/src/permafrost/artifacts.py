"""Files that jobs leave: received whole, and read."""

from __future__ import annotations

import csv
import io
import os
import pathlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator

import xxhash

from permafrost.errors import DataLoss, InputError


def receive(what: str, pieces: Iterator[tuple[bytes, int, str]], target: pathlib.Path) -> pathlib.Path:
    """Writes (data, bytes in all, checksum of all in the last) to `target`, whole or not at all: to what symbolic links
    lead to, and into what is no file, as a pipe, which nothing replaces. Errors: InputError for a directory."""
    hashed = xxhash.xxh3_64()
    expected, size, total = "", 0, 0
    file_path = target.resolve()
    is_stream = target.exists() and not target.is_file()
    if target.is_dir():
        raise InputError(f"{what}: {target}: is a directory; accepted: the path of a file")
    if is_stream:
        handle, temporary = tempfile.mkstemp(prefix=f".{file_path.name}.")
    else:
        # With the rights of any new file, which the umask bounds; mkstemp's are its owner's alone.
        temporary = str(file_path.with_name(f".{file_path.name}.{secrets.token_hex(4)}"))
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            for data, total_bytes, checksum in pieces:
                file.write(data)
                hashed.update(data)
                size += len(data)
                total, expected = total_bytes, checksum or expected
        if size != total or hashed.hexdigest() != expected:
            raise DataLoss(f"{what}: {size} of {total} bytes came, with XXH3 {hashed.hexdigest()}; expected {expected}")
        if is_stream:
            with open(temporary, "rb") as source, open(target, "wb") as sink:
                shutil.copyfileobj(source, sink)
            os.unlink(temporary)
        else:
            os.replace(temporary, file_path)
    except BaseException:
        pathlib.Path(temporary).unlink(missing_ok=True)
        raise
    return target


def read_predictions(path: pathlib.Path) -> dict[str | tuple[str, str], list[float]]:
    rows = csv.reader(io.StringIO(path.read_text()))
    if next(rows)[:2] == ["source", "target"]:
        return {(row[0], row[1]): [float(value) for value in row[2:]] for row in rows}
    return {row[0]: [float(value) for value in row[1:]] for row in rows}
