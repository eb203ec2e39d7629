// The part of Trainer that deals with values that are not finite.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "train/loop/state_aside.h"
#include "train/loop/trainer.h"

namespace permafrost::train {

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
  // The sums of the losses are among the tensors.
  if (careful_->AllFinite()) return absl::OkStatus();
  careful_->TakeBack();
  optimizer_.SkipBatch();
  // If other batches of the group spoil the update, none of the group counts.
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
  // NaN with nothing counted means an epoch without labels so far; only a count of labels makes it a divergence.
  if (std::isfinite(loss) || engine_.losses().Count() == 0) return absl::OkStatus();
  return NotFinite(absl::StrFormat("the training loss became %g", loss));
}

absl::Status Trainer::CheckFiniteState() {
  std::string name = FindNotFinite(task_->tensors().All());
  if (name.empty()) name = FindNotFinite(optimizer_.state());
  // They are in the checkpoint too, and the loss is read now and then only.
  if (name.empty()) name = FindNotFinite(engine_.losses().tensors());
  return name.empty() ? absl::OkStatus() : NotFinite(absl::StrCat(name, " became not finite"));
}

absl::Status Trainer::CheckNotAllSkipped() const {
  // An epoch of few batches may lose them all to a draw that is not drawn again.
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
  // The epoch's last update may have spoiled a weight, which a rewind takes back.
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
