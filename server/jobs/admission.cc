#include "jobs/admission.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/monotonic.h"
#include "base/string_view.h"
#include "jobs/job.h"
#include "jobs/job_inputs.h"
#include "jobs/job_log_text.h"
#include "telemetry/log.h"

namespace permafrost::jobs {
namespace {

constexpr size_t kMaxRequestIdLength = 128;

void CheckRequestId(const std::string& request_id, Violations& violations) {
  if (request_id.size() > kMaxRequestIdLength) {
    violations.Add("request_id", absl::StrCat("has ", request_id.size(), " characters; at most ", kMaxRequestIdLength,
                                              " are accepted"));
  } else if (!std::ranges::all_of(request_id, [](unsigned char c) { return absl::ascii_isprint(c); })) {
    violations.Add("request_id", "holds characters that are not printable ASCII");
  }
}

}  // namespace

absl::Status CheckRequestId(const std::string& request_id) {
  Violations violations;
  CheckRequestId(request_id, violations);
  return violations.ToStatus();
}

absl::Status CheckRequest(const CreateRequest& request) {
  Violations violations;
  if (!request.id.empty()) violations.AddMissing(CheckIdSyntax("job_id", request.id.value()));
  CheckRequestId(request.request_id, violations);
  Validate(request.spec, violations);
  Validate(request.labels, "labels", violations);
  return violations.ToStatus();
}

absl::StatusOr<Job> Admission::Create(const CreateRequest& request) {
  if (book_.draining()) return DrainingError();
  PF_RETURN_IF_ERROR(CheckRequest(request));
  if (!request.spec.train.init_from.given()) return CreateWith(request, Beginning());
  absl::MutexLock reading(&reading_mu_);
  // If this early check already answers the call, the weights need not be read. CreateWith repeats the check under
  // the lock, because another call may have changed the result in between.
  PF_ASSIGN_OR_RETURN(std::optional<Job> repeated, FindRepeatedOrCheckNew(request));
  if (repeated) return *std::move(repeated);
  // A drain may have begun while the call waited. A stop must not wait for the disk.
  if (book_.draining()) return DrainingError();
  PF_ASSIGN_OR_RETURN(const WithProgram found, FindProgram(request.spec));
  return CreateWith(request, ReadBeginning(found.spec));
}

absl::StatusOr<Job> Admission::CreateWith(const CreateRequest& request, absl::StatusOr<Beginning> beginning) {
  absl::MutexLock lock(&mu_);
  PF_ASSIGN_OR_RETURN(std::optional<Job> repeated, FindRepeatedOrCheckNew(request));
  if (repeated) return *std::move(repeated);
  Job job;
  PF_ASSIGN_OR_RETURN(job.id, ChooseId(request.id));
  job.request_id = request.request_id;
  job.spec = request.spec;
  job.labels = request.labels;
  job.create_time = absl::Now();
  // Until the job is on record, its dataset must not be deleted.
  book_.Reserve(job);
  absl::Cleanup reservation_ends = [this] { book_.Reserve(std::nullopt); };
  PF_ASSIGN_OR_RETURN(const WithProgram found, FindProgram(job.spec));
  PF_ASSIGN_OR_RETURN(job.notes, CheckDataset(found.spec));
  PF_ASSIGN_OR_RETURN(const data::Dataset dataset, catalog_.Get(job.spec.train.dataset));
  job.dataset_uid = dataset.uid;
  PF_ASSIGN_OR_RETURN(const std::string initial_weights, TakeInitialWeights(found.spec, std::move(beginning)));
  if (request.validate_only) return job;
  Move(job, JobState::kQueued, why::kSubmitted);
  return Admit(std::move(job), request.asked, initial_weights, found.etag);
}

absl::StatusOr<Admission::WithProgram> Admission::FindProgram(const spec::JobSpec& spec) const {
  WithProgram found{.spec = spec, .etag = ""};
  if (!spec::IsProgram(spec.train)) return found;
  if (programs_ == nullptr) return absl::UnimplementedError("this server has no programs");
  spec::ModelOptions& model = found.spec.train.model;
  PF_ASSIGN_OR_RETURN(const StoredProgram program, programs_->Get(model.program));
  found.etag = program.etag;
  PF_ASSIGN_OR_RETURN(model.program_file, programs_->PathOf(model.program));
  return found;
}

absl::Status Admission::CopyProgram(const Job& job, const std::string& etag) const {
  const ProgramId& id = job.spec.train.model.program;
  PF_RETURN_IF_ERROR(programs_->CopyTo(id, book_.files().Directory(job.id) / train::kProgramFile));
  const absl::StatusOr<StoredProgram> copied = programs_->Get(id);
  if (copied.ok() && copied->etag == etag) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("program ", id.value(), " was deleted while the job was made of it; ask again"));
}

