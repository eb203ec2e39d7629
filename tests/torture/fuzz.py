"""Tests messages that nobody would send, made from the contract. Each is answered with a code that says whose fault it was, and the daemon
lives. Tests configuration files in the same way."""

import concurrent.futures
import random
import re
import subprocess

import grpc
import xxhash

from tests.torture.world import Server, contract, folder_of, job_spec, write_set

# Codes by which a server would admit a fault of its own, or that it does not know the method. Every method must avoid them.
NEVER = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED)
# This method ends the server, so it is called last.
LEFT_OUT = ("Drain",)
TEXTS = ("", "a", "jobs/j", "jobs/", "datasets/set", "datasets/../set", "jobs/j/graphCache", "\x00", "x" * 5000, "é\u202e", "uploads/a", "/", "..",
         "state = RUNNING AND", "labels.a:*", "tokens/x", "0" * 64, "-1", "%s%n")
INTEGERS = (0, 1, -1, 2, 7, 1000, 2**31 - 1, -2**31, 2**63 - 1, -2**63, 65537)
NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-320, 1e308, float("inf"), float("-inf"), float("nan"), 1e-3)


class Writer:
    def __init__(self, seed):
        self.draw = random.Random(seed)

    def value(self, field, depth):
        kind = field.type
        draw = self.draw
        if kind == field.TYPE_MESSAGE:
            return None
        if kind == field.TYPE_STRING:
            return draw.choice(TEXTS).encode("utf-8", "ignore").decode()
        if kind == field.TYPE_BYTES:
            return draw.randbytes(draw.choice((0, 1, 16, 4000)))
        if kind == field.TYPE_BOOL:
            return draw.random() < 0.5
        if kind in (field.TYPE_DOUBLE, field.TYPE_FLOAT):
            return draw.choice(NUMBERS)
        if kind == field.TYPE_ENUM:
            return draw.choice([value.number for value in field.enum_type.values] + [99])
        unsigned = kind in (field.TYPE_UINT32, field.TYPE_UINT64, field.TYPE_FIXED32, field.TYPE_FIXED64)
        bits = 32 if kind in (field.TYPE_INT32, field.TYPE_UINT32, field.TYPE_SINT32, field.TYPE_FIXED32, field.TYPE_SFIXED32) else 64
        low, high = (0, 2**bits - 1) if unsigned else (-2**(bits - 1), 2**(bits - 1) - 1)
        return min(max(draw.choice(INTEGERS), low), high)

    def fill(self, message, part, depth=0):
        """Sets each field of a message with the probability `part`."""
        for field in message.DESCRIPTOR.fields:
            if self.draw.random() > part or depth > 6:
                continue
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                getattr(message, field.name)[self.draw.choice(TEXTS)] = self.draw.choice(TEXTS)
            elif field.label == field.LABEL_REPEATED:
                for _ in range(self.draw.choice((1, 1, 2, 5, 70))):
                    if field.message_type is not None:
                        self.fill(getattr(message, field.name).add(), part, depth + 1)
                    else:
                        getattr(message, field.name).append(self.value(field, depth))
            elif field.message_type is not None:
                child = getattr(message, field.name)
                child.SetInParent()
                self.fill(child, part, depth + 1)
            else:
                setattr(message, field.name, self.value(field, depth))

    def dataset(self, make):
        """Returns the messages of an UploadDataset: files in pieces."""
        draw = self.draw
        files = [draw.randbytes(draw.choice((0, 1, 100, 5000))) for _ in range(draw.choice((1, 1, 2, 5)))]
        start = make()
        start.start.name = f"uploads/u{draw.getrandbits(60)}"
        for i, data in enumerate(files):
            start.start.files.add(path=f"f{i}", bytes=len(data), xxh3=xxhash.xxh3_64(data).hexdigest())
        sent = [start]
        for i, data in enumerate(files):
            for at in range(0, len(data), 2048):
                piece = make()
                piece.chunk.file, piece.chunk.offset, piece.chunk.data = i, at, data[at:at + 2048]
                piece.chunk.xxh3 = xxhash.xxh3_64_intdigest(piece.chunk.data)
                sent.append(piece)
        return sent

    def program(self, make):
        """Returns the messages of an UploadProgram: an archive in pieces, which no server accepts."""
        draw = self.draw
        data = draw.choice((b"", b"PK\x03\x04", b"PK\x05\x06" + bytes(18))) + draw.randbytes(draw.choice((0, 1, 100, 5000)))
        start = make()
        start.start.name, start.start.bytes, start.start.xxh3 = f"programs/p{draw.getrandbits(60)}", len(data), xxhash.xxh3_64(data).hexdigest()
        sent = [start]
        for at in range(0, len(data), 2048):
            sent.append(make())
            sent[-1].data = data[at:at + 2048]
        return sent

    def messages(self, make, method):
        """Returns messages as a client sends them, except for a few that nobody would send."""
        draw = self.draw
        sent = {"UploadDataset": self.dataset, "UploadProgram": self.program}[method](make)
        for _ in range(draw.choice((0, 0, 1, 3))):
            at = draw.randrange(len(sent))
            kind = draw.choice(("fill", "field", "again", "gone", "empty"))
            if kind == "fill":
                self.fill(sent[at], 0.5)
            elif kind == "field":
                part = getattr(sent[at], sent[at].WhichOneof("content") or "start")
                self.fill(part if hasattr(part, "DESCRIPTOR") else sent[at], 0.3)
            elif kind == "again":
                sent.insert(at, sent[draw.randrange(len(sent))])
            elif kind == "empty":
                sent.insert(at, make())
            elif len(sent) > 1:
                del sent[at]
        return sent

    def message(self, make, method):
        message = make()
        # A job that could run, changed a little, so that the fault lies deep.
        if hasattr(message, "spec") and self.draw.random() < 0.7:
            message.spec.CopyFrom(job_spec(epochs=1))
            self.fill(message.spec, 0.05)
        else:
            self.fill(message, self.draw.choice((0.1, 0.4, 0.9)))
        if method == "CreateJob":
            message.validate_only = self.draw.random() < 0.98
        return message


