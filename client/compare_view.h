// Jobs side by side: what differs in their descriptions, and what came of them.
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/style.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

// A value of each job, in the jobs' order; nullopt: a job has none.
struct DifferingField {
  std::string name;  // "optimizer.learning_rate"
  std::vector<std::optional<std::string>> values;
};
struct ComparedNumber {
  std::string name;  // "test MAE, best epoch"
  std::vector<std::optional<double>> values;
};

// Returns the differing fields of the specs and labels ("labels.team"), in the contract's order.
std::vector<DifferingField> DifferencesOf(const std::vector<v1::Job>& jobs);
// Returns the numbers that at least one job has: losses, metrics, sizes and times.
std::vector<ComparedNumber> NumbersOf(const std::vector<v1::Job>& jobs);

// One table: a column a job, rows of its state, of what differs, and of the numbers.
std::string RenderComparison(const std::vector<v1::Job>& jobs, const RenderStyle& style);
// The same as one line of JSON.
std::string ComparisonToJson(const std::vector<v1::Job>& jobs);

}  // namespace permafrost::client
