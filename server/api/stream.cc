#include "api/stream.h"

namespace permafrost::api {

absl::Status ServerStops() { return absl::UnavailableError("the server stops; ask again when it is back"); }

void StreamSet::Add(Member* member) {
  absl::MutexLock lock(&mu_);
  members_.insert(member);
  if (stopped_) member->Stop();
}

void StreamSet::Remove(Member* member) {
  absl::MutexLock lock(&mu_);
  members_.erase(member);
}

void StreamSet::StopAll() {
  absl::MutexLock lock(&mu_);
  stopped_ = true;
  // gRPC runs OnDone, and so Remove, on a thread of its own: it waits for the lock and cannot come from within Stop.
  for (Member* member : members_) member->Stop();
}

}  // namespace permafrost::api
