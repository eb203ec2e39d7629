// The request and the answer of JobManager::Evaluate. Threads: value types.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/id.h"
#include "spec/loss.h"
#include "spec/train_options.h"
#include "train/runner.h"

namespace permafrost::jobs {

struct EvaluationRequest {
  JobId job;
  DatasetId dataset;                         // empty: the job's
  std::optional<train::EvaluatedRows> rows;  // of the job's dataset kTest, else kAll
  spec::JobWeights weights = spec::JobWeights::kBest;
  std::optional<int64_t> checkpoint_step;  // the weights of this checkpoint instead
  std::vector<spec::Metric> metrics;       // empty: the job's
  bool predictions = false;
  bool allow_unknown_categories = false;  // train::EvaluateRequest
};

// The request with what it left open, and what came of it.
struct JobEvaluation {
  DatasetId dataset;
  train::EvaluatedRows rows = train::EvaluatedRows::kTest;
  std::vector<spec::Metric> metrics;
  train::RowsEvaluation result;
};

}  // namespace permafrost::jobs
