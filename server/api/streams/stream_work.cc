#include "api/streams/stream_work.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "api/services/unary.h"
#include "api/wire/convert_job.h"
#include "api/wire/request_key.h"
#include "api/wire/resource_name.h"
#include "api/wire/wire_values.h"
#include "base/status.h"

namespace permafrost::api {
namespace {

constexpr absl::Duration kVerifyInterval = absl::Milliseconds(250);

absl::Status VerifyStore(const data::OpenedDataset& dataset, const StreamWork::OnProgress& on_progress) {
  const auto tell = [&](uint64_t done, uint64_t total) {
    return on_progress(static_cast<int64_t>(done), static_cast<int64_t>(total));
  };
  return std::visit([&](const auto& opened) { return opened->VerifyAll(tell); }, dataset);
}

}  // namespace

StreamWork::StreamWork(std::string_view what, ChangeHub& hub, std::string key, Body body)
    : what_(what), hub_(hub), key_(std::move(key)), body_(std::move(body)) {}

StreamWork::~StreamWork() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

std::unique_ptr<ChangeHub::Subscription> StreamWork::Start(ChangeHub::Listener listener) {
  auto subscription = hub_.Subscribe(key_, std::move(listener));
  absl::StatusOr<std::thread> thread = StartThread(what_, [this] { Run(); });
  if (thread.ok()) {
    thread_ = *std::move(thread);
  } else {
    End(thread.status());
  }
  return subscription;
}

void StreamWork::Run() {
  const auto on_progress = [this](int64_t done, int64_t total) {
    bool go_on = false;
    {
      absl::MutexLock lock(&mu_);
      state_.done = done;
      state_.total = total;
      go_on = !stop_;
    }
    // The hub merges many notices into few calls.
    hub_.Notify(key_);
    return go_on;
  };
  End(WithoutThrowing(what_, [&] { return body_(on_progress); }));
}

void StreamWork::End(absl::Status outcome) {
  {
    absl::MutexLock lock(&mu_);
    state_.outcome = std::move(outcome);
  }
  hub_.Notify(key_);
}

StreamWork::State StreamWork::Read() {
  absl::MutexLock lock(&mu_);
  return state_;
}

VerifySource::VerifySource(data::OpenedDataset dataset, ChangeHub& hub, std::string key)
    : work_("the verification", hub, std::move(key),
            [dataset = std::move(dataset)](const StreamWork::OnProgress& on_progress) {
              return VerifyStore(dataset, on_progress);
            }) {}

std::unique_ptr<ChangeHub::Subscription> VerifySource::Subscribe(ChangeHub::Listener listener) {
  return work_.Start(std::move(listener));
}

absl::StatusOr<Pull> VerifySource::Next(v1::VerifyDatasetResponse& response) {
  StreamWork::State state = work_.Read();
  if (state.outcome && !state.outcome->ok()) return *state.outcome;
  if (state.outcome) {
    state.done = state.total;
    if (sent_ == state.done) return Pull::kEnd;
  } else if (state.total == 0 || sent_ == state.done || (since_sent_ && since_sent_->Elapsed() < kVerifyInterval)) {
    return Pull::kWait;  // A notice of more bytes, or of the end, comes soon.
  }
  sent_ = state.done;
  since_sent_.emplace();
  response.set_bytes_done(state.done);
  response.set_bytes_total(state.total);
  return state.outcome ? Pull::kLast : Pull::kMore;
}

namespace {

using EvaluatedRowsOnWire = WireEnum<v1::EvaluateJobRequest::Rows, train::kEvaluatedRowsNames>;
using EvaluatedWeights = WireEnum<v1::InitFrom::Weights, spec::kJobWeightsNames>;

constexpr absl::Duration kEvaluateInterval = absl::Milliseconds(250);
constexpr size_t kPredictionPieceBytes = 64 << 10;

// Returns the id in a resource name. For an invalid name, adds a violation and returns an empty id.
template <class Id>
Id ReadName(absl::StatusOr<Id> (*parse)(std::string_view, std::string_view), std::string_view field,
            std::string_view name, Violations& violations) {
  absl::StatusOr<Id> id = parse(field, name);
  if (id.ok()) return *std::move(id);
  violations.AddMissing(id.status());
  return {};
}

}  // namespace

absl::StatusOr<jobs::EvaluationRequest> EvaluationFromWire(const v1::EvaluateJobRequest& wire) {
  Violations violations;
  jobs::EvaluationRequest request;
  request.job = ReadName(&ParseJobName, "name", wire.name(), violations);
  if (!wire.dataset().empty()) request.dataset = ReadName(&ParseDatasetName, "dataset", wire.dataset(), violations);
  train::EvaluatedRows rows = train::EvaluatedRows::kTest;
  EvaluatedRowsOnWire::Read(wire.rows(), "rows", rows, violations);
  if (wire.rows() != v1::EvaluateJobRequest::ROWS_UNSPECIFIED) request.rows = rows;
  EvaluatedWeights::Read(wire.weights(), "weights", request.weights, violations);
  if (wire.has_checkpoint_step()) {
    request.checkpoint_step = wire.checkpoint_step();
    if (wire.weights() != v1::InitFrom::WEIGHTS_UNSPECIFIED) {
      violations.Add("weights", "is given beside checkpoint_step; accepted: one of them");
    }
  }
  request.metrics = MetricsFromWire(wire.metrics(), "metrics", violations);
  request.predictions = wire.predictions();
  request.allow_unknown_categories = wire.allow_unknown_categories();
  PF_RETURN_IF_ERROR(violations.ToStatus());
  return request;
}

v1::JobEvaluation EvaluationToWire(const jobs::JobEvaluation& evaluation) {
  v1::JobEvaluation wire;
  wire.set_dataset(FormatDatasetName(evaluation.dataset));
  wire.set_rows(EvaluatedRowsOnWire::ToWire(evaluation.rows));
  wire.set_num_rows(evaluation.result.rows);
  wire.set_unranked_links(evaluation.result.unranked);
  wire.set_loss(evaluation.result.loss);
  if (!evaluation.result.metrics.empty()) {
    MetricsToWire(evaluation.metrics, evaluation.result.metrics, /*first=*/0, *wire.mutable_metrics());
  }
  for (const std::string& note : evaluation.result.notes) wire.add_notes(note);
  return wire;
}

EvaluateSource::EvaluateSource(jobs::JobManager& jobs, jobs::EvaluationRequest request, ChangeHub& hub, std::string key)
    : predictions_(request.predictions),
      work_("the evaluation", hub, std::move(key),
            [this, &jobs, request = std::move(request)](const StreamWork::OnProgress& on_progress) -> absl::Status {
              PF_ASSIGN_OR_RETURN(evaluation_, jobs.Evaluate(request, on_progress));
              return absl::OkStatus();
            }) {}

std::unique_ptr<ChangeHub::Subscription> EvaluateSource::Subscribe(ChangeHub::Listener listener) {
  return work_.Start(std::move(listener));
}

absl::StatusOr<Pull> EvaluateSource::Next(v1::EvaluateJobResponse& response) {
  if (told_) return NextPiece(response);
  const StreamWork::State state = work_.Read();
  if (state.outcome) {
    PF_RETURN_IF_ERROR(*state.outcome);
    told_ = true;
    response.set_rows_done(evaluation_.result.rows);
    response.set_rows_total(evaluation_.result.rows);
    *response.mutable_result() = EvaluationToWire(evaluation_);
    return predictions_ ? Pull::kMore : Pull::kLast;
  }
  if (sent_ == state.done || (since_sent_ && since_sent_->Elapsed() < kEvaluateInterval)) return Pull::kWait;
  sent_ = state.done;
  since_sent_.emplace();
  response.set_rows_done(state.done);
  response.set_rows_total(state.total);
  return Pull::kMore;
}

Pull EvaluateSource::NextPiece(v1::EvaluateJobResponse& response) {
  const std::string& all = evaluation_.result.predictions;
  const std::string_view piece = std::string_view(all).substr(offset_, kPredictionPieceBytes);
  response.set_predictions(piece.data(), piece.size());
  response.set_total_bytes(static_cast<int64_t>(all.size()));
  hash_.Update(piece.data(), piece.size());
  offset_ += piece.size();
  if (offset_ < all.size()) return Pull::kMore;
  response.set_xxh3(HashHex(hash_.Digest()));
  return Pull::kLast;
}

namespace {

constexpr absl::Duration kBackupInterval = absl::Milliseconds(250);

}  // namespace

BackupSource::BackupSource(MakeBackup make, jobs::RequestLog& requests, const v1::BackupRequest& request,
                           ChangeHub& hub, std::string key)
    : work_("the backup", hub, std::move(key),
            [this, &requests, request, make = std::move(make)](const StreamWork::OnProgress& on_progress) {
              return requests.Once(KeyOf(request), "", [&](const jobs::Earlier& earlier) {
                absl::StatusOr<backup::Summary> made =
                    make({.directory = request.directory(),
                          .with_datasets = request.with_datasets(),
                          .request_id = request.request_id(),
                          .answered = earlier.seen == jobs::Earlier::Seen::kAnswered},
                         on_progress);
                if (!made.ok()) return made.status();
                summary_ = *std::move(made);
                return absl::OkStatus();
              });
            }) {}

absl::StatusOr<Pull> BackupSource::Next(v1::BackupResponse& response) {
  const StreamWork::State state = work_.Read();
  if (state.outcome && !state.outcome->ok()) return *state.outcome;
  if (!state.outcome) {
    if (state.total == 0 || sent_ == state.done || (since_sent_ && since_sent_->Elapsed() < kBackupInterval)) {
      return Pull::kWait;  // A notice of more bytes, or of the end, comes soon.
    }
    sent_ = state.done;
    since_sent_.emplace();
  }
  response.set_bytes_done(state.outcome ? state.total : state.done);
  response.set_bytes_total(state.total);
  if (!state.outcome) return Pull::kMore;
  v1::BackupSummary& summary = *response.mutable_summary();
  summary.set_path(ValidUtf8(summary_.path.string()));
  summary.set_files(summary_.files);
  summary.set_bytes(summary_.bytes);
  summary.set_jobs(summary_.jobs);
  for (const std::string& dataset : summary_.datasets_wanted) summary.add_datasets_wanted("datasets/" + dataset);
  for (const JobId& job : summary_.jobs_anew) summary.add_jobs_anew(FormatJobName(job));
  for (const std::string& dataset : summary_.imports) summary.add_imports("datasets/" + dataset);
  return Pull::kLast;
}

}  // namespace permafrost::api
