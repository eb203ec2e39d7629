"""The client, with which every program begins."""

from __future__ import annotations

import os
import uuid
from types import TracebackType
from typing import Any

from permafrost.cache import Cache
from permafrost.connection import Connection, find_credentials, find_target
from permafrost.datasets import Datasets
from permafrost.html import table
from permafrost.job import Job
from permafrost.jobs import Jobs
from permafrost.programs import Programs
from permafrost.public import own_errors
from permafrost.uploads import Uploads
from permafrost.v1 import server_pb2


@own_errors
class Client:
    """A connection to one server. Threads: all methods are thread-safe. It is a context manager; `close()` ends it.

    target: HOST:PORT or unix:PATH. Without it, the address comes from `state_dir`/endpoint.json, which a daemon on
        this machine writes; the daemon's unix socket is taken if the address needs a token or TLS. Without that, the
        variable PERMAFROST_SERVER counts, else 127.0.0.1:7433.
    timeout: seconds for each answer. Streams (watching, waiting, uploading) have no limit.
    token, token_file: a bearer token, or the file that holds it (default: PERMAFROST_TOKEN, PERMAFROST_TOKEN_FILE).
    tls: speak TLS, with the authorities that gRPC knows (PERMAFROST_TLS). The next three imply it.
    ca_cert: file with the certificate, in PEM, of the authority that signed the server's (PERMAFROST_CA_CERT).
    client_cert, client_key: files of the client's own certificate and key (PERMAFROST_CLIENT_CERT,
        PERMAFROST_CLIENT_KEY).
    patience: how many seconds everything that waits or uploads waits for a server that went away.

    Nothing is sent before the first call. Errors are `PermafrostError`s.
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        state_dir: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
        patience: float = 60.0,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        tls: bool | None = None,
        ca_cert: str | os.PathLike[str] | None = None,
        client_cert: str | os.PathLike[str] | None = None,
        client_key: str | os.PathLike[str] | None = None,
    ) -> None:
        found = find_target(target, state_dir)
        credentials = find_credentials(found, token, token_file, tls, ca_cert, client_cert, client_key)
        self._connection = Connection(found, timeout, patience, credentials)
        self.datasets = Datasets(self._connection)
        self.jobs = Jobs(self._connection)
        self.programs = Programs(self._connection)
        self.uploads = Uploads(self._connection)

    @property
    def target(self) -> str:
        return self._connection.target

    def cache(self, job: Job | str) -> Cache:
        """Returns the graph cache of a job."""
        return Cache(self._connection, job if isinstance(job, str) else job.id)

    def server_info(self) -> Any:
        """Returns the server's version, device, import roots ... as permafrost.v1.ServerInfo."""
        return self._connection.call(self._connection.server.GetServerInfo, server_pb2.GetServerInfoRequest())

    def backup(self, directory: str, *, with_datasets: bool = False) -> Any:
        """Makes a full copy of the server's state, from which another server can go on, and waits for it. This server
        goes on too.

        directory: a name below the server's --backup-root, or the full path of such a directory, on the server's
            machine.
        with_datasets: copy the datasets too. Without them, a server that goes on from the copy pauses the unfinished
            jobs until their datasets are imported again.
        Returns the permafrost.v1.BackupSummary. Needs an admin.
        """
        # With this random id, a server that has restarted can tell what came of the backup.
        request = server_pb2.BackupRequest(
            directory=directory, with_datasets=with_datasets, request_id=str(uuid.uuid4())
        )
        summary = server_pb2.BackupSummary()
        for response in self._connection.follow(self._connection.server.Backup, lambda: request):
            summary = response.summary
        return summary

    def confirm_clock(self) -> Any:
        """Confirms that the server's wall clock is right after a jump (`server_info().clock_jump`). From then on the
        server again deletes jobs and uploads because of their age. Returns the permafrost.v1.ConfirmClockResponse.
        Needs an admin."""
        return self._connection.change(self._connection.server.ConfirmClock, server_pb2.ConfirmClockRequest())

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.target!r})"

    def _repr_html_(self) -> str:
        info = self.server_info()
        return table(
            f"Permafrost {info.version} at {self.target}",
            [
                ("device", f"{info.device}, {info.threads} threads"),
                ("jobs", f"{info.running_jobs} running, {info.queued_jobs} queued, {info.paused_jobs} paused"),
                ("datasets", info.datasets),
                ("import roots", ", ".join(info.import_roots)),
            ],
        )
