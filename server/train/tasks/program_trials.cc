#include "train/tasks/program_trials.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <cstdint>

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "base/text.h"
#include "device/backend.h"
#include "device/cpu/tape.h"
#include "nn/models/parts.h"
#include "program/libtorch.h"

namespace permafrost::train {
namespace {

using at::Tensor;
using SetBatch = nn::GraphSetBatch;
using Block = nn::NodeBlock;

// This part of the file makes the small artificial batches on which programs are tried.

// The values of padding rows.
enum class Filling { kZeros, kOther };
constexpr int64_t kRealSeed = 1, kOtherSeed = 1'000;

// The shape of the trial's batch. The number of rows that a batch norm gets shows whether the rows are nodes, edges
// or graphs. For this, no size equals another size or the sum of two others.
constexpr BatchShape kTrial{.nodes = 9, .edges = 21, .graphs = 4};
constexpr int64_t kTrialPairs = 19, kLargestTrialGraph = 3;
// The number of padding rows in a trial: about as many as a small batch gets on a large rung. On a set, all padding
// nodes belong to one padding graph. Padding edges join the last node to itself.
constexpr int64_t kManyRows = 2'000;
constexpr BatchShape kLeastTrial{.nodes = kTrial.nodes + 1, .edges = kTrial.edges, .graphs = kTrial.graphs + 1};

// The padding of a block: rows after the seeds, rows after all other nodes, and edges.
struct BlockPadding {
  int64_t seeds = 0, nodes = 1, edges = 0;
};

// Returns the number of columns of features or labels.
int64_t Columns(const nn::EncoderInput& features) {
  return features.categories.empty() ? features.float_columns : std::ssize(features.categories);
}

Tensor Zeros(const nn::EncoderInput& features, int64_t rows) {
  if (!features.has_features()) return {};
  return features.categories.empty() ? at::zeros({rows, features.float_columns}, at::kFloat)
                                     : at::zeros({rows, std::ssize(features.categories)}, at::kLong);
}

// The edges of a ring of nodes, in order of their targets.
struct Ring {
  Tensor sources, targets;
};
Ring MakeRing(int64_t nodes, int64_t edges) {
  const Tensor targets = at::arange(edges, at::kLong).mul(nodes).floor_divide(std::max<int64_t>(edges, 1));
  return {targets.add(1).remainder(nodes), targets};
}

// Returns a batch of this shape, padding included. Its nodes form a ring, and all features are 0.
SetBatch MakeBatch(const nn::GraphModelOptions& model, const nn::EncoderInput& labels, const BatchShape& shape) {
  const int64_t nodes = shape.nodes - 1, graphs = shape.graphs - 1;
  const Ring ring = MakeRing(nodes, shape.edges);
  return {.padded_graphs = shape.graphs,
          .node_features = Zeros(model.node, shape.nodes),
          .edge_features = Zeros(model.edge, shape.edges),
          .positions = Zeros({.float_columns = model.position_columns}, shape.nodes),
          .edge_source = ring.sources,
          .edge_target = ring.targets,
          .graph_of_node = at::arange(shape.nodes, at::kLong).mul(graphs).floor_divide(nodes),
          .labels = at::zeros({shape.graphs, Columns(labels)}, at::kFloat),
          .real_nodes = {},
          .real_graphs = {},
          .step = at::zeros({1}, at::kLong)};
}

Block MakeBlock(const nn::NodeModelOptions& model, const nn::EncoderInput& labels, int64_t position_columns,
                const BatchShape& shape) {
  const Ring ring = MakeRing(shape.nodes - 1, shape.edges);
  Block block;
  block.row_ends = {shape.graphs, shape.nodes};
  block.features = at::zeros({shape.nodes, model.in_channels}, at::kFloat);
  block.positions = Zeros({.float_columns = position_columns}, shape.nodes);
  block.sources = ring.sources;
  block.edge_targets = ring.targets;
  block.edge_weights = at::ones({shape.edges}, at::kFloat);
  block.edge_features = Zeros(model.edge, shape.edges);
  if (labels.has_features()) block.labels = at::zeros({shape.graphs, Columns(labels)}, at::kFloat);
  // There are as many pairs as edges.
  block.pairs = {.sources = ring.sources.remainder(shape.graphs), .targets = ring.targets.remainder(shape.graphs)};
  block.step = at::zeros({1}, at::kLong);
  return block;
}

// Returns `rows` rows of varied values: numbers in [0, 1], or categories.
Tensor Varied(const nn::EncoderInput& features, int64_t rows, int64_t seed) {
  if (!features.has_features()) return {};
  const int64_t columns = Columns(features);
  constexpr double kGolden = 0.6180339887498949;
  const Tensor values =
      at::arange(seed, seed + rows * columns, at::kDouble).mul(kGolden).frac().view({rows, columns}).contiguous();
  if (features.categories.empty()) return values.to(at::kFloat);
  const Tensor categories = at::tensor(features.categories, at::kLong);
  return values.mul(categories).floor().to(at::kLong);
}

// Returns `rows` rows: varied values in the real rows, which are those at `places`, and `filling` in the padding
// rows.
Tensor Padded(const nn::EncoderInput& features, const Tensor& places, int64_t rows, Filling filling) {
  if (!features.has_features()) return {};
  Tensor padding = Varied(features, rows, kOtherSeed);
  // These padding values exceed all real values, so that a maximum over padding rows is noticed. A minimum over
  // padding rows is noticed with a padding of zeros.
  if (features.categories.empty()) padding *= 2;
  Tensor values = filling == Filling::kOther ? padding : at::zeros_like(padding);
  return values.index_copy_(0, places, Varied(features, places.size(0), kRealSeed));
}

Tensor PaddedLabels(const nn::EncoderInput& labels, int64_t real, int64_t rows) {
  if (!labels.has_features()) return {};
  return at::constant_pad_nd(Varied(labels, real, kRealSeed).to(at::kFloat), {0, 0, 0, rows - real},
                             std::numeric_limits<double>::quiet_NaN());
}

// Returns the ends of `edges` edges: those in `ends` for the real edges, and then the last row for each padding edge.
Tensor PaddedEnds(const Tensor& ends, int64_t edges, int64_t rows) {
  return at::constant_pad_nd(ends, {0, edges - ends.size(0)}, rows - 1);
}

// Returns the trial's batch, padded to `shape`.
SetBatch TrialBatch(const nn::GraphModelOptions& model, const nn::EncoderInput& labels, const BatchShape& shape,
                    Filling filling) {
  const Ring ring = MakeRing(kTrial.nodes, kTrial.edges);
  const Tensor nodes = at::arange(kTrial.nodes, at::kLong), edges = at::arange(kTrial.edges, at::kLong);
  return {.padded_graphs = shape.graphs,
          .node_features = Padded(model.node, nodes, shape.nodes, filling),
          .edge_features = Padded(model.edge, edges, shape.edges, filling),
          .positions = Padded({.float_columns = model.position_columns}, nodes, shape.nodes, filling),
          .edge_source = PaddedEnds(ring.sources, shape.edges, shape.nodes),
          .edge_target = PaddedEnds(ring.targets, shape.edges, shape.nodes),
          .graph_of_node = PaddedEnds(nodes.mul(kTrial.graphs).floor_divide(kTrial.nodes), shape.nodes, shape.graphs),
          .labels = PaddedLabels(labels, kTrial.graphs, shape.graphs),
          .real_nodes = at::tensor({kTrial.nodes}, at::kLong),
          .real_graphs = at::tensor({kTrial.graphs}, at::kLong),
          .step = at::zeros({1}, at::kLong)};
}

// Returns the trial's block with this padding.
Block TrialBlock(const nn::NodeModelOptions& model, const nn::EncoderInput& labels, int64_t position_columns,
                 const BlockPadding& padding, Filling filling) {
  const int64_t seeds = kTrial.graphs + padding.seeds, rows = kTrial.nodes + padding.seeds + padding.nodes,
                edges = kTrial.edges + padding.edges;
  const Ring ring = MakeRing(kTrial.nodes, kTrial.edges);
  const Tensor order = at::arange(kTrial.nodes, at::kLong);
  const Tensor places = order + order.ge(kTrial.graphs).to(at::kLong) * padding.seeds;
  Block block;
  block.row_ends = {seeds, rows};
  block.features = Padded({.float_columns = model.in_channels}, places, rows, filling);
  block.positions = Padded({.float_columns = position_columns}, places, rows, filling);
  block.sources = PaddedEnds(places.index_select(0, ring.sources), edges, rows);
  block.edge_targets = PaddedEnds(places.index_select(0, ring.targets), edges, rows);
  const Tensor real_edges = at::arange(kTrial.edges, at::kLong);
  block.edge_weights = Padded({.float_columns = 1}, real_edges, edges, filling).squeeze(1);
  block.edge_features = Padded(model.edge, real_edges, edges, filling);
  block.labels = PaddedLabels(labels, kTrial.graphs, seeds);
  block.pairs = {.sources = ring.sources.remainder(kTrial.graphs).narrow(0, 0, kTrialPairs),
                 .targets = ring.targets.remainder(kTrial.graphs).narrow(0, 0, kTrialPairs)};
  block.row_keys = at::full({rows}, -1, at::kLong).index_copy_(0, places, order);
  block.step = at::zeros({1}, at::kLong);
  return block;
}

// A forward pass for a measurement is stopped after it has read this many bytes. A program with many large products
// would keep the caller waiting.
constexpr double kMostRead = 1 << 30;

// A training step has about kOperatorsOfStep operators for each operator of the forward pass. Recording keeps about
// kBytesOfOperator bytes for each operator of the step.
constexpr int64_t kOperatorsOfStep = 4, kBytesOfOperator = 600;

// Two batches from which the cost of larger ones is extrapolated. Without padding, the second batch has twice as many
// nodes and edges as the first. It has about twice as many graphs or seeds.
constexpr BatchShape kSmallBatch{.nodes = 33, .edges = 64, .graphs = 5},
    kTwiceThat{.nodes = 65, .edges = 128, .graphs = 9};

struct ReadsTooMuch : std::exception {};  // derives from std::exception, since autograd passes on nothing else

// Counts of a forward pass: its operators, all bytes that they read, and the bytes of the tensors that they read, each
// tensor counted once.
struct Read {
  int64_t operators = 0;
  double read = 0, made = 0;
};

// Runs `run`, and counts its operators and the tensors that they read. Tensors of `beside` do not count as made.
// Throws ReadsTooMuch if `run` reads more than kMostRead.
Read Listen(const nn::TensorSet& beside, const std::function<void()>& run) {
  Read counted;
  std::set<const c10::StorageImpl*> seen;
  for (const nn::NamedTensor& t : beside.All()) seen.insert(t.value.storage().unsafeGetStorageImpl());
  // A weak reference lets a storage free its bytes, but keeps its address from being reused during the count.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> held;
  const auto add = [&](const Tensor& tensor) {
    if (!tensor.defined()) return;
    const auto bytes = static_cast<double>(tensor.storage().nbytes());
    counted.read += bytes;
    if (!seen.insert(tensor.storage().unsafeGetStorageImpl()).second) return;
    held.push_back(tensor.storage().getWeakStorageImpl());
    counted.made += bytes;
  };
  device::Tape::Listen(
      [&](const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
        ++counted.operators;
        const size_t arguments = op.schema().arguments().size();
        for (const c10::IValue& value : std::span(stack).last(arguments)) {
          if (value.isTensor()) add(value.toTensor());
          if (!value.isTensorList()) continue;
          for (const c10::IValue& tensor : value.toListRef()) add(tensor.toTensor());
        }
        if (counted.read > kMostRead) throw ReadsTooMuch();
        return false;
      },
      run);
  return counted;
}

double Ratio(int64_t all, int64_t rows) { return static_cast<double>(all) / static_cast<double>(rows); }

// Runs a step of the program that owns `tensors`. Throws ReadsTooMuch as soon as the step has read more than 1 GiB.
void BoundReads(const nn::TensorSet& tensors, const std::function<void()>& run) { Listen(tensors, run); }

// Measures a program with `forward`, which runs it on a batch of the given shape and returns the prediction. A
// c10::ValueError becomes a violation. After any other exception the cost stays unknown, since the program may need
// other values or more rows.
absl::StatusOr<ForwardCost> Measure(const nn::TensorSet& tensors, std::string_view prefix,
                                    absl::FunctionRef<Tensor(const BatchShape&)> forward) {
  ForwardCost cost{.parameters = static_cast<double>(tensors.num_parameter_values())};
  try {
    const Read one = Listen(tensors, [&] { cost.columns = forward(kSmallBatch).size(1); });
    const Read two = Listen(tensors, [&] { forward(kTwiceThat); });
    cost.growing = std::max(two.made - one.made, 0.0);
    cost.once = one.made - cost.growing;
    cost.operators = two.operators;
  } catch (const ReadsTooMuch&) {
    cost.reads_too_much = true;
  } catch (const c10::ValueError& error) {
    return AsViolation(absl::InvalidArgumentError(error.what_without_backtrace()), prefix);
  } catch (const std::exception&) {
    return cost;
  }
  return cost;
}

nn::GraphModelOptions OfTrial(nn::GraphModelOptions model) {
  model.max_graph_nodes = kLargestTrialGraph;
  return model;
}

// The most columns of features for which a program is tried. With more, the trial's batches would take memory that no
// plan counts.
constexpr int64_t kMostColumns = 4'096;

// The result of trying a program on padded batches.
struct ProgramPadding {
  std::string refusal;  // the reason why its batches are not padded, for users; empty if they may be padded
  bool eager = false;   // padding is refused because no step is captured; another note tells the user so
  ProgramNorms norms;
};

ProgramPadding TooWide() {
  ProgramPadding padding;
  padding.refusal = absl::StrCat("features of more than ", kMostColumns, " columns are not tried");
  return padding;
}

// The results of a step of a program.
struct Observed {
  Tensor prediction, loss;
  std::vector<nn::NamedTensor> gradients, buffers;
};

// Returns the results of a step on the batch. Leaves the buffers as they were. Throws ReadsTooMuch.
template <class Model, class Batch>
Observed Observe(Model& model, const Batch& batch, Mode mode) {
  nn::TensorSet& tensors = model.tensors();
  const std::vector<nn::NamedTensor> before = nn::Clone(tensors.buffers());
  Observed made;
  BoundReads(tensors, [&] {
    const c10::AutoGradMode gradients(mode == Mode::kTrain);
    const Tensor all = model.Forward(batch, mode);
    // Scores of pairs have no padding rows.
    const Tensor prediction = all.narrow(0, 0, all.size(0) == kTrialPairs ? kTrialPairs : kTrial.graphs);
    const Tensor loss = model.TakeLoss();
    if (mode == Mode::kTrain) {
      const Tensor weights = Varied({.float_columns = prediction.size(1)}, prediction.size(0), kOtherSeed);
      std::vector<Tensor> parameters;
      for (const nn::NamedTensor& parameter : tensors.parameters()) parameters.push_back(parameter.value);
      const std::vector<Tensor> found =
          torch::autograd::grad({loss.defined() ? loss : prediction.mul(weights).sum()}, parameters, {}, std::nullopt,
                                /*create_graph=*/false, /*allow_unused=*/true);
      for (size_t i = 0; i < found.size(); ++i) made.gradients.push_back({tensors.parameters()[i].name, found[i]});
    }
    made.prediction = prediction.detach();
    if (loss.defined()) made.loss = loss.detach();
  });
  made.buffers = nn::Clone(tensors.buffers());
  const c10::NoGradGuard no_grad;
  nn::CopyInto(before, tensors.buffers());
  return made;
}

bool AreEqual(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (!at::isFloatingType(a.scalar_type())) return at::equal(a, b);
  return at::equal(a.isnan(), b.isnan()) && at::equal(a.nan_to_num(), b.nan_to_num());
}

double Largest(const Tensor& values) {
  if (!values.defined() || values.numel() == 0 || !at::isFloatingType(values.scalar_type())) return 0;
  return values.nan_to_num(0, 0, 0).abs().max().item<double>();
}

// Returns whether the rounding of values of size `scale` can explain the difference of `a` and `b`.
bool AreClose(const Tensor& a, const Tensor& b, double scale) {
  if (!a.defined() || !b.defined() || !at::isFloatingType(a.scalar_type())) return AreEqual(a, b);
  constexpr double kRelative = 1e-4, kLeast = 1e-6;
  return at::allclose(a, b, kRelative, kRelative * scale + kLeast, /*equal_nan=*/true);
}

// Returns the name of the first result that differs, for users; empty if none differs. If `exactly`, compares bit by
// bit.
std::string FindDifference(const Observed& a, const Observed& b, bool exactly) {
  const auto same = [exactly](const Tensor& x, const Tensor& y, double scale) {
    return exactly ? AreEqual(x, y) : AreClose(x, y, scale);
  };
  if (!same(a.prediction, b.prediction, Largest(a.prediction))) return "prediction";
  if (!same(a.loss, b.loss, Largest(a.loss))) return "loss";
  // A gradient near 0 may be a sum of larger gradients that cancel each other, and has their rounding error.
  constexpr double kCancelled = 0.1;
  double scale = 0;
  for (const nn::NamedTensor& gradient : a.gradients) scale = std::max(scale, Largest(gradient.value));
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    const double own = std::max(Largest(a.gradients[i].value), kCancelled * scale);
    if (!same(a.gradients[i].value, b.gradients[i].value, own))
      return absl::StrCat("gradient of ", a.gradients[i].name);
  }
  for (size_t i = 0; i < a.buffers.size(); ++i) {
    const Tensor& buffer = a.buffers[i].value;
    if (!same(buffer, b.buffers[i].value, Largest(buffer))) return absl::StrCat("buffer ", a.buffers[i].name);
  }
  return {};
}

// Derives, from the shapes of the norms' inputs in the trial, which kind of rows each batch norm of a form
// normalises. Returns nullopt if that is not possible for some shape.
std::optional<std::vector<NormRows>> RowsOfNorms(const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<NormRows> norms;
  for (const std::vector<int64_t>& shape : shapes) {
    if (!shape.empty() && shape.size() != 2) return std::nullopt;
    const int64_t rows = shape.empty() ? kTrial.nodes : shape[0];
    if (rows == kTrial.nodes) {
      norms.push_back(NormRows::kNodes);
    } else if (rows == kTrial.edges) {
      norms.push_back(NormRows::kEdges);
    } else if (rows == kTrial.graphs) {
      norms.push_back(NormRows::kPredicted);
    } else {
      return std::nullopt;
    }
  }
  return norms;
}

constexpr Mode kModes[] = {Mode::kTrain, Mode::kEval};

// One batch in three forms: with the least padding (`exact`), padded with zeros, and padded with other values. If
// `moved`, the real rows of the padded forms lie at other places than in `exact`.
template <class Batch>
struct Trial {
  Batch exact, padded, other;
  bool moved = false;
};

// Tries a program on padded batches. `make` makes the model, for batches with the least padding or for padded ones.
template <class Make, class Batch>
absl::StatusOr<ProgramPadding> TryPadding(const Make& make, const std::vector<Trial<Batch>>& trials) {
  ProgramPadding found;
  PF_ASSIGN_OR_RETURN(const auto exact, make({.padding = std::nullopt, .fused = false}));
  if (!exact.note.empty()) {
    found.eager = true;
    found.refusal = exact.note;
    return found;
  }
  const char* where = "on a small batch";
  try {
    for (const Mode mode : kModes) {
      Observe(*exact.model, trials.front().exact, mode);
      auto norms = RowsOfNorms(exact.program->norm_shapes());
      if (!norms) {
        found.refusal = "a batch norm's input is not [rows, channels] with a row for each node, edge, graph or seed";
        return found;
      }
      found.norms[static_cast<size_t>(mode)] = *std::move(norms);
    }
    where = "on a padded batch";
    PF_ASSIGN_OR_RETURN(const auto padded, make({.padding = found.norms}));
    for (const Trial<Batch>& trial : trials) {
      for (const Mode mode : kModes) {
        const Observed expected = Observe(*exact.model, trial.exact, mode),
                       one = Observe(*padded.model, trial.padded, mode),
                       two = Observe(*padded.model, trial.other, mode);
        const auto refuse = [&](const std::string& what, const char* why) {
          if (what.empty()) return false;
          found.refusal = absl::StrCat("its ", what, mode == Mode::kTrain ? " in training" : " in evaluation", why);
          return true;
        };
        if (refuse(FindDifference(one, two, /*exactly=*/true), " depends on values of padding rows")) return found;
        if (trial.moved && mode == Mode::kTrain && exact.program->draws()) continue;
        if (refuse(FindDifference(expected, one, /*exactly=*/false), " differs on a padded batch")) return found;
      }
    }
  } catch (const ReadsTooMuch&) {
    found.refusal = absl::StrCat("it reads more than 1 GiB ", where, ", too much for a trial");
  } catch (const c10::Error& error) {
    found.refusal = absl::StrCat("it fails ", where, ": ", program::MessageOf(error));
  } catch (const std::exception& error) {
    found.refusal = absl::StrCat("it fails ", where, ": ", Shorten(error.what()));
  }
  return found;
}

absl::StatusOr<ProgramPadding> FindPadding(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                           int64_t self_loops, std::string_view prefix) {
  if (std::max(Columns(model.node), Columns(model.edge)) > kMostColumns) return TooWide();
  const nn::EncoderInput labels = LabelsOf(options, model.num_targets);
  const nn::GraphModelOptions small = OfTrial(model);
  const BatchShape larger{
      .nodes = kTrial.nodes + kManyRows, .edges = kTrial.edges + kManyRows + 7, .graphs = kTrial.graphs + 3};
  return TryPadding(
      [&](const ProgramForm& form) { return MakeModel(options, small, self_loops, at::kCPU, prefix, form); },
      std::vector<Trial<SetBatch>>{{.exact = TrialBatch(model, labels, kLeastTrial, Filling::kZeros),
                                    .padded = TrialBatch(model, labels, larger, Filling::kZeros),
                                    .other = TrialBatch(model, labels, larger, Filling::kOther)}});
}

absl::StatusOr<ProgramPadding> FindPadding(const spec::TrainOptions& options, const nn::NodeModelOptions& model,
                                           const NodeProgramData& data, std::string_view prefix) {
  if (std::max(model.in_channels, Columns(model.edge)) > kMostColumns) return TooWide();
  const nn::EncoderInput labels = LabelsOf(options, model.num_outputs);
  std::vector<Trial<Block>> trials;
  for (const BlockPadding& padding : {BlockPadding{.seeds = 0, .nodes = kManyRows, .edges = kManyRows + 7},
                                      BlockPadding{.seeds = 3, .nodes = kManyRows, .edges = kManyRows + 7}}) {
    trials.push_back({.exact = TrialBlock(model, labels, data.position_columns, BlockPadding(), Filling::kZeros),
                      .padded = TrialBlock(model, labels, data.position_columns, padding, Filling::kZeros),
                      .other = TrialBlock(model, labels, data.position_columns, padding, Filling::kOther),
                      .moved = padding.seeds > 0});
  }
  return TryPadding([&](const ProgramForm& form) { return MakeModel(options, model, data, at::kCPU, prefix, form); },
                    trials);
}

// Compares the fused program with the unfused one. `make` makes the model of either program. `batch` is small and has
// the least padding. `precision` is the job's, but the trial runs in float32.
template <class Make, class Batch>
absl::StatusOr<JobFusion> TryFusion(spec::Precision precision, const Make& make, const Batch& batch) {
  JobFusion fusion;
  PF_ASSIGN_OR_RETURN(const auto fused, make({.fused = true}));
  if (fused.program == nullptr) return fusion;
  const bool rounds = precision == spec::Precision::kBfloat16;
  if (rounds && !fused.program->has_own_products()) {
    fusion.note =
        "precision bfloat16 has no effect: the server runs no float32 linear map of this program by its own operator";
  }
  if (!fused.program->is_fused()) return fusion;
  PF_ASSIGN_OR_RETURN(const auto plain, make({.fused = false}));
  const auto observe = [&](auto& made, Mode mode, std::string& refusal) -> std::optional<Observed> {
    try {
      return Observe(*made.model, batch, mode);
    } catch (const ReadsTooMuch&) {
      refusal = "it reads more than 1 GiB";
    } catch (const c10::Error& error) {
      refusal = program::MessageOf(error);
    } catch (const std::exception& error) {
      refusal = Shorten(error.what());
    }
    return std::nullopt;
  };
  for (const Mode mode : kModes) {
    std::string refusal;
    const std::optional<Observed> expected = observe(plain, mode, refusal);
    // If the two cannot be compared, the program is not fused.
    const std::optional<Observed> found = expected ? observe(fused, mode, refusal) : std::nullopt;
    std::string what = found ? FindDifference(*expected, *found, /*exactly=*/false) : "";
    if (found && what.empty()) continue;
    fusion.fused = false;
    fusion.note = absl::StrCat("the program runs as it is, with nothing fused, because on a small batch ",
                               found ? absl::StrCat("its ", what, " differs") : absl::StrCat("it fails: ", refusal),
                               rounds ? "; precision bfloat16 rounds none of its products" : "");
    return fusion;
  }
  return fusion;
}

// Returns the padding of a job's batches. `find` tries the padding of a program.
absl::StatusOr<JobPadding> PaddingOfJob(const spec::TrainOptions& options, const MemoryLimits& limits,
                                        absl::FunctionRef<absl::StatusOr<ProgramPadding>()> find) {
  if (!spec::IsProgram(options)) return JobPadding();
  JobPadding padding{.pads = false, .norms = {}, .note = {}};
  if (!WantsPadding(options.graph_cache, limits)) return padding;
  PF_ASSIGN_OR_RETURN(ProgramPadding found, find());
  padding.pads = found.refusal.empty();
  if (padding.pads) padding.norms = std::move(found.norms);
  if (!padding.pads && !found.eager) {
    padding.note = absl::StrCat("the program's batches are not padded, because ", found.refusal,
                                ": each shape of a batch has an executable of its own");
  }
  return padding;
}

}  // namespace

