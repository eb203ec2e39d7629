#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/id.h"
#include "base/status.h"
#include "client/commands.h"
#include "client/follow.h"
#include "client/format.h"
#include "client/job_flags.h"
#include "client/job_view.h"
#include "client/progress.h"
#include "client/requests.h"
#include "client/server_group.h"
#include "client/sweep.h"
#include "permafrost/v1/job.grpc.pb.h"

namespace permafrost::client {
namespace {

constexpr int64_t kDefaultMaxJobs = 100;

struct SweepFlags {
  JobFlags job;
  std::vector<std::string> vary;
  bool side_by_side = false;
  int64_t max_jobs = kDefaultMaxJobs;
  std::vector<std::string> labels;
  std::optional<std::string> id;
  std::vector<std::string> servers;
  double reconnect_seconds = kDefaultReconnectSeconds;
};

// Returns whether the status is a server's answer. The transport can produce the codes below too, but only a server
// attaches details.
bool IsAnswer(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return !status.error_details().empty();
    default:
      return true;
  }
}

// One run of `job sweep`.
class Sweep {
 public:
  Sweep(Session& session, ServerGroup servers, const SweepFlags& flags)
      : session_(session),
        servers_(std::move(servers)),
        reconnect_(absl::Seconds(flags.reconnect_seconds)),
        comes_back_(flags.id.has_value()),
        id_(flags.id ? *flags.id : absl::StrCat("sweep-", MakeUuid().substr(0, 8))) {}

  absl::Status Plan(const SweepFlags& flags, const v1::CreateJobRequest& described) {
    labels_ = described.labels();
    labels_["sweep"] = id_;
    PF_RETURN_IF_ERROR(ReadLabels(flags.labels, labels_));
    for (const std::string& text : flags.vary) {
      auto axis = ParseAxis(text, described.spec());
      if (!axis.ok()) return axis.status();
      axes_.push_back(*std::move(axis));
    }
    auto plan = PlanSweep(described.spec(), axes_, flags.side_by_side, flags.max_jobs);
    if (!plan.ok()) return plan.status();
    plan_ = *std::move(plan);
    return absl::OkStatus();
  }

  ExitCode Run() {
    places_.assign(plan_.size(), 0);
    // Validates all jobs before it creates the first one.
    if (servers_.is_spread()) {
      Interrupt::Scope keep_running(session_.interrupt(), nullptr);
      if (const std::optional<ExitCode> failed = Place()) return *failed;
    } else {
      for (size_t j = 0; j < plan_.size(); ++j) {
        if (const grpc::Status status = Create(j, /*validate_only=*/true); !status.ok()) {
          return NotMade(j, status, /*validate_only=*/true);
        }
      }
    }
    for (size_t j = 0; j < plan_.size(); ++j) {
      if (const grpc::Status status = Create(j, /*validate_only=*/false); !status.ok()) {
        return NotMade(j, status, /*validate_only=*/false);
      }
      jobs_.push_back(created_);
      // Most jobs of a sweep have the same notes, so each note is printed once.
      for (const std::string& note : created_.notes()) {
        if (!session_.json() && notes_.insert(note).second) {
          session_.terminal().Note(absl::StrCat("warning: ", OneLine(note)));
        }
      }
    }
    WarnOfTwins();
    if (!session_.json()) {
      session_.terminal().Line(absl::StrCat("sweep ", OneLine(id_), ": ", plan_.size(), " jobs submitted", Shares()));
    }
    for (size_t j = 0; j < jobs_.size(); ++j) {
      FollowResult result = Watch(j);
      if (result.end == FollowEnd::kFailed) {
        absl::StrAppend(&result.failure.message, "; the same command with --id ", id_, " comes back to the jobs");
        return servers_.session(places_[j]).Fail(result.failure);
      }
      if (result.end == FollowEnd::kInterrupted) {
        return session_.Interrupted(
            absl::StrCat("the jobs go on; the same command with --id ", OneLine(id_), " comes back to them"));
      }
      Told(j);
    }
    return Finish();
  }

