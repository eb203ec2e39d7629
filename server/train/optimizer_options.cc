#include "train/optimizer_options.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost::train {
namespace {

void CheckSchedule(const nn::OptimizerOptions& o, FieldChecker& check) {
  const nn::OptimizerOptions defaults;
  const bool is_step = o.schedule == nn::Schedule::kStep, is_plateau = o.schedule == nn::Schedule::kPlateau;
  const auto refuse = [&](const char* field, bool given, const char* accepted) {
    if (!given) return;
    check.Add(absl::StrCat("optimizer.", field),
              absl::StrCat("is given for schedule ", AbslView(nn::kScheduleNames.Name(o.schedule)), "; accepted: for ",
                           accepted));
  };
  if (is_step && o.decay_epochs < 1) {
    check.Add("optimizer.decay_epochs", absl::StrCat(o.decay_epochs, " is not at least 1, which schedule step needs"));
  }
  if (!is_step) refuse("decay_epochs", o.decay_epochs != defaults.decay_epochs, "step");
  if (!is_step && !is_plateau) {
    refuse("decay_factor", o.decay_factor != defaults.decay_factor, "step and plateau");
  } else if (check.IsPositive("optimizer.decay_factor", o.decay_factor) && is_plateau && o.decay_factor >= 1) {
    check.Add("optimizer.decay_factor", absl::StrCat(o.decay_factor, " is not below 1, which schedule plateau needs"));
  }
  if (!is_plateau) {
    refuse("plateau_patience", o.plateau_patience != defaults.plateau_patience, "plateau");
    refuse("plateau_threshold", o.plateau_threshold != defaults.plateau_threshold, "plateau");
    refuse("min_learning_rate", o.min_learning_rate != defaults.min_learning_rate, "plateau");
    return;
  }
  check.InRange("optimizer.plateau_patience", o.plateau_patience, 0, 1'000'000);
  // NaN is within no bounds.
  const double least = o.min_learning_rate;
  const bool is_below = least >= 0 && least < o.learning_rate;
  check.IsPart("optimizer.plateau_threshold", o.plateau_threshold);
  if (!is_below) {
    check.Add("optimizer.min_learning_rate",
              absl::StrCat(least, " is not a number of at least 0 and below learning_rate, ", o.learning_rate));
  }
}

// Checks the options of updates and of the averages of weights.
void CheckUpdates(const nn::OptimizerOptions& o, FieldChecker& check) {
  if (o.weight_decay_of != nn::WeightDecayOf::kAll && o.weight_decay == 0) {
    check.Add("optimizer.weight_decay_of", "is given without weight_decay; accepted: with one above 0");
  }
  check.IsPart("optimizer.ema_decay", o.ema_decay);
  check.InRange("optimizer.accumulate_steps", o.accumulate_steps, 1, 65'536);
}

}  // namespace

void CheckOptimizerOptions(const nn::OptimizerOptions& o, FieldChecker& check) {
  check.IsPositive("optimizer.learning_rate", o.learning_rate);
  const double decay = o.weight_decay;
  if (!std::isfinite(decay) || decay < 0) {
    check.Add("optimizer.weight_decay", absl::StrCat(decay, " is not a finite number of at least 0"));
  }
  const double norm = o.max_grad_norm;
  if (!std::isfinite(norm) || norm < 0) {
    check.Add("optimizer.max_grad_norm", absl::StrCat(norm, " is not a finite number of at least 0"));
  }
  if (o.warmup_steps < 0) {
    check.Add("optimizer.warmup_steps", absl::StrCat(o.warmup_steps, " is below 0"));
  }
  const bool is_sgd = o.algorithm == nn::OptimizerAlgorithm::kSgd;
  if (check.IsPart("optimizer.momentum", o.momentum) && o.momentum > 0 && !is_sgd) {
    check.Add("optimizer.momentum",
              absl::StrCat("is given for ", AbslView(nn::kOptimizerNames.Name(o.algorithm)), "; accepted: for sgd"));
  }
  if (o.nesterov && (!is_sgd || o.momentum <= 0)) {
    check.Add("optimizer.nesterov", "is given without momentum; accepted: for sgd with momentum");
  }
  CheckSchedule(o, check);
  CheckUpdates(o, check);
}

}  // namespace permafrost::train
