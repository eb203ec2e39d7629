#include "train/tasks/task.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/sampling/link_sampling.h"
#include "data/store/graph.h"
#include "data/store/other_splits.h"
#include "graphcache/executable.h"
#include "train/loop/initial_weights.h"
#include "train/planning/run_size.h"
#include "train/tasks/graph_set_task.h"
#include "train/tasks/job_data.h"
#include "train/tasks/links.h"
#include "train/tasks/node2vec_task.h"
#include "train/tasks/node_model_for.h"
#include "train/tasks/node_task.h"
#include "train/tasks/program_trials.h"
#include "train/tasks/whole_graph_task.h"

namespace permafrost::train {

absl::StatusOr<const graphcache::StepInputs*> HostBatch::PadTo(const BatchShape& shape, int64_t step) {
  PF_RETURN_IF_ERROR(Pad(shape));
  return TakeInputs(step);
}

absl::StatusOr<const graphcache::StepInputs*> HostBatch::PadDynamic(int64_t step) {
  PF_RETURN_IF_ERROR(PadToDynamic());
  return TakeInputs(step);
}

const graphcache::StepInputs* HostBatch::TakeInputs(int64_t step) {
  step_ = step;
  inputs_ = Inputs(step_);
  return &inputs_;
}

absl::StatusOr<std::vector<std::string>> NamesOfNodes(const data::Graph& graph, std::span<const uint32_t> nodes) {
  std::vector<std::string> names;
  for (const uint32_t node : nodes) {
    PF_ASSIGN_OR_RETURN(std::string name, data::NameOf(graph.names(), node));
    names.push_back(std::move(name));
  }
  return names;
}

std::vector<std::string> PredictionColumns(int64_t outputs) {
  std::vector<std::string> columns;
  for (int64_t t = 0; t < outputs; ++t) columns.push_back(absl::StrCat("prediction_", t));
  return columns;
}

absl::StatusOr<NamedRows> NameNodes(const data::Graph& graph, std::span<const uint32_t> nodes, int64_t outputs) {
  PF_ASSIGN_OR_RETURN(std::vector<std::string> names, NamesOfNodes(graph, nodes));
  return NamedRows{.columns = {"node"}, .names = std::move(names), .values = PredictionColumns(outputs)};
}

spec::TrainOptions OfRank(spec::TrainOptions options, int64_t rank) {
  if (rank > 0) options.seed = SplitMix64(options.seed, static_cast<uint64_t>(rank)).Next();
  return options;
}

std::vector<data::Split> SplitsOf(Mode mode) {
  if (mode == Mode::kTrain) return {data::Split::kTrain};
  return {data::Split::kValid, data::Split::kTest};
}

namespace {

absl::StatusOr<std::unique_ptr<Task>> MakeTask(const spec::TrainOptions& options, const data::OpenedDataset& dataset,
                                               c10::Device device, int threads, const std::function<bool()>& keep_going,
                                               const PlanContext& context) {
  const auto* stored = std::get_if<std::shared_ptr<const data::Graph>>(&dataset);
  if (Walks(options) && stored != nullptr) {
    if (context.rows != nullptr) context.rows->Drop();
    return Node2VecTask::Create(options, *stored, device, threads);
  }
  spec::TrainOptions own = options;
  if (stored != nullptr) own.model.node_inputs = NodeInputsOf(options.model.node_inputs, (*stored)->summary());
  // Drops cached rows of another job's graph, because their memory was counted as free when this job was admitted.
  // Features that the server makes are in memory and need no cache.
  const bool samples = stored != nullptr && !options.nodes.fan_outs.empty();
  const bool reads = samples && own.model.node_inputs == spec::NodeInputs::kFeatures;
  if (context.rows != nullptr && !reads) context.rows->Drop();
  if (const auto* set = std::get_if<std::shared_ptr<const data::GraphSet>>(&dataset)) {
    PF_ASSIGN_OR_RETURN(auto folded, data::WithFold(*set, options.cross_validation));
    return GraphSetTask::Create(options, std::move(folded), device, keep_going, context);
  }
  PF_ASSIGN_OR_RETURN(auto graph, WithNodeInputs(own.model, *stored));
  if (!samples) return WholeGraphTask::Create(own, std::move(graph), device, context.limits.trains, keep_going);
  PlanContext own_context = context;
  if (!reads) own_context.rows = nullptr;
  return NodeTask::Create(own, std::move(graph), device, threads, keep_going, own_context);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Task>> Task::Create(const spec::TrainOptions& options,
                                                   const data::OpenedDataset& dataset, c10::Device device, int threads,
                                                   const std::function<bool()>& keep_going,
                                                   const PlanContext& context) {
  PF_ASSIGN_OR_RETURN(std::unique_ptr<Task> task, MakeTask(options, dataset, device, threads, keep_going, context));
  PF_RETURN_IF_ERROR(FixParameters(options, "spec.", task->tensors()));
  return task;
}

absl::Status Task::Check(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                         const MemoryLimits& limits, std::string_view prefix) {
  if (Walks(options)) return CheckNode2Vec(options, summary, limits, prefix);
  if (const auto* set = std::get_if<data::GraphSetSummary>(&summary)) {
    return GraphModelFor(options, *set, prefix).status();
  }
  const auto& graph = std::get<data::GraphSummary>(summary);
  PF_RETURN_IF_ERROR(NodeModelFor(options, graph, limits, prefix).status());
  return CheckWholeGraphIndex(options, graph, limits, prefix);
}

namespace {

std::vector<std::string> NotesOfValidation(std::string_view rows, int64_t validate) {
  if (validate > 0) return {};
  return {NoteOfNoValidation(rows)};
}

// Adds the note that says why no step of a program is captured, or why each executable serves a single shape. Errors:
// a violation if the job is strict, since some step might then have no executable.
absl::Status AddNote(const spec::TrainOptions& options, std::string_view prefix, std::string note,
                     std::vector<std::string>& notes) {
  if (note.empty()) return absl::OkStatus();
  Violations violations;
  if (options.graph_cache.strict) {
    violations.Add(absl::StrCat(AbslView(prefix), "graph_cache.strict"), absl::StrCat("true, and ", note));
  }
  notes.push_back(std::move(note));
  return violations.ToStatus();
}

// Adds notes about a program on one large graph. Errors: those of AddNote; a violation if a strict job has a batch of
// one seed, since no executable serves such a batch.
absl::Status CheckProgram(const spec::TrainOptions& options, const data::GraphSummary& graph,
                          const MemoryLimits& limits, std::string_view prefix, std::vector<std::string>& notes) {
  PF_ASSIGN_OR_RETURN(const JobNodeModel model, NodeModelFor(options, graph, kNoLimits, prefix));
  PF_ASSIGN_OR_RETURN(MadeNodeModel made, MakeModel(options, model, ProgramDataOf(graph), at::kMeta, prefix));
  PF_RETURN_IF_ERROR(AddNote(options, prefix, std::move(made.note), notes));
  if (options.nodes.fan_outs.empty()) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(JobPadding padding, PaddingOf(options, model, ProgramDataOf(graph), limits, prefix));
  PF_RETURN_IF_ERROR(AddNote(options, prefix, std::move(padding.note), notes));
  const bool dynamic = options.graph_cache.strict && limits.records && spec::WantsDynamic(options.graph_cache);
  if (!dynamic || options.links.enabled) return absl::OkStatus();
  const auto has_batch_of_one = [&](int64_t nodes) {
    return nodes > 0 && (options.batch_size == 1 || nodes % options.batch_size == 1);
  };
  Violations violations;
  if (std::ranges::any_of(graph.split_nodes, has_batch_of_one)) {
    violations.Add(absl::StrCat(AbslView(prefix), "graph_cache.strict"),
                   absl::StrCat("true, and with batch_size ", options.batch_size,
                                " a batch has one seed, whose step is never captured; accepted: another batch_size"));
  }
  return violations.ToStatus();
}

// If a graph has at most this many edges, its links are divided at submission, which takes hardly any time.
constexpr int64_t kFewEdges = 1'000'000;

// Checks, before a job that predicts links is made, that it has links to train on and to rank. Returns notes about
// the links for the job's user, one line each. If the graph is small, or a node has an edge to every other node,
// divides the links for the check. Any other graph is certain to have links to train on and to rank, so its edges are
// not read. Errors: InvalidArgument with a violation of PREFIXlink_prediction if no link of a split can be ranked;
// those of Links::Create; Cancelled; DataLoss.
absl::StatusOr<std::vector<std::string>> CheckLinks(const spec::TrainOptions& options,
                                                    const std::shared_ptr<const data::Graph>& graph,
                                                    std::string_view prefix, const std::function<bool()>& keep_going) {
  bool divides = graph->summary().edges <= kFewEdges;
  if (!divides) {
    PF_ASSIGN_OR_RETURN(const std::vector<data::NodeId> hubs, data::NodesLinkedToAll(graph->view(), keep_going));
    divides = !hubs.empty();
  }
  if (!divides) {
    const bool validates = options.links.given ? graph->summary().links.of(data::Split::kValid).links > 0
                                               : options.links.split.valid_part > 0;
    return validates ? std::vector<std::string>() : std::vector{NoteOfNoValidation("links")};
  }
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<Links> links, Links::Create(options, graph, keep_going));
  Violations violations;
  for (const auto& [split, what] :
       {std::pair(data::Split::kValid, "validate on"), std::pair(data::Split::kTest, "test on")}) {
    const int64_t size = links->size(split);
    if (size == 0 || links->unranked(split) < size) continue;
    violations.Add(absl::StrCat(AbslView(prefix), "link_prediction"),
                   absl::StrCat("none of the ", size, " links to ", what,
                                " can be ranked: each begins at a node that has an edge to every other node, which "
                                "leaves no pair without an edge beside it; accepted: links of other nodes, negatives "
                                "that the dataset gives, or parts of 0"));
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  std::vector<std::string> notes = links->notes();
  if (links->size(data::Split::kValid) == 0) notes.push_back(NoteOfNoValidation("links"));
  return notes;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> Task::CheckFits(const spec::TrainOptions& options,
                                                         const data::OpenedDataset& dataset, const PlanContext& context,
                                                         std::string_view prefix,
                                                         const std::function<bool()>& keep_going) {
  const auto* set = std::get_if<std::shared_ptr<const data::GraphSet>>(&dataset);
  if (set == nullptr) {
    const auto& graph = std::get<std::shared_ptr<const data::Graph>>(dataset);
    if (Walks(options)) {
      PF_RETURN_IF_ERROR(CheckWalkable(*graph, prefix));
      return std::vector<std::string>();
    }
    std::vector<std::string> notes;
    if (options.links.enabled) {
      PF_ASSIGN_OR_RETURN(notes, CheckLinks(options, graph, prefix, keep_going));
    } else {
      PF_RETURN_IF_ERROR(CheckTrainLabels(*graph, prefix));
      notes = NotesOfValidation("nodes", graph->summary().split_nodes[static_cast<size_t>(data::Split::kValid)]);
    }
    if (spec::IsProgram(options))
      PF_RETURN_IF_ERROR(CheckProgram(options, graph->summary(), context.limits, prefix, notes));
    return notes;
  }
  PF_ASSIGN_OR_RETURN(const nn::GraphModelOptions model, GraphModelFor(options, (*set)->summary(), prefix));
  PF_ASSIGN_OR_RETURN(auto folded, data::WithFold(*set, options.cross_validation));
  PF_RETURN_IF_ERROR(CheckTrainLabels(*folded, prefix));
  if (spec::TraitsOf(options.loss).labels == spec::LabelKind::kBinary && !folded->summary().labels_known) {
    PF_RETURN_IF_ERROR(CheckBinary(*folded, prefix));
  }
  std::vector<std::string> notes;
  JobPadding padding;
  if (spec::IsProgram(options)) {
    PF_ASSIGN_OR_RETURN(const int64_t self_loops, CountSelfLoops(*folded));
    PF_ASSIGN_OR_RETURN(MadeModel made, MakeModel(options, model, self_loops, at::kMeta, prefix));
    PF_RETURN_IF_ERROR(AddNote(options, prefix, std::move(made.note), notes));
    PF_ASSIGN_OR_RETURN(padding, PaddingOf(options, model, self_loops, context.limits, prefix));
    if (!padding.note.empty()) notes.push_back(padding.note);
  }
  const int64_t validate = folded->summary().splits[static_cast<size_t>(data::Split::kValid)].graphs;
  PF_ASSIGN_OR_RETURN(const data::GraphExtents graphs, data::GraphExtents::Create(std::move(folded)));
  PF_RETURN_IF_ERROR(PlanJob(options, model, graphs, context, prefix, keep_going, padding.pads).status());
  for (std::string& note : NotesOfValidation("graphs", validate)) notes.push_back(std::move(note));
  return notes;
}

namespace {

constexpr int64_t kVaried = device::kDynamicProbes - 1;
// The least size for which the range from its half up to itself has room for different sizes.
constexpr int64_t kLeastHalved = 64;

}  // namespace

int64_t ProbeSize(size_t probe, size_t dimension, int64_t least, int64_t range) {
  // The range is divided into one part per probe. Each dimension assigns the parts to the probes in a different
  // order.
  const int64_t part = std::max(range, kLeastSpread) / kVaried;
  SplitMix64 random(dimension, probe);
  const int64_t place = static_cast<int64_t>((probe + dimension) % kVaried);
  return least + 1 + place * part + static_cast<int64_t>(random.Below(static_cast<uint64_t>(part)));
}

std::array<BatchShape, device::kDynamicProbes> ProbeShapes(const BatchShape& ceiling, bool below) {
  const BatchShape first = graphcache::AtLeastDynamic(ceiling);
  std::array<BatchShape, device::kDynamicProbes> shapes{first};
  const auto size = [&](size_t probe, size_t dimension, int64_t most) {
    // The sizes are 1 smaller, because the largest one would equal the ceiling, which is the size of probe 0.
    if (below && most >= kLeastHalved) return ProbeSize(probe, dimension, most / 2, (most - 1) / 2) - 1;
    return ProbeSize(probe, dimension, most, most / 32);
  };
  for (size_t p = 1; p < shapes.size(); ++p) {
    shapes[p] = {size(p, 0, first.nodes), size(p, 1, first.edges), size(p, 2, first.graphs)};
  }
  return shapes;
}

}  // namespace permafrost::train
