#include "nn/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>
#include <utility>
#include <vector>

#include "nn/kernels/adam.h"
#include "nn/kernels/segments.h"
#include "nn/ops/chunks.h"
#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8;

// kAdamBlock is the number of values that are updated at once. From kAdamGrain blocks on, several threads share the
// blocks. At half as many blocks (35 us of work) two threads were as fast as one: `bench/run parallel --filter
// updates`.
constexpr int64_t kAdamBlock = 4096, kAdamGrain = 32;

struct Block {
  size_t tensor;
  int64_t begin;
};

bool Applies(const OptionalTensor& applies) { return !applies || *applies->const_data_ptr<float>() != 0; }

// Returns the blocks of all parameters. Checks that every list in `others` has a tensor of the same shape for each
// parameter.
std::vector<Block> BlocksOf(const char* name, at::TensorList parameters, at::ArrayRef<double> weight_decays,
                            std::initializer_list<at::TensorList> others) {
  TORCH_CHECK(!parameters.empty(), name, ": no parameters");
  TORCH_CHECK(weight_decays.size() == parameters.size(), name, ": ", parameters.size(), " parameters, ",
              weight_decays.size(), " weight decays");
  for (const at::TensorList list : others) {
    TORCH_CHECK(list.size() == parameters.size(), name, ": ", parameters.size(), " parameters, ", list.size(),
                " gradients or moments");
  }
  std::vector<Block> blocks;
  for (size_t i = 0; i < parameters.size(); ++i) {
    for (const at::TensorList list : others) {
      const Tensor& t = list[i];
      TORCH_CHECK(t.sizes() == parameters[i].sizes() && t.is_contiguous() && parameters[i].is_contiguous(), name,
                  ": a gradient or moment of ", t.sizes(), " for a parameter of ", parameters[i].sizes());
    }
    for (int64_t begin = 0; begin < parameters[i].numel(); begin += kAdamBlock) blocks.push_back({i, begin});
  }
  return blocks;
}

// Calls update(parameter, first value, number of values) for each block.
template <class Update>
void ForBlocks(const std::vector<Block>& blocks, at::TensorList parameters, const Update& update) {
  ParallelFor(0, std::ssize(blocks), kAdamGrain, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      const auto [i, begin] = blocks[static_cast<size_t>(b)];
      update(i, begin, std::min(kAdamBlock, parameters[i].numel() - begin));
    }
  });
}

void AdamCpu(at::TensorList parameters, at::TensorList gradients, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
             Tensor& step, const Tensor& learning_rate, at::ArrayRef<double> weight_decays, bool decoupled,
             const OptionalTensor& applies) {
  const std::vector<Block> blocks = BlocksOf("adam_", parameters, weight_decays, {gradients, exp_avgs, exp_avg_sqs});
  if (!Applies(applies)) return;
  // The step is counted only once all checks have passed.
  const float done = ++*step.mutable_data_ptr<float>();
  AdamUpdate update{.learning_rate = *learning_rate.const_data_ptr<double>(), .decoupled = decoupled};
  update.correction1 = 1 - std::pow(update.beta1, static_cast<double>(done));
  update.correction2 = 1 - std::pow(update.beta2, static_cast<double>(done));
  AT_DISPATCH_FLOATING_TYPES(parameters[0].scalar_type(), "adam_", [&] {
    ForBlocks(blocks, parameters, [&](size_t i, int64_t begin, int64_t size) {
      AdamUpdate own = update;
      own.weight_decay = weight_decays[i];
      AdamStep<scalar_t>(own, size, gradients[i].const_data_ptr<scalar_t>() + begin,
                         parameters[i].mutable_data_ptr<scalar_t>() + begin,
                         exp_avgs[i].mutable_data_ptr<scalar_t>() + begin,
                         exp_avg_sqs[i].mutable_data_ptr<scalar_t>() + begin);
    });
  });
}

