"""One training job: follows it, changes it, and reads its results."""

from __future__ import annotations

import datetime
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from permafrost import fields, job_values
from permafrost.artifacts import read_predictions, receive
from permafrost.connection import Connection
from permafrost.errors import DataLoss, InputError, JobFailed, needs
from permafrost.html import table
from permafrost.names import dataset_name
from permafrost.public import own_errors
from permafrost.v1 import job_pb2

if TYPE_CHECKING:
    import pandas
    import torch

    from permafrost.datasets import Dataset

_STATES = job_pb2.Job.State.DESCRIPTOR
_METRICS = job_pb2.Metric.DESCRIPTOR
_ENDED = (job_pb2.Job.STATE_SUCCEEDED, job_pb2.Job.STATE_FAILED, job_pb2.Job.STATE_CANCELLED)


@own_errors
class Job:
    """A snapshot of a job. `refresh()`, and every method that waits, fetches it again.

    proto: everything that is known of it, as permafrost.v1.Job.
    """

    def __init__(self, connection: Connection, proto: Any) -> None:
        self._connection = connection
        self.proto = proto

    @property
    def id(self) -> str:
        return str(self.proto.name.removeprefix("jobs/"))

    @property
    def target(self) -> str:
        """The address of the job's server."""
        return self._connection.target

    @property
    def state(self) -> str:
        """ "queued", "preparing", "warming_up", "running", "paused", "recovering", "cancelling", "succeeded", "failed"
        or "cancelled"."""
        return fields.enum_name(_STATES, self.proto.state)

    @property
    def ended(self) -> bool:
        return self.proto.state in _ENDED

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.proto.labels)

    @property
    def notes(self) -> list[str]:
        """Notes for the job's user, found when it was submitted, such as that it has no rows to validate on."""
        return list(self.proto.notes)

    @property
    def error(self) -> str:
        """The reason, in one line, why the job failed or why the machine keeps it from running."""
        return str(self.proto.error or self.proto.last_error)

    @property
    def error_reason(self) -> str:
        """The reason why the job failed, for programs: "OUT_OF_MEMORY", "MAX_RUNTIME" ...
        (permafrost.v1.Job.error_status). Empty if it did not fail."""
        return job_values.error_reason(self.proto.error_status)

    @property
    def state_changes(self) -> list[dict[str, Any]]:
        """The changes of the job's state so far, in order: state, time (UTC), reason, such as "PREEMPTED", and
        message."""
        return [job_values.state_change(change) for change in self.proto.state_changes]

    @property
    def device_time(self) -> datetime.timedelta:
        """The total time on the device over all runs of the job."""
        return datetime.timedelta(seconds=self.proto.device_time.ToNanoseconds() / 1e9)

    @property
    def result(self) -> dict[str, Any]:
        """The result of a job that succeeded: best_epoch, best_test_metric, best_test_metrics {"mae": ...} ... Empty
        otherwise."""
        return job_values.result(self.proto.result) if self.proto.HasField("result") else {}

    def refresh(self) -> Job:
        call = self._connection.call
        self.proto = call(self._connection.jobs.GetJob, job_pb2.GetJobRequest(name=self.proto.name))
        return self

    def states(self) -> Iterator[Job]:
        """Yields this job after each change until it has ended. Waits for a server that restarts meanwhile."""
        for proto in self._connection.follow(
            self._connection.jobs.WatchJob, lambda: job_pb2.WatchJobRequest(name=self.proto.name)
        ):
            # A response carries only the epochs that its stream has not carried before.
            epochs = {epoch.epoch: epoch for epoch in (*self.proto.epochs, *proto.epochs)}
            del proto.epochs[:]
            proto.epochs.extend(epochs[number] for number in sorted(epochs))
            self.proto = proto
            yield self

    def wait(self, *, check: bool = True) -> Job:
        """Waits until the job has ended. check: raise JobFailed unless the job succeeded."""
        for _ in self.states():
            pass
        if check and self.state != "succeeded":
            raise JobFailed(f"job {self.id} {_ended_as(self.state)}{': ' if self.error else ''}{self.error}")
        return self

    def watch(self, *, check: bool = True) -> Job:
        """Like `wait`, but shows a progress bar in a terminal or notebook: steps, loss, and the newest epoch's valid
        metric."""
        from tqdm.auto import tqdm
        from tqdm.notebook import tqdm_notebook

        hidden = not sys.stderr.isatty() and not issubclass(tqdm, tqdm_notebook)
        with tqdm(desc=self.id, unit="step", dynamic_ncols=True, disable=hidden) as bar:
            for job in self.states():
                progress = job.proto.progress
                if progress.steps_per_epoch:
                    bar.total = progress.steps_per_epoch * job.proto.spec.epochs
                bar.set_postfix_str(job._where(), refresh=False)
                bar.update(progress.step - bar.n)
        return self.wait(check=check)

    def metrics(self) -> pandas.DataFrame:
        """Returns a table with a row for each epoch, indexed by epoch: train_loss, valid_loss, valid_metric, and a
        column for each metric, such as valid_mae."""
        try:
            import pandas
        except ImportError as error:
            raise needs("job.metrics()", "pandas", error) from None
        rows = self.epochs()
        columns = [f.name for f in job_pb2.EpochMetrics.DESCRIPTOR.fields if not f.is_repeated]
        columns = list(dict.fromkeys([*columns, *(name for row in rows for name in row)]))
        return pandas.DataFrame(rows, columns=columns).set_index("epoch")

    def epochs(self) -> list[dict[str, Any]]:
        """Returns the rows of `metrics` without pandas."""
        return [job_values.epoch(epoch) for epoch in self.refresh().proto.epochs]

    def cancel(self) -> Job:
        """Asks the job to stop at its next step, after a checkpoint. Errors: FailedPrecondition if it has ended."""
        return self._change(self._connection.jobs.CancelJob, job_pb2.CancelJobRequest(name=self.proto.name))

    def pause(self) -> Job:
        """Keeps the job from the device until `resume`. A queued job is paused at once, and a running one at its next
        step, after a checkpoint. Errors: FailedPrecondition if the job has ended."""
        return self._change(self._connection.jobs.PauseJob, job_pb2.PauseJobRequest(name=self.proto.name))

    def resume(self) -> Job:
        """Queues a paused job again. It goes on from its newest checkpoint. Errors: FailedPrecondition if the job has
        ended."""
        return self._change(self._connection.jobs.ResumeJob, job_pb2.ResumeJobRequest(name=self.proto.name))

    def retry(self) -> Job:
        """Queues a failed or cancelled job again. It goes on from its newest checkpoint. A queued job that waits
        after an error of the machine runs now. Errors: FailedPrecondition if the job succeeded or is paused."""
        return self._change(self._connection.jobs.RetryJob, job_pb2.RetryJobRequest(name=self.proto.name))

    def update(
        self,
        *,
        priority: int | None = None,
        labels: Mapping[str, str | None] | None = None,
        max_runtime: datetime.timedelta | float | str | None = None,
        deadline: datetime.datetime | datetime.timedelta | str | None = None,
        only_if_unchanged: bool = False,
    ) -> Job:
        """Changes the job's priority, labels and limits as far as they are given. A label of None is removed, and the
        limit "none" removes a limit; limits are given as in `submit`. only_if_unchanged: raises Aborted if someone
        has updated the job since this snapshot."""
        request = job_pb2.UpdateJobRequest(job=job_pb2.Job(name=self.proto.name))
        if only_if_unchanged:
            request.job.etag = self.proto.etag
        if priority is not None:
            request.job.spec.priority = priority
            request.update_mask.paths.append("spec.priority")
        for name, limit in (("max_runtime", max_runtime), ("deadline", deadline)):
            if limit is None:
                continue
            if limit != "none":
                fields.fill(request.job.spec, {name: limit}, "update")
            request.update_mask.paths.append(f"spec.{name}")
        kept = {key: value for key, value in (labels or {}).items() if value is not None}
        fields.set_labels(request.job.labels, kept, "update")
        request.update_mask.paths.extend(f"labels.{key}" for key in labels or {})
        if not request.update_mask.paths:
            return self.refresh()
        return self._change(self._connection.jobs.UpdateJob, request)

    def _change(self, method: Any, request: Any) -> Job:
        self.proto = self._connection.change(method, request)
        return self

    def checkpoints(self, *, verify: bool = False) -> list[dict[str, Any]]:
        """Returns the checkpoints on disk, newest first: step, state ("complete" or "damaged"), epoch, total_bytes,
        create_time (UTC), error ... verify: the server reads every byte and compares checksums."""
        request = job_pb2.ListCheckpointsRequest(parent=self.proto.name, verify=verify)
        response = self._connection.call(self._connection.jobs.ListCheckpoints, request)
        return [job_values.checkpoint(checkpoint) for checkpoint in response.checkpoints]

    def delete(self) -> None:
        self._connection.change(self._connection.jobs.DeleteJob, job_pb2.DeleteJobRequest(name=self.proto.name))

    def logs(self, *, follow: bool = False) -> Iterator[str] | str:
        """Returns the log so far. With `follow`, yields its pieces as they come, until the job has ended."""
        return self._log_pieces() if follow else "".join(self._log_pieces(follow=False))

    def _log_pieces(self, *, follow: bool = True) -> Iterator[str]:
        offset = 0

        def request() -> Any:
            return job_pb2.StreamJobLogsRequest(name=self.proto.name, offset=offset, follow=follow)

        # A piece may end inside a multi-byte character.
        rest = b""
        for piece in self._connection.follow(self._connection.jobs.StreamJobLogs, request):
            offset = piece.next_offset
            *lines, rest = (rest + piece.data).split(b"\n")
            if lines:
                yield b"\n".join([*lines, b""]).decode(errors="replace")
        if rest:
            yield rest.decode(errors="replace")

    def export(self, path: str | os.PathLike[str], artifact: str = "best_weights") -> pathlib.Path:
        """Writes an artifact to `path`, whole or not at all: "best_weights" or "last_weights" (safetensors), or
        "test_predictions" (CSV). Errors: FailedPrecondition while the job has not produced it; DataLoss if it arrives
        damaged."""
        request = job_pb2.ExportJobRequest(name=self.proto.name)
        fields.fill(request, {"artifact": artifact}, "export")
        pieces = self._connection.stream(self._connection.jobs.ExportJob, request)
        received = ((piece.data, piece.total_bytes, piece.xxh3) for piece in pieces)
        return receive(f"{artifact} of job {self.id}", received, pathlib.Path(path))

    def evaluate(
        self,
        dataset: Dataset | str | None = None,
        *,
        rows: str | None = None,
        weights: str | None = None,
        checkpoint_step: int | None = None,
        metrics: Sequence[str] = (),
        allow_unknown_categories: bool = False,
    ) -> dict[str, Any]:
        """Evaluates the job's weights on the server in one pass over its own dataset, or over another one that fits
        the model. Returns {"dataset", "rows", "num_rows", "loss", and each metric by its name}.

        rows: "train", "valid", "test" or "all". The default is "test" for the job's own dataset, and "all" for
            another dataset and for node2vec.
        weights: "best" (default) or "last". checkpoint_step: takes the weights of that checkpoint instead.
        metrics: without any, the job's own.

        Categories of another dataset are matched by their values in its source. A category that never occurs in the
        job's dataset is refused; with allow_unknown_categories it contributes nothing, and "notes" has a line for
        each such column. Errors: InvalidArgument for what does not fit the model; FailedPrecondition while the job
        has no weights."""
        given = {
            "dataset": dataset,
            "rows": rows,
            "weights": weights,
            "checkpoint_step": checkpoint_step,
            "allow_unknown_categories": allow_unknown_categories,
        }
        request = self._pass(given, metrics)
        for response in self._connection.stream(self._connection.jobs.EvaluateJob, request):
            if response.HasField("result"):
                return job_values.evaluation(response.result)
        raise DataLoss(f"evaluate: the server ended without a result of job {self.id}")

    def predictions(
        self,
        dataset: Dataset | str | None = None,
        *,
        rows: str | None = None,
        weights: str | None = None,
        checkpoint_step: int | None = None,
        path: str | os.PathLike[str] | None = None,
        allow_unknown_categories: bool = False,
    ) -> Any:
        """Returns what the server predicts for each row; the arguments are those of `evaluate`. Graphs and nodes give
        {id: [values]}, with the server's ids. Links give a list of `permafrost.LinkPrediction`: source, target, time
        (for temporal jobs), score and rank. With `path`, the predictions are written there as CSV, whole or not at
        all, and the path is returned."""
        given = {
            "dataset": dataset,
            "rows": rows,
            "weights": weights,
            "checkpoint_step": checkpoint_step,
            "allow_unknown_categories": allow_unknown_categories,
        }
        request = self._pass(given, ())
        request.predictions = True
        responses = self._connection.stream(self._connection.jobs.EvaluateJob, request)
        pieces = ((r.predictions, r.total_bytes, r.xxh3) for r in responses if r.total_bytes)
        what = f"predictions of job {self.id}"
        if path is not None:
            return receive(what, pieces, pathlib.Path(path))
        with tempfile.TemporaryDirectory(prefix="permafrost-") as folder:
            return read_predictions(receive(what, pieces, pathlib.Path(folder) / "file"))

    def _pass(self, given: dict[str, Any], metrics: Sequence[str]) -> Any:
        request = job_pb2.EvaluateJobRequest(name=self.proto.name)
        values = {name: value for name, value in given.items() if value is not None}
        if "dataset" in values:
            values["dataset"] = dataset_name(values["dataset"])
        if metrics:
            values["metrics"] = list(metrics)
        fields.fill(request, values, "evaluate")
        return request

    def _exported(self, artifact: str, read: Callable[[pathlib.Path], Any]) -> Any:
        with tempfile.TemporaryDirectory(prefix="permafrost-") as folder:
            return read(self.export(pathlib.Path(folder) / "file", artifact))

    def to_pyg(self, weights: str = "best") -> torch.nn.Module:
        """Returns the trained PyG module in evaluation mode. `module.spec` describes it, and its forward takes the
        arguments of the PyG module (`permafrost.models`). weights: "best" (of the best validation epoch) or "last"."""
        if weights not in ("best", "last"):
            raise InputError(f"to_pyg: weights: {weights!r} is none of best, last")
        if self._program():
            raise InputError(f"to_pyg: job {self.id} trains a program; accepted: job.load_into(module)")
        try:
            from permafrost import models

            module = self._exported(f"{weights}_weights", models.load).eval()
        except ImportError as error:
            raise needs("job.to_pyg()", "pyg", error) from None
        except ValueError as error:
            raise InputError(f"to_pyg: {error}") from None
        # Weights that an older server wrote lack node_inputs; the job has it.
        model = self.proto.spec.model
        inputs = fields.enum_name(model.DESCRIPTOR.fields_by_name["node_inputs"].enum_type, model.node_inputs)
        if inputs in models.MADE_INPUTS:
            module.spec.setdefault("node_inputs", inputs)
        return module

    def load_into(self, module: torch.nn.Module, weights: str = "best") -> torch.nn.Module:
        """Copies the trained weights into a module by the module's own names, all or none, and returns the module.
        The module stays in its training or evaluation mode.

        module: a module like the one that was submitted. Its parameters and buffers must be those of the job.
        weights: "best" (of the best validation epoch) or "last".
        Errors: InputError for a tensor that only the job or only the module has; FailedPrecondition while the job has
        no weights.
        """
        if weights not in ("best", "last"):
            raise InputError(f"load_into: weights: {weights!r} is none of best, last")
        from permafrost import modules

        self._exported(f"{weights}_weights", lambda path: modules.load(module, path))
        return module

    def predict(self, data: Any = None, pairs: Any = None) -> Any:
        """Returns predictions.

        Without `data`, returns the stored predictions of the test split: {id: [values]} with the server's ids of
        graphs or nodes, or a list of `permafrost.LinkPrediction` for links. With a PyG Data or a list of Data,
        computes them here by `to_pyg()` as a tensor [nodes or graphs, outputs]. For a job that predicts links,
        `pairs` [2, pairs] of nodes of `data` gives their logits [pairs]."""
        if data is None and pairs is not None:
            raise InputError("predict: pairs are given without data; accepted: both")
        if data is None:
            return self._exported("test_predictions", read_predictions)
        module = self.to_pyg()
        from permafrost import models

        try:
            return models.predict(module, data, pairs)
        except ValueError as error:
            raise InputError(f"predict: {error}") from None

    def _program(self) -> str:
        """The id of the program that the job trains. Empty if it trains an architecture of the server."""
        return str(self.proto.spec.model.program).removeprefix("programs/")

    def _where(self) -> str:
        progress = self.proto.progress
        parts = [f"epoch {progress.epoch}/{self.proto.spec.epochs}"]
        if progress.step:
            parts.append(f"loss {progress.loss:.4g}")
        if self.proto.epochs:
            last = self.proto.epochs[-1]
            parts.append(f"valid {fields.enum_name(_METRICS, last.metric)} {last.valid_metric:.4g}")
        return ", ".join(parts)

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.state}: {self._where()}>"

    def _repr_html_(self) -> str:
        spec = self.proto.spec
        rows = [
            ("state", self.state),
            ("dataset", spec.dataset.removeprefix("datasets/")),
            ("model", self._program() or _architecture(spec.model)),
            ("progress", self._where()),
            *((name, f"{value:.6g}" if isinstance(value, float) else value) for name, value in self.result.items()),
        ]
        if self.error:
            rows.append(("error", self.error))
        return table(f"Job {self.id}", rows)


def _architecture(model: Any) -> str:
    return fields.enum_name(model.DESCRIPTOR.fields_by_name["architecture"].enum_type, model.architecture)


def _ended_as(state: str) -> str:
    return "was cancelled" if state == "cancelled" else state
