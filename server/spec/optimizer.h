// The options of the optimizer and of the learning rate. Threads: plain values.
#pragma once

#include <cstdint>

#include "base/enum_names.h"
#include "spec/field.h"

namespace permafrost::spec {

// kSparseAdam is Adam that updates only the rows of a table that have a gradient in the step. It leaves the remaining
// rows and their moments unchanged.
enum class OptimizerAlgorithm { kAdam, kAdamW, kSgd, kSparseAdam };
inline constexpr EnumNames<OptimizerAlgorithm, 4> kOptimizerNames{{{{OptimizerAlgorithm::kAdam, "adam"},
                                                                    {OptimizerAlgorithm::kAdamW, "adamw"},
                                                                    {OptimizerAlgorithm::kSgd, "sgd"},
                                                                    {OptimizerAlgorithm::kSparseAdam, "sparse_adam"}}}};

// kPlateau lowers the learning rate when validation stops improving (train/loop/checkpoint.h).
enum class Schedule { kConstant, kCosine, kLinear, kStep, kPlateau };
inline constexpr EnumNames<Schedule, 5> kScheduleNames{{{{Schedule::kConstant, "constant"},
                                                         {Schedule::kCosine, "cosine"},
                                                         {Schedule::kLinear, "linear"},
                                                         {Schedule::kStep, "step"},
                                                         {Schedule::kPlateau, "plateau"}}}};

// The parameters that weight decay shrinks. kMatrices: parameters with two or more dimensions, so no biases and no
// weights of norms. kFirstLayer: parameters of the first convolution, as in Kipf and Welling 2017.
enum class WeightDecayOf { kAll, kMatrices, kFirstLayer };
inline constexpr EnumNames<WeightDecayOf, 3> kWeightDecayOfNames{{{{WeightDecayOf::kAll, "all"},
                                                                   {WeightDecayOf::kMatrices, "matrices"},
                                                                   {WeightDecayOf::kFirstLayer, "first_layer"}}}};

struct OptimizerOptions {
  OptimizerAlgorithm algorithm = OptimizerAlgorithm::kAdam;
  double learning_rate = 1e-3;  // > 0
  double weight_decay = 0;      // >= 0; added to the gradient for Adam and SGD, decoupled for AdamW
  double max_grad_norm = 0;     // gradients are scaled down to this norm; 0: no clipping
  // The warm-up raises the learning rate to learning_rate. The schedule starts when the warm-up ends.
  Schedule schedule = Schedule::kConstant;
  int64_t warmup_steps = 0;  // >= 0
  double momentum = 0;       // for SGD; 0 <= momentum < 1
  bool nesterov = false;     // for SGD; true: Nesterov's momentum
  // For kStep: the learning rate is multiplied by decay_factor after every decay_epochs epochs.
  int64_t decay_epochs = 0;   // >= 1 under kStep; 0: not given
  double decay_factor = 0.1;  // > 0
  // For kPlateau: after more than plateau_patience epochs in a row without an improvement, the learning rate is
  // multiplied by decay_factor, but never falls below min_learning_rate. An epoch is an improvement if its metric
  // beats the best one so far by more than plateau_threshold times the best one.
  int64_t plateau_patience = 10;    // >= 0
  double plateau_threshold = 1e-4;  // 0 <= t < 1
  double min_learning_rate = 0;     // 0 <= r < learning_rate
  WeightDecayOf weight_decay_of = WeightDecayOf::kAll;
  // The decay d of the running averages of the weights, 0 <= d < 1. 0: no averages. The first update sets an average
  // to the weight, and each later one to d * average + (1 - d) * weight, as torch.optim.swa_utils.AveragedModel does.
  // The averages are evaluated and exported in place of the weights.
  double ema_decay = 0;
  int64_t accumulate_steps = 1;  // number of batches whose mean gradient makes one update, 1..65,536
  bool operator==(const OptimizerOptions&) const = default;
};

template <class F>
void VisitFields(Options<OptimizerOptions>, F&& f) {
  using O = OptimizerOptions;
  f({.name = "algorithm", .flag = "--optimizer", .help = "Optimizer ({})"}, &O::algorithm, kOptimizerNames);
  f({.name = "learning_rate", .accepts = kPositive, .flag = "--lr", .help = "Learning rate ({})"}, &O::learning_rate);
  f({.name = "weight_decay",
     .accepts = kNotNegative,
     .needs = {Need::kWholeUpdates},
     .flag = "--weight-decay",
     .help = "Weight decay ({})"},
    &O::weight_decay);
  f({.name = "weight_decay_of",
     .needs = {Need::kWeightDecay},
     .told_where_needed = true,
     .flag = "--weight-decay-of",
     .help = "Parameters that --weight-decay shrinks; matrices: no biases and norms ({})"},
    &O::weight_decay_of, kWeightDecayOfNames);
  f({.name = "max_grad_norm",
     .accepts = kNotNegative,
     .needs = {Need::kWholeUpdates},
     .flag = "--max-grad-norm",
     .help = "Gradients are clipped to this norm; 0: not ({})"},
    &O::max_grad_norm);
  f({.name = "schedule", .flag = "--schedule", .help = "How the learning rate changes ({})"}, &O::schedule,
    kScheduleNames);
  f({.name = "warmup_steps",
     .accepts = kNotNegative,
     .flag = "--warmup-steps",
     .help = "Updates over which the learning rate rises from 0 ({})"},
    &O::warmup_steps);
  f({.name = "momentum",
     .accepts = kPart,
     .needs = {Need::kSgd},
     .flag = "--momentum",
     .help = "Momentum of sgd, 0 <= X < 1 ({})",
     .value = "X"},
    &O::momentum);
  f({.name = "nesterov", .flag = "--nesterov", .help = "Nesterov's momentum"}, &O::nesterov);
  f({.name = "decay_epochs",
     .needs = {Need::kStepSchedule},
     .told_where_needed = true,
     .flag = "--decay-epochs",
     .help = "With --schedule step: epochs from one fall of the learning rate to the next"},
    &O::decay_epochs);
  f({.name = "decay_factor",
     .accepts = kPositive,
     .needs = {Need::kFallingSchedule},
     .told_where_needed = true,
     .flag = "--decay-factor",
     .help = "With --schedule step and plateau: factor that lowers the learning rate ({})"},
    &O::decay_factor);
  f({.name = "plateau_patience",
     .accepts = Between(0, 1'000'000),
     .needs = {Need::kPlateauSchedule},
     .told_where_needed = true,
     .flag = "--plateau-patience",
     .help = "With --schedule plateau: epochs without a better validation before the learning rate falls ({})"},
    &O::plateau_patience);
  f({.name = "plateau_threshold",
     .accepts = kPart,
     .needs = {Need::kPlateauSchedule},
     .told_where_needed = true,
     .flag = "--plateau-threshold",
     .help = "With --schedule plateau: part of the best by which a validation must improve ({})",
     .value = "X"},
    &O::plateau_threshold);
  f({.name = "min_learning_rate",
     .needs = {Need::kPlateauSchedule},
     .told_where_needed = true,
     .flag = "--min-lr",
     .help = "With --schedule plateau: the least learning rate ({})"},
    &O::min_learning_rate);
  f({.name = "ema_decay",
     .accepts = kPart,
     .needs = {Need::kWholeUpdates},
     .flag = "--ema-decay",
     .help = "Evaluate and export running averages of the weights, of which an update leaves this part (default: the "
             "weights themselves)",
     .value = "X"},
    &O::ema_decay);
  f({.name = "accumulate_steps",
     .accepts = Between(1, 65'536),
     .needs = {Need::kWholeUpdates},
     .flag = "--accumulate-steps",
     .help = "Batches whose mean gradient makes one update ({})"},
    &O::accumulate_steps);
}

}  // namespace permafrost::spec