absl::StatusOr<spec::TrainOptions> Admission::Check(const spec::JobSpec& spec) const {
  if (book_.draining()) return DrainingError();
  Violations violations;
  Validate(spec, violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  PF_ASSIGN_OR_RETURN(const WithProgram found, FindProgram(spec));
  PF_RETURN_IF_ERROR(CheckDataset(found.spec).status());
  return found.spec.train;
}

absl::StatusOr<Job> Admission::Retry(const JobId& id, const RequestKey& request) {
  absl::ReleasableMutexLock lock(&mu_);
  PF_ASSIGN_OR_RETURN(const bool answered, book_.store().IsAnswered(request));
  std::optional<Job> ended;
  if (!answered) {
    PF_ASSIGN_OR_RETURN(ended, book_.FindRetriable(id, request));
  }
  if (!ended) {
    // The job may have a million epochs, and other calls must not wait while these are read.
    lock.Release();
    return book_.Get(id);
  }
  PF_RETURN_IF_ERROR(CheckCount());
  spec::JobSpec spec = ended->spec;
  spec.train = RunnerOptions(*ended, book_.files());
  // Until the job is queued again, its dataset must not be deleted.
  book_.Reserve(std::move(ended));
  absl::Cleanup reservation_ends = [this] { book_.Reserve(std::nullopt); };
  PF_RETURN_IF_ERROR(CheckDataset(spec).status());
  return book_.Requeue(id, request);
}

absl::StatusOr<std::optional<CreatedBefore>> Admission::FindCreated(const std::string& request_id,
                                                                    const std::string& asked) const {
  if (request_id.empty()) return std::nullopt;
  PF_ASSIGN_OR_RETURN(const std::optional<Job> job, book_.store().FindByRequestId(request_id));
  PF_ASSIGN_OR_RETURN(const std::optional<Creation> creation, book_.store().FindCreation(request_id));
  if (job) {
    PF_ASSIGN_OR_RETURN(Job now, book_.Get(job->id));
    return CreatedBefore{.job = std::move(now), .same = creation && !asked.empty() && creation->asked == asked};
  }
  if (!creation) return std::nullopt;
  return WithReason(absl::NotFoundError(absl::StrCat("request_id ", request_id, " made job ", creation->job.value(),
                                                     ", which was deleted since; use a new one for a new job")),
                    "JOB_NOT_FOUND", {{"job", creation->job.value()}});
}

absl::StatusOr<std::optional<Job>> Admission::FindRepeated(const CreateRequest& request) const {
  PF_ASSIGN_OR_RETURN(std::optional<CreatedBefore> earlier, FindCreated(request.request_id, request.asked));
  if (!earlier) return std::nullopt;
  Job& job = earlier->job;
  if (earlier->same) return std::move(job);
  // Fields that an update may have changed since are not compared.
  spec::JobSpec wanted = request.spec;
  wanted.priority = job.spec.priority;
  wanted.limits = job.spec.limits;
  // Jobs from before `edge_inputs` existed read no edge features. The same request today leaves the field at kAuto.
  spec::EdgeInputs& edges = wanted.train.model.edge_inputs;
  if (edges == spec::EdgeInputs::kAuto) edges = job.spec.train.model.edge_inputs;
  // The request also leaves the form of the degree columns open.
  wanted.train.model.own_degree_columns = job.spec.train.model.own_degree_columns;
  // Two defaults have changed since: the number of batches sampled ahead, and the most graphs in a batch within a
  // budget.
  int64_t& look_ahead = wanted.train.nodes.look_ahead;
  if (look_ahead == spec::NodeTrainingOptions().look_ahead) look_ahead = job.spec.train.nodes.look_ahead;
  const bool is_budget = wanted.train.batching.kind == spec::BatchingKind::kBudget;
  if (is_budget && wanted.train.batch_size == spec::kMaxBatchSize) wanted.train.batch_size = job.spec.train.batch_size;
  if (job.spec != wanted || (!request.id.empty() && request.id != job.id)) {
    return WithReason(
        absl::AlreadyExistsError(absl::StrCat("request_id ", request.request_id, " was used for another job, ",
                                              job.id.value(), "; use a new one for a new job")),
        "REQUEST_ID_REUSED", {{"job", job.id.value()}});
  }
  return std::move(job);
}

absl::StatusOr<std::optional<Job>> Admission::FindRepeatedOrCheckNew(const CreateRequest& request) const {
  PF_ASSIGN_OR_RETURN(std::optional<Job> repeated, FindRepeated(request));
  if (repeated) return repeated;
  PF_RETURN_IF_ERROR(CheckCount());
  // The deadline is checked only for a new job. A repeated call gets its job, even if the deadline has passed since.
  Violations violations;
  ValidateDeadline(request.spec.limits.deadline, "spec.deadline", violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return std::nullopt;
}

absl::Status Admission::CheckCount() const {
  if (max_jobs_ == 0) return absl::OkStatus();
  const JobCounts counts = book_.CountByState();
  int64_t jobs = 0;
  for (const auto& [state, name] : kJobStateNames.rows) {
    if (!IsTerminal(state)) jobs += counts[static_cast<size_t>(state)];
  }
  if (jobs < max_jobs_) return absl::OkStatus();
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(jobs, " jobs have not ended, and the server takes at most ", max_jobs_,
                                                " (--max-jobs); wait for one to end, or cancel one")),
      "TOO_MANY_JOBS", {{"limit", absl::StrCat(max_jobs_)}});
}

