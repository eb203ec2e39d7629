"""Datasets of a server: listed, imported, deleted."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from permafrost import fields
from permafrost.connection import Connection
from permafrost.errors import ImportFailed, InputError, NotFound, PermissionDenied, needs
from permafrost.html import table
from permafrost.inverses import inverse_options, take_inverses
from permafrost.public import own_errors
from permafrost.uploads import Upload, upload_folder
from permafrost.v1 import dataset_pb2, server_pb2

if TYPE_CHECKING:
    import networkx

_STATES = dataset_pb2.Dataset.State.DESCRIPTOR
_Paths = str | os.PathLike[str]
# Writes the files of a source into a folder; returns what ImportOptions it needs.
_Write = Callable[[pathlib.Path], Mapping[str, Any]]


class Dataset:
    """A dataset as it was when asked for. proto: all that is known, as permafrost.v1.Dataset."""

    def __init__(self, proto: Any) -> None:
        self.proto = proto

    @property
    def id(self) -> str:
        return str(self.proto.name.removeprefix("datasets/"))

    @property
    def uid(self) -> str:
        """Tells it from all others that ever had its name: made by its import, and never given to another. Empty where
        the import was only checked (`validate_only`)."""
        return str(self.proto.uid)

    @property
    def etag(self) -> str:
        """Changes whenever the dataset does. For `Datasets.delete`."""
        return str(self.proto.etag)

    @property
    def content_checksum(self) -> str:
        """A checksum of the data. Datasets with equal checksums hold equal data, on any servers. Equal data that an
        older version imported may have another one. Empty unless the dataset is ready and its store can be opened.
        """
        return str(self.proto.content_checksum)

    @property
    def state(self) -> str:
        """ "importing", "ready" or "failed"."""
        return fields.enum_name(_STATES, self.proto.state)

    @property
    def summary(self) -> dict[str, Any]:
        """The contents of a dataset that is ready."""
        p = self.proto
        if p.HasField("graph_set"):
            s = p.graph_set
            return {
                "graphs": s.all.num_graphs,
                "train": s.train.num_graphs,
                "valid": s.valid.num_graphs,
                "test": s.test.num_graphs,
                "nodes": s.all.num_nodes,
                "edges": s.all.num_edges,
                "node features": s.node_features.width,
                "edge features": s.edge_features.width,
                "targets": s.num_targets,
                **_position_columns(s),
            }
        if p.HasField("graph"):
            g = p.graph
            return {
                "nodes": g.num_nodes,
                "edges": g.num_edges,
                "train": g.num_train_nodes,
                "valid": g.num_valid_nodes,
                "test": g.num_test_nodes,
                "node features": g.node_features.width,
                "edge features": g.edge_features.width,
                "targets": g.num_targets,
                **_position_columns(g),
                **({"links": g.links.num_train + g.links.num_valid + g.links.num_test} if g.HasField("links") else {}),
            }
        return {}

    @property
    def import_notes(self) -> list[str]:
        """Lines that the import told its user, such as how it read a column, or which files it did not read."""
        return list(self.proto.import_notes)

    def __repr__(self) -> str:
        shown = ", ".join(f"{value} {name}" for name, value in self.summary.items())
        more = self.proto.error or shown
        return f"<Dataset {self.id} {self.state}{': ' if more else ''}{more}>"

    def _repr_html_(self) -> str:
        rows: list[tuple[str, Any]] = [("state", self.state), *self.summary.items()]
        if self.proto.error:
            rows.append(("error", self.proto.error))
        return table(f"Dataset {self.id}", rows)


@own_errors
class Datasets:
    """The datasets of a server: `client.datasets`.

    The imports that take data from Python write files of a format that the server reads. `via` says how these come to
    it: "folder" writes them below an import root of a server on this machine, "upload" sends them, "auto" (the default)
    is the first where that is possible, and else the second. All imports take the fields of ImportOptions as further
    keyword arguments (split_seed=7, inverse_edges="keep", order="degree" ...), return when the dataset is READY,
    and raise AlreadyExists, InvalidArgument, or ImportFailed with what the server found wrong. With
    `validate_only=True` nothing is imported: the source is found, no row of it is read, and the Dataset that comes back
    has no uid.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> list[Dataset]:
        """By name."""
        request = dataset_pb2.ListDatasetsRequest(page_size=1000)
        found: list[Dataset] = []
        while True:
            page = self._connection.call(self._connection.datasets.ListDatasets, request)
            found += [Dataset(proto) for proto in page.datasets]
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def get(self, name: str) -> Dataset:
        """Errors: NotFound."""
        request = dataset_pb2.GetDatasetRequest(name=_resource(name))
        return Dataset(self._connection.call(self._connection.datasets.GetDataset, request))

    def delete(self, name: str, *, etag: str = "") -> None:
        """etag: `Dataset.etag`, which the dataset must still have. Errors: NotFound; FailedPrecondition while a queued
        or running job uses it; Aborted where it has another etag."""
        request = dataset_pb2.DeleteDatasetRequest(name=_resource(name), etag=etag)
        self._connection.change(self._connection.datasets.DeleteDataset, request)

    def import_path(self, path: _Paths, name: str, *, progress: bool = True, **options: Any) -> Dataset:
        """Imports a file or folder that the server sees below one of its import roots.

        Errors: NotFound, PermissionDenied for a path outside the import roots.
        """
        return self._import(name, {"source_path": os.fspath(path), **options}, "", progress)

    def upload_path(self, path: _Paths, name: str, *, progress: bool = True, **options: Any) -> Dataset:
        """Imports a file or folder of this machine: it is sent, each file with its checksum, and what was sent before a
        lost connection or a restart of the server is not sent again. Of a folder, what begins with "." is left out.
        Errors: ResourceExhausted beyond the server's --max-upload."""
        source = pathlib.Path(path)
        with upload_folder(self._connection, source, progress) as upload:
            if source.is_file():
                options["source_path"] = source.name
            return self._import(name, options, upload, progress)

    def import_upload(
        self, upload: str | Upload, name: str, *, path: str = "", progress: bool = True, **options: Any
    ) -> Dataset:
        """Imports the files of an upload (`client.uploads.send`), which stays until it is deleted or a day old.

        path: a path in it; empty: all of it. Errors: NotFound; FailedPrecondition while not all of it has come."""
        id = upload if isinstance(upload, str) else upload.id
        if path:
            options["source_path"] = path
        return self._import(name, options, f"uploads/{id.removeprefix('uploads/')}", progress)

    def import_pyg(
        self,
        dataset: Any,
        name: str,
        *,
        splits: Mapping[str, Any] | None = None,
        mask: int = 0,
        link_split: Any = None,
        names: Sequence[Any] | None = None,
        via: str = "auto",
        progress: bool = True,
        **options: Any,
    ) -> Dataset:
        """Imports PyG data.

        dataset: a Data, or a Dataset of one: one large graph, with x, edge_index, edge_attr, edge_weight, y and
            train_mask, val_mask, test_mask (column `mask` of several). A Dataset, or a list of Data: many small graphs,
            each with its y; where none has one, the set is one to predict for, and a warning says so. A dict of three
            of them, "train", "valid" and "test": one set with these splits.
        splits: indices of many graphs, or of one large graph's nodes, by "train", "valid" and "test" (or "val",
            "validation", "dev" ...). Without it: the
            dataset's own `get_idx_split()`, else the masks of one graph, else a random split by the server.
        link_split: of one large graph, the links that train, validate and test, and negatives of the last two: the dict
            of OGB's `get_edge_split()` (asked for where the dataset has it and nothing is given here), or the three
            Data of RandomLinkSplit. Edges between the two nodes of a held-out link pass no messages in a job.
        names: what one large graph's nodes are called, one a row: numbers, or texts. Predictions and samples speak by
            them. Without it: what OGB's mapping/nodeidx2*.csv.gz says, where the dataset has it; else their rows.

        Edges are kept as they stand, unless inverse_edges is "add" or "auto". Errors: InputError, for a HeteroData too.
        """
        from permafrost.sources import pyg

        options.update(inverse_options(take_inverses(options) or "keep"))
        return self._from_files(
            name, lambda folder: pyg.write(dataset, folder, splits, mask, link_split, names), via, progress, options
        )

    def import_networkx(
        self,
        graphs: networkx.Graph | Iterable[networkx.Graph],
        name: str,
        *,
        node_attributes: Sequence[str] = (),
        edge_attributes: Sequence[str] = (),
        label: str = "y",
        weight: str | None = None,
        splits: Mapping[str, Any] | None = None,
        via: str = "auto",
        progress: bool = True,
        **options: Any,
    ) -> Dataset:
        """Imports one NetworkX graph, with node attribute `label`, or many, with graph attribute `label`; where none of
        many has it, the set is one to predict for, and a warning says so.

        node_attributes, edge_attributes: names of numeric attributes, which become features in this order: categories
            where all are ints or bools.
        weight: an edge attribute of one graph.
        An undirected edge is stored in both directions (a loop once), a directed one as it is. inverse_edges="add",
            "keep" or "auto" says otherwise.
        Rows are in the order of `graph.nodes`; the nodes of one graph keep their names, as `str` makes texts of what is
            no integer.
        """
        from permafrost.sources import networkx as source

        asked = take_inverses(options)

        def write(folder: pathlib.Path) -> Mapping[str, Any]:
            return source.write(graphs, folder, node_attributes, edge_attributes, label, weight, splits, asked)

        return self._from_files(name, write, via, progress, options)

    def import_smiles(
        self,
        csv: _Paths,
        name: str,
        *,
        column: str,
        targets: Sequence[str] | str = (),
        splits: Mapping[str, Any] | None = None,
        via: str = "auto",
        progress: bool = True,
        **options: Any,
    ) -> Dataset:
        """Imports molecules: a CSV file with a header, SMILES in `column`, numbers or nothing (missing) in `targets`.
        Without targets: molecules to predict for.

        Atoms have OGB's nine columns and bonds its three. Errors: InputError naming row and column. Needs RDKit.
        """
        try:
            from permafrost.sources import smiles
        except ImportError as error:
            raise needs("import_smiles", "smiles", error) from None
        wanted = [targets] if isinstance(targets, str) else list(targets)
        options.update(inverse_options(take_inverses(options) or "add"))
        return self._from_files(
            name, lambda folder: smiles.write(pathlib.Path(csv), folder, column, wanted, splits), via, progress, options
        )

    def import_parquet(
        self,
        edges: _Paths,
        name: str,
        *,
        nodes: _Paths | None = None,
        source: str = "source",
        target: str = "target",
        weight: str | None = None,
        timestamp: str | None = None,
        id: str | None = None,
        features: Sequence[str] | None = None,
        label: str | Sequence[str] | None = None,
        split: str | None = None,
        edge_features: Sequence[str] = (),
        via: str = "auto",
        progress: bool = True,
        **options: Any,
    ) -> Dataset:
        """Imports one large graph from a Parquet file of edges, and one of nodes, a batch of rows at a time.

        source, target, weight, timestamp, edge_features: columns of `edges`; features that are all integers are
            categories. timestamp: integers, or Arrow's timestamps, dates, times or durations, as numbers of the unit
            that the file has them in (Parquet writes timestamps of seconds as milliseconds). id: the column of `nodes`
            that source and target name, and that predictions speak by; without it they are rows, from 0.
        features, label, split: columns of `nodes`. features: without it all other numeric columns. split: "train",
            "valid" and "test", or "training", "val", "validation", "dev", "testing", in any case; a missing value is in
            none, and others are refused.
        Warns of columns that are not imported. Errors: InputError naming file, row and column. Needs pyarrow.
        """
        try:
            from permafrost.sources import parquet
        except ImportError as error:
            raise needs("import_parquet", "parquet", error) from None
        labels = [] if label is None else [label] if isinstance(label, str) else list(label)
        tables = parquet.Tables(
            edges=pathlib.Path(edges),
            nodes=None if nodes is None else pathlib.Path(nodes),
            source=source,
            target=target,
            weight=weight,
            timestamp=timestamp,
            id=id,
            features=features,
            labels=labels,
            split=split,
            edge_features=edge_features,
        )
        options.update(inverse_options(take_inverses(options) or "keep"))
        return self._from_files(name, lambda folder: parquet.write(tables, folder), via, progress, options)

    def _from_files(self, name: str, write: _Write, via: str, progress: bool, options: dict[str, Any]) -> Dataset:
        if via not in ("auto", "folder", "upload"):
            raise InputError(f"import: via: {via!r} is none of auto, folder, upload")
        with contextlib.ExitStack() as stack:
            root = None if via == "upload" else self._writable_root()
            if root is None and via == "folder":
                raise InputError(
                    f"import: via: no import root of {self._connection.target} is a folder that can be written here"
                )
            folder = pathlib.Path(stack.enter_context(_temporary_folder(root)))
            wanted = {**write(folder), **options}
            if root is not None:
                _open_to_all(folder)
                try:
                    return self._import(name, {"source_path": str(folder), **wanted}, "", progress)
                except (NotFound, PermissionDenied):
                    # The server is another machine, behind a tunnel to this one, or sees other files.
                    if via == "folder":
                        raise
            upload = stack.enter_context(upload_folder(self._connection, folder, progress))
            return self._import(name, wanted, upload, progress)

    def _writable_root(self) -> pathlib.Path | None:
        host = self._connection.target.rpartition(":")[0]
        if not (host.startswith("127.") or host in ("localhost", "[::1]")):
            return None
        connection = self._connection
        info = connection.call(connection.server.GetServerInfo, server_pb2.GetServerInfoRequest())
        roots = [pathlib.Path(root) for root in info.import_roots]
        return next((root for root in roots if root.is_dir() and os.access(root, os.W_OK)), None)

    def _import(self, name: str, options: Mapping[str, Any], upload: str, progress: bool) -> Dataset:
        wanted = dict(options)
        request = dataset_pb2.ImportDatasetRequest(
            dataset_id=name.removeprefix("datasets/"),
            upload=upload,
            validate_only=bool(wanted.pop("validate_only", False)),
        )
        request.options.SetInParent()
        fields.fill(request.options, wanted, "import")
        connection = self._connection
        proto = connection.change(connection.datasets.ImportDataset, request)
        if request.validate_only:
            return Dataset(proto)
        with _bar(f"import {name}", progress) as bar:
            watch = dataset_pb2.WatchDatasetRequest(name=proto.name)
            for proto in connection.follow(connection.datasets.WatchDataset, lambda: watch):
                if proto.HasField("import_progress"):
                    bar.total = proto.import_progress.bytes_total
                    bar.update(proto.import_progress.bytes_read - bar.n)
        if proto.state != dataset_pb2.Dataset.STATE_READY:
            raise ImportFailed(f"the import of {name} failed: {proto.error}")
        return Dataset(proto)

    def __iter__(self) -> Iterator[Dataset]:
        return iter(self.list())

    def __repr__(self) -> str:
        return f"Datasets({self._connection.target!r})"

    def _repr_html_(self) -> str:
        rows = [(d.id, d.state, ", ".join(f"{v} {k}" for k, v in d.summary.items())) for d in self.list()]
        return table("Datasets", rows, ("dataset", "state", "holds"))


def _position_columns(summary: Any) -> dict[str, int]:
    return {"position columns": summary.position_columns} if summary.position_columns else {}


def _resource(name: str) -> str:
    return f"datasets/{name.removeprefix('datasets/')}"


def _bar(text: str, shown: bool) -> Any:
    from tqdm.auto import tqdm

    return tqdm(desc=text, unit="B", unit_scale=True, disable=not shown, leave=False, dynamic_ncols=True)


def _open_to_all(folder: pathlib.Path) -> None:
    """The server's user may be another one, who reads nothing that was written under a umask such as 077."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


@contextlib.contextmanager
def _temporary_folder(root: pathlib.Path | None) -> Iterator[str]:
    """A new folder, of `root` if there is one, which the server's user can read; removed at the end."""
    folder = tempfile.mkdtemp(prefix=".permafrost-", dir=root)
    try:
        os.chmod(folder, 0o755)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
