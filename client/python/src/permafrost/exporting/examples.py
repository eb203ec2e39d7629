"""Makes an example from a dataset's columns, in the first of several input forms that fits a module."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from permafrost.errors import InputError
from permafrost.exporting import inputs, ints
from permafrost.exporting.refusals import refused
from permafrost.exporting.sizes import as_int
from permafrost.v1 import dataset_pb2

_Features = dataset_pb2.FeatureSummary
_INTEGERS = (_Features.DATA_TYPE_INT32, _Features.DATA_TYPE_INT64, _Features.DATA_TYPE_UINT8)
_Example = dict[str, torch.Tensor]


def fitting(module: Any, dataset: Any, loss: str | None = None, links: bool = False) -> _Example:
    """Returns the first input form of a dataset on which the module runs and predicts something that the dataset has
    targets for.

    dataset: a permafrost.v1.Dataset. x, edge_attr and y are [rows, columns]; for a single column also [rows]. pos is
        [rows, columns].
    loss: the job's loss, which decides the type of y: int64 classes [rows], or float32. None means the server's
        default.
    links: whether the job predicts links, which have no y. A module that takes edge_label_index scores links itself.
    Errors: InputError of one line, with the module's error for each form.
    """
    taken = inputs.read_signature(module)
    names = (*taken.required, *taken.optional)
    if "edge_label_index" in taken.required and not links:
        raise InputError("forward: it takes edge_label_index; accepted: with link_prediction, on one large graph")
    # A module that takes batch_size may predict for the seed nodes alone.
    of_nodes = ("nodes", *(["graphs"] if "batch_size" in taken.required else []), "links", "edges")
    if links and "edge_label_index" in names:
        of_nodes = ("links",)
    errors: dict[str, str] = {}
    for example in _forms(dataset, loss, links):
        read = {name: value for name, value in example.items() if taken.data or name in names}
        form = ", ".join(_shown(name, value) for name, value in read.items() if name in ("x", "edge_attr", "y"))
        if form in errors:
            continue
        try:
            shape = _run(module, taken, example, ("graphs",) if "batch" in example else of_nodes)
            _check_labels(read.get("y"), shape)
        except InputError as error:
            errors[form] = str(error)
            continue
        return example
    told = "; ".join(f"with {form}: {error}" if form else error for form, error in errors.items())
    raise InputError(f"{type(module).__name__}: it does not fit {dataset.name}: {told} (example= gives other data)")


def _forms(dataset: Any, loss: str | None, links: bool) -> Iterator[_Example]:
    summary = dataset.graph_set if dataset.HasField("graph_set") else dataset.graph
    edge_index = torch.tensor([[0, 1], [1, 0]])
    base = {"edge_index": edge_index}
    if summary.position_columns:
        # Places the two nodes apart, so that their distance is above 0.
        base["pos"] = torch.arange(2.0).repeat(summary.position_columns, 1).T.contiguous()
    if dataset.HasField("graph_set"):
        base["batch"] = torch.zeros(2, dtype=torch.long)
    elif summary.weighted:
        base["edge_weight"] = torch.ones(2)
    if links:
        base["edge_label_index"] = edge_index
    columns = (
        # On a large graph, node features are always floats; edge features keep their type.
        _ranks(summary.node_features, integers="batch" in base),
        _ranks(summary.edge_features),
        [None]
        if links
        else _labels(summary.num_targets, 1 if "batch" in base else 2, _of_classes(loss, "batch" in base)),
    )
    for values in itertools.product(*columns):
        given = zip(("x", "edge_attr", "y"), values, strict=True)
        yield base | {name: value for name, value in given if value is not None}


def _of_classes(loss: str | None, graphs: bool) -> bool:
    if loss is None:
        return not graphs
    return str(loss).lower().replace("-", "_").removeprefix("loss_") == "cross_entropy"


def _labels(targets: int, rows: int, classes: bool) -> list[torch.Tensor | None]:
    if classes:
        return [torch.zeros(rows, dtype=torch.long)]
    if targets == 0:
        return [None]
    table = torch.zeros(rows, targets)
    return [table, table.squeeze(1)] if targets == 1 else [table]


def _ranks(features: Any, integers: bool = True) -> list[torch.Tensor | None]:
    """Returns the minimum and the maximum of every column as two rows [2, columns], and for a single column also as
    [2]."""
    if features.width == 0:
        return [None]
    kind = torch.int64 if integers and features.data_type in _INTEGERS else torch.float32
    known = len(features.min) == len(features.max) == features.width
    rows = [features.min, features.max] if known else [[0.0] * features.width] * 2
    table = torch.tensor([list(row) for row in rows]).to(kind)
    return [table, table.squeeze(1)] if features.width == 1 else [table]


def _run(module: Any, taken: inputs.Signature, example: Mapping[str, Any], accepted: tuple[str, ...]) -> torch.Size:
    rows = inputs.make_rows(taken, example, module)
    copied = copy.deepcopy(module).cpu()
    with warnings.catch_warnings(), ints.followed(as_int) as calls, torch.random.fork_rng(devices=[]):
        # Silences warnings, because a form that does not fit may broadcast.
        warnings.simplefilter("ignore")
        try:
            for training in (True, False):
                shape = inputs.find_needed(copy.deepcopy(copied).train(training), taken, rows, calls)
        except InputError:
            raise
        except Exception as error:
            raise refused(error, module, rows.shown(), lambda: None) from error
    counts = {rows.sizes[role]: role for role in rows.least}
    if len(shape) > 2 or counts.get(shape[0]) not in accepted:
        told = [counts.get(shape[0], shape[0]), *shape[1:]]
        raise InputError(
            f"forward: its prediction is [{', '.join(map(str, told))}]; "
            f"accepted are one or two dimensions, and a row for each of {', '.join(accepted)}"
        )
    return shape


def _check_labels(y: torch.Tensor | None, shape: torch.Size) -> None:
    """Refuses y of another rank than the prediction, since [rows, 1] beside [rows] would broadcast."""
    if y is not None and y.is_floating_point() and y.dim() != len(shape):
        raise InputError(f"y is of rank {y.dim()}, and the prediction of rank {len(shape)}")


def _shown(name: str, value: torch.Tensor) -> str:
    sizes = ({"x": "N", "edge_attr": "E"}.get(name, "rows"), *value.shape[1:])
    return f"{name} {str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, sizes))}]"