 private:
  ExitCode Refused(const ServerGroup::Refusal& refusal) {
    if (comes_back_ && refusal.status.error_code() == grpc::StatusCode::UNAVAILABLE && !session_.json()) {
      session_.terminal().Note(
          absl::StrCat("permafrost: ", OneLine(servers_.name(refusal.member)), " may hold jobs of sweep ", OneLine(id_),
                       ". Start it and repeat the command; without it in --on they are made twice"));
    }
    return servers_.Fail(refusal);
  }

  void Warn(const std::string& text) {
    warnings_.push_back(text);
    if (!session_.json()) session_.terminal().Note(absl::StrCat("warning: ", text));
  }

  std::string JobId(size_t j) const { return absl::StrCat(id_, "-", j); }

  // Fills made_ with the servers that have jobs of this sweep. Leaves made_ empty for an invalid ID, which no job can
  // have, and which would break the filter's syntax.
  std::optional<ServerGroup::Refusal> FindMade() {
    made_.clear();
    if (!CheckIdSyntax("job_id", JobId(0)).ok()) return std::nullopt;
    return servers_.FindJobs(absl::StrCat("labels.sweep = \"", id_, "\""), made_);
  }

  // Chooses a server for each job: the server on which an earlier command made the job. If there is none, chooses the
  // server that will begin the job first. Returns an exit code only on failure.
  std::optional<ExitCode> Place() {
    std::set<std::string> datasets, programs;
    for (const SweepJob& job : plan_) {
      if (job.spec.has_init_from()) {
        return session_.Fail(UsageFailure(kInitFromOnServers));
      }
      datasets.insert(job.spec.dataset());
      if (!job.spec.model().program().empty()) programs.insert(job.spec.model().program());
    }
    if (comes_back_) {
      if (const auto refusal = FindMade()) return Refused(*refusal);
    }
    for (size_t j = 0; j < plan_.size(); ++j) {
      const auto made = made_.find(absl::StrCat("jobs/", JobId(j)));
      if (made == made_.end()) continue;
      was_made_.insert(j);
      places_[j] = made->second.front();
    }
    if (was_made_.size() == plan_.size()) return std::nullopt;
    if (const auto refusal = servers_.Prepare(datasets, programs)) return Refused(*refusal);
    if (const std::string differences = servers_.Differences(); !differences.empty()) Warn(differences);
    std::map<size_t, std::vector<ServerGroup::Refusal>> passed_over;  // by member
    for (size_t j = 0; j < plan_.size(); ++j) {
      if (was_made_.contains(j)) continue;
      ServerGroup::Placement placement;
      if (const auto refusal = servers_.Place(RequestOf(j), placement)) {
        places_[j] = refusal->member;
        return NotMade(j, refusal->status, /*validate_only=*/true);
      }
      places_[j] = placement.member;
      for (const ServerGroup::Refusal& refusal : placement.passed_over) passed_over[refusal.member].push_back(refusal);
    }
    for (const auto& [member, refusals] : passed_over) {
      Warn(absl::StrCat(OneLine(servers_.name(member)), " is passed over for ", refusals.size(), " of ", plan_.size(),
                        " jobs: ", OneLine(refusals.front().status.error_message())));
    }
    return std::nullopt;
  }

  // Warns if several servers have the same job. A server may have accepted the job from an earlier command after this
  // command looked for it.
  void WarnOfTwins() {
    if (!servers_.is_spread() || !comes_back_) return;
    // If a server cannot be asked now, there is no warning. Watch reports the server if it has jobs of this sweep.
    if (was_made_.size() < plan_.size() && FindMade()) return;
    for (const auto& [name, members] : made_) {
      if (const std::string twins = servers_.TwinsText(name, members); !twins.empty()) Warn(twins);
    }
  }

  // Returns, for example, " (3 on lab-1, 2 on lab-2)", or an empty text without --on.
  std::string Shares() const {
    if (!servers_.is_spread()) return "";
    std::vector<std::string> shares;
    for (size_t m = 0; m < servers_.size(); ++m)
      shares.push_back(absl::StrCat(std::ranges::count(places_, m), " on ", OneLine(servers_.name(m))));
    return absl::StrCat(" (", absl::StrJoin(shares, ", "), ")");
  }