void SgdCpu(at::TensorList parameters, at::TensorList gradients, at::TensorList momenta, Tensor& step,
            const Tensor& learning_rate, at::ArrayRef<double> weight_decays, double momentum, bool nesterov,
            const OptionalTensor& applies) {
  const std::vector<Block> blocks = BlocksOf("sgd_", parameters, weight_decays, {gradients, momenta});
  if (!Applies(applies)) return;
  ++*step.mutable_data_ptr<float>();
  AT_DISPATCH_FLOATING_TYPES(parameters[0].scalar_type(), "sgd_", [&] {
    const auto rate = static_cast<scalar_t>(*learning_rate.const_data_ptr<double>()),
               kept = static_cast<scalar_t>(momentum);
    ForBlocks(blocks, parameters, [&](size_t i, int64_t begin, int64_t size) {
      const auto decay = static_cast<scalar_t>(weight_decays[i]);
      const scalar_t* const gradient = gradients[i].const_data_ptr<scalar_t>() + begin;
      scalar_t *const value = parameters[i].mutable_data_ptr<scalar_t>() + begin,
                      *const m = momenta[i].mutable_data_ptr<scalar_t>() + begin;
      for (int64_t k = 0; k < size; ++k) {
        const scalar_t g = gradient[k] + decay * value[k];
        m[k] = kept * m[k] + g;
        value[k] -= rate * (nesterov ? g + kept * m[k] : m[k]);
      }
    });
  });
}

constexpr Operator<AdamCpu> kAdam{
    "adam_(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
    "Tensor(d!) step, Tensor learning_rate, float[] weight_decays, bool decoupled, Tensor? applies) -> ()"};

constexpr Operator<SgdCpu> kSgd{
    "sgd_(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] momenta, Tensor(c!) step, Tensor learning_rate, "
    "float[] weight_decays, float momentum, bool nesterov, Tensor? applies) -> ()"};

struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;
};
// Does what AdamStepAll does, but for SGD. With g = gradient + weight_decay * value, it sets m = momentum * m + g and
// value -= learning_rate * m. With nesterov, value -= learning_rate * (g + momentum * m) instead. momenta: one for
// each parameter, 0 before the first step.
void SgdStepAll(const std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients,
                const std::vector<Tensor>& momenta, Tensor& step, const Tensor& learning_rate,
                at::ArrayRef<double> weight_decays, const SgdOptions& options, const Tensor& applies) {
  kSgd(parameters, gradients, momenta, step, learning_rate, weight_decays, options.momentum, options.nesterov,
       IfDefined(applies));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kAdam.Register(library);
  kSgd.Register(library);
}

void AdamStepAll(const std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients,
                 const std::vector<Tensor>& exp_avgs, const std::vector<Tensor>& exp_avg_sqs, Tensor& step,
                 const Tensor& learning_rate, at::ArrayRef<double> weight_decays, bool decoupled,
                 const Tensor& applies) {
  kAdam(parameters, gradients, exp_avgs, exp_avg_sqs, step, learning_rate, weight_decays, decoupled,
        IfDefined(applies));
}

