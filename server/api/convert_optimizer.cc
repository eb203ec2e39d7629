#include "api/convert_optimizer.h"

#include <utility>

#include "api/resource_name.h"
#include "api/text.h"
#include "api/wire_enum.h"

namespace permafrost::api {
namespace {

using Algorithms = WireEnum<v1::OptimizerSpec::Algorithm, spec::kOptimizerNames>;
using Schedules = WireEnum<v1::OptimizerSpec::Schedule, spec::kScheduleNames>;
using DecaysOf = WireEnum<v1::OptimizerSpec::WeightDecayOf, spec::kWeightDecayOfNames>;
using WeightsOfJobs = WireEnum<v1::InitFrom::Weights, spec::kJobWeightsNames>;

}  // namespace

void ReadOptimizer(const v1::OptimizerSpec& wire, spec::OptimizerOptions& optimizer, Violations& violations) {
  Algorithms::Read(wire.algorithm(), "spec.optimizer.algorithm", optimizer.algorithm, violations);
  if (wire.learning_rate() != 0) optimizer.learning_rate = wire.learning_rate();
  optimizer.weight_decay = wire.weight_decay();
  DecaysOf::Read(wire.weight_decay_of(), "spec.optimizer.weight_decay_of", optimizer.weight_decay_of, violations);
  optimizer.max_grad_norm = wire.max_grad_norm();
  Schedules::Read(wire.schedule(), "spec.optimizer.schedule", optimizer.schedule, violations);
  optimizer.warmup_steps = wire.warmup_steps();
  optimizer.momentum = wire.momentum();
  optimizer.nesterov = wire.nesterov();
  optimizer.decay_epochs = wire.decay_epochs();
  if (wire.decay_factor() != 0) optimizer.decay_factor = wire.decay_factor();
  if (wire.has_plateau_patience()) optimizer.plateau_patience = wire.plateau_patience();
  if (wire.has_plateau_threshold()) optimizer.plateau_threshold = wire.plateau_threshold();
  optimizer.min_learning_rate = wire.min_learning_rate();
  optimizer.ema_decay = wire.ema_decay();
  if (wire.accumulate_steps() != 0) optimizer.accumulate_steps = wire.accumulate_steps();
}

void OptimizerToWire(const spec::OptimizerOptions& optimizer, v1::OptimizerSpec& wire) {
  wire.set_algorithm(Algorithms::ToWire(optimizer.algorithm));
  wire.set_learning_rate(optimizer.learning_rate);
  wire.set_weight_decay(optimizer.weight_decay);
  if (optimizer.weight_decay > 0) wire.set_weight_decay_of(DecaysOf::ToWire(optimizer.weight_decay_of));
  wire.set_max_grad_norm(optimizer.max_grad_norm);
  wire.set_schedule(Schedules::ToWire(optimizer.schedule));
  wire.set_warmup_steps(optimizer.warmup_steps);
  wire.set_momentum(optimizer.momentum);
  wire.set_nesterov(optimizer.nesterov);
  wire.set_ema_decay(optimizer.ema_decay);
  wire.set_accumulate_steps(optimizer.accumulate_steps);
  const bool is_plateau = optimizer.schedule == spec::Schedule::kPlateau;
  if (optimizer.schedule == spec::Schedule::kStep) wire.set_decay_epochs(optimizer.decay_epochs);
  if (is_plateau || optimizer.schedule == spec::Schedule::kStep) wire.set_decay_factor(optimizer.decay_factor);
  if (!is_plateau) return;
  wire.set_plateau_patience(optimizer.plateau_patience);
  wire.set_plateau_threshold(optimizer.plateau_threshold);
  wire.set_min_learning_rate(optimizer.min_learning_rate);
}

void ReadInitFrom(const v1::InitFrom& wire, spec::InitialWeights& from, Violations& violations) {
  if (!wire.job().empty()) {
    auto job = ParseJobName("spec.init_from.job", wire.job());
    if (job.ok()) from.job = *std::move(job);
    if (!job.ok()) violations.AddMissing(job.status());
  }
  from.file = wire.file();
  WeightsOfJobs::Read(wire.weights(), "spec.init_from.weights", from.weights, violations);
  from.by_name = wire.by_name();
}

void InitFromToWire(const spec::InitialWeights& from, v1::InitFrom& wire) {
  if (!from.job.empty()) {
    wire.set_job(FormatJobName(from.job));
    wire.set_weights(WeightsOfJobs::ToWire(from.weights));
  }
  wire.set_file(ValidUtf8(from.file));
  wire.set_by_name(from.by_name);
}

}  // namespace permafrost::api
