#include "client/requests.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/hash.h"
#include "base/monotonic.h"
#include "base/string_view.h"
#include "google/protobuf/descriptor.h"
#include "permafrost/v1/job.grpc.pb.h"

namespace permafrost::client {
namespace {

constexpr absl::Duration kFirstSubmitBackoff = absl::Milliseconds(100);

// Turns 128 bits into a UUID of version 4.
std::string UuidOf(uint64_t high, uint64_t low) {
  high = (high & ~0xf000ULL) | 0x4000ULL;
  low = (low & ~(3ULL << 62)) | (2ULL << 62);
  return absl::StrFormat("%08x-%04x-%04x-%04x-%012x", high >> 32, (high >> 16) & 0xffff, high & 0xffff, low >> 48,
                         low & 0xffffffffffffULL);
}

}  // namespace

std::string MakeUuid() {
  std::random_device random;
  const auto word = [&random] { return (static_cast<uint64_t>(random()) << 32) | random(); };
  const uint64_t high = word();
  return UuidOf(high, word());
}

std::string RepeatableRequestId(std::string_view what, v1::JobSpec spec) {
  // A flag such as `--deadline 12h` gives another deadline each time. The server, too, ignores these two limits when
  // it compares requests.
  spec.clear_deadline();
  spec.clear_max_runtime();
  spec.clear_priority();
  const std::string text = absl::StrCat(AbslView(what), " ", spec.SerializeAsString());
  const Hash128Value hash = Hash128(text.data(), text.size());
  return UuidOf(hash.high, hash.low);
}

grpc::Status CallPatiently(Session& session, const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  const Stopwatch watch;
  const auto left = [&] { return session.options().timeout() - watch.Elapsed(); };
  absl::Duration backoff = kFirstSubmitBackoff;
  while (true) {
    const grpc::Status status = session.Unary(left(), call);
    // A server that shuts down may cancel its calls. Because Ctrl-C cancels them too, that case is checked below.
    const bool away =
        status.error_code() == grpc::StatusCode::UNAVAILABLE || status.error_code() == grpc::StatusCode::CANCELLED;
    if (!away || session.interrupt().requested()) return status;
    // If the server was unreachable from the start, does not retry, so that the user learns of it at once.
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

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Returns roughly how many bytes the field adds to its message.
size_t BytesOf(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  if (!field.is_repeated()) {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
      return reflection.GetMessage(message, &field).ByteSizeLong();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) return reflection.GetString(message, &field).size();
    return sizeof(uint64_t);
  }
  const int entries = reflection.FieldSize(message, &field);
  size_t bytes = 0;
  for (int i = 0; i < entries; ++i) {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      bytes += reflection.GetRepeatedMessage(message, &field, i).ByteSizeLong();
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      bytes += reflection.GetRepeatedString(message, &field, i).size();
    } else {
      bytes += sizeof(uint64_t);
    }
  }
  return bytes;
}

}  // namespace

grpc::Status CheckRequestSize(const Message& request) {
  size_t bytes = request.ByteSizeLong();
  if (bytes <= kMaxRequestBytes) return grpc::Status::OK;
  std::string path;
  for (const Message* part = &request; part != nullptr;) {
    std::vector<const FieldDescriptor*> fields;
    part->GetReflection()->ListFields(*part, &fields);
    const FieldDescriptor* largest = nullptr;
    for (const FieldDescriptor* field : fields) {
      if (largest == nullptr || BytesOf(*part, *field) > BytesOf(*part, *largest)) largest = field;
    }
    if (largest == nullptr) break;
    bytes = BytesOf(*part, *largest);
    absl::StrAppend(&path, path.empty() ? "" : ".", std::string(largest->name()));
    const bool is_part = largest->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !largest->is_repeated();
    part = is_part ? &part->GetReflection()->GetMessage(*part, largest) : nullptr;
  }
  return {grpc::StatusCode::RESOURCE_EXHAUSTED,
          absl::StrCat(path, ": ", bytes, " bytes, and a request has room for ", kMaxRequestBytes, " in all")};
}

}  // namespace permafrost::client