namespace {

// A thread should get at least this many values.
constexpr int64_t kRowGrain = 1 << 13;

void CheckRows(const char* name, const Tensor& table, const Tensor& rows, const Tensor& offsets, const Tensor& places,
               const Tensor& parts) {
  TORCH_CHECK(table.dim() == 2 && table.is_contiguous(), name, ": the table must be a contiguous [N, D], not ",
              table.sizes());
  TORCH_CHECK(parts.dim() == 2 && parts.is_contiguous() && parts.size(1) == table.size(1) &&
                  parts.scalar_type() == table.scalar_type(),
              name, ": parts must be rows of the table's kind, not ", parts.toString(), parts.sizes());
  for (const Tensor* t : {&rows, &offsets, &places}) {
    TORCH_CHECK(t->dim() == 1 && t->scalar_type() == at::kLong && t->is_contiguous(), name,
                ": rows, offsets and places must be int64 vectors, not ", t->toString(), t->sizes());
  }
  TORCH_CHECK(offsets.size(0) == rows.size(0) + 1 && places.size(0) == parts.size(0), name, ": ", rows.size(0),
              " rows with ", offsets.size(0), " offsets; ", parts.size(0), " parts with ", places.size(0), " places");
}

// Returns the segments that the kernel sums: the parts of each row.
template <class T>
SegmentRows<T> SegmentsOf(const Tensor& offsets, const Tensor& places, const Tensor& parts) {
  return {.x = parts.const_data_ptr<T>(),
          .stride = parts.size(1),
          .width = parts.size(1),
          .offsets = offsets.const_data_ptr<int64_t>(),
          .source = places.const_data_ptr<int64_t>(),
          .weights = nullptr,
          .self = nullptr,
          .scale = nullptr};
}

// Calls body(table row, segment) for each segment that is not empty.
template <class Body>
void ForRows(const Tensor& rows, const Tensor& offsets, int64_t width, const Body& body) {
  const int64_t *const row = rows.const_data_ptr<int64_t>(), *const begins = offsets.const_data_ptr<int64_t>();
  ParallelFor(0, rows.size(0), std::max<int64_t>(1, kRowGrain / std::max<int64_t>(1, width)),
              [&](int64_t begin, int64_t end) {
                for (int64_t m = begin; m < end; ++m) {
                  if (begins[m] < begins[m + 1]) body(row[m], m);
                }
              });
}

Tensor DenseGradientCpu(const Tensor& rows, const Tensor& offsets, const Tensor& places, const Tensor& parts,
                        const Tensor& /*nodes*/, int64_t table_rows) {
  Tensor out = at::zeros({table_rows, parts.size(1)}, parts.options());
  CheckRows("dense_gradient", out, rows, offsets, places, parts);
  const int64_t width = parts.size(1);
  AT_DISPATCH_FLOATING_TYPES(parts.scalar_type(), "dense_gradient", [&] {
    const auto segments = SegmentsOf<scalar_t>(offsets, places, parts);
    scalar_t* const to = out.mutable_data_ptr<scalar_t>();
    ForRows(rows, offsets, width,
            [&](int64_t row, int64_t m) { SumSegments(segments, m, m + 1, to + row * width, width); });
  });
  return out;
}

Tensor DenseGradientPlain(const Tensor& /*rows*/, const Tensor& /*offsets*/, const Tensor& /*places*/,
                          const Tensor& parts, const Tensor& nodes, int64_t table_rows) {
  return at::zeros({table_rows, parts.size(1)}, parts.options()).index_add(0, nodes, parts);
}

void SparseAdamCpu(const Tensor& table, const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& step,
                   const Tensor& learning_rate, const Tensor& rows, const Tensor& offsets, const Tensor& places,
                   const Tensor& parts, const Tensor& /*nodes*/) {
  CheckRows("sparse_adam_", table, rows, offsets, places, parts);
  for (const Tensor* moment : {&exp_avg, &exp_avg_sq}) {
    TORCH_CHECK(moment->sizes() == table.sizes() && moment->is_contiguous(), "sparse_adam_: a moment of ",
                moment->sizes(), " for a table of ", table.sizes());
  }
  const auto done = static_cast<double>(++*step.mutable_data_ptr<float>());
  // SparseAdam adds eps to the root of the moment before the bias correction.
  const double root = std::sqrt(1 - std::pow(kBeta2, done));
  const AdamUpdate update{.beta1 = kBeta1,
                          .beta2 = kBeta2,
                          .eps = kEps,
                          .learning_rate = *learning_rate.const_data_ptr<double>(),
                          .correction1 = (1 - std::pow(kBeta1, done)) / root,
                          .correction2 = 1};
  const int64_t width = table.size(1);
  AT_DISPATCH_FLOATING_TYPES(table.scalar_type(), "sparse_adam_", [&] {
    const auto segments = SegmentsOf<scalar_t>(offsets, places, parts);
    scalar_t *const values = table.mutable_data_ptr<scalar_t>(), *const m1 = exp_avg.mutable_data_ptr<scalar_t>(),
                    *const m2 = exp_avg_sq.mutable_data_ptr<scalar_t>();
    ForRows(rows, offsets, width, [&](int64_t row, int64_t m) {
      thread_local std::vector<scalar_t> gradient;
      gradient.resize(static_cast<size_t>(width));
      SumSegments(segments, m, m + 1, gradient.data(), width);
      AdamStep<scalar_t>(update, width, gradient.data(), values + row * width, m1 + row * width, m2 + row * width);
    });
  });
}

// The cost grows with the batch, not with the table. Rows repeated in padding have no parts, and get 0 added.
void SparseAdamPlain(const Tensor& table, const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& step,
                     const Tensor& learning_rate, const Tensor& rows, const Tensor& offsets, const Tensor& places,
                     const Tensor& parts, const Tensor& /*nodes*/) {
  const int64_t count = rows.size(0);
  const Tensor order = at::arange(places.size(0), offsets.options());
  // Each place belongs to the last range that begins at or before it. Places beyond all ranges are padding, and go to
  // one extra row.
  const Tensor owners = at::searchsorted(offsets, order, /*out_int32=*/false, /*right=*/true).sub(1);
  const Tensor used = at::where(owners < count, places, at::zeros({}, places.options()));
  const Tensor gradient = at::zeros({count + 1, parts.size(1)}, parts.options())
                              .index_add(0, owners, parts.index_select(0, used))
                              .slice(0, 0, count);
  const Tensor moves = (offsets.slice(0, 1) > offsets.slice(0, 0, -1)).unsqueeze(1);
  const Tensor still = at::zeros({}, table.options());
  step.add_(1);
  const auto moment = [&](const Tensor& all, const Tensor& toward, double beta) {
    const Tensor before = all.index_select(0, rows);
    const Tensor change = at::where(moves, (toward - before) * (1 - beta), still);
    all.index_add_(0, rows, change);
    return before + change;
  };
  const Tensor average = moment(exp_avg, gradient, kBeta1);
  const Tensor square = moment(exp_avg_sq, gradient * gradient, kBeta2);
  const Tensor correction1 = at::pow(kBeta1, step).neg().add(1), correction2 = at::pow(kBeta2, step).neg().add(1);
  const Tensor rate = learning_rate * correction2.sqrt() / correction1;
  const Tensor change = average / square.sqrt().add(kEps) * rate.to(table.scalar_type());
  table.index_add_(0, rows, at::where(moves, change, still).neg());
}

constexpr Operator<DenseGradientCpu> kDenseGradient{
    "dense_gradient(Tensor rows, Tensor offsets, Tensor places, Tensor parts, Tensor nodes, int table_rows) -> Tensor"};
constexpr Operator<SparseAdamCpu> kSparseAdam{
    "sparse_adam_(Tensor(a!) table, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, Tensor(d!) step, Tensor learning_rate, "
    "Tensor rows, Tensor offsets, Tensor places, Tensor parts, Tensor nodes) -> ()"};

// Makes one update of the rows that have a gradient, as torch.optim.SparseAdam. The moments of other rows stay as
// they are, and all rows share one count of steps. beta = (0.9, 0.999), eps = 1e-8. table, exp_avg, exp_avg_sq: [N,
// D], updated. step: [] float32, grows by one. learning_rate: [].
void SparseAdamStep(const Tensor& table, const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& step,
                    const Tensor& learning_rate, const RowGradient& g) {
  if (IsFused(table)) {
    kSparseAdam(table, exp_avg, exp_avg_sq, step, learning_rate, g.rows, g.offsets, g.places, g.parts, g.nodes);
  } else {
    SparseAdamPlain(table, exp_avg, exp_avg_sq, step, learning_rate, g.rows, g.offsets, g.places, g.parts, g.nodes);
  }
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kDenseGradient.Register(library);
  kSparseAdam.Register(library);
}

Tensor DenseGradient(const RowGradient& g, int64_t table_rows) {
  if (!IsFused(g.parts)) return DenseGradientPlain(g.rows, g.offsets, g.places, g.parts, g.nodes, table_rows);
  return kDenseGradient(g.rows, g.offsets, g.places, g.parts, g.nodes, table_rows);
}

namespace {

constexpr double kClipEps = 1e-6;  // same as in PyTorch

bool IsDecayed(spec::WeightDecayOf decayed, const NamedTensor& parameter) {
  switch (decayed) {
    case spec::WeightDecayOf::kAll:
      return true;
    case spec::WeightDecayOf::kMatrices:
      return parameter.value.dim() >= 2;
    case spec::WeightDecayOf::kFirstLayer:
      return parameter.name.starts_with("convs.0.");
  }
  return true;
}

}  // namespace

Optimizer::Optimizer(const spec::OptimizerOptions& options, const std::vector<NamedTensor>& parameters)
    : options_(options) {
  const auto device = parameters.at(0).value.device();
  const auto number = at::TensorOptions().device(device).dtype(at::kFloat);
  step_ = at::zeros({}, number);
  learning_rate_ =
      at::full({}, options.learning_rate, at::TensorOptions().device(device).dtype(LearningRateType(device.type())));
  for (const NamedTensor& p : parameters) {
    parameters_.push_back(p.value);
    weight_decays_.push_back(IsDecayed(options.weight_decay_of, p) ? options.weight_decay : 0);
    const auto add = [&](const char* kind, std::vector<at::Tensor>& to) {
      to.push_back(at::zeros_like(p.value, at::TensorOptions().requires_grad(false)));
      state_.push_back({kind + p.name, to.back()});
    };
    if (options.algorithm == spec::OptimizerAlgorithm::kSgd) {
      add("momentum.", momenta_);
    } else {
      add("exp_avg.", exp_avgs_);
      add("exp_avg_sq.", exp_avg_sqs_);
    }
    if (options.ema_decay > 0) add("average.", averages_);
    if (accumulates()) add("gradient_sum.", gradient_sums_);
  }
  state_.push_back({"step", step_});
  state_.push_back({"learning_rate", learning_rate_});
  if (!accumulates()) return;
  group_batches_ = at::zeros({}, number);
  ends_group_ = at::ones({}, number);
  state_.push_back({"group_batches", group_batches_});
  state_.push_back({"ends_group", ends_group_});
}

c10::ScalarType LearningRateType(c10::DeviceType device) {
  return device == c10::DeviceType::CPU ? c10::ScalarType::Double : c10::ScalarType::Float;
}

double LearningRateAt(const spec::OptimizerOptions& options, int64_t step, int64_t steps_per_epoch, int64_t epochs) {
  const int64_t warmup = options.warmup_steps, total_steps = steps_per_epoch * epochs;
  if (step < warmup) return options.learning_rate * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double done =
      total_steps <= warmup
          ? 0
          : std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(total_steps - warmup));
  switch (options.schedule) {
    case spec::Schedule::kConstant:
    case spec::Schedule::kPlateau:
      break;
    case spec::Schedule::kCosine:
      return options.learning_rate * (1 + std::cos(std::numbers::pi * done)) / 2;
    case spec::Schedule::kLinear:
      return options.learning_rate * (1 - done);
    case spec::Schedule::kStep: {
      const int64_t decays = step / std::max<int64_t>(1, steps_per_epoch) / std::max<int64_t>(1, options.decay_epochs);
      return options.learning_rate * std::pow(options.decay_factor, static_cast<double>(decays));
    }
  }
  return options.learning_rate;
}