StepCost ForwardCost::Step(const BatchShape& largest) const {
  StepCost cost{.model = {.parameters = parameters, .activations = 0},
                .executable_bytes = kOperatorsOfStep * kBytesOfOperator * operators};
  if (reads_too_much) {
    cost.operator_values = std::numeric_limits<double>::infinity();
  } else if (operators > 0) {
    const double larger = std::max({Ratio(largest.nodes, kSmallBatch.nodes), Ratio(largest.edges, kSmallBatch.edges),
                                    Ratio(largest.graphs, kSmallBatch.graphs)});
    const double values = (once + growing * larger) / sizeof(float);
    cost.model.activations = 2 * values;
    cost.operator_values = values / static_cast<double>(operators);
  }
  return cost;
}

absl::StatusOr<StepCost> CostOfStep(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                    const BatchShape& largest, std::string_view prefix) {
  if (!spec::IsProgram(options)) {
    const spec::ModelOptions& own = model.model;
    const auto nodes = static_cast<double>(largest.nodes);
    return StepCost{.model = nn::CostOf(model, {.nodes = std::vector(static_cast<size_t>(own.num_layers) + 1, nodes),
                                                .edges = static_cast<double>(largest.edges),
                                                .graphs = static_cast<double>(largest.graphs)}),
                    .executable_bytes = device::ExecutableBytes(own.num_layers, own.lowering == spec::Lowering::kAuto)};
  }
  PF_ASSIGN_OR_RETURN(const MadeModel made,
                      MakeModel(options, model, /*self_loops=*/0, at::kCPU, prefix, {.fused = false}));
  PF_ASSIGN_OR_RETURN(const ForwardCost cost, Measure(made.model->tensors(), prefix, [&](const BatchShape& shape) {
                        return made.model->Forward(MakeBatch(model, LabelsOf(options, model.num_targets), shape),
                                                   Mode::kTrain);
                      }));
  return cost.Step(largest);
}

