// `permafrost job watch` and `job wait`. The exit code of `job wait` says how the jobs ended.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/monotonic.h"
#include "client/commands.h"
#include "client/follow.h"
#include "client/format.h"
#include "client/job_view.h"
#include "client/progress.h"
#include "grpcpp/support/time.h"
#include "permafrost/v1/job.grpc.pb.h"

namespace permafrost::client {
namespace {

// Prints what is new in each message. A stream sends each epoch once, but after a reconnection the new stream sends
// all epochs again.
class JobWatch {
 public:
  explicit JobWatch(Session& session) : session_(session) {}

  // Shows the message. Returns whether the job has ended.
  bool OnJob(const v1::Job& job) {
    if (session_.json()) {
      session_.PrintJson(job);
    } else {
      PrintEpochs(job);
      PrintChanges(job);
      session_.terminal().Live(RenderJobProgress(ToSnapshot(job, valid_metric_), session_.terminal().style()));
    }
    last_ = job;
    return IsTerminal(job.state());
  }

  ExitCode Finish() {
    session_.terminal().ClearLive();
    if (last_.state() == v1::Job::STATE_SUCCEEDED) {
      const std::string gap = last_epoch_ > 0 ? "\n" : "";
      if (!session_.json()) session_.Print(gap + RenderResult(last_, session_.terminal().style()));
      return ExitCode::kOk;
    }
    std::string message = absl::StrCat("job ", std::string(StripCollection("jobs", last_.name())), " ",
                                       last_.state() == v1::Job::STATE_CANCELLED ? "was cancelled" : "failed");
    if (!last_.error().empty()) absl::StrAppend(&message, ": ", last_.error());
    return session_.Fail(EndedBadlyFailure(message));
  }

 private:
  void PrintEpochs(const v1::Job& job) {
    const EpochTable table = EpochTableOf(job);
    for (const v1::EpochMetrics& epoch : job.epochs()) {
      if (epoch.epoch() <= last_epoch_) continue;
      if (last_epoch_ == 0) session_.terminal().Line(RenderEpochHeader(table, session_.terminal().style()));
      session_.terminal().Line(RenderEpochRow(ToEpochRow(epoch), table));
      last_epoch_ = epoch.epoch();
      valid_metric_ = epoch.valid_metric();
    }
  }

  // Prints the new state changes that are not part of a job's usual course.
  void PrintChanges(const v1::Job& job) {
    const int64_t dropped = job.dropped_state_changes();
    for (int i = 0; i < job.state_changes_size(); ++i) {
      const v1::StateChange& change = job.state_changes(i);
      if (dropped + i < seen_changes_) continue;
      const bool tells = change.state() == v1::Job::STATE_RECOVERING || change.state() == v1::Job::STATE_PAUSED ||
                         (change.state() == v1::Job::STATE_QUEUED && change.reason() != "SUBMITTED");
      // Changes from before the watch began are left to `job show`.
      if (!tells || !watching_) continue;
      session_.terminal().Line(absl::StrCat(StateName(change.state()), " (", OneLine(change.reason()), ")",
                                            change.message().empty() ? "" : ": ", OneLine(change.message())));
    }
    seen_changes_ = dropped + job.state_changes_size();
    watching_ = true;
  }

  Session& session_;
  v1::Job last_;
  int64_t seen_changes_ = 0;
  bool watching_ = false;
  int64_t last_epoch_ = 0;
  std::optional<double> valid_metric_;
};

struct JobWatchFlags {
  std::string id;
  double reconnect_seconds = kDefaultReconnectSeconds;
};

}  // namespace

ExitCode WatchJob(Session& session, const std::string& id, absl::Duration reconnect) {
  const auto stub = v1::JobService::NewStub(session.channel());
  v1::WatchJobRequest request;
  request.set_name(WithCollection("jobs", id));
  JobWatch watch(session);
  const FollowResult result = Follow<v1::Job>(
      session, reconnect, [&](grpc::ClientContext* context) { return stub->WatchJob(context, request); },
      [&](const v1::Job& job) { return watch.OnJob(job); }, /*ok_is_end=*/false);
  switch (result.end) {
    case FollowEnd::kDone:
      return watch.Finish();
    case FollowEnd::kFailed:
      return session.Fail(result.failure);
    case FollowEnd::kInterrupted:
      break;
  }
  const std::string short_id(StripCollection("jobs", id));
  return session.Interrupted(absl::StrCat(
      "job ", short_id, " goes on; come back with: ", session.CommandLine(absl::StrCat("job watch ", short_id))));
}

void AddJobWatch(CLI::App& job, Command& chosen) {
  CLI::App* watch = job.add_subcommand("watch", "Show a job's progress until it ends; Ctrl-C leaves the job running");
  const auto flags = std::make_shared<JobWatchFlags>();
  watch->add_option("ID", flags->id, "The job")->type_name("")->required();
  AddReconnectOption(*watch, flags->reconnect_seconds);
  watch->callback([flags, &chosen] {
    chosen = [flags](Session& session) {
      return WatchJob(session, flags->id, absl::Seconds(flags->reconnect_seconds));
    };
  });
}

namespace {

struct WaitFlags {
  std::vector<std::string> ids;
  // Unset: there is no time limit.
  std::optional<double> seconds;
  double reconnect_seconds = kDefaultReconnectSeconds;
};

class Wait {
 public:
  Wait(Session& session, const WaitFlags& flags)
      : session_(session),
        ids_(flags.ids),
        most_(flags.seconds ? absl::Seconds(*flags.seconds) : absl::InfiniteDuration()),
        reconnect_(absl::Seconds(flags.reconnect_seconds)) {}