def methods(server):
    """Yields (name, the stub's method, maker of its request, whether the client streams, whether the server streams)."""
    made = contract()
    for module in made.modules:
        if not hasattr(module, "DESCRIPTOR"):
            continue
        for service in module.DESCRIPTOR.services_by_name.values():
            stub = getattr(made, f"{service.name}Stub")(server.channel)
            for method in service.methods:
                if method.name not in LEFT_OUT:
                    yield method.name, getattr(stub, method.name), getattr(made, method.input_type.name), method.client_streaming, method.server_streaming


def drain(server, writer):
    """Ends the server by a Drain that it accepts, among some that nobody would send. Returns its exit code."""
    made = contract()
    for _ in range(100):
        try:
            server.server.Drain(writer.message(made.DrainRequest, "Drain"), timeout=30)
            break
        except grpc.RpcError as error:
            # ALREADY_EXISTS means that another call used the request_id.
            refused = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.ALREADY_EXISTS)
            assert error.code() in refused, f"Drain: {error.code().name}: {error.details()}"
    code = server.process.wait(timeout=60)
    server.close()
    return code


def requests(bin_dir, seed, count):
    codes, uploaded = {}, 0
    with folder_of("fuzz") as folder:
        server = Server(bin_dir, folder).start()
        server.import_dataset("set", write_set(server.import_root / "set"))
        server.jobs.CreateJob(contract().CreateJobRequest(job_id="j", spec=job_spec(epochs=1)), timeout=30)
        server.await_end("j")
        writer = Writer(seed)
        all_methods = list(methods(server))
        for i in range(count):
            name, call, make, client_streams, streams = all_methods[i % len(all_methods)]
            request = writer.messages(make, name) if client_streams else writer.message(make, name)
            try:
                # A call at its deadline was accepted: it would go on forever, or compute for long. Of 100,000 requests, thousands watch
                # something that never ends.
                answer = call(iter(request) if client_streams else request, timeout=0.2 if streams else 1)
                if streams:
                    for _ in answer:
                        pass
                code = grpc.StatusCode.OK
                uploaded += name == "UploadDataset" and answer.complete
            except grpc.RpcError as error:
                code = error.code()
                assert code not in NEVER, f"{name}: {code.name}: {error.details()}\n{request}"
                assert code == grpc.StatusCode.DEADLINE_EXCEEDED or "\n" not in error.details(), f"{name}: {error.details()}"
            codes[code.name] = codes.get(code.name, 0) + 1
            assert server.running(), f"{name} ended the server:\n{request}\n{server.log()[-1000:]}"
        server.server.GetServerInfo(contract().GetServerInfoRequest(), timeout=30)
        # One of so many requests may have deleted the dataset.
        server.import_dataset("after-all", write_set(server.import_root / "after-all"))
        spec = job_spec("after-all", epochs=1)
        server.jobs.CreateJob(contract().CreateJobRequest(job_id="after-all", spec=spec), timeout=30)
        server.await_end("after-all")
        assert codes.get("INVALID_ARGUMENT", 0) > count / 4, f"most requests must have been looked at: {codes}"
        assert uploaded, "no upload came through"
        assert drain(server, writer) == 0
    return f"{count} requests to {len(all_methods)} methods, {uploaded} uploads whole, a Drain at last: " + ", ".join(f"{times} {code}" for code, times in sorted(codes.items()))