absl::StatusOr<JobId> Admission::ChooseId(const JobId& wanted) const {
  while (true) {
    JobId id = wanted.empty() ? MakeJobId(absl::Now()) : wanted;
    const absl::Status taken = book_.store().Get(id, kNoEpochs).status();
    if (absl::IsNotFound(taken)) return id;
    PF_RETURN_IF_ERROR(taken);
    if (!wanted.empty()) {
      return WithReason(absl::AlreadyExistsError(absl::StrCat("job ", id.value(), " already exists")),
                        "JOB_ALREADY_EXISTS", {{"job", id.value()}});
    }
  }
}

std::optional<DatasetTraits> Admission::TraitsOf(const DatasetId& id) const {
  const absl::StatusOr<data::Dataset> dataset = catalog_.Get(id);
  if (!dataset.ok() || !dataset->summary) return std::nullopt;
  const auto* graph = std::get_if<data::GraphSummary>(&*dataset->summary);
  const auto* set = std::get_if<data::GraphSetSummary>(&*dataset->summary);
  return DatasetTraits{.level = graph != nullptr ? spec::ModelLevel::kNode : spec::ModelLevel::kGraph,
                       .gives_links = graph != nullptr && graph->links.given,
                       .bare_nodes = set != nullptr && set->node_features.type == data::DataType::kNone,
                       .uid = dataset->uid,
                       .create_time = dataset->create_time};
}

absl::StatusOr<std::vector<std::string>> Admission::CheckDataset(const spec::JobSpec& spec) const {
  PF_ASSIGN_OR_RETURN(const data::Dataset dataset, catalog_.Get(spec.train.dataset));
  if (dataset.state != data::DatasetState::kReady || !dataset.summary) {
    // If the machine cannot open the dataset just now, the catalog tries again by itself, and the user need not do
    // anything.
    bool soon = false;
    if (dataset.state == data::DatasetState::kFailed) {
      const absl::Status opened = catalog_.Open(dataset.id).status();
      soon = opened.ok() || IsTransient(opened);  // Ok: the dataset became ready after Get
    }
    const std::string message =
        absl::StrCat("dataset ", dataset.id.value(), " is ", AbslView(data::kDatasetStateNames.Name(dataset.state)),
                     dataset.error.empty() ? "" : absl::StrCat(" (", dataset.error, ")"),
                     "; a job needs one that is ready", soon ? ", and it is tried again: ask again" : "");
    return WithReason(soon ? absl::UnavailableError(message) : absl::FailedPreconditionError(message),
                      "DATASET_NOT_READY", {{"dataset", dataset.id.value()}});
  }
  PF_RETURN_IF_ERROR(runner_.CheckCompatible(spec.train, *dataset.summary, "spec."));
  const absl::StatusOr<data::OpenedDataset> opened = catalog_.Open(spec.train.dataset);
  if (IsTransient(opened.status())) {
    return WithReason(absl::UnavailableError(absl::StrCat("dataset ", dataset.id.value(), " cannot be opened now: ",
                                                          opened.status().message(), "; ask again")),
                      "DATASET_NOT_READY", {{"dataset", dataset.id.value()}});
  }
  // The run reports any other fault of the file.
  if (!opened.ok()) return std::vector<std::string>();
  absl::StatusOr<std::vector<std::string>> fits =
      runner_.CheckFits({.options = spec.train, .dataset = *opened}, "spec.", [this] { return !book_.draining(); });
  if (absl::IsCancelled(fits.status())) return DrainingError();
  if (!fits.ok() && !absl::IsInvalidArgument(fits.status())) return std::vector<std::string>();
  return fits;
}

