"""`export`: a module's two forms in one archive."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any

from permafrost.errors import InputError, needs

# A program's forms: the module in training and in evaluation mode.
FORMS = {"train": True, "eval": False}
# Earlier versions write another schema.
OLDEST_TORCH = (2, 11)


def export(module: Any, example: Any, path: str | os.PathLike[str]) -> pathlib.Path:
    """Writes a PyTorch module as a program, a file that a server trains, and returns the path.

    `client.programs.import_file(name, path)` and `permafrost program import` give it to a server;
    `client.jobs.submit(dataset, module)` exports by itself. Equal modules give equal files, byte for byte, with the
    same PyTorch, PyG and source.

    module: its `forward` takes, by the names of its parameters, `x`, `edge_index`, `edge_attr`, `edge_weight`, `batch`,
        `batch_size` or `num_graphs`, `num_nodes`, `pos`, `y` and `edge_label_index`; or a PyG `Data`. It returns a
        prediction, whose rows are graphs, nodes, edges or links (a server trains all but those of edges); or
        (prediction, loss) where it takes `y`. That loss is trained in place of the job's, and is to be the mean over
        the rows that have a label. A missing label, or that of a node that is not predicted for, is NaN,
        or -100 of int64 classes, which torch's cross_entropy ignores. The module stays as it is: a copy is exported.
    example: PyG data, a list of it, or a dict of tensors by the names above. It gives the inputs'
        types and columns. Its number of rows does not matter: the program takes any, unless the module itself needs
        more.
    path: ends in .pt2. `torch.export.pt2_archive.load_pt2` reads the file, which holds `models/train.json` and
        `models/eval.json` over the same weights, and `extra/permafrost.json`, which describes both.

    Numbers that PyG infers from values are inputs of the program instead: the number of graphs of `global_mean_pool(x,
    batch)` or GraphNorm, and the largest graph's number of nodes of `to_dense_batch`.

    `int(batch.max())` and `batch.max().item()` count as such numbers where they are called in these words, in a
    function whose source can be read; `map(int, ...)` does not. A part of `batch` or `edge_index`, as `batch[:3]`, has
    a largest value of its own, which is refused.

    Threads: exports of one process run one after another. While one runs, sys.stderr is kept quiet, and functions that
    infer such numbers have other code, which computes the same in other threads.

    Errors: InputError of one line, with the line of the module that cannot be exported.
    """
    target = pathlib.Path(path)
    _check(module, target)
    import torch

    from permafrost.exporting import archive, inputs, ints
    from permafrost.exporting.refusals import refused
    from permafrost.exporting.sizes import as_int

    taken = inputs.read_signature(module)
    rows = inputs.make_rows(taken, example, module)
    copied = copy.deepcopy(module).cpu()
    with _quiet(), ints.followed(as_int) as calls, torch.random.fork_rng(devices=[]):
        try:
            programs = _programs(copied, taken, rows, calls)
        except InputError:
            raise
        except Exception as error:
            raise refused(error, module, rows.shown(), lambda: _programs(copied, taken, rows, calls)) from error
    try:
        archive.write(target, module, programs, rows)
    except OSError as error:
        raise InputError(f"path: {target}: {error.strerror}") from error
    return target


def export_for(
    module: Any, dataset: Any, path: str | os.PathLike[str], loss: str | None = None, links: bool = False
) -> pathlib.Path:
    """Exports a module with an example made from a permafrost.v1.Dataset's columns, in PyG's first form that fits.

    Errors: InputError, which tells for each form why the module does not run on it.
    """
    _check(module, pathlib.Path(path))
    from permafrost.exporting.examples import fitting

    return export(module, fitting(module, dataset, loss, links), path)


def _check(module: Any, target: pathlib.Path) -> None:
    try:
        import torch
        import torch_geometric  # noqa: F401
    except ImportError as error:
        raise needs("export", "pyg", error) from error
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST_TORCH:
        raise InputError(f"export: torch {torch.__version__} is installed; 2.11 or a later one is needed")
    if target.suffix != ".pt2":
        raise InputError(f"path: {str(target)!r} does not end in .pt2")
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"module: a torch.nn.Module is needed, not a {type(module).__name__}")
    if any(torch.nn.parameter.is_lazy(value) for value in (*module.parameters(), *module.buffers())):
        raise InputError("module: it has parameters without a size yet; run it once on a batch")


def _programs(module: Any, taken: Any, rows: Any, calls: Any) -> dict[str, Any]:
    from permafrost.exporting import inputs, sizes
    from permafrost.exporting.refusals import check

    # Copies, for a forward changes statistics and caches.
    for training in FORMS.values():
        inputs.find_needed(copy.deepcopy(module).train(training), taken, rows, calls)
    calls.follow()
    made = {}
    for form, training in FORMS.items():
        made[form] = _exported(inputs.wrap(copy.deepcopy(module), taken, rows, calls).train(training), rows, calls)
        sizes.erase_unused(made[form])
        check(made[form], rows)
    return made


def _exported(module: Any, rows: Any, calls: Any) -> Any:
    """Exports one form. A module that needs more than two rows, as SortAggregation does, gets as many as torch says."""
    import torch

    while True:
        try:
            return torch.export.export(module, rows.arguments(), dynamic_shapes=rows.dynamic_shapes(), strict=False)
        except Exception as error:
            # A branch that is taken only here may infer a number too.
            if not rows.raise_least(str(error)) and not calls.follow():
                raise


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps torch from logging and printing what an error of ours says, in one line."""
    log = logging.getLogger("torch")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
