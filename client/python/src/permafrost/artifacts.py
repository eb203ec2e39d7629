"""Receives the files that jobs leave, and reads them."""

from __future__ import annotations

import csv
import io
import os
import pathlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import xxhash

from permafrost.errors import DataLoss, InputError


def receive(what: str, pieces: Iterator[tuple[bytes, int, str]], target: pathlib.Path) -> pathlib.Path:
    """Writes the data of `pieces` to `target`, whole or not at all. A piece is (data, total bytes, checksum); only
    the last one needs the checksum of all data. Follows symbolic links. Writes into a target that is not a regular
    file, such as a pipe, instead of replacing it. Errors: InputError for a directory."""
    hashed = xxhash.xxh3_64()
    expected, size, total = "", 0, 0
    file_path = target.resolve()
    is_stream = target.exists() and not target.is_file()
    if target.is_dir():
        raise InputError(f"{what}: {target}: is a directory; accepted: the path of a file")
    if is_stream:
        handle, temporary = tempfile.mkstemp(prefix=f".{file_path.name}.")
    else:
        # Gives the file the permissions of any new file, which the umask limits. mkstemp would let only its owner
        # read it.
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


class LinkPrediction(NamedTuple):
    """The prediction of a job for one link."""

    source: str
    target: str
    # The time of the link, which only temporal jobs give. Two nodes may then have several links.
    time: int | None
    score: float
    # The link's rank among its negatives, from 1. None if it has no negatives, because its source has an edge to
    # every other node.
    rank: float | None


def read_predictions(path: pathlib.Path) -> dict[str, list[float]] | list[LinkPrediction]:
    """Returns {name: [values]} for graphs or nodes, and one LinkPrediction for each link. Errors: DataLoss if two
    rows have the same name."""
    rows = csv.reader(io.StringIO(path.read_text()))
    columns = next(rows)
    if columns[:2] == ["source", "target"]:
        return [_link(dict(zip(columns, row, strict=True))) for row in rows]
    predictions: dict[str, list[float]] = {}
    for name, *values in rows:
        if name in predictions:
            raise DataLoss(f"predictions: two rows are named {name!r}; accepted: path=FILE, which keeps both")
        predictions[name] = [float(value) for value in values]
    return predictions


def _link(row: dict[str, str]) -> LinkPrediction:
    time = int(row["time"]) if "time" in row else None
    rank = float(row["rank"]) if row["rank"] else None
    return LinkPrediction(row["source"], row["target"], time, float(row["score"]), rank)