std::vector<at::Tensor> ClipGradientNorm(const std::vector<at::Tensor>& gradients, double max_norm) {
  const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2)), 2);
  return at::_foreach_mul(gradients, (norm + kClipEps).reciprocal().mul(max_norm).clamp_max(1));
}

void Optimizer::CheckGradients(std::vector<at::Tensor>& gradients) const {
  TORCH_CHECK(gradients.size() == parameters_.size(), "Optimizer::Step: ", gradients.size(), " gradients for ",
              parameters_.size(), " parameters");
  for (size_t i = 0; i < gradients.size(); ++i) {
    TORCH_CHECK(gradients[i].defined() && gradients[i].sizes() == parameters_[i].sizes(),
                "Optimizer::Step: a parameter of shape ", parameters_[i].sizes(), " has no gradient of its shape");
    // The kernels walk gradient and parameter with one index.
    if (gradients[i].strides() != parameters_[i].strides()) gradients[i] = gradients[i].contiguous();
  }
}

void Optimizer::Step(std::vector<at::Tensor> gradients) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK(options_.algorithm != spec::OptimizerAlgorithm::kSparseAdam,
              "Optimizer::Step: sparse_adam takes gradients of rows");
  CheckGradients(gradients);
  if (accumulates()) gradients = AddToGroup(gradients);
  Apply(std::move(gradients));
}

