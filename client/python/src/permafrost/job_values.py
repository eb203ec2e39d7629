"""Turns a server's answers about a job into plain values: texts, numbers, and dicts of them. Times are in UTC."""

from __future__ import annotations

import datetime
from typing import Any

from google.rpc import error_details_pb2

from permafrost import fields
from permafrost.v1 import job_pb2

_METRICS = job_pb2.Metric.DESCRIPTOR


def error_reason(status: Any) -> str:
    """Returns the reason in the status's ErrorInfo; empty if the status has none."""
    info = error_details_pb2.ErrorInfo()
    for detail in status.details:
        if detail.Unpack(info):
            return str(info.reason)
    return ""


def state_change(proto: Any) -> dict[str, Any]:
    return {
        "state": fields.enum_name(job_pb2.Job.State.DESCRIPTOR, proto.state),
        "time": proto.time.ToDatetime(tzinfo=datetime.timezone.utc),
        "reason": proto.reason,
        "message": proto.message,
    }


def result(proto: Any) -> dict[str, Any]:
    shown = {
        f.name: fields.metric_values(getattr(proto, f.name)) if f.is_repeated else getattr(proto, f.name)
        for f in proto.DESCRIPTOR.fields
    }
    shown["metric"] = fields.enum_name(_METRICS, proto.metric)
    # Only jobs that predict links count unranked links, so counts of zero are left out.
    return {k: v for k, v in shown.items() if v or not k.startswith("unranked_")}


def epoch(proto: Any) -> dict[str, Any]:
    row = {f.name: getattr(proto, f.name) for f in proto.DESCRIPTOR.fields if not f.is_repeated}
    row["metric"] = fields.enum_name(_METRICS, proto.metric)
    return row | {f"valid_{name}": value for name, value in fields.metric_values(proto.valid_metrics).items()}


def checkpoint(proto: Any) -> dict[str, Any]:
    row = {f.name: getattr(proto, f.name) for f in proto.DESCRIPTOR.fields}
    row["state"] = fields.enum_name(job_pb2.Checkpoint.State.DESCRIPTOR, proto.state)
    row["create_time"] = proto.create_time.ToDatetime(tzinfo=datetime.timezone.utc)
    return row


def evaluation(proto: Any) -> dict[str, Any]:
    rows = fields.enum_name(proto.DESCRIPTOR.fields_by_name["rows"].enum_type, proto.rows)
    told: dict[str, Any] = {"dataset": proto.dataset.removeprefix("datasets/"), "rows": rows}
    if proto.notes:
        told["notes"] = list(proto.notes)
    if proto.unranked_links:
        told["unranked_links"] = proto.unranked_links
    return told | {"num_rows": proto.num_rows, "loss": proto.loss} | fields.metric_values(proto.metrics)