absl::Status Admission::Fit(const spec::JobSpec& spec, const data::Dataset& dataset, const Job* from,
                            Beginning& beginning) const {
  const absl::StatusOr<data::OpenedDataset> opened = catalog_.Open(dataset.id);
  // If the dataset cannot be opened, CheckDataset or the run reports it.
  if (opened.ok()) {
    train::NodeRowsRequest request{
        .options = spec.train, .dataset = *opened, .trained = std::nullopt, .weights = std::move(beginning.weights)};
    if (from != nullptr) request.trained = OpenTrainedDataset(*from, catalog_, book_.files());
    PF_ASSIGN_OR_RETURN(beginning.weights, runner_.MapNodeRows(std::move(request), "spec."));
  }
  return CheckInitialWeights(spec, dataset, beginning);
}

absl::StatusOr<Admission::Beginning> Admission::ReadBeginning(const spec::JobSpec& spec) const {
  const spec::InitialWeights& from = spec.train.init_from;
  Beginning beginning;
  std::optional<Job> origin;
  if (from.job.empty()) {
    PF_ASSIGN_OR_RETURN(const std::filesystem::path path, FindWeightsFile(from.file, catalog_));
    PF_ASSIGN_OR_RETURN(beginning.weights, ReadWeightsFile(path, from.file));
  } else {
    // Reads the job before its weights. If another job takes the id in between, the different sequence shows it.
    PF_ASSIGN_OR_RETURN(origin, book_.Get(from.job, kNoEpochs));
    beginning.job_sequence = origin->sequence;
    beginning.trained_uid = origin->dataset_uid;
    PF_ASSIGN_OR_RETURN(const std::filesystem::path path, FindWeightsOfJob(from.job, from.weights, book_));
    PF_ASSIGN_OR_RETURN(beginning.weights, ReadFile(path));
  }
  const absl::StatusOr<data::Dataset> dataset = catalog_.Get(spec.train.dataset);
  // CreateWith reports faults of the dataset, before faults of the weights.
  if (dataset.ok() && dataset->summary && runner_.CheckCompatible(spec.train, *dataset->summary, "spec.").ok()) {
    beginning.fits = Fit(spec, *dataset, origin ? &*origin : nullptr, beginning);
    beginning.dataset_uid = dataset->uid;
  }
  return beginning;
}

absl::Status Admission::CheckInitialWeights(const spec::JobSpec& spec, const data::Dataset& dataset,
                                            const Beginning& beginning) const {
  // The training dataset is unknown if the weights come from a file, or from a job that does not record it. An
  // unknown dataset does not count as another dataset.
  train::WeightsTarget target{.categories = std::nullopt,
                              .other_dataset = !beginning.trained_uid.empty() && beginning.trained_uid != dataset.uid};
  const auto opened = catalog_.Open(dataset.id);
  auto categories = opened.ok() ? data::CategoriesOf(*opened) : std::optional<data::Categories>();
  if (opened.ok() && categories.ok()) {
    target.categories = *std::move(categories);
  } else {
    // The run reports a fault of the dataset's file, so unknown categories are not refused here.
    target.other_dataset = false;
  }
  return runner_.CheckInitialWeights(spec.train, *dataset.summary, beginning.weights, "spec.", target);
}

absl::StatusOr<std::string> Admission::TakeInitialWeights(const spec::JobSpec& spec,
                                                          absl::StatusOr<Beginning> beginning) const {
  const spec::InitialWeights& from = spec.train.init_from;
  if (!from.given()) return "";
  std::optional<Job> origin;
  if (!from.job.empty()) {
    // Looks up the job before it looks at the result of the reading, because a deleted job is the error to report. If
    // the job has written newer weights since, they are ignored: the weights that were read are complete.
    PF_ASSIGN_OR_RETURN(origin, book_.Get(from.job, kNoEpochs));
    if (beginning.ok() && origin->sequence != beginning->job_sequence) {
      return WithReason(
          absl::NotFoundError(absl::StrCat("job ", from.job.value(), " was deleted while its weights were read")),
          "JOB_NOT_FOUND", {{"job", from.job.value()}});
    }
  }
  PF_RETURN_IF_ERROR(beginning.status());
  PF_ASSIGN_OR_RETURN(const data::Dataset dataset, catalog_.Get(spec.train.dataset));
  if (beginning->dataset_uid != dataset.uid) {
    beginning->fits = Fit(spec, dataset, origin ? &*origin : nullptr, *beginning);
  }
  PF_RETURN_IF_ERROR(beginning->fits);
  return std::move(beginning->weights);
}