void Optimizer::Apply(std::vector<at::Tensor> gradients) {
  if (options_.max_grad_norm > 0) gradients = ClipGradientNorm(gradients, options_.max_grad_norm);
  Update(gradients);
  if (options_.ema_decay > 0) Average();
  if (accumulates()) EndGroup();
}

void Optimizer::SkipBatch() {
  if (!accumulates() || ends_group_.item().toDouble() == 0 || group_batches_.item().toDouble() == 0) return;
  const at::NoGradGuard no_grad;
  Apply(MeanOfGroup());
}

void Optimizer::DropGroup() {
  const at::NoGradGuard no_grad;
  if (accumulates()) EndGroup();
}

void Optimizer::StepRows(const RowGradient& gradient) {
  TORCH_CHECK(parameters_.size() == 1, "Optimizer::StepRows: one table is expected, not ", parameters_.size(),
              " parameters");
  const at::NoGradGuard no_grad;
  const at::Tensor& table = parameters_.front();
  if (options_.algorithm == spec::OptimizerAlgorithm::kSparseAdam) {
    SparseAdamStep(table, exp_avgs_.front(), exp_avg_sqs_.front(), step_, learning_rate_, gradient);
  } else {
    Step({DenseGradient(gradient, table.size(0))});
  }
}

std::vector<at::Tensor> Optimizer::AddToGroup(const std::vector<at::Tensor>& gradients) {
  at::_foreach_add_(gradient_sums_, gradients);
  group_batches_.add_(1);
  return MeanOfGroup();
}

