// `permafrost job pause`, `resume`, `retry`, `update` and `checkpoints`: commands that make one short call.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/format.h"
#include "client/job_flags.h"
#include "client/job_view.h"
#include "client/message_fields.h"
#include "client/requests.h"
#include "client/style.h"
#include "permafrost/v1/enum_text.h"
#include "permafrost/v1/job.grpc.pb.h"

namespace permafrost::client {
namespace {

// Flags of `job update` that limit how long a job may take. "none" removes a limit.
struct LimitFlags {
  std::optional<std::string> max_runtime, deadline;
};

using google::protobuf::FieldDescriptor;

constexpr char kNoLimit[] = "none";

const FieldDescriptor& FieldOf(int number) { return *v1::JobSpec::descriptor()->FindFieldByNumber(number); }

void AddLimit(CLI::App& command, const char* flag, int field, std::optional<std::string>& value, const char* help,
              const char* type) {
  const auto check = [field](const std::string& text) -> std::string {
    const std::string refusal = text == kNoLimit ? "" : RefusalOf(FieldOf(field), text, ',');
    return refusal.empty() ? "" : absl::StrCat(refusal, ", or ", kNoLimit);
  };
  command.add_option(flag, value, help)->check(CLI::Validator(check, ""))->type_name(type);
}

void ApplyLimit(int number, const std::optional<std::string>& value, v1::UpdateJobRequest& request) {
  if (!value) return;
  const FieldDescriptor& field = FieldOf(number);
  v1::JobSpec& spec = *request.mutable_job()->mutable_spec();
  if (*value != kNoLimit) SetSpecField({&field}, {*value}, spec);
  request.mutable_update_mask()->add_paths(absl::StrCat("spec.", field.name()));
}

void AddLimitFlags(CLI::App& command, LimitFlags& flags) {
  AddLimit(command, "--max-runtime", v1::JobSpec::kMaxRuntimeFieldNumber, flags.max_runtime,
           "Most time on the device, as 45m, 1h30m or 2d; none: no limit", "DURATION");
  AddLimit(command, "--deadline", v1::JobSpec::kDeadlineFieldNumber, flags.deadline,
           "When the job is to have ended, as 2026-01-31T13:00:00Z, or as 12h from now; none: never", "TIME");
}

// Sets the given limits in the request, and adds their fields to the update mask.
void ApplyLimits(const LimitFlags& flags, v1::UpdateJobRequest& request) {
  ApplyLimit(v1::JobSpec::kMaxRuntimeFieldNumber, flags.max_runtime, request);
  ApplyLimit(v1::JobSpec::kDeadlineFieldNumber, flags.deadline, request);
}

template <class Request>
using StubMethod = grpc::Status (v1::JobService::Stub::*)(grpc::ClientContext*, const Request&, v1::Job*);

// Returns whether a resume or a retry would be a no-op.
bool GoesOn(const v1::Job& job) {
  switch (job.state()) {
    case v1::Job::STATE_QUEUED:
    case v1::Job::STATE_PREPARING:
    case v1::Job::STATE_RECOVERING:
    case v1::Job::STATE_WARMING_UP:
    case v1::Job::STATE_RUNNING:
      return !job.pausing();
    default:
      return false;
  }
}

// Returns the job as it is before the verb's call, or an empty job on an error, which the verb's call will then
// report.
v1::Job JobBefore(Session& session, v1::JobService::Stub& stub, const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  v1::Job job;
  const grpc::Status status =
      session.Unary([&](grpc::ClientContext* context) { return stub.GetJob(context, request, &job); });
  return status.ok() ? job : v1::Job();
}

// `said` takes the job before and after the call, and returns the text to print.
template <class Request>
ExitCode RunVerb(Session& session, const std::string& id, StubMethod<Request> method,
                 std::string (*said)(const v1::Job& before, const v1::Job& now)) {
  const auto stub = v1::JobService::NewStub(session.channel());
  Request request;
  request.set_name(WithCollection("jobs", id));
  request.set_request_id(MakeUuid());
  const v1::Job before = JobBefore(session, *stub, request.name());
  v1::Job job;
  const grpc::Status status =
      CallPatiently(session, [&](grpc::ClientContext* context) { return ((*stub).*method)(context, request, &job); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(job);
  } else {
    session.Print(absl::StrCat("job ", OneLine(StripCollection("jobs", id)), " ", said(before, job), "\n"));
  }
  return ExitCode::kOk;
}

std::string NothingDone(const v1::Job& job) {
  return absl::StrCat("is ", StateName(job.state()), " already; nothing was done");
}

std::string SaidOfPause(const v1::Job& before, const v1::Job& job) {
  if (before.state() == v1::Job::STATE_PAUSED) return NothingDone(before);
  return job.pausing() ? absl::StrCat("is ", StateName(job.state()), "; it pauses at its next step")
                       : StateName(job.state());
}

std::string SaidOfResume(const v1::Job& before, const v1::Job& job) {
  return GoesOn(before) ? NothingDone(before) : StateName(job.state());
}

std::string SaidOfRetry(const v1::Job& before, const v1::Job& job) {
  if (before.has_retry_time() && !job.has_retry_time()) {
    return absl::StrCat("is ", StateName(job.state()), " and waits no longer after its error");
  }
  return SaidOfResume(before, job);
}

template <class Request>
void AddVerb(CLI::App& job, const char* name, const char* help, StubMethod<Request> method,
             std::string (*said)(const v1::Job& before, const v1::Job& now), Command& chosen) {
  CLI::App* command = job.add_subcommand(name, help);
  const auto id = std::make_shared<std::string>();
  command->add_option("ID", *id, "The job")->type_name("")->required();
  command->callback([id, method, said, &chosen] {
    chosen = [id, method, said](Session& session) { return RunVerb<Request>(session, *id, method, said); };
  });
}

struct JobUpdateFlags {
  std::string id;
  std::optional<int32_t> priority;
  std::vector<std::string> labels, remove_labels;
  std::string etag;
  LimitFlags limits;
};

ExitCode UpdateJob(Session& session, const JobUpdateFlags& flags) {
  v1::UpdateJobRequest request;
  v1::Job& job = *request.mutable_job();
  job.set_name(WithCollection("jobs", flags.id));
  job.set_etag(flags.etag);
  if (flags.priority) {
    job.mutable_spec()->set_priority(*flags.priority);
    request.mutable_update_mask()->add_paths("spec.priority");
  }
  if (const absl::Status read = ReadLabels(flags.labels, *job.mutable_labels()); !read.ok()) {
    return session.Fail(UsageFailure(std::string(read.message())));
  }
  // The update mask has a path for each changed label, because another client may change other labels meanwhile.
  for (const auto& label : job.labels()) request.mutable_update_mask()->add_paths(absl::StrCat("labels.", label.first));
  for (const std::string& key : flags.remove_labels) {
    if (job.labels().contains(key)) {
      return session.Fail(UsageFailure(absl::StrCat("--remove-label: ", key, " is given with --label, too")));
    }
    request.mutable_update_mask()->add_paths(absl::StrCat("labels.", key));
  }
  ApplyLimits(flags.limits, request);
  if (request.update_mask().paths().empty()) {
    return session.Fail(UsageFailure(
        "nothing to update; give --priority, --max-runtime, --deadline, --label or --remove-label (see permafrost job "
        "update --help)"));
  }
  const auto stub = v1::JobService::NewStub(session.channel());
  request.set_request_id(MakeUuid());
  v1::Job updated;
  if (const grpc::Status size = CheckRequestSize(request); !size.ok()) return session.Fail(size);
  const grpc::Status status =
      CallPatiently(session, [&](grpc::ClientContext* context) { return stub->UpdateJob(context, request, &updated); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(updated);
  } else {
    const v1::JobSpec& spec = updated.spec();
    const std::string runtime =
        spec.has_max_runtime() ? absl::StrCat(", max runtime ", DurationText(ToDuration(spec.max_runtime()))) : "";
    const std::string deadline =
        spec.has_deadline() ? absl::StrCat(", deadline ", ClockText(ToTime(spec.deadline()), ViewTime::Now().zone))
                            : "";
    session.Print(absl::StrCat("job ", OneLine(StripCollection("jobs", flags.id)), ": priority ", spec.priority(),
                               runtime, deadline, ", labels ",
                               updated.labels().empty() ? "none" : OneLine(LabelsText(updated.labels())), "\n"));
  }
  return ExitCode::kOk;
}

void AddUpdate(CLI::App& job, Command& chosen) {
  CLI::App* update = job.add_subcommand("update", "Change a job's priority, limits or labels");
  const auto flags = std::make_shared<JobUpdateFlags>();
  update->add_option("ID", flags->id, "The job")->type_name("")->required();
  update->add_option("--priority", flags->priority, "Jobs of higher priority run first, -100..100")->type_name("N");
  AddLimitFlags(*update, flags->limits);
  AddLabelOption(*update, flags->labels, "Set a label; several times");
  update->add_option("--remove-label", flags->remove_labels, "Remove a label; several times")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("KEY");
  update->add_option("--etag", flags->etag, "Only if the job still has this etag, of `job show --output json`")
      ->type_name("ETAG");
  update->callback([flags, &chosen] { chosen = [flags](Session& session) { return UpdateJob(session, *flags); }; });
}

ExitCode ListCheckpoints(Session& session, const std::string& id, bool verify) {
  const auto stub = v1::JobService::NewStub(session.channel());
  v1::ListCheckpointsRequest request;
  request.set_parent(WithCollection("jobs", id));
  request.set_verify(verify);
  v1::ListCheckpointsResponse response;
  const grpc::Status status =
      session.Unary([&](grpc::ClientContext* context) { return stub->ListCheckpoints(context, request, &response); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(response);
  } else if (response.checkpoints().empty()) {
    session.Print(absl::StrCat("job ", OneLine(StripCollection("jobs", id)), " has no checkpoint\n"));
  } else {
    session.Print(RenderCheckpoints({response.checkpoints().begin(), response.checkpoints().end()}, ViewTime::Now(),
                                    session.terminal().style()));
  }
  return ExitCode::kOk;
}

void AddCheckpoints(CLI::App& job, Command& chosen) {
  CLI::App* list = job.add_subcommand("checkpoints", "A job's checkpoints on disk, the newest first");
  const auto id = std::make_shared<std::string>();
  const auto verify = std::make_shared<bool>(false);
  list->add_option("ID", *id, "The job")->type_name("")->required();
  list->add_flag("--verify", *verify, "Read every byte and compare checksums");
  list->callback([id, verify, &chosen] {
    chosen = [id, verify](Session& session) { return ListCheckpoints(session, *id, *verify); };
  });
}

}  // namespace

std::string RenderCheckpoints(const std::vector<v1::Checkpoint>& checkpoints, const ViewTime& time,
                              const RenderStyle& style) {
  std::vector<std::vector<Cell>> rows;
  rows.reserve(checkpoints.size());
  for (const v1::Checkpoint& checkpoint : checkpoints) {
    const bool whole = checkpoint.state() == v1::Checkpoint::STATE_COMPLETE;
    const std::string state = EnumShortName(*v1::Checkpoint::State_descriptor(), checkpoint.state());
    rows.push_back(
        {CountText(checkpoint.step()),
         CountText(checkpoint.epoch()),
         checkpoint.best_epoch() > 0 ? CountText(checkpoint.best_epoch()) : kNothing,
         {state, whole ? Tone::kGood : Tone::kBad},
         BytesText(checkpoint.total_bytes()),
         checkpoint.has_create_time() ? AgeText(ToTime(checkpoint.create_time()), time.now, time.zone) : kNothing,
         checkpoint.error().empty() ? kNothing : OneLine(checkpoint.error())});
  }
  return RenderTable({{"STEP", Align::kRight},
                      {"EPOCH", Align::kRight},
                      {"BEST EPOCH", Align::kRight},
                      {"STATE"},
                      {"SIZE", Align::kRight},
                      {"WRITTEN", Align::kRight},
                      {"ERROR"}},
                     rows, style);
}

void AddJobVerbs(CLI::App& job, Command& chosen) {
  AddVerb<v1::PauseJobRequest>(job, "pause",
                               "Keep a job from the device until it is resumed; a running one stops at its "
                               "next step, after a checkpoint",
                               &v1::JobService::Stub::PauseJob, SaidOfPause, chosen);
  AddVerb<v1::ResumeJobRequest>(job, "resume", "Queue a paused job again; it goes on from its newest checkpoint",
                                &v1::JobService::Stub::ResumeJob, SaidOfResume, chosen);
  AddVerb<v1::RetryJobRequest>(job, "retry",
                               "Queue a job that failed or was cancelled again; it goes on from its newest "
                               "checkpoint. One that waits after an error runs now",
                               &v1::JobService::Stub::RetryJob, SaidOfRetry, chosen);
  AddUpdate(job, chosen);
  AddCheckpoints(job, chosen);
}

}  // namespace permafrost::client
