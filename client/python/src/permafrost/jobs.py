"""The training jobs of a server."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import MessageToDict

from permafrost import fields
from permafrost.connection import Connection
from permafrost.errors import InputError, needs
from permafrost.html import table
from permafrost.job import Job
from permafrost.modules import is_module, named_program, send
from permafrost.names import dataset_name, job_name, program_name
from permafrost.public import own_errors
from permafrost.v1 import job_pb2

if TYPE_CHECKING:
    import pandas

    from permafrost.datasets import Dataset

_STATES = job_pb2.Job.State.DESCRIPTOR
__all__ = ["Job", "Jobs"]


@own_errors
class Jobs:
    """The jobs of a server: `client.jobs`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def submit(
        self,
        dataset: Dataset | str,
        model: Any = None,
        *,
        example: Any = None,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Job:
        """Queues a job. The job is on disk when this returns.

        dataset: the dataset, or its name.
        model: an architecture ("gine", "sage", "gcn" ...), a dict of the fields of ModelSpec, a `Program`, or a
            torch.nn.Module. A module is exported as it is, with its weights (`permafrost.export`), and sent. Equal
            modules share a program. `Job.load_into(module)` gives the module the job's weights.
        example: for a module, the example that `permafrost.export` takes. Without it, the dataset's columns decide. x
            and edge_attr are [rows, columns], int64 for categories and float32 otherwise. A single column becomes
            [rows] if the module does not run on [rows, 1]. Node features of one large graph are always float32. A
            module that returns (prediction, loss) takes y, with a row for each graph or node of a batch. y holds
            int64 classes [rows] if the job's loss is cross_entropy (the default on one large graph), else float32 in
            the prediction's shape.
        id: the id of the job; the server makes one if it is not given.
        labels: keys and values to find the job by, such as {"team": "gnn"}: `client.jobs.list(filter='labels.team =
            "gnn"')`.
        spec: fields of permafrost.v1.JobSpec, or of the messages in it: epochs=20, batch_size=32, learning_rate=1e-3,
            hidden_channels=64, loss="mse", optimizer="adamw", fan_outs=[10, 5], graph_cache="freeze",
            init_from=another job or its id, max_runtime=timedelta(hours=2), deadline=timedelta(days=1) from now, or a
            datetime ...

        Each note of the job (`Job.notes`), such as that it has no rows to validate on, is shown as a warning.
        Errors: InputError for an unknown field, naming the nearest one, and for a module that cannot be exported,
        with its line; InvalidArgument with a violation for each value that the server refuses; NotFound,
        FailedPrecondition for the dataset.
        """
        if is_module(model):
            links = spec.get("link_prediction") is not None
            model = send(self._connection, dataset, model, example, spec.get("loss"), links)
        elif example is not None:
            raise InputError("submit: example: it is for a torch.nn.Module, which is not given")
        return self._submit(job_request(dataset, model, id, spec, labels))

    def validate(self, dataset: Dataset | str, model: Any = None, **spec: Any) -> None:
        """Makes the checks of `submit`, and creates nothing. model: as in `submit`, except for a torch.nn.Module,
        which would need a program on the server."""
        if is_module(model):
            raise InputError("validate: model: a module; accepted: a program, from client.programs.import_file")
        self._create(job_request(dataset, model, None, spec, None), validate_only=True)

    def get(self, id: str) -> Job:
        """Returns one job. Errors: NotFound."""
        return Job(
            self._connection,
            self._connection.call(self._connection.jobs.GetJob, job_pb2.GetJobRequest(name=job_name(id))),
        )

    def list(self, *states: str, filter: str = "") -> list[Job]:
        """Returns jobs, newest first: all, or those in one of `states` ("running", "queued" ...) that match `filter`,
        such as 'labels.team = "gnn" AND priority >= 5' (permafrost.v1.ListJobsRequest.filter has the grammar)."""
        request = job_pb2.ListJobsRequest(page_size=1000, filter=filter)
        fields.fill(request, {"states": states}, "list")
        found: list[Job] = []
        while True:
            page = self._connection.call(self._connection.jobs.ListJobs, request)
            found += [Job(self._connection, job) for job in page.jobs]
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    def compare(self, *jobs: Job | str) -> pandas.DataFrame:
        """Returns a table with a column for each job: its state, the fields of the description in which the jobs
        differ, and its result. A field that a job does not have is None or NaN. 64-bit integers of a description are
        text. Errors: NotFound. Needs pandas."""
        try:
            import pandas
        except ImportError as error:
            raise needs("jobs.compare()", "pandas", error) from None
        asked = [self.get(job.id if isinstance(job, Job) else job) for job in jobs]
        described = [_flat(MessageToDict(job.proto.spec, preserving_proto_field_name=True)) for job in asked]
        names = dict.fromkeys(name for spec in described for name in spec)
        differing = [name for name in names if len({repr(spec.get(name)) for spec in described}) > 1]
        columns = {}
        for job, spec in zip(asked, described, strict=True):
            result = {name: value for name, value in _flat(job.result).items() if name != "metric"}
            columns[job.id] = {"state": job.state, **{name: spec.get(name) for name in differing}, **result}
        return pandas.DataFrame(columns, dtype=object)

    def delete(self, id: str) -> None:
        """Deletes an ended job with its checkpoints and log. Errors: NotFound; FailedPrecondition if the job has not
        ended."""
        self._connection.change(self._connection.jobs.DeleteJob, job_pb2.DeleteJobRequest(name=job_name(id)))

    def _submit(self, request: Any) -> Job:
        job = Job(self._connection, self._create(request, validate_only=False))
        for note in job.notes:
            warnings.warn(f"job {job.id}: {note}", stacklevel=2)
        return job

    def _create(self, request: Any, *, validate_only: bool) -> Any:
        request.validate_only = validate_only
        connection = self._connection
        return connection.patiently(lambda: connection.call(connection.jobs.CreateJob, request))

    def __iter__(self) -> Iterator[Job]:
        return iter(self.list())

    def __repr__(self) -> str:
        return f"Jobs({self._connection.target!r})"

    def _repr_html_(self) -> str:
        rows = [
            (job.id, job.state, job.proto.spec.dataset.removeprefix("datasets/"), job._where()) for job in self.list()
        ]
        return table("Jobs", rows, ("job", "state", "dataset", "progress"))


def job_request(
    dataset: Dataset | str, model: Any, id: str | None, spec: dict[str, Any], labels: Mapping[str, str] | None
) -> Any:
    """Returns the permafrost.v1.CreateJobRequest for arguments of `Jobs.submit`. Its random request_id makes a retry
    safe."""
    request = job_pb2.CreateJobRequest(job_id=id or "", request_id=str(uuid.uuid4()))
    fields.set_labels(request.labels, labels or {}, "submit")
    request.spec.dataset = dataset_name(dataset)
    if isinstance(spec.get("init_from"), (Job, str)):
        spec["init_from"] = {"job": spec["init_from"]}
    if isinstance(spec.get("init_from"), Mapping) and spec["init_from"].get("job") is not None:
        origin = spec["init_from"]["job"]
        id_of = origin.id if isinstance(origin, Job) else str(origin)
        spec["init_from"] = {**spec["init_from"], "job": job_name(id_of)}
    if spec.get("program") is not None:
        spec["program"] = program_name(spec["program"])
    fields.fill(request.spec, {"model": named_program(model), **spec}, "submit")
    return request


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Flattens nested dicts: {"model": {"hidden_channels": 64}} becomes {"model.hidden_channels": 64}."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{above}{name}.") if isinstance(value, Mapping) else {f"{above}{name}": value}
    return flat