std::vector<at::Tensor> Optimizer::MeanOfGroup() const {
  return at::_foreach_mul(gradient_sums_, group_batches_.reciprocal());
}

// A captured step allows no decision on the host. So a new group starts from the sums of the old one, multiplied by
// 0.
void Optimizer::EndGroup() {
  const at::Tensor goes_on = ends_group_.neg().add(1);
  at::_foreach_mul_(gradient_sums_, goes_on);
  group_batches_.mul_(goes_on);
}

void Optimizer::Update(const std::vector<at::Tensor>& gradients) {
  if (!step_.is_cpu()) {
    UpdateElsewhere(gradients);
  } else if (options_.algorithm == spec::OptimizerAlgorithm::kSgd) {
    SgdStepAll(parameters_, gradients, momenta_, step_, learning_rate_, weight_decays_,
               {.momentum = options_.momentum, .nesterov = options_.nesterov}, ends_group_);
  } else {
    AdamStepAll(parameters_, gradients, exp_avgs_, exp_avg_sqs_, step_, learning_rate_, weight_decays_,
                options_.algorithm == spec::OptimizerAlgorithm::kAdamW, ends_group_);
  }
}

void Optimizer::UpdateElsewhere(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> changed, before;
  if (accumulates()) {
    for (const auto* part : {&parameters_, &exp_avgs_, &exp_avg_sqs_, &momenta_}) {
      changed.insert(changed.end(), part->begin(), part->end());
    }
    changed.push_back(step_);
    for (const at::Tensor& tensor : changed) before.push_back(tensor.clone());
  }
  step_.add_(1);
  // The kernels take one weight decay for all parameters.
  std::vector<size_t> decayed, others;
  for (size_t i = 0; i < parameters_.size(); ++i) (weight_decays_[i] > 0 ? decayed : others).push_back(i);
  if (!decayed.empty()) UpdateByTorch(gradients, decayed, options_.weight_decay);
  if (!others.empty()) UpdateByTorch(gradients, others, 0);
  if (!accumulates()) return;
  // If the group goes on, the whole update is undone.
  const at::Tensor goes_on = ends_group_.neg().add(1);
  for (size_t i = 0; i < changed.size(); ++i) changed[i].lerp_(before[i], goes_on);
}

