// The methods of Trainer that begin or resume a run, write checkpoints, and handle values that are not finite.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/string_view.h"
#include "train/loop/artifacts.h"
#include "train/loop/initial_weights.h"
#include "train/loop/state_aside.h"
#include "train/loop/trainer.h"

namespace permafrost::train {
namespace {

// Checks that the job's dataset still holds the data that the checkpoint was trained on. A job knows its dataset only
// by name, and by now the name may stand for other data. `store_checksum` is data::ChecksumOf the dataset.
absl::Status CheckDataset(const DatasetId& dataset, const RunState& now, uint64_t store_checksum,
                          const RunState& found) {
  // Checkpoints of older versions have no checksum, or have `store_checksum`.
  if (found.dataset_checksum == 0 || found.dataset_checksum == store_checksum) return absl::OkStatus();
  if (found.dataset_checksum == now.dataset_checksum) return absl::OkStatus();
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          "dataset ", dataset.value(), " holds other data (checksum ", HashHex(now.dataset_checksum),
          ") than the checkpoint of step ", found.step, " was trained on (", HashHex(found.dataset_checksum),
          "): import those again under this name and retry the job, or submit a new one")),
      "DATASET_CHANGED", {{"dataset", dataset.value()}});
}

}  // namespace

absl::Status Trainer::Begin() {
  // Other ranks get the weights of rank 0.
  if (options_.init_from.given() && leads()) {
    PF_ASSIGN_OR_RETURN(const std::string file, ReadFile(job_directory_ / kInitialWeightsFile));
    PF_ASSIGN_OR_RETURN(const std::string line, TakeWeights(file, options_.init_from, task_->tensors(), categories_));
    context_.Log(LogLevel::kInfo, line);
  }
  engine_.Report(/*with_entries=*/true);
  const std::string fixed = options_.fixed_parameters.empty()
                                ? ""
                                : absl::StrFormat(" (%d fixed tensors)", task_->tensors().fixed_parameters());
  context_.Log(LogLevel::kInfo,
               absl::StrFormat("new run: %d parameters%s, %d steps an epoch", task_->tensors().num_parameter_values(),
                               fixed, task_->batches_per_epoch()));
  if (EvaluatesOutsideCache(options_) || Walks(options_)) {
    context_.Log(LogLevel::kInfo,
                 "evaluation goes over the whole graph, outside the graph cache: it has no executables and counts no "
                 "steps there");
  }
  return absl::OkStatus();
}

absl::Status Trainer::Resume() {
  PF_ASSIGN_OR_RETURN(const std::optional<Checkpoint> found, checkpoints_.FindNewest());
  if (!found) return Begin();
  PF_RETURN_IF_ERROR(CheckDataset(options_.dataset, state_, store_checksum_, found->state));
  if (found->state.threads != state_.threads) {
    context_.Log(
        LogLevel::kWarning,
        absl::StrFormat("the run began with %d threads and goes on with %d: sums are added in another order, so it "
                        "will not be bit-equal to an undisturbed run",
                        found->state.threads, state_.threads));
  }
  const int threads = state_.threads;
  const uint64_t dataset_checksum = state_.dataset_checksum;
  state_ = found->state;
  state_.threads = threads;
  state_.dataset_checksum = dataset_checksum;
  saved_ = {state_.step, state_.position};
  progress_.checkpoint_step = state_.step;
  progress_.skipped_batches = static_cast<int64_t>(state_.skipped_steps.size());
  seconds_before_ = state_.train_seconds;
  PF_RETURN_IF_ERROR(RestoreCache(*found));
  if (!IsTrained() && !engine_.cache().ready()) {
    // The warm-up comes before the moments are loaded, because a capture copies no tensor of zeros.
    Report();
    // If a stop ends the warm-up, the run sees the stop again before its first step.
    PF_RETURN_IF_ERROR(WarmUp().status());
    engine_.Report(/*with_entries=*/true);
  }
  PF_RETURN_IF_ERROR(TakeTensors());
  // The earlier run may have been killed after it wrote the checkpoint and before it linked the artifacts.
  PF_RETURN_IF_ERROR(PublishArtifacts());
  context_.Log(LogLevel::kInfo,
               absl::StrFormat("resumed from the checkpoint of step %d: epoch %d, batch %d of %d", state_.step,
                               state_.position.epoch + 1, state_.position.batch, task_->batches_per_epoch()));
  return absl::OkStatus();
}

absl::Status Trainer::TakeTensors() {
  const auto take = [this](CheckpointPart part, const std::vector<nn::NamedTensor>& tensors) -> absl::Status {
    if (part == &Checkpoint::model) return task_->tensors().CopyFrom(tensors);
    if (part == &Checkpoint::best) return tensors.empty() ? absl::OkStatus() : nn::CopyByName(tensors, best_);
    // Weights have the same type on every device, but the learning rate and the sums do not.
    absl::Status copied =
        nn::CopyByName(tensors, part == &Checkpoint::optimizer ? optimizer_.state() : engine_.losses().tensors());
    if (copied.ok()) return copied;
    return Annotate(copied, absl::StrCat("the checkpoint is of another device than ",
                                         AbslView(kDeviceNames.Name(backend_.kind())), ", which cannot go on from it"));
  };
  absl::Status taken = checkpoints_.LoadTensors(state_.step, take);
  // The checkpoint was complete a moment ago, so the error is made transient. The next resume checks the checkpoint
  // again.
  return absl::IsDataLoss(taken) ? AsTransient(std::move(taken)) : taken;
}

