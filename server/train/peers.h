// The other daemons that train a job with this one, as a run sees them: whom it asks, and where a rank stands.
// No torch, no wire: the runner uses it, and the room that calls other servers implements it.
// Threads: as each class says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "spec/field.h"
#include "spec/train_options.h"

namespace permafrost::train {

// The place of a run among those that train one job. The leader is rank 0.
struct RankPlace {
  int64_t rank = 0;
  // Where the leader waits for the others: its address, as this machine reaches it, and a port.
  std::string leader_host;
  int rendezvous_port = 0;
  std::string rendezvous_token;  // which shows that it was asked
};

// The reason of an error that says that too few daemons are free; the job waits.
inline constexpr std::string_view kTooFewPeersReason = "TOO_FEW_PEERS";
// The reason with which a daemon refuses a rank of a job whose dataset it does not hold.
inline constexpr std::string_view kDatasetMissingReason = "DATASET_MISSING";
// The reason of an error that says that a rank has gone, or has not come. Another team may take its place.
inline constexpr std::string_view kRankLostReason = "RANK_LOST";
// The reason of a rank that could not connect to the others.
inline constexpr std::string_view kNotConnectedReason = "RANK_NOT_CONNECTED";
// The reason with which a rank ends by an error of the job, which another try would meet again.
inline constexpr std::string_view kRankFailedReason = "RANK_FAILED";

// The training steps of one rank since its team was formed.
struct RankProgress {
  std::string address;  // host:port of its daemon; empty: the leader's
  int64_t steps = 0;
  double seconds = 0;           // of these steps
  double exchange_seconds = 0;  // the part in which it exchanged values, waiting included
};

template <class F>
void VisitFields(spec::Options<RankProgress>, F&& f) {
  using R = RankProgress;
  f({.name = "address"}, &R::address);
  f({.name = "steps"}, &R::steps);
  f({.name = "seconds"}, &R::seconds);
  f({.name = "exchange_seconds"}, &R::exchange_seconds);
}

struct RecruitRequest {
  std::string job;               // its id, for the others' logs
  spec::TrainOptions options;    // of the job; options.replicas - 1 daemons are wanted
  int64_t least = 0;             // the fewest of them with which the job begins
  std::string dataset_checksum;  // data::ContentChecksumOf, as hex digits
  // The dataset's file, which is sent to a daemon that lacks it. Empty: none is sent.
  std::filesystem::path dataset_file;
  // As RankPlace's.
  int rendezvous_port = 0;
  std::string rendezvous_token;
  // How long Recruit goes on asking. While fewer than `least` have joined, it asks again every peer that refused and
  // has the dataset. Then it asks only busy ones, which may just be leaving another team.
  absl::Duration patience = absl::ZeroDuration();
  // Asked now and then; false: nobody wants them any more.
  std::function<bool()> keep_going = [] { return true; };
  // Hears lines for the job's log, on the thread that calls Recruit.
  std::function<void(std::string_view line)> log = [](std::string_view /*line*/) {};
};

// The daemons that train with this one, ranks 1, 2, ... The destructor lets them go.
// Threads: all methods are safe anywhere.
class Recruits {
 public:
  virtual ~Recruits() = default;
  // host:port of each, as this daemon was told them.
  virtual const std::vector<std::string>& addresses() const = 0;
  // Returns what each told last; steps 0: nothing yet.
  virtual std::vector<RankProgress> progress() const = 0;
  // Why one of them has ended, with its address: Unavailable, or FailedPrecondition with kRankFailedReason. Ok: all go
  // on.
  virtual absl::Status failure() const = 0;
  // The same, after a moment in which the news may come.
  virtual absl::Status WaitForFailure() = 0;
  // Waits until all have ended, for at most `timeout`: ranks that train to a job's end tell of their last steps then.
  virtual void AwaitEnd(absl::Duration timeout) = 0;
  // Marks the daemon of this rank, which took the rank and did not come: for a while it is asked only if too few others
  // join.
  virtual void Avoid(int64_t rank) = 0;
};

// Threads: all methods are safe anywhere.
class Peers {
 public:
  virtual ~Peers() = default;
  // The daemons that may be asked.
  virtual int64_t count() const = 0;
  // Asks the peers in turn and returns those that joined, at most as many as wanted. If fewer than `least` join, sends
  // the dataset to peers that lack it and asks them again, and then asks avoided peers. Errors: Unavailable with
  // kTooFewPeersReason if still fewer than `least` joined (the message quotes each refusal); FailedPrecondition if one
  // says that the job cannot be trained; Cancelled.
  virtual absl::StatusOr<std::unique_ptr<Recruits>> Recruit(const RecruitRequest& request) = 0;
  // Returns whether another peer would join now; no rank begins. A peer that lacks the dataset is sent a copy. The
  // request's rendezvous must be valid, though nobody connects to it.
  virtual bool CanRecruit(const RecruitRequest& request) = 0;
};

}  // namespace permafrost::train
