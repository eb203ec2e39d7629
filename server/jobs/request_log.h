// The log of calls that change something other than jobs: datasets, uploads, tokens, the server itself. It makes a
// call with a `request_id` happen once, even if the process dies before it has answered. A call that changes a job is
// recorded together with its change (JobStore) instead.
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

// The record that a call finds when it comes.
struct Earlier {
  enum class Seen {
    kNever,     // the call must do its work
    kBegun,     // a process began the call and died: the call must do what is not done yet
    kAnswered,  // the call was done: only answer it
  };
  Seen seen = Seen::kNever;
  std::string subject;  // the subject given when the call came first
};

class RequestLog {
 public:
  explicit RequestLog(JobStore& store) : store_(store) {}

  // Runs `body`, which does the call or only answers it, and returns its status. Before `body` runs, the id is on
  // record as begun, with `subject`. If `body` returns Ok, the id is recorded as answered. After an error the id is
  // forgotten if `body` was told kNever, and stays begun if it was told kBegun. With an empty id nothing is recorded,
  // and `body` is told kNever.
  // Errors: those of `body`; InvalidArgument with a violation of "request_id"; AlreadyExists, reason
  // REQUEST_ID_REUSED, if another call used the id; Unavailable, reason REQUEST_UNDER_WAY, while the same call is
  // being done; the store's, and then nothing was done.
  absl::Status Once(const RequestKey& key, const std::string& subject,
                    const std::function<absl::Status(const Earlier& earlier)>& body);

  // Returns whether a call was answered. For calls that can be interrupted and then continue. Errors: same as Once,
  // without those of `body`.
  absl::StatusOr<bool> IsAnswered(const RequestKey& key) const;
  // Records that a call was answered. A failure is only logged. The call is then done again if it comes again.
  void Remember(const RequestKey& key);

 private:
  absl::StatusOr<Earlier> Begin(const RequestKey& key, const std::string& subject);

  JobStore& store_;
  absl::Mutex mu_;
  std::set<std::string> under_way_ ABSL_GUARDED_BY(mu_);
};

}  // namespace permafrost::jobs