// A resumed run needs the same entries as before. They determine the shape to which each batch is padded, and so the
// last bits of every sum.
absl::Status Trainer::RestoreCache(const Checkpoint& checkpoint) {
  if (!checkpoint.cache) return absl::OkStatus();
  // Reports the counts of earlier runs before this run adds its own.
  context_.OnGraphCache(*checkpoint.cache, std::make_shared<const std::vector<graphcache::EntryInfo>>());
  engine_.cache().Restore(*checkpoint.cache, checkpoint.cache_entries);
  engine_.Report(/*with_entries=*/true);
  return absl::OkStatus();
}

Checkpoint Trainer::MakeCheckpoint() {
  return {.state = state_,
          .model = task_->tensors().All(),
          .optimizer = optimizer_.state(),
          .accumulators = engine_.losses().tensors(),
          .best = state_.best_epoch > 0 ? best_ : std::vector<nn::NamedTensor>(),
          .averaged = averaged_.exist() ? averaged_.All() : std::vector<nn::NamedTensor>(),
          .cache = engine_.cache().snapshot(),
          .cache_entries = engine_.cache().entries()};
}

absl::Status Trainer::ShareState() {
  // All ranks meet first, because the leader may have spent time on captures.
  group_->Meet();
  const std::string own = task_->Describe(), leaders = group_->BroadcastText(own);
  if (own != leaders) {
    return absl::InternalError(absl::StrCat("this rank trains ", own, ", and its leader ", leaders));
  }
  const int threads = state_.threads;
  PF_ASSIGN_OR_RETURN(state_, RunStateFromJson(group_->BroadcastText(RunStateToJson(state_))));
  state_.threads = threads;
  ShareTensors(engine_.losses().tensors());
  ShareTensors(best_);
  ShareWeights();
  return absl::OkStatus();
}

void Trainer::ShareTensors(const std::vector<nn::NamedTensor>& tensors) {
  std::vector<at::Tensor> values;
  values.reserve(tensors.size());
  for (const nn::NamedTensor& tensor : tensors) values.push_back(tensor.value.detach());
  group_->BroadcastAll(values);
}

void Trainer::ShareWeights() {
  ShareTensors(task_->tensors().All());
  ShareTensors(optimizer_.state());
}

absl::Status Trainer::SaveCheckpoint(bool is_last) {
  if (!leads()) return absl::OkStatus();
  const absl::Duration begin = Worked();
  PF_RETURN_IF_ERROR(CheckFiniteState());
  PF_RETURN_IF_ERROR(context_.StoreEpochs(is_last));
  state_.train_seconds = seconds_before_ + absl::ToDoubleSeconds(run_.Elapsed());
  PF_RETURN_IF_ERROR(checkpoints_.Save(MakeCheckpoint()));
  PF_RETURN_IF_ERROR(PublishArtifacts());
  const absl::Duration end = Worked();
  save_soon_ = false;
  schedule_.OnSaved(begin, end);
  saved_ = {state_.step, state_.position};
  progress_.checkpoint_step = state_.step;
  context_.OnProgress(progress_);
  context_.OnCheckpoint(state_.step, end - begin);
  return absl::OkStatus();
}

absl::Status Trainer::SaveDueCheckpoint() {
  if (!leads()) return absl::OkStatus();
  absl::Status saved = reserve_.Check(TensorBytes(MakeCheckpoint()));
  if (saved.ok()) saved = SaveCheckpoint(/*is_last=*/false);
  if (saved.ok() || !IsTransient(saved)) return saved;
  schedule_.OnFailed(Worked());
  context_.OnCheckpointFailed(saved);
  return absl::OkStatus();
}

absl::Status Trainer::PublishArtifacts() {
  const std::filesystem::path last =
      averaged_.exist() ? checkpoints_.AveragedFile(state_.step) : checkpoints_.WeightsFile(state_.step);
  PF_RETURN_IF_ERROR(LinkArtifact(last, job_directory_, kLastWeightsFile));
  if (state_.best_epoch == 0) return absl::OkStatus();
  return LinkArtifact(checkpoints_.BestFile(state_.step), job_directory_, kBestWeightsFile);
}

void Trainer::TakeCare(const Rewind& rewind) {
  state_.rewinds = std::max(state_.rewinds, rewind.count);
  std::vector<nn::NamedTensor> changed = task_->tensors().All();
  for (const auto* more : {&optimizer_.state(), &engine_.losses().tensors()}) {
    changed.insert(changed.end(), more->begin(), more->end());
  }
  careful_.emplace(rewind.until_step, std::move(changed));
}

