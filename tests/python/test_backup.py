"""Backups of the running server, asked for from Python."""

import json

import pytest


def test_a_backup_is_whole_and_refused_without_a_root(make_server, tmp_path):
    from permafrost import Client, FailedPrecondition

    server = make_server("--backup-root", str(tmp_path))
    with Client(server.target) as client:
        summary = client.backup("one", with_datasets=True)
        assert summary.path == str(tmp_path / "one")
        held = json.loads((tmp_path / "one" / "backup.json").read_text())["backup"]["files"]
        assert summary.files == len(held)
        assert "permafrost.db" in held
    server = make_server()
    with Client(server.target) as client, pytest.raises(FailedPrecondition, match="--backup-root"):
        client.backup("one")
