#include "train/loop/evaluation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/resources.h"
#include "base/status.h"
#include "base/string_view.h"
#include "nn/metrics.h"
#include "nn/safetensors.h"
#include "train/loop/artifacts.h"
#include "train/loop/initial_weights.h"
#include "train/planning/batch_schedule.h"
#include "train/tasks/categories.h"
#include "train/tasks/evaluated_rows.h"
#include "train/tasks/job_data.h"
#include "train/tasks/node2vec_task.h"
#include "train/tasks/node_model_for.h"
#include "train/tasks/task.h"

namespace permafrost::train {
namespace {

// Refuses rows other than the held-out links of a split, because the job itself divides the links into splits.
absl::Status CheckRowsOfLinks(EvaluatedRows rows) {
  if (rows == EvaluatedRows::kValid || rows == EvaluatedRows::kTest) return absl::OkStatus();
  Violations violations;
  violations.Add("rows", absl::StrCat(AbslView(kEvaluatedRowsNames.Name(rows)),
                                      ": the job predicts links, some of which it held out; accepted: valid, test"));
  return violations.ToStatus();
}

// Checks that the dataset has as many nodes as there are embeddings, because the embedding of a node says nothing
// about any other node.
absl::Status CheckSameNodes(const data::ImportedSummary& trained, const data::ImportedSummary& own) {
  const auto *const from = std::get_if<data::GraphSummary>(&trained), *const to = std::get_if<data::GraphSummary>(&own);
  if (from == nullptr || (to != nullptr && from->nodes == to->nodes)) return absl::OkStatus();
  Violations violations;
  if (to == nullptr) {
    violations.Add("dataset", absl::StrCat("it is a set of graphs, and the embeddings are those of ", from->nodes,
                                           " nodes; accepted: a dataset of the same nodes"));
    return violations.ToStatus();
  }
  violations.Add("dataset", absl::StrCat("it has ", to->nodes, " nodes, and the embeddings are those of ", from->nodes,
                                         "; accepted: a dataset of the same nodes"));
  return violations.ToStatus();
}

// Refuses a dataset unless its nodes are known to be in the order of the training, since an import may renumber
// nodes. If the nodes of neither dataset have names, a node's id is its row number in both datasets.
absl::Status CheckSameOrder(const EvaluateRequest& request, const data::ImportedSummary& trained) {
  const auto* const from = std::get_if<data::GraphSummary>(&trained);
  const auto* const graph = std::get_if<std::shared_ptr<const data::Graph>>(&request.dataset);
  if (from == nullptr || graph == nullptr || (!from->named && !(*graph)->summary().named)) return absl::OkStatus();
  const bool learned = NodeInputsOf(request.options.model.node_inputs, *from) == spec::NodeInputs::kLearned;
  if (!learned && !Walks(request.options)) return absl::OkStatus();
  if (request.trained_names == (*graph)->names_checksum()) return absl::OkStatus();
  Violations violations;
  violations.Add(
      "dataset",
      absl::StrCat("each node has weights of its own, and its nodes cannot be shown to be in the order of those "
                   "that the weights were trained on",
                   request.trained_names ? "" : ", which are there no more",
                   ": rows would be other nodes; accepted: a dataset of the same nodes in the same order"));
  return violations.ToStatus();
}

// Refuses weights whose file says that their rows belong to other nodes. Called if the weights were trained on this
// dataset, or on a dataset that is no longer known.
absl::Status CheckSaidOrder(const EvaluateRequest& request) {
  if (!HasNodeRows(request.options, request.dataset)) return absl::OkStatus();
  const std::map<std::string, std::string> metadata = nn::ReadSafetensorsMetadata(request.weights);
  if (!SaysOtherNodes(metadata, *std::get<std::shared_ptr<const data::Graph>>(request.dataset))) {
    return absl::OkStatus();
  }
  Violations violations;
  violations.Add("dataset",
                 "each node has weights of its own, and those are of other nodes than its own, or of these in another "
                 "order: rows would be other nodes; accepted: a dataset of the same nodes in the same order");
  return violations.ToStatus();
}

// Pads the batch and returns its inputs. If `any_shape` is true, pads as little as possible. Otherwise pads to the
// first planned rung that holds the batch, because the device compiles for each new shape.
absl::StatusOr<const graphcache::StepInputs*> InputsOf(HostBatch& batch, const Task& task, bool any_shape) {
  BatchShape shape = batch.least_padded();
  if (!any_shape && task.pads()) {
    for (const BatchShape& rung : task.plan().eval_rungs) {
      if (!rung.Holds(batch.least_padded())) continue;
      shape = rung;
      break;
    }
  }
  return batch.PadTo(shape, /*step=*/0);
}

// Returns the bytes that this process holds, without the pages of the dataset, since the kernel can reclaim these.
uint64_t HeldBeside(const data::OpenedDataset& dataset) {
  const uint64_t resident = ResidentBytes();
  return resident - std::min(resident, std::visit([](const auto& mapped) { return mapped->mapped_bytes(); }, dataset));
}

// Checks that an evaluation fits in memory. For a set of graphs it plans the batches.
absl::Status CheckWithin(const spec::TrainOptions& options, const data::OpenedDataset& dataset,
                         const PlanContext& context, const std::function<bool()>& keep_going) {
  PF_RETURN_IF_ERROR(Task::Check(options, data::SummaryOf(dataset), context.limits, ""));
  const auto* set = std::get_if<std::shared_ptr<const data::GraphSet>>(&dataset);
  if (set == nullptr) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const nn::GraphModelOptions model, GraphModelFor(options, (*set)->summary(), ""));
  PF_ASSIGN_OR_RETURN(const data::GraphExtents graphs, data::GraphExtents::Create(*set));
  return PlanJob(options, model, graphs, context, "", keep_going, !spec::IsProgram(options)).status();
}

// Checks that an evaluation fits in the memory that a running job leaves free.
absl::Status CheckBeside(const spec::TrainOptions& options, const data::OpenedDataset& dataset,
                         const PlanContext& context, const std::function<bool()>& keep_going) {
  PlanContext left = context;
  const uint64_t held = HeldBeside(dataset);
  left.limits.process -= std::min(left.limits.process, held);
  absl::Status fits = CheckWithin(options, dataset, left, keep_going);
  const std::vector<FieldViolation> violations = GetViolations(fits);
  if (violations.empty()) return fits;
  // If the evaluation would not even fit without the running job, returns the error of that check.
  PF_RETURN_IF_ERROR(CheckWithin(options, dataset, context, keep_going));
  return absl::ResourceExhaustedError(
      absl::StrFormat("the evaluation %s beside the %.0f MB that the server holds; accepted: when it holds less",
                      violations.front().description, static_cast<double>(held) / 1e6));
}

// Checks that predictions and labels fit in the memory that the process does not yet hold. With `text`, also counts
// the size of the predictions as CSV.
absl::Status CheckRoom(const data::OpenedDataset& dataset, int64_t rows, int64_t values, bool text,
                       const MemoryLimits& limits) {
  constexpr double kNumberBytes = 8, kTextBytes = 14, kNameBytes = 24;
  const double numbers = static_cast<double>(rows) * static_cast<double>(values);
  const double wanted =
      kNumberBytes * numbers + (text ? kTextBytes * numbers + kNameBytes * static_cast<double>(rows) : 0);
  const auto held = static_cast<double>(HeldBeside(dataset));
  const auto limit = static_cast<double>(limits.process);
  if (held + wanted <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("%d rows of %d values take %.0f MB%s beside the %.0f MB that the server holds, and its limit is "
                      "%.0f MB; accepted: "
                      "the rows of a split, or no predictions",
                      rows, values, wanted / 1e6, text ? " with their text" : "", held / 1e6, limit / 1e6));
}

// Sets the model's node and edge inputs to those of the training, even if the evaluated dataset has other features.
void FixInputs(const data::ImportedSummary& trained, spec::ModelOptions& model) {
  const auto* graph = std::get_if<data::GraphSummary>(&trained);
  if (graph == nullptr || spec::TraitsOf(model.architecture).walks) return;
  model.node_inputs = NodeInputsOf(model.node_inputs, *graph);
  if (spec::TraitsOf(model.architecture).is_program) return;
  model.edge_inputs = EdgeInputsOf(model, *graph) == data::EdgeInputs::kFeatures  ? spec::EdgeInputs::kFeatures
                      : EdgeInputsOf(model, *graph) == data::EdgeInputs::kWeights ? spec::EdgeInputs::kWeights
                                                                                  : spec::EdgeInputs::kNone;
}

// Returns the dataset translated to the weights' categories, and checks that the weights can read it.
absl::StatusOr<TranslatedDataset> ReadAsTrained(const EvaluateRequest& request, const spec::TrainOptions& options,
                                                const MemoryLimits& limits) {
  const auto known = CategoriesOfWeights(request.weights, request.source);
  Violations violations;
  if (!known.ok()) {
    violations.Add("dataset", StdView(known.status().message()));
    return violations.ToStatus();
  }
  spec::TrainOptions own = options;
  // The training dataset of the weights is gone, so the metadata of the weights show whether the model reads edge
  // features.
  if (*known && (*known)->edge.width > 0 && own.model.edge_inputs != spec::EdgeInputs::kFeatures &&
      std::holds_alternative<std::shared_ptr<const data::Graph>>(request.dataset)) {
    own.model.edge_inputs = spec::EdgeInputs::kFeatures;
  }
  PF_ASSIGN_OR_RETURN(TranslatedDataset translated,
                      TranslateCategories({.options = own,
                                           .dataset = request.dataset,
                                           .known = *known,
                                           .trained_on = request.trained_on,
                                           .allow_unknown = request.allow_unknown_categories,
                                           .predictions = request.predictions,
                                           .process_limit = limits.process},
                                          violations));
  const data::ImportedSummary now = data::SummaryOf(translated.dataset);
  const absl::Status fits = CheckKnows(translated.trained, now, options, "dataset");
  for (const FieldViolation& violation : GetViolations(fits)) violations.Add(violation.field, violation.description);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  PF_RETURN_IF_ERROR(fits);
  return translated;
}

// Checks that the dataset has labels. Rows without a label can be predicted, but have no metrics. So if predictions
// are requested, only the number of targets must be known.
absl::Status CheckHasLabels(const EvaluateRequest& request, const data::ImportedSummary& own) {
  if (HasLabels(own)) return absl::OkStatus();
  Violations violations;
  const bool has_targets = std::visit([](const auto& summary) { return summary.num_targets > 0; }, own);
  if (!request.predictions) {
    violations.Add("dataset", "it has no labels to evaluate by; accepted: predictions, which need none");
  } else if (!has_targets && !request.trained_on) {
    violations.Add(
        "dataset",
        "it has no targets, and the dataset that the weights were trained on is not known any more, which "
        "would tell how many they predict; accepted: a dataset with a column of targets, which may be empty");
  }
  return violations.ToStatus();
}

}  // namespace

