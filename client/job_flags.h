// The flags that describe a job: those of `job submit`, which `cache plan` takes too.
// Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/cache_policy_flags.h"
#include "client/limit_flags.h"
#include "client/link_flags.h"
#include "client/neighbor_flags.h"
#include "client/session.h"
#include "client/walk_flags.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

// Flags of node-level models.
struct NeighborFlags {
  std::vector<int64_t> fan_outs, eval_fan_outs;
  DrawFlags draw;
  std::optional<int32_t> look_ahead;
  std::optional<bool> layer_wise, no_page_advice;

  // As that of DrawFlags.
  bool any() const {
    return !fan_outs.empty() || !eval_fan_outs.empty() || draw.any() || look_ahead || layer_wise == true ||
           no_page_advice == true;
  }
};

// Flags of models of small graphs.
struct BatchingFlags {
  std::optional<std::string> kind;
  std::optional<int64_t> max_nodes, max_edges;

  bool any() const { return kind || max_nodes || max_edges; }
};

// Flags of sets of small graphs.
struct FoldFlags {
  std::optional<int64_t> folds, fold;
  std::optional<uint64_t> seed;

  bool any() const { return folds || fold || seed; }
};

// The weights that a job begins with, and those that are not trained.
struct WeightFlags {
  std::optional<std::string> job, file, weights;
  std::optional<bool> by_name;
  std::vector<std::string> fixed;

  // As that of DrawFlags.
  bool any() const { return job || file || weights || by_name == true; }
};

// Flags of the optimizer, beside those that every job has.
struct UpdateFlags {
  std::optional<int64_t> plateau_patience, accumulate_steps;
  std::optional<double> plateau_threshold, min_learning_rate, ema_decay;
  std::optional<std::string> weight_decay_of;
};

// The values of flags, which override the file.
struct JobFlags {
  std::string file;
  std::optional<std::string> dataset, model, pooling, lowering, precision, norm, aggregation, jumping_knowledge,
      node_inputs, edge_inputs, optimizer, schedule, loss;
  std::optional<int32_t> hidden, layers, heads, priority, checkpoint_keep;
  std::optional<std::string> non_finite;
  std::optional<int64_t> epochs, patience, batch_size, checkpoint_every, checkpoint_seconds, warmup_steps, decay_epochs;
  std::optional<uint64_t> seed;
  std::optional<double> learning_rate, weight_decay, dropout, input_dropout, max_grad_norm, momentum, decay_factor;
  std::optional<bool> nesterov, residual, virtual_node, normalize_features;
  std::vector<double> class_weights;
  std::vector<std::string> metrics;
  FoldFlags folds;
  WeightFlags weights;
  UpdateFlags updates;
  BatchingFlags batching;
  NeighborFlags neighbors;
  LinkFlags links;
  WalkFlags walks;
  LimitFlags limits;
  CachePolicyFlags cache;
};

void AddJobFlags(CLI::App& command, JobFlags& flags);

// Tells whether the file and the flags must name the dataset, or it comes later.
enum class DatasetNeed { kHere, kLater };

// The job that the file and the flags describe. False where there is none, and why was printed: `exit` is then the
// program's.
bool ReadJob(const JobFlags& flags, Session& session, v1::CreateJobRequest& request, ExitCode& exit,
             DatasetNeed dataset = DatasetNeed::kHere);

// "zinc, batches of 32": what a plan is of.
std::string SubjectOf(const v1::JobSpec& spec);

}  // namespace permafrost::client
