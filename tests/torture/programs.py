"""Archives of programs that something befell: each is refused in a line, or its job ends, and the daemon lives."""

import io
import json
import random
import zipfile

import grpc
import xxhash

from tests.torture.world import NotRun, Server, contract, folder_of, job_spec, state_of, write_set

CHUNK = 1 << 19
REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.DATA_LOSS, grpc.StatusCode.RESOURCE_EXHAUSTED)
WORDS = ("", "x", "batch", "torch.ops.aten.add.Tensor", "torch.ops.aten.view.default", "torch.ops.aten.from_file.default", "s0", "s0*s1", "9" * 400)
NUMBERS = (0, 1, -1, 2, 3, 7, 100, 2**31, 2**62, -2**63, 0.5, 1e308)


def archive():
    """What torch.export writes for a module of the trial's dataset, with its two forms."""
    try:
        import torch
        from torch.export.pt2_archive._package import package_pt2
    except ImportError as error:
        raise NotRun(f"needs PyTorch, to export a module: {error}") from error

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.atoms, self.norm, self.head = torch.nn.Embedding(64, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)

        def forward(self, x, edge_index, batch, num_graphs: int):
            h = self.atoms(x[:, 0])
            h = self.norm(h.index_add(0, edge_index[1], h[edge_index[0]]))
            h = torch.nn.functional.dropout(h, 0.1, self.training)
            return self.head(h.new_zeros(num_graphs, 8).index_add(0, batch, h))

    nodes, edges = torch.export.Dim("nodes", min=2, max=2**40), torch.export.Dim("edges", min=2, max=2**40)
    module = Net()
    forms = {}
    for name, training in (("train", True), ("eval", False)):
        arguments = (torch.zeros(11, 1).long(), torch.zeros(2, 26).long(), torch.zeros(11).long(), 5)
        shapes = ({0: nodes}, {1: edges}, {0: nodes}, torch.export.Dim.DYNAMIC)
        forms[name] = torch.export.export(module.train(training), arguments, dynamic_shapes=shapes, strict=False)
    made = io.BytesIO()
    package_pt2(made, exported_programs=forms)
    return made.getvalue()


class Mutator:
    """Changes an archive as no exporter does: bytes of the file, or values within a record of it, with right checksums."""

    def __init__(self, data, seed):
        self.data, self.draw = data, random.Random(seed)
        with zipfile.ZipFile(io.BytesIO(data)) as source:
            self.records = {name: source.read(name) for name in source.namelist()}

    def mutated(self):
        return self.draw.choice((self.bytes_changed, self.value_changed, self.value_changed, self.value_changed, self.record_changed))()

    def bytes_changed(self):
        data = bytearray(self.data)
        for _ in range(self.draw.choice((1, 3, 40))):
            data[self.draw.randrange(len(data))] = self.draw.randrange(256)
        return bytes(data[:self.draw.randrange(len(data))] if self.draw.random() < 0.2 else data)

    def packed(self, records):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as target:
            for name, content in records.items():
                target.writestr(name, content)
        return made.getvalue()

    def record_changed(self):
        records = dict(self.records)
        name = self.draw.choice(list(records))
        if self.draw.random() < 0.3:
            del records[name]
        else:
            at = self.draw.randrange(len(records[name]) + 1)
            records[name] = records[name][:at] + self.draw.randbytes(self.draw.choice((0, 1, 16))) + records[name][at + self.draw.randrange(9):]
        return self.packed(records)

    def value_changed(self):
        records = dict(self.records)
        name = self.draw.choice([name for name in records if name.endswith(".json")])
        value = json.loads(records[name])
        for _ in range(self.draw.choice((1, 1, 2, 5))):
            self.change(value)
        records[name] = json.dumps(value).encode()
        return self.packed(records)

    def change(self, value):
        """Changes one value somewhere below."""
        places = []

        def walk(part):
            for key, child in part.items() if isinstance(part, dict) else enumerate(part):
                places.append((part, key))
                if isinstance(child, (dict, list)):
                    walk(child)

        walk(value)
        if not places:
            return
        part, key = self.draw.choice(places)
        kind = self.draw.random()
        other, other_key = self.draw.choice(places)
        if kind < 0.15:
            del part[key]
        elif kind < 0.35:
            part[key] = json.loads(json.dumps(other[other_key]))
        elif isinstance(part[key], str):
            part[key] = self.draw.choice(WORDS)
        elif isinstance(part[key], (int, float)):
            part[key] = self.draw.choice(NUMBERS)
        else:
            part[key] = self.draw.choice((None, [], {}, "", 0, [part[key]], {"as_int": 7}))


def messages(name, data):
    made = contract()
    yield made.UploadProgramRequest(start=made.ProgramStart(name=f"programs/{name}", bytes=len(data), xxh3=xxhash.xxh3_64_hexdigest(data)))
    for at in range(0, len(data), CHUNK):
        yield made.UploadProgramRequest(data=data[at:at + CHUNK])


def spec_of(name, dataset="set"):
    spec = job_spec(dataset, epochs=1)
    spec.model.Clear()
    spec.model.program = f"programs/{name}"
    return spec


def check_line(error):
    assert error.code() in REFUSED, f"{error.code().name}: {error.details()}"
    assert error.details() and "\n" not in error.details() and len(error.details()) < 2000, error.details()


def programs(bin_dir, seed, count):
    data = archive()
    taken = trained = 0
    with folder_of("programs") as folder:
        server = Server(bin_dir, folder).start()
        stub = contract().ProgramServiceStub(server.channel)
        server.import_dataset("set", write_set(server.import_root / "set"))
        stub.UploadProgram(messages("whole", data), timeout=60)
        server.jobs.CreateJob(contract().CreateJobRequest(job_id="whole", spec=spec_of("whole")), timeout=60)
        assert state_of(server.await_end("whole")) == "SUCCEEDED"
        mutator = Mutator(data, seed)
        for i in range(count):
            mutated = mutator.mutated()
            try:
                stub.UploadProgram(messages(f"m{i}", mutated), timeout=60)
                taken += 1
                server.jobs.CreateJob(contract().CreateJobRequest(job_id=f"m{i}", spec=spec_of(f"m{i}")), timeout=120)
                job = server.await_end(f"m{i}")
                trained += state_of(job) == "SUCCEEDED"
                assert "\n" not in job.error, job.error
            except grpc.RpcError as error:
                (folder / "last.pt2").write_bytes(mutated)
                assert server.running(), f"archive {i} ended the server: {server.log()[-1000:]}"
                check_line(error)
            assert server.running(), f"archive {i} ended the server: {server.log()[-1000:]}"
        # The server is as it was.
        server.jobs.CreateJob(contract().CreateJobRequest(job_id="after", spec=spec_of("whole")), timeout=60)
        assert state_of(server.await_end("after")) == "SUCCEEDED"
        assert server.stop() == 0
    assert taken < count, "every changed archive was taken"
    return f"{count} changed archives: {count - taken} refused in a line, {taken} taken, of which {trained} trained to the end"
