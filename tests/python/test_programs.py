"""Tests client.programs: what it sends, and its errors."""

import permafrost
import pytest
import xxhash

from tests.python.program_server import ProgramServer


@pytest.fixture
def programs():
    """Yields the programs of a server that keeps them, and that server."""
    server = ProgramServer()
    with permafrost.Client(server.target) as client:
        yield client.programs, server
    server.server.stop(0)


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "net.pt2"
    path.write_bytes(bytes(range(256)) * 6_000)  # three pieces
    return path


def test_a_file_is_imported_listed_and_deleted(programs, archive):
    programs, server = programs
    program = programs.import_file("net", archive, progress=False)
    assert server.files["programs/net"] == archive.read_bytes()
    assert (program.id, program.bytes) == ("net", archive.stat().st_size)
    assert program.xxh3 == xxhash.xxh3_64_hexdigest(archive.read_bytes())
    assert program.inputs == {"x": "int64[N, 2]", "num_graphs": "int"}
    assert (program.outputs, program.operators) == ({"squeeze": "float32[G]"}, ["aten.add.Tensor"])
    assert (program.parameters, program.num_parameters) == ({"head.weight": "float32[1, 4]"}, 4)
    assert repr(program) == "<Program net: x int64[N, 2], num_graphs int>"
    assert "torch" in program._repr_html_()

    programs.import_file("programs/other", archive, progress=False)
    assert [one.id for one in programs] == ["net", "other"]
    assert programs.get("net").etag == program.etag
    with pytest.raises(permafrost.Aborted) as caught:
        programs.delete("net", etag="none")
    assert caught.value.reason == "ETAG_MISMATCH"
    programs.delete("net", etag=program.etag)
    for call in (programs.get, programs.delete):
        with pytest.raises(permafrost.NotFound) as caught:
            call("net")
        assert caught.value.reason == "PROGRAM_NOT_FOUND"


def test_a_name_keeps_its_file(programs, archive):
    programs, _ = programs
    first = programs.import_file("net", archive, progress=False)
    assert programs.import_file("net", archive, progress=False).etag == first.etag
    archive.write_bytes(b"another")
    with pytest.raises(permafrost.AlreadyExists) as caught:
        programs.import_file("net", archive, progress=False)
    assert caught.value.reason == "PROGRAM_ALREADY_EXISTS"


def test_a_lost_answer_is_asked_for_again(programs, archive):
    programs, server = programs
    server.lose = 1
    assert programs.import_file("net", archive, progress=False).id == "net"
    assert len(server.requests) == 2
    assert server.requests[0].request_id == server.requests[1].request_id != ""


def test_refuses_what_is_no_file(programs, tmp_path):
    programs, server = programs
    with pytest.raises(permafrost.InputError, match=r"none.pt2: not found$"):
        programs.import_file("net", tmp_path / "none.pt2")
    with pytest.raises(permafrost.InputError, match=r": is no file$"):
        programs.import_file("net", tmp_path)
    assert server.requests == []


def test_shows_its_progress(programs, archive, capfd):
    programs.__getitem__(0).import_file("net", archive)
    assert "upload net.pt2" in capfd.readouterr().err