absl::Status Trainer::TakeStep(HostBatch& host) {
  if (!careful_ || !careful_->Watches(state_.step)) {
    return engine_.Train(host, state_.step, progress_.phase_seconds);
  }
  absl::Status taken = TakeCarefulStep(host);
  if (!careful_->Watches(state_.step + 1)) careful_->Forget();
  return taken;
}

absl::Status Trainer::TakeCarefulStep(HostBatch& host) {
  careful_->Keep();
  PF_RETURN_IF_ERROR(engine_.Train(host, state_.step, progress_.phase_seconds));
  // The tensors of careful_ include the sums of losses.
  if (careful_->AllFinite()) return absl::OkStatus();
  careful_->TakeBack();
  optimizer_.SkipBatch();
  // If values are still not finite, other batches of the group are at fault, so the whole group is dropped.
  if (!careful_->AllFinite()) {
    careful_->TakeBack();
    optimizer_.DropGroup();
  }
  state_.skipped_steps.push_back(state_.step);
  progress_.skipped_batches = static_cast<int64_t>(state_.skipped_steps.size());
  if (progress_.skipped_batches > kMaxSkippedBatches) {
    return NonFiniteError(
        absl::StrFormat("%d batches were skipped since their steps were not finite, the last one at step "
                        "%d: training diverged; a learning rate below %g may help",
                        progress_.skipped_batches - 1, state_.step, optimizer_.learning_rate()));
  }
  context_.Log(
      LogLevel::kWarning,
      absl::StrFormat("the batch of step %d is skipped: its step made something that is not finite (%d skipped "
                      "so far)",
                      state_.step, progress_.skipped_batches));
  save_soon_ = true;
  return absl::OkStatus();
}

absl::Status Trainer::CheckFinite(double loss) {
  // A loss that is not finite means a divergence, unless the epoch has had no labels so far.
  if (std::isfinite(loss) || engine_.losses().Count() == 0) return absl::OkStatus();
  return NotFinite(absl::StrFormat("the training loss became %g", loss));
}

absl::Status Trainer::CheckFiniteState() {
  std::string name = FindNotFinite(task_->tensors().All());
  if (name.empty()) name = FindNotFinite(optimizer_.state());
  // The sums of losses are checked too, because the checkpoint holds them and the loss is read only now and then.
  if (name.empty()) name = FindNotFinite(engine_.losses().tensors());
  return name.empty() ? absl::OkStatus() : NotFinite(absl::StrCat(name, " became not finite"));
}

absl::Status Trainer::CheckNotAllSkipped() const {
  // The least number of batches to examine. In an epoch of few batches, unlucky random draws alone may cause all of
  // them to be skipped, and later epochs do not repeat these draws.
  constexpr int64_t kLeast = 10;
  const int64_t batches = task_->batches_per_epoch();
  const int64_t last = std::min(std::max(batches, kLeast), batches * options_.epochs), first = state_.step - last;
  const auto skipped = std::ranges::count_if(state_.skipped_steps, [first](int64_t step) { return step >= first; });
  if (last == 0 || skipped < last) return absl::OkStatus();
  return NonFiniteError(
      absl::StrFormat("each of the last %d batches was skipped since its step was not finite: training diverged; a "
                      "learning rate below %g may help",
                      last, optimizer_.learning_rate()));
}

absl::Status Trainer::CheckValidation(const Evaluation& valid) {
  if (!valid.has_labels || std::isfinite(valid.loss)) return absl::OkStatus();
  // The epoch's last update may have made a weight that is not finite, which a rewind undoes.
  PF_RETURN_IF_ERROR(CheckFiniteState());
  const std::string what =
      absl::StrFormat("the validation loss became %g by epoch %d, step %d, though every weight is finite", valid.loss,
                      state_.position.epoch + 1, state_.step);
  const bool is_last = state_.position.epoch + 1 == options_.epochs;
  if (options_.non_finite == spec::NonFinite::kRewind && (!is_last || state_.best_epoch > 0)) {
    context_.Log(LogLevel::kWarning, what);
    return absl::OkStatus();
  }
  return NonFiniteError(
      absl::StrFormat("%s: training diverged; a learning rate below %g may help", what, optimizer_.learning_rate()));
}

absl::Status Trainer::NotFinite(const std::string& what) {
  const std::string where = absl::StrFormat("%s by epoch %d, step %d", what, state_.position.epoch + 1, state_.step);
  const bool rewinds = options_.non_finite == spec::NonFinite::kRewind;
  if (rewinds && state_.rewinds < kMaxRewinds) {
    rewind_ = {.until_step = state_.step, .count = state_.rewinds + 1};
    return NonFiniteError(where);
  }
  return NonFiniteError(
      absl::StrFormat("%s: training diverged%s; a learning rate below %g may help", where,
                      rewinds ? absl::StrCat(", though it went back ", kMaxRewinds, " times") : std::string(),
                      optimizer_.learning_rate()));
}

}  // namespace permafrost::train
