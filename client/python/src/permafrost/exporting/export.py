"""`export` writes a module's two forms, for training and evaluation, into one archive."""

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

# The forms of a program, and whether the module is in training mode.
FORMS = {"train": True, "eval": False}
# Earlier versions write another schema of the archive.
OLDEST_TORCH = (2, 11)


def export(module: Any, example: Any, path: str | os.PathLike[str]) -> pathlib.Path:
    """Writes a PyTorch module as a program, which is a file that a server trains, and returns the path.

    `client.programs.import_file(name, path)` and `permafrost program import` give the file to a server.
    `client.jobs.submit(dataset, module)` exports by itself. Equal modules give equal files, byte for byte, with the
    same PyTorch, PyG and source.

    module: its `forward` takes any of these parameters, by name: `x`, `edge_index`, `edge_attr`, `edge_weight`,
        `batch`, `batch_size` or `num_graphs`, `num_nodes`, `pos`, `y` and `edge_label_index`; or it takes a PyG
        `Data`. It returns a prediction whose rows are graphs, nodes, edges or links; a server does not train
        predictions of edges. If it takes `y`, it may return (prediction, loss). That loss replaces the job's, and
        must be the mean over the rows that have a label. The label is missing where it is NaN, or -100 for int64
        classes, which torch's cross_entropy ignores; nodes that are not predicted for have such a label. The module
        itself does not change, since a copy is exported.
    example: PyG data, a list of it, or a dict of tensors by the names above. It gives the types and columns of the
        inputs. Its number of rows does not matter: the program takes any number, unless the module itself needs a
        minimum.
    path: must end in .pt2. `torch.export.pt2_archive.load_pt2` reads the file. The file holds `models/train.json` and
        `models/eval.json` over the same weights, and `extra/permafrost.json`, which describes both.

    PyG infers some numbers from values. They become inputs of the program instead: the number of graphs in
    `global_mean_pool(x, batch)` or GraphNorm, and the number of nodes of the largest graph in `to_dense_batch`.

    `int(batch.max())` and `batch.max().item()` count as such numbers if they are written like this in a function
    whose source can be read; `map(int, ...)` does not count. A part of `batch` or `edge_index`, such as `batch[:3]`,
    has a maximum of its own, which is refused.

    Threads: exports of one process run one after another. While one runs, sys.stderr is silenced, and functions that
    infer such numbers run replaced code, which computes the same in other threads.

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
    """Exports a module with an example that is made from the columns of a permafrost.v1.Dataset, in the first form
    that fits.

    Errors: InputError, which says for each form why the module does not run on it.
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

    # Runs copies, because a forward changes statistics and caches.
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
    """Exports one form. A module that needs more than two rows, such as SortAggregation, gets as many as torch
    suggests."""
    import torch

    while True:
        try:
            return torch.export.export(module, rows.arguments(), dynamic_shapes=rows.dynamic_shapes(), strict=False)
        except Exception as error:
            # A branch that runs only during the export may also infer a number.
            if not rows.raise_least(str(error)) and not calls.follow():
                raise


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences torch's logs and prints, since the InputError says the same in one line."""
    log = logging.getLogger("torch")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