void Optimizer::UpdateByTorch(const std::vector<at::Tensor>& gradients, const std::vector<size_t>& places,
                              double weight_decay) {
  const auto pick = [&places](const std::vector<at::Tensor>& from) {
    std::vector<at::Tensor> picked;
    picked.reserve(places.size());
    for (const size_t place : places) picked.push_back(from[place]);
    return picked;
  };
  const std::vector<at::Tensor> values = pick(parameters_), grads = pick(gradients);
  if (options_.algorithm == spec::OptimizerAlgorithm::kSgd) {
    const std::vector<at::Tensor> momenta = options_.momentum > 0 ? pick(momenta_) : std::vector<at::Tensor>();
    // Momenta begin at 0, so the first step needs no special case.
    at::_fused_sgd_(values, grads, momenta, weight_decay, options_.momentum, learning_rate_,
                    /*dampening=*/0, options_.nesterov, /*maximize=*/false, /*is_first_step=*/false);
    return;
  }
  // The kernels of Adam and AdamW are overloaded, and have equal signatures.
  using Kernel = void(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                      const at::Tensor&, double, double, double, double, bool, bool, const std::optional<at::Tensor>&,
                      const std::optional<at::Tensor>&);
  Kernel* const update = options_.algorithm == spec::OptimizerAlgorithm::kAdamW
                             ? static_cast<Kernel*>(&at::_fused_adamw_)
                             : static_cast<Kernel*>(&at::_fused_adam_);
  // The kernels take a step count for each parameter, and only read it. So one tensor serves all parameters.
  const std::vector<at::Tensor> steps(places.size(), step_);
  update(values, grads, pick(exp_avgs_), pick(exp_avg_sqs_), {}, steps, learning_rate_, kBeta1, kBeta2, weight_decay,
         kEps, /*amsgrad=*/false, /*maximize=*/false, std::nullopt, std::nullopt);
}

void Optimizer::Average() {
  const auto as_number = [this](const at::Tensor& condition) { return condition.to(step_.scalar_type()); };
  // `part` is 1 for the first update, so that this update sets the averages to the new weights.
  at::Tensor part = as_number(step_.gt(1.5)) * (1 - options_.ema_decay) + as_number(step_.lt(1.5));
  if (accumulates()) part = part * ends_group_;
  part = part.to(averages_.front().scalar_type());
  for (size_t i = 0; i < averages_.size(); ++i) averages_[i].lerp_(parameters_[i], part);
}

void Optimizer::SetEndsGroup(bool ends) {
  if (accumulates()) ends_group_.fill_(ends ? 1 : 0);
}

void Optimizer::MakeUpdatesProportional() {
  // Takes 1e-3 for the usual size of a gradient. An update is then learning rate * gradient / 1e-3, up to the bias
  // correction of the first steps.
  constexpr double kUsualSquare = 1e-6;
  const at::NoGradGuard no_grad;
  for (const at::Tensor& square : exp_avg_sqs_) square.fill_(kUsualSquare);
}

void Optimizer::SetLearningRate(double learning_rate) { learning_rate_.fill_(learning_rate); }

double Optimizer::learning_rate() const { return learning_rate_.item().toDouble(); }

}  // namespace permafrost::nn
