// Metrics that are computed from every prediction of a split together, on the host.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace permafrost::nn {

// Area under the ROC curve: the chance that a positive row scores above a negative one, ties counting half; mean over
// the targets that have rows of both kinds, as OGB's evaluator. scores, labels: [rows * targets], row-major; a label is
// positive above 0.5, NaN is missing. NaN where no target has both kinds, or a labelled row's score is NaN.
double RocAuc(std::span<const float> scores, std::span<const float> labels, int64_t targets);

// Part of the rows whose largest output (of equal ones the first) is the label's class; rows with a NaN label take no
// part, rows with a NaN output are wrong. outputs: [rows * classes]; labels: [rows]. NaN where no row has a label.
double Accuracy(std::span<const float> outputs, std::span<const float> labels, int64_t classes);

}  // namespace permafrost::nn