  // Returns the server of each job, or an empty list without --on.
  std::vector<std::string> ServersOfJobs() const {
    std::vector<std::string> names;
    if (!servers_.is_spread()) return names;
    for (size_t j = 0; j < jobs_.size(); ++j) names.push_back(servers_.name(places_[j]));
    return names;
  }

  v1::CreateJobRequest RequestOf(size_t j) const {
    v1::CreateJobRequest request;
    *request.mutable_spec() = plan_[j].spec;
    *request.mutable_labels() = labels_;
    return request;
  }

  grpc::Status Create(size_t j, bool validate_only) {
    v1::CreateJobRequest request = RequestOf(j);
    if (!validate_only) {
      request.set_job_id(JobId(j));
      request.set_request_id(RepeatableRequestId(absl::StrCat(id_, " ", j), plan_[j].spec));
    }
    request.set_validate_only(validate_only);
    return CreateJob(servers_.session(places_[j]), request, created_);
  }

  std::string NameOfJob(size_t j) const {
    std::vector<std::string> values;
    for (size_t a = 0; a < axes_.size(); ++a) values.push_back(absl::StrCat(axes_[a].name, "=", plan_[j].values[a]));
    return OneLine(absl::StrJoin(values, " "));
  }

  ExitCode NotMade(size_t j, const grpc::Status& status, bool validate_only) {
    Session& at = servers_.session(places_[j]);
    if (session_.json()) return at.Fail(status);
    const bool refused = IsAnswer(status) && !session_.interrupt().requested();
    // Without an answer from the server, the job may exist all the same.
    const bool none = validate_only || (refused && jobs_.empty());
    session_.terminal().Note(absl::StrCat(
        "permafrost: job ", j + 1, " of ", plan_.size(), " (", NameOfJob(j), ") ",
        refused ? "is refused; " : "could not be made; ",
        none ? "nothing was created"
             : absl::StrCat("the same command with --id ", OneLine(id_), " comes back to those that were made")));
    return at.Fail(status);
  }

  FollowResult Watch(size_t j) {
    Session& at = servers_.session(places_[j]);
    const auto stub = v1::JobService::NewStub(at.channel());
    v1::WatchJobRequest request;
    request.set_name(jobs_[j].name());
    std::optional<double> valid_metric;
    return Follow<v1::Job>(
        at, reconnect_, [&](grpc::ClientContext* context) { return stub->WatchJob(context, request); },
        [&](const v1::Job& job) {
          jobs_[j] = job;
          if (!job.epochs().empty()) valid_metric = job.epochs().rbegin()->valid_metric();
          if (!session_.json()) {
            const RenderStyle style = session_.terminal().style();
            const std::string head = absl::StrCat(j + 1, "/", jobs_.size(), "  ");
            RenderStyle rest = style;
            rest.width = std::max(1, style.width - DisplayWidth(head));
            session_.terminal().Live(absl::StrCat(head, RenderJobProgress(ToSnapshot(job, valid_metric), rest)));
          }
          return IsTerminal(job.state());
        },
        /*ok_is_end=*/false);
  }

  void Told(size_t j) {
    if (session_.json()) return;
    const v1::Job& job = jobs_[j];
    std::string line = absl::StrCat(j + 1, "/", jobs_.size(), "  ", NameOfJob(j), "  ", StateName(job.state()));
    if (servers_.is_spread()) absl::StrAppend(&line, " on ", OneLine(servers_.name(places_[j])));
    if (job.has_result()) {
      absl::StrAppend(&line, "  valid ", MetricName(job), " ", MetricText(job.result().best_valid_metric()), "  test ",
                      MetricText(job.result().best_test_metric()));
    }
    if (!job.error().empty()) absl::StrAppend(&line, ": ", OneLine(job.error()));
    session_.terminal().Line(line);
  }

