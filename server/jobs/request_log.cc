#include "jobs/request_log.h"

#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "jobs/job_requests.h"
#include "telemetry/log.h"

namespace permafrost::jobs {
namespace {

void WarnUnrecorded(const RequestKey& key, const absl::Status& status) {
  if (status.ok()) return;
  telemetry::Log(telemetry::Severity::kWarning,
                 absl::StrCat("request_id ", key.id, " cannot be put on record: ", status.message()));
}

}  // namespace

absl::Status RequestLog::Once(const RequestKey& key, const std::string& subject,
                              const std::function<absl::Status(const Earlier& earlier)>& body) {
  if (key.id.empty()) return body({});
  PF_RETURN_IF_ERROR(CheckRequestId(key.id));
  {
    const absl::MutexLock lock(&mu_);
    if (!under_way_.insert(key.id).second) {
      return WithReason(
          absl::UnavailableError(absl::StrCat("the call with request_id ", key.id, " is being done; ask again")),
          "REQUEST_UNDER_WAY");
    }
  }
  const absl::Cleanup ended = [this, &key] {
    const absl::MutexLock lock(&mu_);
    under_way_.erase(key.id);
  };
  PF_ASSIGN_OR_RETURN(const Earlier earlier, Begin(key, subject));
  absl::Status status = body(earlier);
  if (earlier.seen == Earlier::Seen::kAnswered) return status;
  if (status.ok()) {
    // If this fails, the call stays recorded as begun, and `body` gets kBegun when the call is repeated.
    WarnUnrecorded(key, store_.PutRequest(key, {.answered = true, .subject = earlier.subject}));
  } else if (earlier.seen == Earlier::Seen::kNever) {
    // The record of a call that a dead process began is not dropped, because a repeated call would then do the work
    // twice.
    WarnUnrecorded(key, store_.DropRequest(key.id));
  }
  return status;
}

absl::StatusOr<Earlier> RequestLog::Begin(const RequestKey& key, const std::string& subject) {
  PF_ASSIGN_OR_RETURN(const std::optional<RequestRecord> record, store_.FindRequest(key));
  if (record) return Earlier{record->answered ? Earlier::Seen::kAnswered : Earlier::Seen::kBegun, record->subject};
  PF_RETURN_IF_ERROR(store_.PutRequest(key, {.answered = false, .subject = subject}));
  return Earlier{Earlier::Seen::kNever, subject};
}

absl::StatusOr<bool> RequestLog::IsAnswered(const RequestKey& key) const {
  PF_RETURN_IF_ERROR(CheckRequestId(key.id));
  return store_.IsAnswered(key);
}

void RequestLog::Remember(const RequestKey& key) {
  if (!key.id.empty()) WarnUnrecorded(key, store_.PutRequest(key, {.answered = true, .subject = ""}));
}

}  // namespace permafrost::jobs
