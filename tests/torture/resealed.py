"""Tests damage with corrected checksums, as from a faulty writer. The daemon lives, and reports the fault or goes on from the
checkpoint before."""

import json
import random
import re
import shutil
import struct

import grpc
import xxhash

from tests.torture.damage import two_checkpoints
from tests.torture.kills import undisturbed
from tests.torture.world import ENDED, LONG, contract, folder_of, job_spec, losses, state_of, until

# Replacements for a value of state.json. A text that begins with FLOAT is written as a number with these digits.
FLOAT = "\x01"
VALUES = (None, -1, 0, 2**63 - 1, -2**63, 2**64 - 1, "", "x", [], {}, True, FLOAT + "1e308", FLOAT + "-0.5", 10**9, [[]], "../../x")
HEADER_BYTES = b'0123456789[]{}",:-eF\x00 '
# Constants of server/data/store/format.h.
STORE_HEADER, STORE_CHECKSUM, STORE_ENTRY, SECTION_COUNT_AT = 72, 64, 64, 52
WORDS = (0, 1, 2, 7, 63, 64, 4096, 2**31, 2**32 - 1)


def hash_of(data):
    return xxhash.xxh3_64(data).hexdigest()


def parse(text):
    return json.loads(text, parse_float=lambda digits: FLOAT + digits)


def dump(value, **layout):
    """Formats JSON as the daemon does: keys sorted, numbers in the digits that were read."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, **layout)
    return re.sub(r'"\\u0001([^"]*)"', r"\1", text)


def seal(folder, state):
    checkpoint = state["checkpoint"]
    state["xxh3"] = hash_of(dump(checkpoint, separators=(",", ":")).encode())
    (folder / "state.json").write_text(dump(state, indent=1))


def leaves(value, path=()):
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield (*path, key)
            yield from leaves(value[key], (*path, key))


def change_state(draw, folder):
    """Changes one value of state.json. Returns what was done, and whether the run must still come to the same end."""
    state = parse((folder / "state.json").read_text())
    path = draw.choice(list(leaves(state["checkpoint"])))
    at = state["checkpoint"]
    for key in path[:-1]:
        at = at[key]
    value = draw.choice(VALUES)
    if draw.random() < 0.15 and isinstance(at, dict):
        del at[path[-1]]
        value = "nothing"
    else:
        at[path[-1]] = value
    seal(folder, state)
    return f"state.json: {'.'.join(map(str, path))} is {value!r}", False


def change_tensors(draw, folder):
    """Changes the header of a file of tensors. Its checksums in state.json then match again, but shifted weights may not be
    accepted."""
    path = draw.choice(sorted(folder.glob("*.safetensors")))
    data = bytearray(path.read_bytes())
    length = struct.unpack("<Q", data[:8])[0]
    if draw.random() < 0.4:
        other = draw.choice((0, 1, 2**63, 2**64 - 1, length + 1, length - 1, length - 8, len(data)))
        data[:8] = struct.pack("<Q", other)
        what = f"header length {other} for {length}"
    else:
        places = [8 + draw.randrange(length) for _ in range(draw.choice((1, 3)))]
        for at in places:
            data[at] = draw.choice(HEADER_BYTES)
        what = f"header bytes {places}"
    path.write_bytes(data)
    state = parse((folder / "state.json").read_text())
    state["checkpoint"]["files"][path.name] = {"bytes": len(data), "xxh3": hash_of(bytes(data))}
    seal(folder, state)
    return f"{path.name}: {what}", True


def store_sum(data):
    """Returns the checksum of a dataset's file over its header and its table of sections, as far as they exist."""
    sections = struct.unpack_from("<I", data, SECTION_COUNT_AT)[0]
    table = bytes(data[STORE_HEADER:STORE_HEADER + min(sections * STORE_ENTRY, len(data))])
    return xxhash.xxh3_64_intdigest(bytes(data[:STORE_CHECKSUM]) + table)