PIECES = ("listen", "threads", "state-dir", "import-root", "max-jobs", "min-free-disk", "freeze-at", "strict", "=", "==", " ", "\n", '"', "[", "]", "1",
          "-1", "99999999999999999999", "true", "1e400", "nan", "'", "#", "\x00", "é", "{", "}", ",", "127.0.0.1:0", "0x10", '"""')
VALUES = ("0", "1", "-1", "2.5", "1024", "99999999999999999999", "1e400", "nan", "inf", "true", "false", '""', '"0"', '"x"', '"none"', '"auto"', '"cpu"', '"token"',
          '"127.0.0.1:0"', '"0.0.0.0:0"', '"[::1]:0"', '":"', '"a:99999"', '"unix:/nowhere/s"', '"/nowhere"', '"/proc"', '"500MB"', '"2GiB"', '"-1KB"',
          '"9999999999GiB"', '"derived"', '"freeze"', '"12h"', '"3 days"', "[]", '["a", "b"]', "[1, 2]", '["/nowhere", ""]', "{a = 1}", "2026-01-01", '"\x00"',
          '"é\u202e"', "'" + "x" * 5000 + "'")


def configuration(draw, flags):
    """Returns a file of random pieces, or one of existing options, most of them with the value of another option."""
    if draw.random() < 0.4:
        return "".join(draw.choice(PIECES) for _ in range(draw.randrange(1, 30)))
    sections = ("", "", "", "[section]\n", "# a comment\n")
    return "".join(f"{draw.choice(sections)}{draw.choice(flags)} = {draw.choice(VALUES)}\n" for _ in range(draw.choice((1, 1, 1, 2, 3, 8))))


def configurations(bin_dir, seed, count):
    """Tests files of --config: each is refused with a line and exit code 2, or its values are applied."""
    draw = random.Random(seed)
    program = bin_dir / "permafrostd"
    told = subprocess.run([program, "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    flags = sorted(set(re.findall(r"^  --([a-z-]+)", told, re.MULTILINE)) - {"help", "version"})
    with folder_of("config") as folder:

        def start(number_and_text):
            number, text = number_and_text
            path = folder / f"{number}.toml"
            path.write_text(text)
            # The daemon never serves, since the state directory is a file.
            done = subprocess.run([program, "--config", path, "--state-dir", path, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", timeout=60)
            lines = done.stderr.splitlines()
            assert done.returncode in (1, 2), f"{done.returncode}: {text!r}: {done.stderr}"
            assert lines and lines[-1].startswith("permafrostd: "), f"{text!r}: {done.stderr}"
            # A refused file gives one line, with the place of the fault. An accepted file may give warnings first.
            assert done.returncode == 1 or len(lines) == 1, f"{text!r}: {done.stderr}"
            path.unlink()
            return done.returncode == 2

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            refused = sum(pool.map(start, enumerate([configuration(draw, flags) for _ in range(count)])))
    assert refused and (refused < count or count < 100), refused
    return f"{count} files of {len(flags)} options: {refused} refused with a line, the others taken"
