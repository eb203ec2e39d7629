#include "jobs/rank_host.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/device.h"
#include "base/hash.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/string_view.h"
#include "telemetry/log.h"

namespace permafrost::jobs {
namespace {

// Between two questions whether the leader is still there.
constexpr absl::Duration kAskInterval = absl::Milliseconds(100);

// A rank keeps nothing: its leader does.
class RankContext final : public train::RunContext {
 public:
  RankContext(std::string name, const JobBook& book, DeviceActivityBoard& activity, const OnRankProgress& on_progress)
      : name_(std::move(name)), book_(book), activity_(activity), on_progress_(on_progress) {}

  const train::RankProgress& progress() const { return progress_; }
  train::StopRequest stop_requested() const override {
    if (book_.draining()) return train::StopRequest::kDrain;
    if (!gone_ && asked_.Elapsed() >= kAskInterval) {
      asked_.Restart();
      gone_ = !on_progress_(progress_);
    }
    return gone_ ? train::StopRequest::kCancel : train::StopRequest::kNone;
  }
  void OnProgress(const train::Progress& progress) override {
    activity_.Move();
    if (progress.exchange && !progress.exchange->ranks.empty()) progress_ = progress.exchange->ranks.front();
  }
  void OnGraphCache(const graphcache::Snapshot& /*snapshot*/,
                    std::shared_ptr<const std::vector<graphcache::EntryInfo>> /*entries*/) override {
    activity_.Move();
  }
  std::vector<graphcache::Command> TakeCacheCommands(int64_t /*after_sequence*/, int64_t /*step*/) override {
    return {};
  }
  void OnEpoch(const train::EpochMetrics& /*metrics*/) override {}
  absl::Status StoreEpochs(bool /*is_last*/) override { return absl::OkStatus(); }
  void OnCheckpoint(int64_t /*step*/, absl::Duration /*duration*/) override {}
  void OnCheckpointFailed(const absl::Status& /*error*/) override {}
  void Log(train::LogLevel level, std::string_view line) override {
    telemetry::Log(level == train::LogLevel::kError     ? telemetry::Severity::kError
                   : level == train::LogLevel::kWarning ? telemetry::Severity::kWarning
                                                        : telemetry::Severity::kInfo,
                   absl::StrCat(name_, ": ", AbslView(line)));
  }

 private:
  const std::string name_;
  const JobBook& book_;
  DeviceActivityBoard& activity_;
  const OnRankProgress& on_progress_;
  train::RankProgress progress_;
  // Asked by the device thread alone.
  mutable Stopwatch asked_;
  mutable bool gone_ = false;
};

// Returns whether the same step would meet the error on any machine. Damaged data, a device that failed, and memory
// that is too little for a job which the leader found to be valid are matters of this machine.
bool IsOfTheJob(const absl::Status& error) {
  return !error.ok() && !IsTransient(error) && !IsDeviceFault(error) && !absl::IsCancelled(error) &&
         !absl::IsUnavailable(error) && !absl::IsDataLoss(error) && !absl::IsResourceExhausted(error) &&
         !absl::IsInvalidArgument(error);
}

absl::Status DatasetError(const DatasetId& dataset, absl::string_view what, std::string_view reason) {
  return WithReason(absl::FailedPreconditionError(absl::StrCat("dataset ", dataset.value(), " ", what)), reason,
                    {{"dataset", dataset.value()}});
}

}  // namespace

absl::StatusOr<data::OpenedDataset> RankHost::Check(const RankRequest& request) const {
  if (book_.draining()) return DrainingError();
  const spec::TrainOptions& options = request.options;
  Violations violations;
  spec::Validate(options, "spec.", violations);
  if (request.place.rank < 1 || request.place.rank >= options.replicas) {
    violations.Add("rank", absl::StrCat(request.place.rank, ": the job has ", options.replicas,
                                        " replicas; accepted: 1 to ", options.replicas - 1));
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  absl::StatusOr<data::OpenedDataset> dataset = catalog_.Open(options.dataset);
  if (absl::IsNotFound(dataset.status())) {
    return DatasetError(options.dataset, "is not here", train::kDatasetMissingReason);
  }
  PF_RETURN_IF_ERROR(dataset.status());
  if (const std::string own = HashHex(data::ContentChecksumOf(*dataset)); own != request.dataset_checksum) {
    return DatasetError(
        options.dataset,
        absl::StrCat("holds other data here (checksum ", own, ") than on the leader (", request.dataset_checksum, ")"),
        "DATASET_DIFFERS");
  }
  // This machine may differ from the leader's. The leader has looked at the number of peers.
  spec::TrainOptions alone = options;
  alone.replicas = 1;
  // A program comes from the leader once the ranks are connected, and is checked then.
  if (!spec::IsProgram(options)) {
    PF_RETURN_IF_ERROR(runner_.CheckCompatible(alone, data::SummaryOf(*dataset), "spec."));
  }
  return dataset;
}

absl::Status RankHost::Run(const RankRequest& request, const OnRankProgress& on_progress) {
  // This comes before a missing dataset, so that no leader sends a dataset to a busy server.
  absl::Status busy = WithReason(absl::UnavailableError("it trains another job or rank"), kDeviceBusyReason);
  if (!book_.draining() && !device_.CanTakeGuest()) return busy;
  PF_ASSIGN_OR_RETURN(const data::OpenedDataset dataset, Check(request));
  if (request.validate_only) return absl::OkStatus();
  const std::string name =
      absl::StrCat("rank ", request.place.rank, " of job ", request.job, " of ", request.place.leader_host);
  absl::StatusOr<train::RunOutcome> outcome = train::RunOutcome();
  const auto run = [&]() -> absl::Status {
    // The leader hears that the device has taken it.
    if (!on_progress({})) {
      outcome = absl::CancelledError("the leader has gone");
      return outcome.status();
    }
    telemetry::Log(telemetry::Severity::kInfo, absl::StrCat(name, ": begins"));
    RankContext context(name, book_, device_.activity(), on_progress);
    outcome = runner_.Run({.options = request.options, .dataset = dataset, .job_directory = {}, .place = request.place},
                          context);
    if (outcome.ok() && outcome->end == train::RunEnd::kSucceeded) on_progress(context.progress());
    telemetry::Log(telemetry::Severity::kInfo,
                   absl::StrCat(name, outcome.ok() ? ": ended" : ": ended by an error: ", outcome.status().message()));
    return outcome.status();
  };
  if (!device_.RunGuest(run)) return busy;
  if (IsOfTheJob(outcome.status())) {
    return WithReason(absl::FailedPreconditionError(outcome.status().message()), train::kRankFailedReason);
  }
  if (book_.draining() && outcome.ok() && outcome->end != train::RunEnd::kSucceeded) return DrainingError();
  return outcome.status();
}

}  // namespace permafrost::jobs
