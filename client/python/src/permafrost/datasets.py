"""The datasets of a server: lists, imports and deletes them."""

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
# Writes the files of a source into a folder, and returns the ImportOptions that they need.
_Write = Callable[[pathlib.Path], Mapping[str, Any]]


class Dataset:
    """A snapshot of a dataset. proto: everything that is known of it, as permafrost.v1.Dataset."""

    def __init__(self, proto: Any) -> None:
        self.proto = proto

    @property
    def id(self) -> str:
        return str(self.proto.name.removeprefix("datasets/"))

    @property
    def uid(self) -> str:
        """A unique id that the import makes and that no other dataset ever gets, even one of the same name. Empty if
        the import was only checked (`validate_only`)."""
        return str(self.proto.uid)

    @property
    def etag(self) -> str:
        """Changes whenever the dataset changes. `Datasets.delete` takes it."""
        return str(self.proto.etag)

    @property
    def content_checksum(self) -> str:
        """A checksum of the data, which does not depend on the server: datasets with equal checksums hold equal data.
        Equal data that an older version imported may have another checksum. Empty unless the dataset is ready and its
        store can be opened."""
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
        """Lines of the import for its user, such as how it read a column, or which files it did not read."""
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

    The imports that take data from Python write files in a format that the server reads. `via` says how the server
    gets these files: "folder" writes them below an import root of a server on this machine, and "upload" sends them.
    "auto" (the default) takes "folder" if that is possible, else "upload".

    All imports take the fields of ImportOptions as further keyword arguments (split_seed=7, inverse_edges="keep",
    order="degree" ...). They return when the dataset is READY, and raise AlreadyExists, InvalidArgument, or
    ImportFailed with the fault that the server found. With `validate_only=True` nothing is imported: the source is
    found, but no row of it is read, and the returned Dataset has no uid.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self) -> list[Dataset]:
        """Returns all datasets, sorted by name."""
        request = dataset_pb2.ListDatasetsRequest(page_size=1000)
        found: list[Dataset] = []
        while True:
            page = self._connection.call(self._connection.datasets.ListDatasets, request)
            found += [Dataset(proto) for proto in page.datasets]
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def get(self, name: str) -> Dataset:
        """Returns one dataset. Errors: NotFound."""
        request = dataset_pb2.GetDatasetRequest(name=_resource(name))
        return Dataset(self._connection.call(self._connection.datasets.GetDataset, request))

    def delete(self, name: str, *, etag: str = "") -> None:
        """Deletes a dataset. etag: the `Dataset.etag` that the dataset must still have. Errors: NotFound;
        FailedPrecondition while a queued or running job uses it; Aborted if its etag has changed."""
        request = dataset_pb2.DeleteDatasetRequest(name=_resource(name), etag=etag)
        self._connection.change(self._connection.datasets.DeleteDataset, request)

    def import_path(self, path: _Paths, name: str, *, progress: bool = True, **options: Any) -> Dataset:
        """Imports a file or folder that the server sees below one of its import roots.

        Errors: NotFound; PermissionDenied for a path outside the import roots.
        """
        return self._import(name, {"source_path": os.fspath(path), **options}, "", progress)

    def upload_path(self, path: _Paths, name: str, *, progress: bool = True, **options: Any) -> Dataset:
        """Sends a file or folder of this machine, each file with its checksum, and imports it. After a lost
        connection or a restart of the server, the upload resumes where it stopped. Names in a folder that begin with
        "." are left out. Errors: ResourceExhausted beyond the server's --max-upload."""
        source = pathlib.Path(path)
        with upload_folder(self._connection, source, progress) as upload:
            if source.is_file():
                options["source_path"] = source.name
            return self._import(name, options, upload, progress)

    def import_upload(
        self, upload: str | Upload, name: str, *, path: str = "", progress: bool = True, **options: Any
    ) -> Dataset:
        """Imports the files of an upload (`client.uploads.send`). The upload stays until it is deleted or a day old.

        path: a path in the upload; empty means all of it. Errors: NotFound; FailedPrecondition while the upload is
        incomplete."""
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

        dataset: one of three kinds. A Data, or a Dataset of one, is one large graph with x, edge_index, edge_attr,
            edge_weight, y and train_mask, val_mask, test_mask (column `mask` if a mask has several). A Dataset, or a
            list of Data, is many small graphs, each with its y; if none has a y, the set can only be predicted for,
            and a warning says so. A dict of three of these, "train", "valid" and "test", is one set with these
            splits.
        splits: indices of graphs of a set, or of nodes of one large graph, by "train", "valid" and "test" (or "val",
            "validation", "dev" ...). Without it, the splits come from the dataset's own `get_idx_split()`, else from
            the masks of one graph, else the server splits at random.
        link_split: for one large graph, the links to train, validate and test on, with negatives for validation and
            test. Either the dict of OGB's `get_edge_split()` (called if the dataset has it and nothing is given
            here), or the three Data of RandomLinkSplit. In a job, no messages pass along edges between the two nodes
            of a held-out link.
        names: the name of each node of one large graph, in order of rows: numbers or texts. Predictions and samples
            use these names. Without it, they come from OGB's mapping/nodeidx2*.csv.gz if the dataset has it, else
            each node is named by its row.

        Edges are kept as they are, unless inverse_edges is "add" or "auto". Errors: InputError, also for a
        HeteroData.
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
        """Imports one NetworkX graph, whose nodes have the attribute `label`, or many, which have it as graph
        attribute. If none of many graphs has it, the set can only be predicted for, and a warning says so.

        node_attributes, edge_attributes: names of numeric attributes, which become features in this order. They are
            categories if all values are ints or bools.
        weight: an edge attribute of one graph.
        An undirected edge is stored in both directions (a self-loop once), a directed edge as it is.
            inverse_edges="add", "keep" or "auto" overrides this.
        Rows are in the order of `graph.nodes`. The nodes of one graph keep their names; `str` turns names other than
            integers into texts.
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
        """Imports molecules from a CSV file with a header. `column` holds SMILES, and the columns in `targets` hold
        numbers; an empty cell is a missing label. Without targets, the molecules can only be predicted for.

        Atoms have OGB's nine columns, and bonds have its three. Errors: InputError naming row and column. Needs
        RDKit.
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
        """Imports one large graph from a Parquet file of edges, and optionally one of nodes, a batch of rows at a
        time.

        source, target, weight, timestamp, edge_features: columns of `edges`. Features that are all integers are
            categories. timestamp: integers, or Arrow's timestamps, dates, times or durations, which become numbers in
            the unit of the file (Parquet writes timestamps of seconds as milliseconds).
        id: the column of `nodes` to which source and target refer, and by which predictions name nodes. Without it,
            source and target are row numbers, from 0.
        features, label, split: columns of `nodes`. features: all other numeric columns if not given. split: "train",
            "valid" and "test", or "training", "val", "validation", "dev", "testing", in any case. A row with a
            missing value is in no split, and other values are refused.
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
                    # The server runs on another machine, behind a tunnel to this one, or sees other files.
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
    """Makes a folder readable for everyone, because the server may run as another user, and the umask may be strict,
    such as 077."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


@contextlib.contextmanager
def _temporary_folder(root: pathlib.Path | None) -> Iterator[str]:
    """Makes a temporary folder, in `root` if given, which the server's user can read. It is removed at the end."""
    folder = tempfile.mkdtemp(prefix=".permafrost-", dir=root)
    try:
        os.chmod(folder, 0o755)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