  ExitCode Finish() {
    session_.terminal().ClearLive();
    if (session_.json()) {
      session_.Print(SweepToJson(id_, axes_, plan_, jobs_, ServersOfJobs(), warnings_));
    } else {
      session_.Print(
          absl::StrCat("\n", RenderSweep(axes_, plan_, jobs_, ServersOfJobs(), session_.terminal().style())));
    }
    const auto bad =
        std::ranges::count_if(jobs_, [](const v1::Job& job) { return job.state() != v1::Job::STATE_SUCCEEDED; });
    if (bad == 0) return ExitCode::kOk;
    return session_.Fail(EndedBadlyFailure(
        absl::StrCat(bad, " of the ", jobs_.size(), " jobs of sweep ", OneLine(id_), " did not succeed")));
  }

  Session& session_;
  ServerGroup servers_;
  std::vector<size_t> places_;                       // the server of each job
  std::set<size_t> was_made_;                        // jobs that an earlier command made
  std::map<std::string, std::vector<size_t>> made_;  // by job name: the servers that have this job of the sweep
  std::vector<std::string> warnings_;
  const absl::Duration reconnect_;
  const bool comes_back_;  // true: an earlier command may have made some of the jobs
  const std::string id_;
  WireLabels labels_;
  std::vector<SweepAxis> axes_;
  std::vector<SweepJob> plan_;
  std::set<std::string> notes_;  // the notes that were printed
  v1::Job created_;
  std::vector<v1::Job> jobs_;
};

ExitCode RunSweep(Session& session, const SweepFlags& flags) {
  absl::StatusOr<ServerGroup> servers = ServerGroup::Open(session, flags.servers);
  if (!servers.ok()) return session.Fail(FileFailure(servers.status()));
  v1::CreateJobRequest request;
  ExitCode failed = ExitCode::kOk;
  const bool varied =
      std::ranges::any_of(flags.vary, [](const std::string& text) { return text.starts_with("dataset="); });
  const DatasetNeed dataset = varied ? DatasetNeed::kLater : DatasetNeed::kHere;
  if (!ReadJob(flags.job, session, request, failed, dataset)) return failed;
  Sweep sweep(session, *std::move(servers), flags);
  if (const absl::Status planned = sweep.Plan(flags, request); !planned.ok()) {
    return session.Fail(UsageFailure(std::string(planned.message())));
  }
  return sweep.Run();
}

}  // namespace

void AddJobSweep(CLI::App& job, Command& chosen) {
  CLI::App* sweep = job.add_subcommand(
      "sweep", "Queue a job for each combination of values, wait for all, and show one table of what came of them");
  const auto flags = std::make_shared<SweepFlags>();
  sweep
      ->add_option("--vary", flags->vary,
                   "A field of the job, or a flag of it without dashes, and its values, as fold=0..9, "
                   "model.hidden_channels=32,64, or of a list fan-out=5:5,10:5; several times: every combination. "
                   "Means and standard deviations (population) are over fold, seed, fold-seed and link-seed")
      ->required()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("FIELD=VALUES");
  sweep->add_flag("--side-by-side", flags->side_by_side,
                  "Take the first value of each --vary, then the second, instead of every combination");
  sweep->add_option("--max-jobs", flags->max_jobs, absl::StrCat("Refuse to make more (default ", kDefaultMaxJobs, ")"))
      ->check(CLI::Range(int64_t{1}, int64_t{10'000}).description(""))
      ->type_name("N");
  sweep
      ->add_option(
          "--id", flags->id,
          "Begins the jobs' IDs, ID-0, ID-1, ...; the same command with the ID of a sweep that was interrupted "
          "comes back to its jobs, which went on (default: made up)")
      ->type_name("ID");
  AddOnOption(
      *sweep, flags->servers,
      "Spread the jobs over these servers (addresses or contexts), which must have equal datasets and programs; "
      "each job goes to the one that begins it first");
  AddJobFlags(*sweep, flags->job);
  AddLabelOption(*sweep, flags->labels, "A label of each job, beside sweep=ID, which all have; several times");
  AddReconnectOption(*sweep, flags->reconnect_seconds);
  sweep->callback([flags, &chosen] { chosen = [flags](Session& session) { return RunSweep(session, *flags); }; });
}

}  // namespace permafrost::client
