"""Tests backups of the running server from Python."""

import json

import pytest


def test_a_backup_is_whole(make_server, tmp_path_factory):
    from permafrost import Client

    root = tmp_path_factory.mktemp("backups")
    with Client(make_server("--backup-root", str(root)).target) as client:
        summary = client.backup("one", with_datasets=True)
    assert summary.path == str(root / "one")
    held = json.loads((root / "one" / "backup.json").read_text())["backup"]["files"]
    assert summary.files == len(held)
    assert "permafrost.db" in held


def test_without_a_root_the_flag_is_named(make_server):
    from permafrost import Client, FailedPrecondition

    with Client(make_server().target) as client, pytest.raises(FailedPrecondition, match="--backup-root"):
        client.backup("one")
