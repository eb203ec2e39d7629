#include "train/loop/plateau.h"

#include <algorithm>
#include <cmath>

namespace permafrost::train {
namespace {

// A fall by less than this is none, as PyTorch's eps.
constexpr double kLeastFall = 1e-8;

bool IsProgress(const spec::OptimizerOptions& options, spec::Metric metric, double value, double best) {
  if (std::isnan(best)) return true;
  return spec::TraitsOf(metric).higher_is_better ? value > best * (1 + options.plateau_threshold)
                                                 : value < best * (1 - options.plateau_threshold);
}

}  // namespace

bool TakeEpoch(const spec::OptimizerOptions& options, spec::Metric metric, double value, PlateauState& state) {
  if (std::isnan(value)) return false;
  if (IsProgress(options, metric, value, state.best)) {
    state.best = value;
    state.bad_epochs = 0;
    return false;
  }
  if (++state.bad_epochs <= options.plateau_patience) return false;
  state.bad_epochs = 0;
  const double fallen = std::max(state.learning_rate * options.decay_factor, options.min_learning_rate);
  if (state.learning_rate - fallen <= kLeastFall) return false;
  state.learning_rate = fallen;
  return true;
}

}  // namespace permafrost::train
