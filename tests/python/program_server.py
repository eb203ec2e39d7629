"""A fake server for tests of what a client sends. It keeps programs in memory as permafrost.v1.ProgramService promises, and accepts jobs
without running them."""

import concurrent.futures
import hashlib

import grpc
import xxhash
from google.rpc import error_details_pb2, status_pb2

from permafrost.v1 import dataset_pb2_grpc, job_pb2, job_pb2_grpc, program_pb2, program_pb2_grpc


class ProgramServer(program_pb2_grpc.ProgramServiceServicer, job_pb2_grpc.JobServiceServicer, dataset_pb2_grpc.DatasetServiceServicer):
    """dataset: the answer for every dataset. lose: how many answers of uploads are still to be lost, after the server has done the work."""

    def __init__(self, dataset=None):
        self.files, self.programs, self.requests, self.lose, self.dataset, self.created = {}, {}, [], 0, dataset, []
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        program_pb2_grpc.add_ProgramServiceServicer_to_server(self, self.server)
        job_pb2_grpc.add_JobServiceServicer_to_server(self, self.server)
        dataset_pb2_grpc.add_DatasetServiceServicer_to_server(self, self.server)
        self.target = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def UploadProgram(self, requests, context):
        start = next(requests).start
        self.requests.append(start)
        if start.name in self.programs and self.programs[start.name].xxh3 == start.xxh3:
            return self.programs[start.name]
        sizes, content = [], b""
        for request in requests:
            sizes.append(len(request.data))
            content += request.data
        if start.name in self.programs:
            fail(context, grpc.StatusCode.ALREADY_EXISTS, "PROGRAM_ALREADY_EXISTS", f"{start.name}: is there with another file")
        if max(sizes) > 1 << 20 or len(content) != start.bytes or xxhash.xxh3_64_hexdigest(content) != start.xxh3:
            fail(context, grpc.StatusCode.DATA_LOSS, "", "what came is not what the start says")
        value = program_pb2.Program.Value
        form = program_pb2.Program.Form(name="train", inputs=[value(name="x", type="int64[N, 2]"), value(name="num_graphs", type="int")],
                                        outputs=[value(name="squeeze", type="float32[G]")], operators=["aten.add.Tensor"])
        tensor = program_pb2.Program.Tensor(name="head.weight", kind=program_pb2.Program.Tensor.KIND_PARAMETER, type="float32[1, 4]")
        self.files[start.name] = content
        self.programs[start.name] = program_pb2.Program(
            name=start.name, bytes=start.bytes, xxh3=start.xxh3, torch_version="2.13.0", forms=[form], tensors=[tensor],
            num_parameters=4, etag=hashlib.sha256(content).hexdigest()[:8])
        if self.lose:
            self.lose -= 1
            fail(context, grpc.StatusCode.UNAVAILABLE, "", "the answer is lost")
        return self.programs[start.name]

    def GetProgram(self, request, context):
        self.find(request.name, context)
        return self.programs[request.name]

    def ListPrograms(self, request, context):
        """Lists one program on each page."""
        names = sorted(self.programs)
        at = names.index(request.page_token) if request.page_token else 0
        more = names[at + 1] if at + 1 < len(names) else ""
        return program_pb2.ListProgramsResponse(programs=[self.programs[name] for name in names[at:at + 1]], next_page_token=more)

    def DeleteProgram(self, request, context):
        self.find(request.name, context)
        if request.etag not in ("", self.programs[request.name].etag):
            fail(context, grpc.StatusCode.ABORTED, "ETAG_MISMATCH", f"{request.name}: has another etag")
        del self.programs[request.name]
        return program_pb2.google_dot_protobuf_dot_empty__pb2.Empty()

    def GetDataset(self, request, context):
        return self.dataset

    def CreateJob(self, request, context):
        self.created.append(request)
        return job_pb2.Job(name="jobs/made", spec=request.spec)

    def find(self, name, context):
        if name not in self.programs:
            fail(context, grpc.StatusCode.NOT_FOUND, "PROGRAM_NOT_FOUND", f"{name}: not found")


def fail(context, code, reason, message):
    status = status_pb2.Status(code=code.value[0], message=message)
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason))
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, message)