spec::TrainOptions OptionsOfEvaluation(spec::TrainOptions options, const data::ImportedSummary& trained) {
  // For one large graph, a budget is part of how a block is drawn, in evaluation too. For a set of graphs, budget and
  // batch_size only determine the number of graphs in a batch. Both are replaced: with a budget, batch_size may have
  // its largest value, and another set may have graphs that exceed the budget.
  if (const auto* set = std::get_if<data::GraphSetSummary>(&trained)) {
    options.batch_size = GraphsPerBatch(options, SizesOf(*set));
    options.batching = {};
  }
  options.epochs = 1;
  options.patience = 0;
  options.replicas = 1;
  options.init_from = {};
  options.fixed_parameters.clear();
  options.cross_validation = {};
  options.graph_cache.policy = spec::Policy::kNever;
  return options;
}

absl::StatusOr<RowsEvaluation> EvaluateWeights(const EvaluateRequest& request, const device::Backend& backend,
                                               int threads, const PlanContext& context,
                                               const std::function<bool(int64_t done, int64_t total)>& on_progress) {
  PlanContext own_context = context;
  own_context.limits.trains = false;
  const bool links = request.options.links.enabled;
  data::ImportedSummary own = data::SummaryOf(request.dataset);
  data::ImportedSummary trained = request.trained_on ? *request.trained_on : own;
  spec::TrainOptions options = OptionsOfEvaluation(request.options, trained);
  FixInputs(trained, options.model);
  data::OpenedDataset dataset = request.dataset;
  const data::Split split = EvaluatedAs(request.rows);
  const bool is_other = request.other_dataset || request.trained_on;
  std::vector<std::string> zero_rows;
  std::vector<std::string> notes;
  if (request.trained_on && Walks(options)) {
    PF_RETURN_IF_ERROR(CheckSameNodes(trained, own));
  } else if (is_other && !Walks(options)) {
    PF_ASSIGN_OR_RETURN(TranslatedDataset translated, ReadAsTrained(request, options, own_context.limits));
    dataset = std::move(translated.dataset);
    trained = std::move(translated.trained);
    zero_rows = std::move(translated.zero_rows);
    notes = std::move(translated.notes);
    own = data::SummaryOf(dataset);
  }
  if (request.trained_on) PF_RETURN_IF_ERROR(CheckSameOrder(request, trained));
  if (!request.trained_on) PF_RETURN_IF_ERROR(CheckSaidOrder(request));
  if (links) {
    PF_RETURN_IF_ERROR(CheckRowsOfLinks(request.rows));
    // If this graph has fewer categories than the weights, the model still has a row for each category of the
    // weights.
    if (is_other) dataset = AsTrained(dataset, trained);
  } else {
    if (!Walks(options)) PF_RETURN_IF_ERROR(CheckHasLabels(request, own));
    PF_ASSIGN_OR_RETURN(dataset, OnlyRows(dataset, request.rows, request.options.cross_validation, trained));
  }
  int64_t done = 0, total = 0;
  const auto keep_going = [&] { return on_progress(done, total); };
  PF_RETURN_IF_ERROR(Task::Check(options, data::SummaryOf(dataset), own_context.limits, ""));
  if (const auto* graph = std::get_if<std::shared_ptr<const data::Graph>>(&dataset);
      graph != nullptr && Walks(options)) {
    PF_RETURN_IF_ERROR(CheckWalkable(**graph, ""));
  }
  PF_RETURN_IF_ERROR(CheckBeside(options, dataset, own_context, keep_going));
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<Task> task,
                      Task::Create(options, dataset, backend.device(), threads, keep_going, own_context));
  device::UseThreads(threads, task->torch_threads());
  if (const absl::Status taken = TakeAllWeights(request.weights, request.source, task->tensors(), zero_rows);
      !taken.ok()) {
    Violations violations;
    violations.Add("dataset", StdView(taken.message()));
    return violations.ToStatus();
  }

  total = task->size(split);
  if (total == 0) {
    Violations violations;
    violations.Add("rows",
                   absl::StrCat(AbslView(kEvaluatedRowsNames.Name(request.rows)), ": the dataset has no such rows"));
    return violations.ToStatus();
  }
  const int64_t unranked = task->unranked(split);
  if (unranked == total) {
    Violations violations;
    violations.Add("rows", absl::StrCat(AbslView(kEvaluatedRowsNames.Name(request.rows)), ": none of the ", total,
                                        " links can be ranked: each begins at a node that has an edge to every other "
                                        "node; accepted: a dataset with other links"));
    return violations.ToStatus();
  }
  // An evaluation of embeddings keeps all rows only if predictions are requested.
  if (request.predictions || !Walks(options)) {
    PF_RETURN_IF_ERROR(CheckRoom(dataset, total, links ? 2 : task->num_outputs(), request.predictions, context.limits));
  }
  ErrorSums losses(backend.device()), errors(backend.device());
  const device::StepProgram step = EvalProgram(*task, LossOf(options, backend.device()), losses, errors);
  const std::unique_ptr<device::Capturer> runs = backend.MakeCapturer();
  const bool any_shape = backend.kind() == DeviceKind::kCpu;
  const EvaluationSteps steps{.run = [&](HostBatch& batch) -> absl::StatusOr<at::Tensor> {
                                PF_ASSIGN_OR_RETURN(const graphcache::StepInputs* inputs,
                                                    InputsOf(batch, *task, any_shape));
                                at::Tensor prediction = runs->RunEager(step, *inputs).at(0);
                                done += std::ssize(batch.ids());
                                return prediction;
                              },
                              .losses = losses,
                              .errors = errors};
  PF_ASSIGN_OR_RETURN(
      const Evaluation evaluation,
      Evaluate(steps, *task, split,
               {.loss = options.loss, .metrics = MetricsOf(options), .keep_predictions = request.predictions},
               keep_going));
  RowsEvaluation result{.rows = total,
                        .unranked = unranked,
                        .loss = evaluation.loss,
                        .metrics = {},
                        .predictions = std::string(),
                        .notes = std::move(notes)};
  if (evaluation.has_labels) result.metrics = evaluation.metrics;
  if (request.predictions) {
    PF_ASSIGN_OR_RETURN(const NamedRows rows, task->NameRows(split, evaluation.ids));
    result.predictions = PredictionsCsv(rows, evaluation.predictions);
  }
  return result;
}

