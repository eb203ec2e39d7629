"""The programs of a server, which are the user's own modules, exported to files."""

from __future__ import annotations

import builtins
import os
import pathlib
import uuid
from collections.abc import Iterator
from typing import Any

import grpc
import xxhash

from permafrost.connection import Connection
from permafrost.errors import InputError, from_rpc
from permafrost.html import table
from permafrost.names import program_name
from permafrost.public import own_errors
from permafrost.v1 import program_pb2

# The server takes messages of 1 MiB at most.
_CHUNK = 1 << 19
_Tensor = program_pb2.Program.Tensor


class Program:
    """A snapshot of a program, which never changes. proto: everything that is known of it, as permafrost.v1.Program."""

    def __init__(self, proto: Any) -> None:
        self.proto = proto

    @property
    def id(self) -> str:
        return str(self.proto.name.removeprefix("programs/"))

    @property
    def etag(self) -> str:
        """Differs for each program that ever had this name. `Programs.delete` takes it."""
        return str(self.proto.etag)

    @property
    def bytes(self) -> int:
        """The size of the program's file."""
        return int(self.proto.bytes)

    @property
    def xxh3(self) -> str:
        """The XXH3-64 of the program's file, as 16 hex digits."""
        return str(self.proto.xxh3)

    @property
    def torch_version(self) -> str:
        """The version of PyTorch that exported the program."""
        return str(self.proto.torch_version)

    @property
    def num_parameters(self) -> int:
        """The number of elements in all parameters."""
        return int(self.proto.num_parameters)

    @property
    def inputs(self) -> dict[str, str]:
        """The inputs of the program's forward, by name: {"x": "int64[N, 9]", "num_graphs": "int"}. In a list of
        programs this is empty, as are `outputs`, `operators` and `parameters`."""
        return {value.name: value.type for form in self.proto.forms[:1] for value in form.inputs}

    @property
    def outputs(self) -> dict[str, str]:
        """The outputs of the program's forward. The first is the prediction."""
        return {value.name: value.type for form in self.proto.forms[:1] for value in form.outputs}

    @property
    def operators(self) -> list[str]:
        """The names of all operators that the program calls, sorted."""
        return sorted({name for form in self.proto.forms for name in form.operators})

    @property
    def parameters(self) -> dict[str, str]:
        """The types of the program's parameters, by the module's own names: {"head.weight": "float32[1, 64]"}."""
        return {t.name: t.type for t in self.proto.tensors if t.kind == _Tensor.KIND_PARAMETER}

    def __repr__(self) -> str:
        takes = f": {', '.join(f'{name} {of}' for name, of in self.inputs.items())}" if self.inputs else ""
        return f"<Program {self.id}{takes}>"

    def _repr_html_(self) -> str:
        rows: list[tuple[str, Any]] = [
            ("parameters", f"{self.num_parameters:,}"),
            ("bytes", f"{self.bytes:,}"),
            ("torch", self.torch_version),
            *((f"takes {name}", of) for name, of in self.inputs.items()),
            *((f"returns {name}", of) for name, of in self.outputs.items()),
        ]
        return table(f"Program {self.id}", rows)


@own_errors
class Programs:
    """The programs of a server: `client.programs`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def import_file(self, name: str, path: str | os.PathLike[str], *, progress: bool = True) -> Program:
        """Sends a file that `permafrost.export` or `torch.export` wrote. Waits for the server if the connection is
        lost.

        If the program of that name has an equal file, it is returned as it is. Errors: AlreadyExists if that program
        has another file; InvalidArgument, with the line of the module, for what no program may do; ResourceExhausted
        beyond the server's limit for all programs together."""
        source = pathlib.Path(path)
        if not source.is_file():
            raise InputError(f"{source}: {'is no file' if source.exists() else 'not found'}")
        start = program_pb2.ProgramStart(name=program_name(name), request_id=str(uuid.uuid4()))
        hashed = xxhash.xxh3_64()
        for piece in _pieces(source):
            hashed.update(piece)
            start.bytes += len(piece)
        start.xxh3 = hashed.hexdigest()
        with _bar(source, start.bytes, progress) as bar:
            return Program(self._connection.patiently(lambda: self._send(start, source, bar)))

    def _send(self, start: Any, source: pathlib.Path, bar: Any) -> Any:
        def requests() -> Iterator[Any]:
            yield program_pb2.UploadProgramRequest(start=start)
            for piece in _pieces(source):
                yield program_pb2.UploadProgramRequest(data=piece)
                bar.update(len(piece))

        bar.reset()
        try:
            return self._connection.programs.UploadProgram(requests())
        except grpc.RpcError as error:
            raise from_rpc(error, self._connection.target) from None

    def get(self, name: str) -> Program:
        """Returns one program. Errors: NotFound."""
        request = program_pb2.GetProgramRequest(name=program_name(name))
        return Program(self._connection.call(self._connection.programs.GetProgram, request))

    def list(self) -> list[Program]:
        """Returns all programs, sorted by name, without their inputs, outputs, operators and parameters."""
        request = program_pb2.ListProgramsRequest(page_size=1000)
        found: builtins.list[Program] = []
        while True:
            page = self._connection.call(self._connection.programs.ListPrograms, request)
            found += [Program(proto) for proto in page.programs]
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def delete(self, name: str, *, etag: str = "") -> None:
        """Deletes a program. Jobs that train it keep their own copies. etag: the `Program.etag` that the program must
        still have. Errors: NotFound; Aborted if its etag has changed."""
        request = program_pb2.DeleteProgramRequest(name=program_name(name), etag=etag)
        self._connection.change(self._connection.programs.DeleteProgram, request)

    def __iter__(self) -> Iterator[Program]:
        return iter(self.list())

    def __repr__(self) -> str:
        return f"Programs({self._connection.target!r})"

    def _repr_html_(self) -> str:
        rows = [(p.id, f"{p.num_parameters:,}", f"{p.bytes:,}") for p in self.list()]
        return table("Programs", rows, ("program", "parameters", "bytes"))


def _pieces(source: pathlib.Path) -> Iterator[bytes]:
    with source.open("rb") as file:
        while piece := file.read(_CHUNK):
            yield piece


def _bar(source: pathlib.Path, size: int, shown: bool) -> Any:
    from tqdm.auto import tqdm

    return tqdm(desc=f"upload {source.name}", total=size, unit="B", unit_scale=True, disable=not shown, leave=False)
