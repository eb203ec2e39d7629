"""The graph cache of a job."""

from __future__ import annotations

from typing import Any

from permafrost import fields
from permafrost.connection import Connection
from permafrost.html import table
from permafrost.public import own_errors
from permafrost.v1 import graph_cache_pb2


@own_errors
class Cache:
    """The graph cache of one job, which holds its executables. A command takes effect at the job's next step, and
    returns the cache as it is then, as permafrost.v1.GraphCache. Errors: NotFound; FailedPrecondition if the job has
    ended."""

    def __init__(self, connection: Connection, job_id: str) -> None:
        self._connection = connection
        self.name = f"jobs/{job_id.removeprefix('jobs/')}/graphCache"

    def get(self) -> Any:
        return self._connection.call(
            self._connection.caches.GetGraphCache, graph_cache_pb2.GetGraphCacheRequest(name=self.name)
        )

    def freeze(self) -> Any:
        """Freezes the cache: from the next step on, nothing is added to it."""
        return self._command(self._connection.caches.FreezeGraphCache, graph_cache_pb2.FreezeGraphCacheRequest)

    def thaw(self) -> Any:
        return self._command(self._connection.caches.ThawGraphCache, graph_cache_pb2.ThawGraphCacheRequest)

    def clear(self) -> Any:
        return self._command(self._connection.caches.ClearGraphCache, graph_cache_pb2.ClearGraphCacheRequest)

    def policy(self, **changes: Any) -> Any:
        """Changes the given fields of the policy, and returns it as permafrost.v1.GraphCachePolicy. Fields:
        policy="freeze", freeze_at, on_miss, shapes, rungs, audit_every, strict, max_executables."""
        if not changes:
            return self.get().policy
        request = graph_cache_pb2.UpdateGraphCachePolicyRequest(name=self.name)
        fields.fill(request.policy, changes, "policy")
        request.policy.SetInParent()
        return self._connection.change(self._connection.caches.UpdateGraphCachePolicy, request).policy

    def stats(self) -> dict[str, dict[str, Any]]:
        """Returns the counters of each mode ("train", "eval"): entries, hits, padded_hits, misses, captures ..."""
        mode = graph_cache_pb2.GraphCacheMode.DESCRIPTOR
        return {
            fields.enum_name(mode, row.mode): {
                field.name: getattr(row, field.name) for field in row.DESCRIPTOR.fields if field.name != "mode"
            }
            for row in self.get().statistics
        }

    def _command(self, method: Any, request: Any) -> Any:
        return self._connection.change(method, request(name=self.name))

    def __repr__(self) -> str:
        return f"Cache({self.name!r})"

    def _repr_html_(self) -> str:
        stats = self.stats()
        shown = ("entries", "hits", "padded_hits", "misses", "captures", "eager_steps", "capture_seconds")
        rows = [[mode, *(of[name] for name in shown)] for mode, of in stats.items()]
        return table(self.name, rows, ("mode", *shown))
