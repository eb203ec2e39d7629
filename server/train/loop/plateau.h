// Lowers a learning rate when validation gets no better: schedule kPlateau, as
// torch.optim.lr_scheduler.ReduceLROnPlateau with threshold_mode "rel" and no cooldown.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <limits>

#include "spec/loss.h"
#include "spec/optimizer.h"

namespace permafrost::train {

struct PlateauState {
  double learning_rate = 0;  // what it has fallen to
  // The best value of the deciding metric so far; NaN: none yet. It is not that of the job's best epoch: a value that
  // is better by less than the threshold is none here.
  double best = std::numeric_limits<double>::quiet_NaN();
  int64_t bad_epochs = 0;  // in a row
  bool operator==(const PlateauState&) const = default;
};

// Takes an epoch's value of the deciding metric. Returns whether the learning rate fell. NaN changes nothing.
bool TakeEpoch(const spec::OptimizerOptions& options, spec::Metric metric, double value, PlateauState& state);

}  // namespace permafrost::train
