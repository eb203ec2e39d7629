// The interface through which a run finds other daemons to train a job with. The runner calls it, and the code that
// calls other servers implements it. So this file uses neither torch nor wire types.
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

// Says which rank of a job a run is, and how it reaches the others. The leader is rank 0.
struct RankPlace {
  int64_t rank = 0;
  // The address at which this machine reaches the leader: its host, and the port at which it waits for the other
  // ranks.
  std::string leader_host;
  int rendezvous_port = 0;
  std::string rendezvous_token;  // proves that the leader asked this rank to join
};

// The error reason if too few daemons are free. The job waits until more daemons are free.
inline constexpr std::string_view kTooFewPeersReason = "TOO_FEW_PEERS";
// The error reason with which a daemon refuses a rank because it does not hold the job's dataset.
inline constexpr std::string_view kDatasetMissingReason = "DATASET_MISSING";
// The error reason if a rank was lost or never joined. A new team may continue the job.
inline constexpr std::string_view kRankLostReason = "RANK_LOST";
// The error reason of a rank that could not connect to the others.
inline constexpr std::string_view kNotConnectedReason = "RANK_NOT_CONNECTED";
// The error reason of a rank that ends because of the job itself. Another attempt would fail in the same way.
inline constexpr std::string_view kRankFailedReason = "RANK_FAILED";

// Counts of one rank's training steps since its team was formed.
struct RankProgress {
  std::string address;  // host:port of the rank's daemon; empty for the leader
  int64_t steps = 0;
  double seconds = 0;           // seconds spent on these steps
  double exchange_seconds = 0;  // the part of `seconds` spent on exchanges, including waiting
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
  std::string job;               // id of the job, for the logs of other daemons
  spec::TrainOptions options;    // the job's options; options.replicas - 1 peers are wanted
  int64_t least = 0;             // the fewest peers with which the job begins
  std::string dataset_checksum;  // data::ContentChecksumOf, as hex digits
  // The dataset's file, which is sent to a daemon that lacks the dataset. If empty, no file is sent.
  std::filesystem::path dataset_file;
  // Same as in RankPlace.
  int rendezvous_port = 0;
  std::string rendezvous_token;
  // The time for which Recruit repeats its request to peers that refused. While fewer than `least` peers have joined,
  // it asks every peer that has the dataset. Once `least` have joined, it asks only busy peers, which may be about to
  // leave another team.
  absl::Duration patience = absl::ZeroDuration();
  // Called now and then. Returns false if the recruits are no longer wanted.
  std::function<bool()> keep_going = [] { return true; };
  // Takes lines for the job's log, on the thread that calls Recruit.
  std::function<void(std::string_view line)> log = [](std::string_view /*line*/) {};
};

// The daemons that train with this daemon, as ranks 1, 2 and so on. The destructor releases them.
// Threads: all methods are thread-safe.
class Recruits {
 public:
  virtual ~Recruits() = default;
  // Returns host:port of each recruit, as configured on this daemon.
  virtual const std::vector<std::string>& addresses() const = 0;
  // Returns the newest report of each recruit. If a recruit has not reported, its `steps` is 0.
  virtual std::vector<RankProgress> progress() const = 0;
  // Returns the error of a recruit that has ended, with the recruit's address; OK while all run. Errors: Unavailable,
  // or FailedPrecondition with kRankFailedReason.
  virtual absl::Status failure() const = 0;
  // Waits a moment for a failure that is about to be reported, and then returns failure().
  virtual absl::Status WaitForFailure() = 0;
  // Waits until all recruits have ended, but at most `timeout`. So ranks that train to the job's end can report their
  // last steps.
  virtual void AwaitEnd(absl::Duration timeout) = 0;
  // Reports that the daemon that agreed to run this rank never joined. For a while, that daemon is asked only if too
  // few other daemons join.
  virtual void Avoid(int64_t rank) = 0;
};

// The daemons that this daemon may ask to run ranks of its jobs.
// Threads: all methods are thread-safe.
class Peers {
 public:
  virtual ~Peers() = default;
  // Returns the number of daemons that may be asked.
  virtual int64_t count() const = 0;
  // Asks the peers in turn and returns those that joined, at most as many as the request wants. While fewer than
  // `least` have joined, it next sends the dataset to peers that lack it and asks these again, and then asks avoided
  // peers (Recruits::Avoid).
  // Errors: Unavailable with kTooFewPeersReason if fewer than `least` joined in the end; the message quotes each
  // refusal. FailedPrecondition if a peer says that the job cannot be trained. Cancelled.
  virtual absl::StatusOr<std::unique_ptr<Recruits>> Recruit(const RecruitRequest& request) = 0;
  // Returns whether any peer would join now. Starts no rank, but sends the dataset to a peer that lacks it. The
  // request's rendezvous must be valid, although nobody connects to it.
  virtual bool CanRecruit(const RecruitRequest& request) = 0;
};

}  // namespace permafrost::train
