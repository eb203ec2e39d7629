// The log of calls that change something other than jobs: datasets, uploads, tokens, the server itself. With it, the
// work of a call with a `request_id` is done once, even if the process dies before it answers. Calls that change a
// job are recorded by JobStore instead, together with the change.
// Threads: all methods are safe anywhere; each waits for the disk. Borrows the store.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "jobs/job_store.h"

namespace permafrost::jobs {

// The record of an earlier call with the same request_id.
struct Earlier {
  enum class Seen {
    kNever,     // the call must do its work
    kBegun,     // a process began the call and died: the call must do the remaining work
    kAnswered,  // the work was done: the call only answers
  };
  Seen seen = Seen::kNever;
  std::string subject;  // the subject that the first of the calls gave
};

class RequestLog {
 public:
  explicit RequestLog(JobStore& store) : store_(store) {}

  // Runs `body`, and returns its status. `body` does the work of the call or only answers the call, as Earlier says.
  // Before `body` runs, the id is recorded as begun, with `subject`. If `body` returns Ok, the id is recorded as
  // answered. If `body` fails after kNever, the id is forgotten; if it fails after kBegun, the id stays begun. With
  // an empty id, nothing is recorded, and `body` gets kNever.
  // Errors: those of `body`; InvalidArgument with a violation of "request_id"; AlreadyExists, reason
  // REQUEST_ID_REUSED, if another call used the id; Unavailable, reason REQUEST_UNDER_WAY, while the same call is
  // being done; those of the store, before anything was done.
  absl::Status Once(const RequestKey& key, const std::string& subject,
                    const std::function<absl::Status(const Earlier& earlier)>& body);

  // Returns whether a call was answered. Use it for calls that can be interrupted and then continue. Errors: same as
  // Once, without those of `body`.
  absl::StatusOr<bool> IsAnswered(const RequestKey& key) const;
  // Records that a call was answered. If that fails, only logs the failure. If the call is then repeated, its work is
  // done again.
  void Remember(const RequestKey& key);

 private:
  absl::StatusOr<Earlier> Begin(const RequestKey& key, const std::string& subject);

  JobStore& store_;
  absl::Mutex mu_;
  std::set<std::string> under_way_ ABSL_GUARDED_BY(mu_);
};

}  // namespace permafrost::jobs
