"""Tests tokens: by argument, by file, by variable, and where the client does not send them."""

import json
import subprocess

import pytest


def make_token(server, role):
    permafrost = server.program.with_name("permafrost")
    made = subprocess.run([permafrost, "--server", f"unix:{server.state_dir}/permafrost.sock", "--output", "json", "server", "token", "create",
                           "--role", role], check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(made)["secret"]


def test_a_token_opens_what_its_role_may_do(make_server, tmp_path, monkeypatch):
    from permafrost import Client, PermissionDenied, Unauthenticated

    server = make_server("--auth", "token")
    with Client(server.target) as client, pytest.raises(Unauthenticated, match="no token"):
        client.server_info()
    secret = make_token(server, "viewer")
    file = tmp_path / "token"
    file.write_text(secret + "\n")
    for credentials in ({"token": secret}, {"token_file": file}):
        with Client(server.target, **credentials) as client:
            assert client.server_info().auth == "token"
            assert list(client.jobs.list()) == []
            with pytest.raises(PermissionDenied, match="needs role operator"):
                client.datasets.delete("zinc")
    monkeypatch.setenv("PERMAFROST_TOKEN_FILE", str(file))
    with Client(server.target) as client:
        assert client.server_info().auth == "token"
    monkeypatch.delenv("PERMAFROST_TOKEN_FILE")
    with Client(state_dir=server.state_dir) as client:
        assert client.target.startswith("unix:")
        assert client.server_info().auth == "token"


def test_what_cannot_be_right_is_found_before_a_call(tmp_path):
    from permafrost import Client, InputError

    for credentials, message in [
        ({"token": "pft_x"}, "plain text"),
        ({"token_file": tmp_path / "none"}, "token_file"),
        ({"ca_cert": tmp_path / "none"}, "ca_cert"),
        ({"token": "two words", "tls": True}, "token: is none"),
    ]:
        with pytest.raises(InputError, match=message) as caught:
            Client("example.org:7433", **credentials)
        assert "pft_x" not in str(caught.value)
