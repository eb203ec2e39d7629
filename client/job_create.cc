#include "client/job_create.h"

#include <random>

#include "absl/strings/str_format.h"
#include "base/monotonic.h"
#include "client/request_size.h"
#include "permafrost/v1/job.grpc.pb.h"

namespace permafrost::client {
namespace {

constexpr absl::Duration kFirstSubmitBackoff = absl::Milliseconds(100);

}  // namespace

std::string UuidOf(uint64_t high, uint64_t low) {
  high = (high & ~0xf000ULL) | 0x4000ULL;
  low = (low & ~(3ULL << 62)) | (2ULL << 62);
  return absl::StrFormat("%08x-%04x-%04x-%04x-%012x", high >> 32, (high >> 16) & 0xffff, high & 0xffff, low >> 48,
                         low & 0xffffffffffffULL);
}

std::string MakeUuid() {
  std::random_device random;
  const auto word = [&random] { return (static_cast<uint64_t>(random()) << 32) | random(); };
  const uint64_t high = word();
  return UuidOf(high, word());
}

grpc::Status CallPatiently(Session& session, const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  const Stopwatch watch;
  const auto left = [&] { return session.options().timeout() - watch.Elapsed(); };
  absl::Duration backoff = kFirstSubmitBackoff;
  while (true) {
    const grpc::Status status = session.Unary(left(), call);
    // A server that dies may cancel what it was doing; so does Ctrl-C.
    const bool away =
        status.error_code() == grpc::StatusCode::UNAVAILABLE || status.error_code() == grpc::StatusCode::CANCELLED;
    if (!away || session.interrupt().requested()) return status;
    // A server that was never there gets no second chance: its user waits for nothing but the news.
    if (!session.Connect() || backoff >= left()) return status;
    session.interrupt().WaitFor(backoff);
    backoff *= 2;
  }
}

grpc::Status CreateJob(Session& session, const v1::CreateJobRequest& request, v1::Job& job) {
  if (grpc::Status size = CheckRequestSize(request); !size.ok()) return size;
  const auto stub = v1::JobService::NewStub(session.channel());
  return CallPatiently(session, [&](grpc::ClientContext* context) { return stub->CreateJob(context, request, &job); });
}

}  // namespace permafrost::client