absl::StatusOr<Job> Admission::Admit(Job job, const std::string& asked, const std::string& initial_weights,
                                     const std::string& program_etag) {
  // The directory and the first log line are written before the row. A crash in between leaves a stray directory,
  // which the next start quarantines. It never leaves a job on record without its files.
  PF_RETURN_IF_ERROR(book_.files().Make(job.id));
  absl::Cleanup remove_directory = [this, id = job.id] { RemoveAll(book_.files().Directory(id)).IgnoreError(); };
  if (!initial_weights.empty()) {
    PF_RETURN_IF_ERROR(WriteFileAtomic(book_.files().Directory(job.id) / train::kInitialWeightsFile, initial_weights));
  }
  if (spec::IsProgram(job.spec.train)) PF_RETURN_IF_ERROR(CopyProgram(job, program_etag));
  {
    PF_ASSIGN_OR_RETURN(const std::unique_ptr<telemetry::JobLog> log, book_.OpenLog(job.id));
    log->Write(telemetry::Severity::kInfo, SubmittedLine(job));
    for (const std::string& note : job.notes) log->Write(telemetry::Severity::kWarning, note);
  }
  PF_RETURN_IF_ERROR(book_.Insert(job, asked));
  std::move(remove_directory).Cancel();
  return job;
}

absl::Status Admission::Delete(const JobId& id, const RequestKey& request, std::optional<absl::Time> ended_at) {
  Leaving deleted{.id = id};
  {
    absl::MutexLock lock(&mu_);
    // The row is deleted first. A crash in between leaves a directory that is marked as deleted, and the next start
    // removes it. In the other order, a crash would leave a job that is on record as succeeded but has no files.
    PF_ASSIGN_OR_RETURN(const std::optional<Job> job, book_.Delete(id, request, ended_at));
    if (!job) return absl::OkStatus();
    deleted.sequence = job->sequence;
    if (const absl::Status moved = MoveAway(deleted); !moved.ok()) {
      Leave(deleted, moved);
      return absl::OkStatus();
    }
  }
  // Removes the files without the lock, because there may be many checkpoints.
  if (const absl::Status removed = RemoveAll(book_.files().Discarded(id, deleted.sequence)); !removed.ok()) {
    absl::MutexLock lock(&mu_);
    Leave(deleted, removed);
  }
  return absl::OkStatus();
}

absl::Status Admission::MoveAway(const Leaving& leaving) {
  absl::Status taken = book_.store().Get(leaving.id, kNoEpochs).status();
  // If another job has the id, JobFiles::Make has already quarantined the old directory.
  if (taken.ok()) return absl::OkStatus();
  if (!absl::IsNotFound(taken)) return taken;
  return book_.files().Discard(leaving.id, leaving.sequence);
}

void Admission::Leave(const Leaving& leaving, const absl::Status& error) {
  telemetry::Log(telemetry::Severity::kWarning,
                 absl::StrCat("files of the deleted job ", leaving.id.value(),
                              " cannot be removed, which is tried again: ", error.message()));
  leavings_.push_back(leaving);
  any_leavings_ = true;
  leavings_tries_ = 1;
  since_leavings_try_.Restart();
}

void Admission::RemoveLeavings() {
  // Nothing is removed while draining: it may take long, and the next start removes what was moved away.
  if (book_.draining() || !any_leavings_) return;
  std::vector<Leaving> moved;
  {
    absl::MutexLock lock(&mu_);
    if (leavings_.empty() || since_leavings_try_.Elapsed() < RetryDelay(first_retry_, leavings_tries_)) return;
    ++leavings_tries_;
    std::vector<Leaving> left;
    for (Leaving& leaving : std::exchange(leavings_, {})) {
      (MoveAway(leaving).ok() ? moved : left).push_back(std::move(leaving));
    }
    leavings_ = std::move(left);
  }
  std::erase_if(moved, [this](const Leaving& leaving) {
    return RemoveAll(book_.files().Discarded(leaving.id, leaving.sequence)).ok();
  });
  absl::MutexLock lock(&mu_);
  leavings_.insert(leavings_.end(), moved.begin(), moved.end());
  any_leavings_ = !leavings_.empty();
  since_leavings_try_.Restart();
}

}  // namespace permafrost::jobs
