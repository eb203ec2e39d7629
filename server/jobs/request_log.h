// Calls that change what lies outside of the jobs' records (datasets, uploads, tokens, the server itself), done once
// for each `request_id`, also where the process dies before it has answered. A call that changes a job's records is put
// on record with the change itself (JobStore). Threads: all methods are safe anywhere; each waits for the disk. Borrows
// the store.
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

// The record of a call at the time when it comes.
struct Earlier {
  enum class Seen {
    kNever,     // do it
    kBegun,     // a process began it and died: do what of it is not done yet
    kAnswered,  // it was done: only answer
  };
  Seen seen = Seen::kNever;
  std::string subject;  // what it was about when it came first
};

class RequestLog {
 public:
  explicit RequestLog(JobStore& store) : store_(store) {}

  // Runs `body`, which does the call or answers it, and returns its status. The id is on record as begun before, with
  // `subject`, and as answered after it returned Ok; after an error it is forgotten, or stays begun where it was told
  // kBegun. An empty id: `body` alone, which is told kNever. Errors besides `body`'s: InvalidArgument, a violation of
  // "request_id"; AlreadyExists, reason REQUEST_ID_REUSED, of one used for another call; Unavailable, reason
  // REQUEST_UNDER_WAY, while the same call is being done; the store's, and then nothing was done.
  absl::Status Once(const RequestKey& key, const std::string& subject,
                    const std::function<absl::Status(const Earlier& earlier)>& body);

  // For a call that may be interrupted and goes on where it was: whether it was answered. Errors: as Once's.
  absl::StatusOr<bool> IsAnswered(const RequestKey& key) const;
  // It was done. One that cannot be written is logged: the call would be done again.
  void Remember(const RequestKey& key);

 private:
  absl::StatusOr<Earlier> Begin(const RequestKey& key, const std::string& subject);

  JobStore& store_;
  absl::Mutex mu_;
  std::set<std::string> under_way_ ABSL_GUARDED_BY(mu_);
};

}  // namespace permafrost::jobs