absl::StatusOr<ForwardCost> MeasureNodeProgram(const spec::TrainOptions& options, const nn::NodeModelOptions& model,
                                               const NodeProgramData& data, std::string_view prefix) {
  spec::TrainOptions sampled = options;
  sampled.nodes.fan_outs = {1};  // so that blocks have a padding row
  NodeProgramData without_loops = data;
  without_loops.self_loops = 0;
  PF_ASSIGN_OR_RETURN(const MadeNodeModel made,
                      MakeModel(sampled, model, without_loops, at::kCPU, prefix, {.fused = false}));
  const nn::EncoderInput labels = LabelsOf(options, model.num_outputs);
  PF_ASSIGN_OR_RETURN(ForwardCost cost, Measure(made.model->tensors(), prefix, [&](const BatchShape& shape) {
                        return made.model->Forward(MakeBlock(model, labels, data.position_columns, shape),
                                                   Mode::kTrain);
                      }));
  cost.scores_pairs = made.scores_pairs;
  return cost;
}

absl::StatusOr<JobFusion> FusionOf(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                   int64_t self_loops, c10::Device device, std::string_view prefix) {
  if (!spec::IsProgram(options) || !device.is_cpu()) return JobFusion();
  const nn::GraphModelOptions small = OfTrial(model);
  return TryFusion(
      options.model.precision,
      [&](const ProgramForm& form) { return MakeModel(options, small, self_loops, at::kCPU, prefix, form); },
      TrialBatch(model, LabelsOf(options, model.num_targets), kLeastTrial, Filling::kZeros));
}

