#include "nn/kernels/edge_region_tile.h"

#include <algorithm>

namespace permafrost::nn {
namespace {

// The size of a tile's registers, in bytes. The registers fit an L2 cache, but are so large that the time to start a
// step hardly counts.
constexpr int64_t kTileBytes = 128 << 10;
// The number of values in a block. A block and the blocks of its operands fit an L1 cache together.
constexpr int64_t kBlockValues = 1024;

}  // namespace

template <class T>
RegionScratch<T>& RegionScratch<T>::OfThread() {
  thread_local RegionScratch scratch;
  return scratch;
}

template <class T>
int64_t OperandBlocks<T>::BlockSize(const RegionPlan& plan) {
  return std::max<int64_t>(kBlockValues, plan.widest);
}
template <class T>
int64_t OperandBlocks<T>::BlockRows(int64_t width) {
  return std::max<int64_t>(1, kBlockValues / width);
}

template <class T>
OperandBlocks<T>::OperandBlocks(const RegionPlan& plan, const RegionStep& step, std::span<const RegionRows<T>> values,
                                int64_t rows, T* blocks)
    : width_(step.width), block_rows_(std::max<int64_t>(1, rows)) {
  const std::array<int32_t, 3> of = step.operands();
  // A kernel takes one narrow operand beside a wide one.
  const auto is_wide = [&](int32_t o) { return plan.region.steps[static_cast<size_t>(o)].width == width_; };
  for (size_t k = 0; k < 3; ++k) {
    if (of[k] == -1) continue;
    const RegionStep& from = plan.region.steps[static_cast<size_t>(of[k])];
    Operand& operand = operands_[k];
    operand.from = values[static_cast<size_t>(plan.root[static_cast<size_t>(of[k])])];
    operand.width = from.width;
    const bool is_shared = from.level != step.level;
    if (operand.from.base == nullptr) continue;
    T* const block = blocks + static_cast<int64_t>(k) * BlockSize(plan);
    if (is_shared) {
      const bool narrow = width_ < kLeastViewWidth && rows > 1;
      if (narrow || operand.width != width_) {
        RepeatValues<T>(operand.from.base, operand.width, width_ / operand.width, block);
        operand.from.base = block;
      }
      operand.from.stride = 0;  // every row is the same
      if (!narrow) continue;
      // Contiguous values are processed faster than short rows.
      block_rows_ = std::min(block_rows_, BlockRows(width_));
      for (int64_t r = 1; r < BlockRows(width_); ++r) std::copy_n(block, width_, block + r * width_);
      operand.from = {};
      operand.block = block;
    } else if (operand.width != width_ && TakesWidth(step, operand.width) && (k == 1 || is_wide(of[1]))) {
      operand.from.repeat = width_ / operand.width;
    } else if (operand.width != width_) {
      operand.block = block;
      block_rows_ = std::min(block_rows_, BlockRows(width_));
    }
  }
}

template <class T>
RegionRows<T> OperandBlocks<T>::OperandAt(size_t k, int64_t first, int64_t rows) {
  const Operand& operand = operands_[k];
  const RegionRows<T> from = operand.from.From(first);
  if (operand.block == nullptr) return from;
  if (from.base == nullptr) return {operand.block, nullptr, width_, 1};
  RepeatValues<T>(from.base, rows * operand.width, width_ / operand.width, operand.block);
  return {operand.block, nullptr, width_, 1};
}

template <class T>
RegionValues<T> OperandBlocks<T>::At(int64_t first, int64_t rows) {
  return {OperandAt(0, first, rows), OperandAt(1, first, rows), OperandAt(2, first, rows)};
}

template <class T>
RegionTile<T>::RegionTile(const RegionPlan& plan, const RegionPass& pass, const RegionRegisters& registers,
                          const RegionInputs<T>& in, std::span<T* const> outputs)
    : plan_(plan),
      pass_(pass),
      registers_(registers),
      in_(in),
      outputs_(outputs),
      output_of_(plan.region.steps.size(), -1),
      values_(plan.region.steps.size()),
      has_rows_(static_cast<size_t>(plan.region.num_indices) + 1, 0),
      list_of_(has_rows_.size(), -1),
      scratch_(RegionScratch<T>::OfThread()),
      blocks_(scratch_.blocks.Get(4 * OperandBlocks<T>::BlockSize(plan))) {
  for (size_t j = 0; j < outputs_.size(); ++j) {
    const auto r = static_cast<size_t>(plan_.root[static_cast<size_t>(plan_.region.outputs[j])]);
    // The rows of an input are not computed: WriteOutputs copies them.
    const bool is_computed = plan_.region.steps[r].input == -1;
    if (is_computed && output_of_[r] == -1) output_of_[r] = static_cast<int32_t>(j);
  }
  list_of_.back() = lists_++;
  for (size_t i = 0; i < values_.size(); ++i) {
    const RegionStep& s = plan_.region.steps[i];
    if (!plan_.is_view[i] || s.op != RegionOp::kGather) continue;
    int32_t& list = list_of_[static_cast<size_t>(s.index)];
    if (list == -1) list = lists_++;
  }
  T* const shared = scratch_.shared.Get(plan_.shared_columns);
  for (size_t i = 0; i < values_.size(); ++i) {
    const RegionStep& s = plan_.region.steps[i];
    if (s.op == RegionOp::kShared) values_[i] = {in_.inputs[static_cast<size_t>(s.input)], nullptr, s.width};
  }
  for (const int32_t i : plan_.shared_steps) {
    const auto at = static_cast<size_t>(i);
    ComputeStep(at, shared + plan_.shared_place[at]);
  }
}

template <class T>
int64_t RegionTile<T>::Rows(RegionLevel level) const {
  return level == RegionLevel::kEdge ? edges_ : level == RegionLevel::kTarget ? segments_.targets : 1;
}

template <class T>
int64_t RegionTile<T>::Take(int64_t first, int64_t end) {
  const int32_t* const offsets = in_.offsets;
  constexpr auto kTileValues = static_cast<int64_t>(kTileBytes / sizeof(T));
  int64_t last = first + 1;
  const auto edges_to = [&](int64_t next) -> int64_t {
    return offsets == nullptr ? 0 : offsets[next] - offsets[first];
  };
  const auto size = [&](int64_t next) {
    const int64_t edges = edges_to(next);
    return registers_.Size(next - first, edges) + edges * lists_ * static_cast<int64_t>(sizeof(int64_t) / sizeof(T));
  };
  while (last < end && size(last + 1) <= kTileValues) ++last;
  first_ = first;
  segments_ = {offsets == nullptr ? nullptr : offsets + first, last - first};
  edges_ = edges_to(last);
  places_ = offsets == nullptr ? nullptr : in_.places + offsets[first];
  in_order_ = true;
  for (int64_t j = 1; j < edges_ && in_order_; ++j) in_order_ = places_[j] == places_[j - 1] + 1;
  std::ranges::fill(has_rows_, 0);
  memory_ = scratch_.tile.Get(registers_.Size(segments_.targets, edges_));
  return last;
}

template <class T>
T* RegionTile<T>::Place(size_t i) const {
  const RegionStep& s = plan_.region.steps[i];
  if (output_of_[i] != -1 && (s.level == RegionLevel::kTarget || in_order_)) {
    T* const output = outputs_[static_cast<size_t>(output_of_[i])];
    return output + (s.level == RegionLevel::kTarget ? first_ : first_place()) * s.width;
  }
  return pass_.register_of[i] == -1 ? nullptr : Register(pass_.register_of[i]);
}

template <class T>
void RegionTile<T>::Compute() {
  for (const int32_t i : pass_.steps) ComputeStep(static_cast<size_t>(i), Place(static_cast<size_t>(i)));
  WriteOutputs();
}

template <class T>
const int64_t* RegionTile<T>::RowsOf(size_t index) {
  if (in_order_ && index + 1 < has_rows_.size()) return in_.indices[index] + first_place();
  // Every call requests memory for all lists. So only the first call of a tile may move the lists.
  int64_t* const rows = scratch_.rows.Get(lists_ * edges_) + list_of_[index] * edges_;
  if (has_rows_[index]) return rows;
  has_rows_[index] = 1;
  if (index + 1 < has_rows_.size()) {
    const int64_t* const named = in_.indices[index];
    for (int64_t e = 0; e < edges_; ++e) rows[e] = named[places_[e]];
  } else {
    for (int64_t t = 0; t < segments_.targets; ++t) {
      std::fill(rows + segments_.offsets[t] - segments_.offsets[0],
                rows + segments_.offsets[t + 1] - segments_.offsets[0], t);
    }
  }
  return rows;
}

template <class T>
RegionRows<T> RegionTile<T>::View(const RegionStep& s) {
  if (s.op == RegionOp::kGather) {
    return {in_.inputs[static_cast<size_t>(s.input)], RowsOf(static_cast<size_t>(s.index)), s.width};
  }
  return {values_[static_cast<size_t>(plan_.root[static_cast<size_t>(s.a)])].base, TargetRows(), s.width};
}

template <class T>
void RegionTile<T>::ComputeStep(size_t i, T* out) {
  const RegionStep& s = plan_.region.steps[i];
  if (plan_.is_view[i]) {
    values_[i] = View(s);
    return;
  }
  const T* const input = s.input == -1 ? nullptr : in_.inputs[static_cast<size_t>(s.input)];
  const RegionRows<T> operand =
      s.a == -1 ? RegionRows<T>() : values_[static_cast<size_t>(plan_.root[static_cast<size_t>(s.a)])];
  const T* const a = operand.base;
  values_[i] = {out, nullptr, s.width};
  switch (s.op) {
    case RegionOp::kShared:
      values_[i].base = input;
      break;
    case RegionOp::kTarget:
      values_[i].stride = in_.strides[static_cast<size_t>(s.input)];
      values_[i].base = input + first_ * values_[i].stride;
      break;
    case RegionOp::kEdge:
      if (in_order_) {
        values_[i].base = input + first_place() * s.width;
        break;
      }
      GatherRows<T>(input, s.width, nullptr, places_, edges_, out);
      break;
    case RegionOp::kGather:
      GatherRows<T>(input, s.width, in_.indices[static_cast<size_t>(s.index)], places_, edges_, out);
      break;
    case RegionOp::kConstant:
      *out = static_cast<T>(s.x);
      break;
    case RegionOp::kExpand:
      ExpandTargets<T>(segments_, s.width, a, nullptr, out);
      break;
    case RegionOp::kSum:
      if (pass_.summed[i].step != -1) {
        SumComputed(pass_.summed[i], out);
        break;
      }
      SumEdges<T>(segments_, s.width, a, operand.rows, nullptr, out);
      break;
    case RegionOp::kMax:
    case RegionOp::kMin:
      ExtremeOfEdges<T>(segments_, s.width, s.op == RegionOp::kMax, a, out);
      break;
    case RegionOp::kCount:
      for (int64_t t = 0; t < segments_.targets; ++t) {
        out[t] = static_cast<T>(segments_.offsets[t + 1] - segments_.offsets[t]);
      }
      break;
    case RegionOp::kRowSum:
      SumGroups<T>(a, Rows(s.level) * s.width, s.group, nullptr, out);
      break;
    default:
      ComputeByValue(s, out);
  }
}

template <class T>
void RegionTile<T>::ComputeByValue(const RegionStep& s, T* out) {
  const int64_t rows = Rows(s.level);
  OperandBlocks<T> operands(plan_, s, values_, rows, blocks_);
  for (int64_t r = 0; r < rows; r += operands.block_rows()) {
    const int64_t count = std::min(operands.block_rows(), rows - r);
    ComputeValues<T>(s, operands.At(r, count), count, out + r * s.width);
  }
}

template <class T>
void RegionTile<T>::SumComputed(const SummedValue& value, T* out) const {
  const RegionStep& s = plan_.region.steps[static_cast<size_t>(value.step)];
  const auto rows_of = [&](int32_t o) {
    const RegionStep& from = plan_.region.steps[static_cast<size_t>(o)];
    RegionRows<T> rows = values_[static_cast<size_t>(plan_.root[static_cast<size_t>(o)])];
    rows.repeat = s.width / from.width;
    if (from.level != s.level) rows.stride = 0;  // every row is the shared one
    return rows;
  };
  RegionValues<T> in{rows_of(s.a), rows_of(s.b), {}};
  if (value.passed != -1) in.c = values_[static_cast<size_t>(value.passed)];
  SumValues<T>(segments_, s, value.passed != -1 ? SumOf::kPassed : value.relu ? SumOf::kRelu : SumOf::kValue, in, out);
}

template <class T>
void RegionTile<T>::WriteOutputs() const {
  for (size_t j = 0; j < outputs_.size(); ++j) {
    const auto o = static_cast<size_t>(plan_.region.outputs[j]);
    const auto r = static_cast<size_t>(plan_.root[o]);
    const RegionStep& s = plan_.region.steps[r];
    const bool is_target = s.level == RegionLevel::kTarget;
    if (output_of_[r] == static_cast<int32_t>(j) && (is_target || in_order_)) continue;  // already written there
    if (is_target) {
      std::copy_n(values_[r].base, segments_.targets * s.width, outputs_[j] + first_ * s.width);
    } else {
      ScatterRows<T>(values_[r].base, s.width, places_, edges_, outputs_[j]);
    }
  }
}

template struct RegionScratch<float>;
template struct RegionScratch<double>;
template class OperandBlocks<float>;
template class OperandBlocks<double>;
template class RegionTile<float>;
template class RegionTile<double>;

}  // namespace permafrost::nn