  ExitCode Run() {
    for (const std::string& id : ids_) {
      v1::Job job;
      const FollowResult result = Watch(id, job);
      if (result.end != FollowEnd::kInterrupted && Left() <= absl::ZeroDuration() && !IsTerminal(job.state())) {
        return session_.Fail(TimedOutFailure(absl::StrCat("job ", Short(id), " is ", StateName(job.state()), " after ",
                                                          DurationText(most_), "; it goes on")));
      }
      if (result.end == FollowEnd::kFailed) return session_.Fail(result.failure);
      if (result.end == FollowEnd::kInterrupted) return session_.Interrupted("the jobs go on");
      Told(job);
    }
    if (bad_.empty()) return ExitCode::kOk;
    return session_.Fail(EndedBadlyFailure(
        bad_.size() == 1 && ids_.size() == 1
            ? absl::StrCat("job ", bad_.front())
            : absl::StrCat(bad_.size(), " of ", ids_.size(), " jobs did not succeed: ", absl::StrJoin(bad_, "; "))));
  }

 private:
  absl::Duration Left() const { return most_ - since_.Elapsed(); }
  static std::string Short(const std::string& id) { return OneLine(StripCollection("jobs", id)); }

  // Follows the job until it has ended or the time is over. `job` receives its last seen state, without epochs.
  FollowResult Watch(const std::string& id, v1::Job& job) {
    const auto stub = v1::JobService::NewStub(session_.channel());
    v1::WatchJobRequest request;
    request.set_name(WithCollection("jobs", id));
    return Follow<v1::Job>(
        session_, std::min(reconnect_, std::max(absl::ZeroDuration(), Left())),
        [&](grpc::ClientContext* context) {
          if (most_ != absl::InfiniteDuration()) {
            context->set_deadline(gpr_time_from_nanos(absl::ToInt64Nanoseconds(Left()), GPR_TIMESPAN));
          }
          return stub->WatchJob(context, request);
        },
        [&](const v1::Job& seen) {
          job = seen;
          job.clear_epochs();
          return IsTerminal(job.state());
        },
        /*ok_is_end=*/false);
  }

  void Told(const v1::Job& job) {
    const std::string line = absl::StrCat(
        Short(job.name()), " ", job.state() == v1::Job::STATE_CANCELLED ? "was cancelled" : StateName(job.state()),
        job.error().empty() ? "" : ": ", OneLine(job.error()));
    if (job.state() != v1::Job::STATE_SUCCEEDED) bad_.push_back(line);
    if (session_.json()) {
      session_.PrintJson(job);
    } else if (job.state() == v1::Job::STATE_SUCCEEDED || ids_.size() > 1) {
      session_.terminal().Line(absl::StrCat("job ", line));
    }
  }

  Session& session_;
  const std::vector<std::string>& ids_;
  const absl::Duration most_, reconnect_;
  const Stopwatch since_;
  std::vector<std::string> bad_;
};

}  // namespace

void AddJobWait(CLI::App& job, Command& chosen) {
  CLI::App* wait = job.add_subcommand(
      "wait",
      "Wait until jobs have ended; exits with 0 if all succeeded, else with 1, with 6 where the time is over "
      "before. A paused job has not ended");
  const auto flags = std::make_shared<WaitFlags>();
  wait->add_option("ID", flags->ids, "The jobs")->type_name("")->required();
  wait->add_option("--timeout", flags->seconds, "How long in all (default: for ever)")
      ->check(CLI::Range(0.001, 1e9).description(""))
      ->type_name("SECONDS");
  AddReconnectOption(*wait, flags->reconnect_seconds);
  wait->callback([flags, &chosen] { chosen = [flags](Session& session) { return Wait(session, *flags).Run(); }; });
}

}  // namespace permafrost::client
