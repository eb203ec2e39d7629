#include "api/wire/status.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "api/wire/wire_values.h"
#include "base/status.h"
#include "base/string_view.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace permafrost::api {
namespace {

constexpr char kDomain[] = "permafrost.dev";
constexpr int kLastCode = static_cast<int>(absl::StatusCode::kUnauthenticated);

// Limits in bytes. The message is sent twice, once in percent-encoding (up to three times as long). The details are
// sent in base64. Together they stay below the 8 KiB that gRPC allows by default.
constexpr std::size_t kMaxMessage = 768;
constexpr std::size_t kMaxViolation = 384;
constexpr std::size_t kMaxViolations = 2048;
constexpr std::size_t kMaxMetadataValue = 128;
constexpr std::size_t kMaxMetadataEntries = 4;

// After about this time, a drain (a step, a checkpoint, and the restart by a supervisor) is over, and slots of call
// limits are free again.
constexpr int kRetrySeconds = 5;

google::rpc::BadRequest ToBadRequest(const std::vector<FieldViolation>& violations) {
  google::rpc::BadRequest out;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < violations.size(); ++i) {
    auto* violation = out.add_field_violations();
    violation->set_field(Clip(violations[i].field, kMaxMetadataValue));
    violation->set_description(Clip(violations[i].description, kMaxViolation));
    bytes += violation->ByteSizeLong();
    if (bytes > kMaxViolations) {
      violation->set_field("");
      violation->set_description(absl::StrCat("and ", violations.size() - i, " more"));
      break;
    }
  }
  return out;
}

google::rpc::ErrorInfo NewErrorInfo(const ErrorReason& reason) {
  google::rpc::ErrorInfo out;
  out.set_reason(reason.reason);
  out.set_domain(kDomain);
  return out;
}

google::rpc::ErrorInfo ToErrorInfo(const ErrorReason& reason) {
  google::rpc::ErrorInfo out = NewErrorInfo(reason);
  for (const auto& [key, value] : reason.metadata) {
    if (out.metadata().size() == kMaxMetadataEntries) break;
    (*out.mutable_metadata())[Clip(key, kMaxMetadataValue)] = Clip(value, kMaxMetadataValue);
  }
  return out;
}

// Turns a PERMISSION_DENIED of the daemon's own disk into UNAVAILABLE: the caller is not at fault, and a later call
// may succeed.
absl::Status AsOfTheMachine(const absl::Status& status) {
  if (!absl::IsPermissionDenied(status) || !IsTransient(status)) return status;
  absl::Status out = absl::UnavailableError(status.message());
  status.ForEachPayload([&out](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
  return out;
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& from) {
  if (from.ok()) return grpc::Status::OK;
  const absl::Status status = AsOfTheMachine(from);
  const std::string message = Clip(StdView(status.message()), kMaxMessage);
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(message);
  if (const auto violations = GetViolations(status); !violations.empty()) {
    details.add_details()->PackFrom(ToBadRequest(violations));
  }
  const ErrorReason reason = GetReason(status);
  if (!reason.reason.empty()) details.add_details()->PackFrom(ToErrorInfo(reason));
  // The retry succeeds once other calls have ended and freed their slots.
  const bool is_held_by_others =
      reason.reason == kTooManyCalls || reason.reason == kTooManyConnections || reason.reason == kNoThread;
  if (absl::IsUnavailable(status) || is_held_by_others) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(kRetrySeconds);
    details.add_details()->PackFrom(retry);
  }
  const auto code = static_cast<grpc::StatusCode>(status.code());
  return details.details().empty() ? grpc::Status(code, message)
                                   : grpc::Status(code, message, details.SerializeAsString());
}

void SetRpcStatus(const absl::Status& status, google::rpc::Status& out) {
  out.set_code(static_cast<int>(status.code()));
  out.set_message(ValidUtf8(StdView(status.message())));
  const ErrorReason reason = GetReason(status);
  if (reason.reason.empty()) return;
  google::rpc::ErrorInfo info = NewErrorInfo(reason);
  for (const auto& [key, value] : reason.metadata) (*info.mutable_metadata())[ValidUtf8(key)] = ValidUtf8(value);
  out.add_details()->PackFrom(info);
}

absl::Status FromGrpcStatus(const grpc::Status& from) {
  absl::Status status(static_cast<absl::StatusCode>(from.error_code()), from.error_message());
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  if (!details.ParseFromString(from.error_details())) return status;
  for (const auto& detail : details.details()) {
    if (detail.UnpackTo(&info)) {
      return WithReason(std::move(status), info.reason(), {info.metadata().begin(), info.metadata().end()});
    }
  }
  return status;
}

std::string StatusCodeName(grpc::StatusCode code) {
  // Abseil's codes have gRPC's numbers and names.
  const bool known = code >= 0 && static_cast<int>(code) <= kLastCode;
  return absl::StatusCodeToString(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown);
}

}  // namespace permafrost::api