def change_store(draw, path):
    """Changes a word in the header or the table of a dataset's file, except those that name the format."""
    data = bytearray(path.read_bytes())
    assert store_sum(data) == struct.unpack_from("<Q", data, STORE_CHECKSUM)[0], "the seal of a whole file is another"
    sections = struct.unpack_from("<I", data, SECTION_COUNT_AT)[0]
    end = STORE_HEADER + sections * STORE_ENTRY
    at = draw.choice([at for at in range(12, end, 4) if at not in (STORE_CHECKSUM, STORE_CHECKSUM + 4)])
    word = struct.unpack_from("<I", data, at)[0]
    other = draw.choice((*WORDS, word + 1, word - 1, word ^ (1 << draw.randrange(32)))) % 2**32
    struct.pack_into("<I", data, at, other)
    struct.pack_into("<Q", data, STORE_CHECKSUM, store_sum(data))
    path.write_bytes(data)
    return f"graphs.pfg: byte {at}: {word} is {other}"


def told(server, what):
    """Returns how the job ends, or what it waits for."""
    def ended():
        assert server.running(), f"{what}: the daemon died: {server.log()[-1000:]}"
        seen = server.get("j")
        return seen if state_of(seen) in ENDED or seen.last_error else None

    return until(300, f"the end of a job after {what}", ended)


def outcome_of(server, what, want):
    """Returns the outcome of a job whose checkpoint was changed. `want`: the losses that it must have if it ends; None means any."""
    made = contract()
    try:
        server.jobs.ResumeJob(made.ResumeJobRequest(name="jobs/j"), timeout=30)
        server.jobs.ListCheckpoints(made.ListCheckpointsRequest(parent="jobs/j", verify=True), timeout=30)
    except grpc.RpcError as error:
        assert error.code() not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE), f"{what}: {error}"
    job = told(server, what)
    if state_of(job) == "SUCCEEDED":
        assert want is None or losses(job) == want, f"{what}: other losses: {losses(job)[-1]}"
        return "went on"
    line = job.error or job.last_error
    assert line and "\n" not in line, f"{what}: {state_of(job)} without a line"
    return "refused"


def outcome_of_store(server, what):
    made = contract()
    dataset = server.datasets.GetDataset(made.GetDatasetRequest(name="datasets/set"), timeout=30)
    if dataset.state != made.Dataset.STATE_READY:
        assert dataset.error, f"{what}: not ready, without a line"
        return "refused"
    try:
        server.jobs.CreateJob(made.CreateJobRequest(job_id="k", spec=job_spec(epochs=1)), timeout=30)
    except grpc.RpcError as error:
        assert error.details(), f"{what}: {error}"
        return "refused"
    until(60, f"the end of a job after {what}", lambda: state_of(server.get("k")) in ENDED)
    job = server.get("k")
    assert state_of(job) == "SUCCEEDED" or job.error, f"{what}: failed without a line"
    return "went on" if state_of(job) == "SUCCEEDED" else "refused"


def resealed(bin_dir, seed, count):
    draw = random.Random(seed)
    want = undisturbed(bin_dir, LONG, (1,))[1]
    outcomes = {}
    with folder_of("resealed") as folder:
        server, _ = two_checkpoints(bin_dir, folder, seed=1)
        assert state_of(server.get("j")) == "PAUSED", "the job ended too soon"
        assert server.stop() == 0
        saved = folder / "saved"
        shutil.copytree(server.state_dir, saved, ignore=shutil.ignore_patterns("*.sock"))
        state = max((path for path in (saved / "jobs/j/checkpoints").iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        text = (state / "state.json").read_text()
        seal(state, parse(text))
        assert (state / "state.json").read_text() == text, "what is sealed here must be what the daemon writes"
        for i in range(count):
            shutil.rmtree(server.state_dir)
            shutil.copytree(saved, server.state_dir)
            newest = server.state_dir / "jobs/j/checkpoints" / state.name
            kind = ("state.json", "tensors", "store")[i % 3]
            if kind == "store":
                what = change_store(draw, server.state_dir / "datasets/set/graphs.pfg")
            else:
                what, exact = (change_state if kind == "state.json" else change_tensors)(draw, newest)
            server.start()
            outcome = outcome_of_store(server, what) if kind == "store" else outcome_of(server, what, want if exact else None)
            outcomes[f"{kind} {outcome}"] = outcomes.get(f"{kind} {outcome}", 0) + 1
            assert server.running(), f"{what}: the daemon died: {server.log()[-1000:]}"
            server.kill()
    return f"{count} files damaged and sealed again: " + ", ".join(f"{times} of {name}" for name, times in sorted(outcomes.items()))