namespace {

// Appends the rows of a prediction that belong to the batch's ids.
void Keep(const at::Tensor& prediction, const HostBatch& batch, std::vector<float>& out) {
  const auto rows = batch.prediction_rows();
  const auto ids = static_cast<int64_t>(batch.ids().size());
  // The whole tensor is copied to the host first, since a slice on the device would have a new shape for each number
  // of ids.
  const at::Tensor all = prediction.to(at::kCPU);
  const at::Tensor host = (rows.empty() ? all.narrow(0, 0, ids) : all).contiguous();
  const float* values = host.const_data_ptr<float>();
  if (rows.empty()) {
    out.insert(out.end(), values, values + host.numel());
    return;
  }
  const int64_t width = host.size(1);
  for (const int64_t row : rows) out.insert(out.end(), values + row * width, values + (row + 1) * width);
}

// Replaces a rank's values by the values of all ranks, in rank order.
template <class T>
void GatherAll(collective::Group& group, c10::ScalarType type, std::vector<T>& values) {
  static_assert(sizeof(T) == 4);
  const at::Tensor all =
      group.AllGatherRows(at::from_blob(values.data(), {std::ssize(values)}, at::TensorOptions().dtype(type)));
  const auto* const from = static_cast<const T*>(all.const_data_ptr());
  values.assign(from, from + all.numel());
}

// Gives all ranks the leader's loss and metrics. Ranks on other machines may round a metric differently, but all
// ranks must act on the same values.
void ShareFigures(collective::Group& group, Evaluation& evaluation) {
  std::vector<double> figures = evaluation.metrics;
  figures.push_back(evaluation.loss);
  at::Tensor shared = at::from_blob(figures.data(), {std::ssize(figures)}, at::kDouble);
  group.Broadcast(shared);
  evaluation.loss = figures.back();
  figures.pop_back();
  evaluation.metrics = figures;
}

void SumAll(collective::Group& group, ErrorSums& sums) {
  for (const nn::NamedTensor& sum : sums.tensors()) {
    at::Tensor value = sum.value;
    group.AllReduceSum(value);
  }
}

}  // namespace