absl::StatusOr<JobFusion> FusionOf(const spec::TrainOptions& options, const nn::NodeModelOptions& model,
                                   const NodeProgramData& data, c10::Device device, std::string_view prefix) {
  if (!spec::IsProgram(options) || !device.is_cpu()) return JobFusion();
  BlockPadding padding;
  if (options.nodes.fan_outs.empty()) padding.nodes = 0;  // a whole graph has no padding
  return TryFusion(
      options.model.precision,
      [&](const ProgramForm& form) { return MakeModel(options, model, data, at::kCPU, prefix, form); },
      TrialBlock(model, LabelsOf(options, model.num_outputs), data.position_columns, padding, Filling::kZeros));
}

absl::StatusOr<JobPadding> PaddingOf(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                     int64_t self_loops, const MemoryLimits& limits, std::string_view prefix) {
  return PaddingOfJob(options, limits, [&] { return FindPadding(options, model, self_loops, prefix); });
}

absl::StatusOr<JobPadding> PaddingOf(const spec::TrainOptions& options, const nn::NodeModelOptions& model,
                                     const NodeProgramData& data, const MemoryLimits& limits, std::string_view prefix) {
  return PaddingOfJob(options, limits, [&] { return FindPadding(options, model, data, prefix); });
}

}  // namespace permafrost::train
