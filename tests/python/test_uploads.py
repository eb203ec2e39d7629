"""Tests files sent to the server: resumed, checked, bounded."""

import threading
import time

import numpy as np
import pytest
import xxhash

import permafrost
from permafrost.v1 import dataset_pb2

MEGABYTE = 1 << 20


def graph_folder(folder, nodes=2_000, width=1_000):
    """Writes a graph whose features are 8 MB."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    np.save(folder / "edge_index.npy", rng.integers(0, nodes, (2, 4 * nodes)))
    np.save(folder / "node_feat.npy", rng.random((nodes, width), dtype=np.float32))
    return folder


def start(name, **files):
    message = dataset_pb2.UploadStart(name=name)
    for path, content in files.items():
        message.files.add(path=path.replace("__", "/"), bytes=len(content), xxh3=xxhash.xxh3_64_hexdigest(content))
    return dataset_pb2.UploadDatasetRequest(start=message)


def chunk(file, offset, data, xxh3=None):
    of = dataset_pb2.UploadChunk(file=file, offset=offset, data=data, xxh3=xxhash.xxh3_64_intdigest(data) if xxh3 is None else xxh3)
    return dataset_pb2.UploadDatasetRequest(chunk=of)


def send(client, *requests):
    from permafrost.uploads import _call

    return _call(client._connection, iter(requests))


def bytes_below(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def received(upload):
    return [file.received_bytes for file in upload.files]


def test_an_upload_survives_kill_9_and_goes_on_where_it_was(make_server, tmp_path, monkeypatch):
    from permafrost import uploads

    source = graph_folder(tmp_path / "source")
    server = make_server()
    client = server.connect()
    sent = []
    restarted = []
    plain = uploads._Files.chunks

    def chunks(files, begin):
        for request in plain(files, begin):
            sent.append(len(request.chunk.data))
            if not restarted and sum(sent) > 4 * MEGABYTE:
                # The server keeps what it has received by now, and loses the rest of this call. Data already sent may
                # still arrive.
                wait_for(lambda: bytes_below(server.state_dir / "uploads") > 2 * MEGABYTE)
                server.kill()
                restarted.append(threading.Timer(0.5, server.start))
                restarted[0].start()
            yield request

    monkeypatch.setattr(uploads._Files, "chunks", chunks)
    dataset = client.datasets.upload_path(source, "resumed", progress=False)
    restarted[0].join()
    total = sum(path.stat().st_size for path in source.iterdir())
    assert dataset.summary["nodes"] == 2_000
    # Some data were sent before and not sent again.
    assert total <= sum(sent) < total + 4 * MEGABYTE
    features = np.load(source / "node_feat.npy")
    assert list(dataset.proto.graph.node_features.max) == features.max(0).tolist()
    assert list((server.state_dir / "uploads").iterdir()) == []


def test_a_start_alone_tells_what_has_come(client):
    content = b"0,1\n" * 1000
    begin = start("uploads/told", **{"edges.csv": content})
    try:
        assert received(send(client, begin)) == [0]
        assert received(send(client, begin, chunk(0, 0, content[:1000]))) == [1000]
        upload = send(client, begin)
        assert received(upload) == [1000]
        assert not upload.complete
        with pytest.raises(permafrost.FailedPrecondition, match="not all of its files have come"):
            client.datasets._import("early", {}, "uploads/told", False)
        upload = send(client, begin, chunk(0, 1000, content[1000:]))
        assert upload.complete
        dataset = client.datasets._import("told", {"source_path": "edges.csv"}, "uploads/told", False)
        assert dataset.summary["nodes"] == 2
    finally:
        client._connection.datasets.DeleteUpload(dataset_pb2.DeleteUploadRequest(name="uploads/told"))


@pytest.mark.parametrize("path", ["../up", "/etc/up", "a/../../up", "a//b", ".hidden", "a/.b", "", "a\nb", "a\\b", "x" * 300])
def test_paths_stay_within_the_upload(client, server, path):
    with pytest.raises(permafrost.InvalidArgument) as caught:
        send(client, start("uploads/paths", **{path: b""}))
    assert [v.field for v in caught.value.violations] == ["start.files[0].path"]
    assert not (server.state_dir / "uploads" / "paths").exists()


def test_bad_names_and_declarations_are_told_together(client):
    begin = start("uploads/No", **{"../a": b"", "a": b"", "a__b": b""})
    begin.start.files[1].xxh3 = "no"
    begin.start.files[1].bytes = -1
    with pytest.raises(permafrost.InvalidArgument) as caught:
        send(client, begin)
    assert {v.field for v in caught.value.violations} == {
        "start.name", "start.files[0].path", "start.files[1].bytes", "start.files[1].xxh3", "start.files[2].path"}


def test_what_does_not_fit_is_refused(client):
    begin = start("uploads/fits", a=b"0123456789")
    try:
        with pytest.raises(permafrost.InvalidArgument, match="start: is missing"):
            send(client, chunk(0, 0, b"0"))
        with pytest.raises(permafrost.InvalidArgument, match="start: is missing"):
            send(client)
        with pytest.raises(permafrost.InvalidArgument, match="start: comes once"):
            send(client, begin, begin)
        with pytest.raises(permafrost.InvalidArgument, match=r"chunk.file: 1 is outside 0\.\.0"):
            send(client, begin, chunk(1, 0, b"0"))
        with pytest.raises(permafrost.FailedPrecondition, match="chunk.offset: 3 is not 0"):
            send(client, begin, chunk(0, 3, b"0"))
        with pytest.raises(permafrost.InvalidArgument, match="ends at byte 11 of 10"):
            send(client, begin, chunk(0, 0, b"01234567890"))
        with pytest.raises(permafrost.DataLoss, match="from byte 0 on is not what its checksum says"):
            send(client, begin, chunk(0, 0, b"0", xxh3=1))
        with pytest.raises(permafrost.AlreadyExists, match="is there with other files"):
            send(client, start("uploads/fits", b=b"0123456789"))
        assert received(send(client, begin)) == [0]
    finally:
        client._connection.datasets.DeleteUpload(dataset_pb2.DeleteUploadRequest(name="uploads/fits"))


def test_a_file_that_is_not_what_was_declared_is_sent_again(client):
    begin = start("uploads/whole", a=b"0123456789", b=b"")
    try:
        with pytest.raises(permafrost.DataLoss, match="a: has XXH3 .* was declared; send it again"):
            send(client, begin, chunk(0, 0, b"012345678x"))
        assert received(send(client, begin)) == [0, 0]
        assert send(client, begin, chunk(0, 0, b"0123456789")).complete
    finally:
        client._connection.datasets.DeleteUpload(dataset_pb2.DeleteUploadRequest(name="uploads/whole"))
    with pytest.raises(permafrost.NotFound):
        client.datasets._import("gone", {}, "uploads/whole", False)


def test_a_source_path_stays_within_the_upload(client):
    begin = start("uploads/source", **{"edges.csv": b"0,1\n"})
    try:
        assert send(client, begin, chunk(0, 0, b"0,1\n")).complete
        for path in ("../upload.json", "/etc/passwd", "a/../../upload.json"):
            with pytest.raises(permafrost.InvalidArgument, match="is not a path in the upload"):
                client.datasets._import("escaped", {"source_path": path}, "uploads/source", False)
    finally:
        client._connection.datasets.DeleteUpload(dataset_pb2.DeleteUploadRequest(name="uploads/source"))


def test_a_changing_file_is_given_up(client, tmp_path, monkeypatch):
    from permafrost import uploads

    source = tmp_path / "edges.csv"
    source.write_text("0,1\n")
    plain = uploads._Files.chunks

    def chunks(files, begin):
        source.write_text("0,2\n")
        return plain(files, begin)

    monkeypatch.setattr(uploads._Files, "chunks", chunks)
    with pytest.raises(permafrost.DataLoss, match="edges.csv: has XXH3"):
        client.datasets.upload_path(source, "changing", progress=False)


def test_hidden_files_stay_here(tmp_path):
    from permafrost import uploads

    source = tmp_path / ".source"
    (source / "raw" / ".git").mkdir(parents=True)
    for name in (".DS_Store", "raw/edge.csv", "raw/.edge.csv.swp", "raw/.git/config"):
        (source / name).write_text("0,1\n")
    assert list(uploads._Files(source).paths) == ["raw/edge.csv"]
    (source / "raw" / "edge.csv").unlink()
    with pytest.raises(permafrost.InputError, match="holds no files"):
        uploads._Files(source)


def test_the_removal_does_not_wait_for_a_server_that_is_away(tmp_path, monkeypatch):
    from permafrost import uploads

    (tmp_path / "edges.csv").write_text("0,1\n")
    monkeypatch.setattr(uploads, "_send", lambda *_: None)
    with permafrost.Client("127.0.0.1:1", patience=60) as client:
        with uploads.upload_folder(client._connection, tmp_path, progress=False):
            began = time.monotonic()
        assert time.monotonic() - began < 30


def test_the_limit_is_of_all_uploads_together(make_server):
    server = make_server("--max-upload", "1MB")
    client = server.connect()
    assert not send(client, start("uploads/first", a=b"0" * 600_000)).complete
    with pytest.raises(permafrost.ResourceExhausted, match=r"1000000 bytes of all uploads together \(--max-upload\)") as caught:
        send(client, start("uploads/second", a=b"0" * 600_000))
    assert caught.value.reason == "UPLOAD_TOO_LARGE"
    assert caught.value.metadata["limit"] == "1000000"
    assert caught.value.retry_after is None
    client._connection.datasets.DeleteUpload(dataset_pb2.DeleteUploadRequest(name="uploads/first"))
    assert not send(client, start("uploads/second", a=b"0" * 600_000)).complete


def test_uploads_can_be_turned_off(make_server):
    server = make_server("--max-upload", "0")
    client = server.connect()
    with pytest.raises(permafrost.ResourceExhausted, match="uploads are turned off"):
        send(client, start("uploads/first", a=b""))


def test_one_call_at_a_time_sends_to_an_upload(client, server):
    begin = start("uploads/busy", a=b"0" * 10)
    go_on = threading.Event()

    def requests():
        yield begin
        yield chunk(0, 0, b"0" * 5)
        go_on.wait(60)

    outcome = []
    call = threading.Thread(target=lambda: outcome.append(client._connection.datasets.UploadDataset(requests())))
    call.start()
    try:
        staged = server.state_dir / "uploads" / "busy" / "files" / "a"
        while call.is_alive() and not (staged.exists() and staged.stat().st_size == 5):
            time.sleep(0.01)
        with pytest.raises(permafrost.Unavailable, match="another call sends to it") as caught:
            send(client, begin)
        assert caught.value.retry_after is not None
    finally:
        go_on.set()
        call.join()
    assert received(outcome[0]) == [5]
    client._connection.datasets.DeleteUpload(dataset_pb2.DeleteUploadRequest(name="uploads/busy"))


def test_uploads_are_listed_resumed_and_deleted(make_server, tmp_path, monkeypatch):
    from permafrost import uploads

    source = graph_folder(tmp_path / "source", nodes=200)
    server = make_server()
    client = server.connect()
    plain = uploads._Files.chunks

    def dies(files, begin):
        for sent, request in enumerate(plain(files, begin)):
            if sent == 2:
                wait_for(lambda: bytes_below(server.state_dir / "uploads" / files.start.name.removeprefix("uploads/") / "files") > 0)
                raise RuntimeError("the program ends")
            yield request

    monkeypatch.setattr(uploads._Files, "chunks", dies)
    with pytest.raises(permafrost.PermafrostError):
        client.uploads.send(source, progress=False)
    monkeypatch.undo()
    wait_for(lambda: not any(upload.sending for upload in client.uploads))
    (upload,) = client.uploads.list()
    assert upload.id.startswith("upload-") and not upload.complete
    assert 0 < upload.received_bytes < upload.bytes == bytes_below(source)
    assert upload.counted_bytes == upload.bytes, "room is kept for it"
    assert upload.last_use_time is not None

    sent = []

    def counted(files, begin):
        for request in plain(files, begin):
            sent.append(len(request.chunk.data))
            yield request

    monkeypatch.setattr(uploads._Files, "chunks", counted)
    id = client.uploads.send(source, progress=False)
    assert id == upload.id, "the same files have the same id"
    assert sum(sent) == upload.bytes - upload.received_bytes
    (upload,) = client.uploads
    assert upload.complete and upload.received_bytes == upload.bytes
    assert repr(upload) == f"<Upload {id} complete: {upload.bytes} of {upload.bytes} bytes>"
    dataset = client.datasets.import_upload(id, "imported", progress=False)
    assert dataset.summary["nodes"] == 200
    client.uploads.delete(id)
    client.uploads.delete(id)
    assert client.uploads.list() == []


def test_folders_behind_links_are_sent_as_the_program_sends_them(tmp_path):
    from permafrost import uploads

    source, elsewhere = tmp_path / "source", tmp_path / "elsewhere"
    for folder in (source, elsewhere, elsewhere / ".hidden"):
        folder.mkdir()
    for file in (source / "b.csv", source / ".DS_Store", elsewhere / "a.csv", elsewhere / ".hidden" / "c.csv"):
        file.write_text("0,1\n")
    (source / "raw").symlink_to(elsewhere)
    assert list(uploads._Files(source).paths) == ["b.csv", "raw/a.csv"]
    (elsewhere / "round").symlink_to(tmp_path / "source" / "raw")
    with pytest.raises(permafrost.InputError, match="round: a link to a folder that it lies in"):
        uploads._Files(source)