absl::StatusOr<Evaluation> Evaluate(const EvaluationSteps& steps, Task& task, data::Split split,
                                    const EvaluationOptions& options, const std::function<bool()>& keep_going) {
  PF_ASSIGN_OR_RETURN(std::optional<Evaluation> whole, task.EvaluateWhole(split, options.keep_predictions, keep_going));
  if (whole) {
    if (options.group != nullptr) {
      options.group->Meet();
      ShareFigures(*options.group, *whole);
    }
    return *std::move(whole);
  }
  const std::unique_ptr<BatchStream> batches = task.EvalBatches(split);
  // The mean absolute error is summed on the device; other metrics need all predictions together.
  const bool sums = options.metrics == std::vector{spec::Metric::kMae}, keep = options.keep_predictions || !sums;
  Evaluation result;
  std::vector<float> labels;
  if (keep) {
    const auto values = static_cast<size_t>(task.size(split) * task.num_outputs());
    result.predictions.reserve(values);
    if (!sums) labels.reserve(values);
  }
  steps.losses.Reset();
  steps.errors.Reset();
  while (true) {
    PF_ASSIGN_OR_RETURN(HostBatch * host, batches->Next());
    if (host == nullptr) break;
    if (!keep_going()) return absl::CancelledError("evaluation stopped");
    PF_ASSIGN_OR_RETURN(const at::Tensor prediction, steps.run(*host));
    if (options.on_batch) options.on_batch(*batches);
    if (!keep) continue;
    Keep(prediction, *host, result.predictions);
    if (!sums) labels.insert(labels.end(), host->labels().begin(), host->labels().end());
    result.ids.insert(result.ids.end(), host->ids().begin(), host->ids().end());
  }
  if (options.group != nullptr) {
    options.group->Meet();
    SumAll(*options.group, steps.losses);
    SumAll(*options.group, steps.errors);
    GatherAll(*options.group, at::kFloat, result.predictions);
    GatherAll(*options.group, at::kFloat, labels);
    GatherAll(*options.group, at::kInt, result.ids);
  }
  result.loss = steps.losses.Mean();
  result.has_labels = steps.losses.Count() > 0;
  for (const spec::Metric metric : options.metrics) {
    result.metrics.push_back(metric == spec::Metric::kMae ? steps.errors.Mean()
                                                          : nn::ComputeMetric(metric, options.loss, result.predictions,
                                                                              labels, task.num_outputs()));
  }
  if (options.group != nullptr) ShareFigures(*options.group, result);
  // Ids and predictions were kept only for the metrics.
  if (!options.keep_predictions) {
    result.ids = std::vector<uint32_t>();
    result.predictions = std::vector<float>();
  }
  return result;
}

absl::StatusOr<Evaluation> Evaluate(StepEngine& engine, Task& task, data::Split split, const EvaluationOptions& options,
                                    const std::function<bool()>& keep_going) {
  const auto run = [&](HostBatch& batch) -> absl::StatusOr<at::Tensor> {
    PF_ASSIGN_OR_RETURN(at::Tensor prediction, engine.Evaluate(batch, options.step));
    engine.Report();
    return prediction;
  };
  return Evaluate({.run = run, .losses = engine.eval_losses(), .errors = engine.eval_errors()}, task, split, options,
                  keep_going);
}

}  // namespace permafrost::train
