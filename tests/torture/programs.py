"""Uploads damaged archives of programs. Each is refused in one line, or its job ends, and the daemon lives."""

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


def exported(module, arguments, shapes):
    """Returns the file that torch.export writes for a module's two forms."""
    import torch
    from torch.export.pt2_archive._package import package_pt2

    forms = {name: torch.export.export(module.train(training), arguments, dynamic_shapes=shapes, strict=False)
             for name, training in (("train", True), ("eval", False))}
    made = io.BytesIO()
    package_pt2(made, exported_programs=forms)
    return made.getvalue()


def archives():
    """Returns the archive of a trainable module for each dataset."""
    try:
        import torch
    except ImportError as error:
        raise NotRun(f"needs PyTorch, to export modules: {error}") from error

    nodes, edges = torch.export.Dim("nodes", min=2, max=2**40), torch.export.Dim("edges", min=2, max=2**40)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.atoms, self.norm, self.head = torch.nn.Embedding(64, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)

        def forward(self, x, edge_index, batch, num_graphs: int):
            h = self.atoms(x[:, 0])
            h = self.norm(h.index_add(0, edge_index[1], h[edge_index[0]]))
            h = torch.nn.functional.dropout(h, 0.1, self.training)
            return self.head(h.new_zeros(num_graphs, 8).index_add(0, batch, h))

    class OfNodes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(2, 8), torch.nn.Linear(8, 2)

        def forward(self, x, edge_index, y):
            h = self.first(x)
            h = h.index_add(0, edge_index[1], h[edge_index[0]]).relu()
            h = h + 0.1 * torch.randn_like(h) * torch.bernoulli(torch.full((h.shape[0], 1), 0.5)) * torch.randint(0, 3, (8,))
            out = self.second(h)
            return out, torch.nn.functional.cross_entropy(out, y)

    return {"set": exported(Net(), (torch.zeros(11, 1).long(), torch.zeros(2, 26).long(), torch.zeros(11).long(), 5),
                            ({0: nodes}, {1: edges}, {0: nodes}, torch.export.Dim.DYNAMIC)),
            "graph": exported(OfNodes(), (torch.zeros(11, 2), torch.zeros(2, 26).long(), torch.zeros(11).long()),
                              ({0: nodes}, {1: edges}, {0: nodes}))}


def write_graph(folder, nodes=60):
    """Writes one large graph of two classes in OGB's layout into `folder`."""
    draw = random.Random(3)
    rows = {"raw/edge": [(a, draw.randrange(nodes)) for a in range(nodes) for _ in range(3)], "raw/num-node-list": [(nodes,)],
            "raw/num-edge-list": [(3 * nodes,)], "raw/node-label": [(a % 2,) for a in range(nodes)],
            "raw/node-feat": [(draw.random(), a % 2 + 0.5) for a in range(nodes)]}
    rows |= {f"split/time/{split}": [(a,) for a in range(nodes) if a % 3 == k] for k, split in enumerate(("train", "valid", "test"))}
    for name, values in rows.items():
        path = folder / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(",".join(map(str, row)) + "\n" for row in values))
    return folder


class Mutator:
    """Changes raw bytes of an archive, or values within a record, whose checksum it then corrects."""

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
        """Changes one value at a random place below."""
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


def spec_of(name, dataset, sampled=False):
    spec = job_spec(dataset, epochs=1)
    spec.model.Clear()
    if sampled:
        spec.neighbor_sampling.fan_outs.extend((2, 2))
    spec.model.program = f"programs/{name}"
    return spec


def check_line(error):
    assert error.code() in REFUSED, f"{error.code().name}: {error.details()}"
    assert error.details() and "\n" not in error.details() and len(error.details()) < 2000, error.details()


def programs(bin_dir, seed, count):
    data = archives()
    taken = trained = 0
    with folder_of("programs") as folder:
        server = Server(bin_dir, folder).start()
        stub = contract().ProgramServiceStub(server.channel)
        server.import_dataset("set", write_set(server.import_root / "set"))
        server.import_dataset("graph", write_graph(server.import_root / "graph"))

        def train_whole(job, dataset):
            server.jobs.CreateJob(contract().CreateJobRequest(job_id=job, spec=spec_of(f"whole-{dataset}", dataset)), timeout=60)
            ended = server.await_end(job)
            assert state_of(ended) == "SUCCEEDED", ended.error

        for dataset, content in data.items():
            stub.UploadProgram(messages(f"whole-{dataset}", content), timeout=60)
            train_whole(f"first-{dataset}", dataset)
        mutators = {dataset: Mutator(content, seed) for dataset, content in data.items()}
        for i in range(count):
            dataset = ("set", "graph")[i % 2]
            mutated = mutators[dataset].mutated()
            try:
                stub.UploadProgram(messages(f"m{i}", mutated), timeout=60)
                taken += 1
                server.jobs.CreateJob(contract().CreateJobRequest(job_id=f"m{i}", spec=spec_of(f"m{i}", dataset, i % 4 == 3)), timeout=120)
                job = server.await_end(f"m{i}")
                trained += state_of(job) == "SUCCEEDED"
                assert "\n" not in job.error, job.error
            except grpc.RpcError as error:
                (folder / "last.pt2").write_bytes(mutated)
                assert server.running(), f"archive {i} ended the server: {server.log()[-1000:]}"
                check_line(error)
            assert server.running(), f"archive {i} ended the server: {server.log()[-1000:]}"
        # The server still works as before.
        for dataset in data:
            train_whole(f"after-{dataset}", dataset)
        assert server.stop() == 0
    assert taken < count, "every changed archive was taken"
    assert trained or count < 20, "no changed archive was trained"
    return f"{count} changed archives: {count - taken} refused in a line, {taken} taken, of which {trained} trained to the end"
