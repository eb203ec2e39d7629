#include "nn/kernels/edge_region_run.h"

#include <algorithm>
#include <vector>

#include "nn/kernels/edge_region_tile.h"

namespace permafrost::nn {
namespace {

// Between calls, a thread keeps at most this many bytes for tiles, and at most this many more for lists of rows. Only
// very large tiles need more.
constexpr int64_t kKeptBytes = 16 << 20;

template <class T>
void FreeLarge() {
  RegionScratch<T>& scratch = RegionScratch<T>::OfThread();
  scratch.tile.FreeIfAbove(kKeptBytes / static_cast<int64_t>(sizeof(T)));
  scratch.rows.FreeIfAbove(kKeptBytes / static_cast<int64_t>(sizeof(int64_t)));
}

// The adjoints of a region's steps, for one tile after another.
template <class T>
class TileGradient {
 public:
  TileGradient(const RegionPlan& plan, const RegionGradientPlan& gradient, const RegionInputs<T>& in,
               const RegionGradients<T>& to)
      : plan_(plan),
        steps_(plan.region.steps),
        gradient_(gradient),
        in_(in),
        to_(to),
        tile_(plan, gradient.values, gradient.registers, in, {}),
        adjoints_(steps_.size()),
        shared_(static_cast<size_t>(plan.shared_columns), T(0)),
        sums_(static_cast<size_t>(3 * plan.widest)) {
    for (size_t i = 0; i < steps_.size(); ++i) {
      const RegionStep& s = steps_[i];
      if (s.input == -1 || plan_.home[i] != static_cast<int32_t>(i)) continue;
      const auto input = static_cast<size_t>(s.input);
      if (to_.inputs[input] == nullptr) continue;
      const int64_t rows = s.op == RegionOp::kShared ? 1 : s.op == RegionOp::kGather ? to_.tables[input] : 0;
      std::fill_n(to_.inputs[input], rows * s.width, T(0));
    }
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (gradient_.active[i] && steps_[i].level == RegionLevel::kShared) adjoints_[i] = FlatRows(i, Own(i));
    }
  }

  void Run(int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end;) {
      t = tile_.Take(t, end);
      tile_.Compute();
      for (size_t i = 0; i < steps_.size(); ++i) {
        if (steps_[i].level != RegionLevel::kShared) adjoints_[i] = {};
      }
      TakeOutputs();
      for (size_t i = steps_.size(); i-- > 0;) {
        if (gradient_.active[i] && steps_[i].level != RegionLevel::kShared) PassOn(i);
      }
    }
    for (size_t i = steps_.size(); i-- > 0;) {
      if (gradient_.active[i] && steps_[i].level == RegionLevel::kShared) PassOn(i);
    }
  }

 private:
  // Tells where an addend goes: `to` gets base + the addend, or the addend alone if base is null.
  struct Sum {
    const T* base;
    T* to;
  };

  bool IsByEdge(const RegionStep& s) const {
    return s.op == RegionOp::kEdge || (s.op == RegionOp::kGather && to_.tables[static_cast<size_t>(s.input)] == 0);
  }

  // Returns memory for the adjoint of step i. No other step writes to this memory. If the step reads an input, and
  // the tile's rows of the input's gradient are contiguous, the memory is these rows.
  T* Own(size_t i) {
    const RegionStep& s = steps_[i];
    if (s.input != -1) {
      T* const to = to_.inputs[static_cast<size_t>(s.input)];
      if (s.op == RegionOp::kShared) return to;
      if (s.op == RegionOp::kTarget) return to + tile_.first() * s.width;
      if (IsByEdge(s) && tile_.in_order()) return to + tile_.first_place() * s.width;
    }
    if (s.level == RegionLevel::kShared) return shared_.data() + plan_.shared_place[i];
    return tile_.Register(gradient_.adjoint_of[i]);
  }

  RegionRows<T> FlatRows(size_t i, const T* values) const { return {values, nullptr, steps_[i].width}; }

  Sum Add(size_t i) {
    const Sum sum{Flat(i), Own(i)};
    adjoints_[i] = FlatRows(i, sum.to);
    return sum;
  }
  // Adds values to the adjoint of step i. The values must stay unchanged until the tile is done. If values.rows is
  // set, it selects rows of targets.
  void AddUnchanged(size_t i, const RegionRows<T>& values) {
    if (adjoints_[i].base == nullptr) {
      adjoints_[i] = values;
      return;
    }
    const Sum sum = Add(i);
    const int64_t width = steps_[i].width;
    if (values.rows != nullptr) return ExpandTargets<T>(tile_.segments(), width, values.base, sum.base, sum.to);
    AddValues<T>(sum.base, values.base, tile_.Rows(steps_[i].level) * width, sum.to);
  }
  // Makes the rows of the step's adjoint contiguous and returns them. Returns null if the step has no adjoint yet.
  const T* Flat(size_t i) {
    RegionRows<T>& adjoint = adjoints_[i];
    if (adjoint.rows == nullptr) return adjoint.base;
    T* const own = Own(i);
    ExpandTargets<T>(tile_.segments(), steps_[i].width, adjoint.base, nullptr, own);
    adjoint = FlatRows(i, own);
    return own;
  }

  void TakeOutputs() {
    for (size_t j = 0; j < plan_.region.outputs.size(); ++j) {
      const auto i = static_cast<size_t>(plan_.home[static_cast<size_t>(plan_.region.outputs[j])]);
      const T* const given = to_.outputs[j];
      if (given == nullptr || !gradient_.active[i]) continue;
      const RegionStep& s = steps_[i];
      if (s.level == RegionLevel::kTarget) {
        AddUnchanged(i, FlatRows(i, given + tile_.first() * s.width));
      } else if (tile_.in_order()) {
        AddUnchanged(i, FlatRows(i, given + tile_.first_place() * s.width));
      } else {
        const int64_t edges = tile_.Rows(RegionLevel::kEdge);
        const Sum sum = Add(i);
        if (sum.base == nullptr) {
          GatherRows<T>(given, s.width, nullptr, tile_.places(), edges, sum.to);
        } else {
          for (int64_t e = 0; e < edges; ++e)
            AddValues<T>(sum.base + e * s.width, given + tile_.places()[e] * s.width, s.width, sum.to + e * s.width);
        }
      }
    }
  }

  // Returns the step that collects operand k's gradient; -1 if the gradient is not wanted.
  int32_t Receiver(const RegionStep& s, int k) const {
    if (!PassesGradient(s.op, k)) return -1;
    const int32_t home = plan_.home[static_cast<size_t>(s.operands()[static_cast<size_t>(k)])];
    return gradient_.active[static_cast<size_t>(home)] ? home : -1;
  }

  // Passes the adjoint of step i, once it is complete, to the step's operands or into the gradient of an input.
  void PassOn(size_t i) {
    const RegionStep& s = steps_[i];
    if (TraitsOf(s.op).by_value) return PassByValue(i);
    const T* const g = Flat(i);
    if (s.input != -1) return WriteInput(i, g);
    const int32_t receiver = Receiver(s, 0);
    if (receiver == -1) return;
    const auto a = static_cast<size_t>(receiver);
    // The receiver reads the targets' rows in place. The rows are copied only if another adjoint is added to them.
    if (s.op == RegionOp::kSum && s.width >= kLeastViewWidth) return AddUnchanged(a, {g, tile_.TargetRows(), s.width});
    const Sum sum = Add(a);
    const RegionSegments& segments = tile_.segments();
    switch (s.op) {
      case RegionOp::kExpand:
        return SumEdges<T>(segments, s.width, g, nullptr, sum.base, sum.to);
      case RegionOp::kSum:
        return ExpandTargets<T>(segments, s.width, g, sum.base, sum.to);
      case RegionOp::kMax:
      case RegionOp::kMin:
        return ExtremeGradient<T>(segments, s.width, Value(s.a), tile_.value(i), g, sum.base, sum.to);
      case RegionOp::kRowSum:
        return PassRowSum(s, g, sum);
      default:
        return;
    }
  }

  const T* Value(int32_t step) const { return tile_.value(static_cast<size_t>(plan_.root[static_cast<size_t>(step)])); }

  void WriteInput(size_t i, const T* g) {
    const RegionStep& s = steps_[i];
    T* const to = to_.inputs[static_cast<size_t>(s.input)];
    const int64_t rows = tile_.Rows(s.level);
    if (s.op == RegionOp::kGather && !IsByEdge(s)) {
      AddToTable<T>(g, s.width, in_.indices[static_cast<size_t>(s.index)], tile_.places(), rows, to);
    } else if (IsByEdge(s) && !tile_.in_order()) {
      ScatterRows<T>(g, s.width, tile_.places(), rows, to);
    } else if (T* const own = Own(i); own != g) {
      std::copy_n(g, rows * s.width, own);
    }
  }

  void PassRowSum(const RegionStep& s, const T* g, const Sum& sum) {
    const int64_t rows = tile_.Rows(s.level), width = int64_t{s.width} * s.group;
    if (sum.base == nullptr) return RepeatValues<T>(g, rows * s.width, s.group, sum.to);
    const int64_t block = OperandBlocks<T>::BlockRows(width);
    for (int64_t r = 0; r < rows; r += block) {
      const int64_t count = std::min(block, rows - r);
      RepeatValues<T>(g + r * s.width, count * s.width, s.group, Spare());
      AddValues<T>(sum.base + r * width, Spare(), count * width, sum.to + r * width);
    }
  }

  // Returns a block that holds no operand.
  T* Spare() const { return tile_.blocks() + 3 * OperandBlocks<T>::BlockSize(plan_); }

  struct Part {
    int k;
    int64_t width;
    bool is_shared;
    Sum sum;
  };

  void PassByValue(size_t i) {
    const RegionStep& s = steps_[i];
    const RegionRows<T> g = adjoints_[i];
    const T* const y = tile_.value(i);
    const int64_t rows = tile_.Rows(s.level), width = s.width;
    Part parts[3];
    int count = 0;
    for (int k = 0; k < TraitsOf(s.op).operands; ++k) {
      const int32_t receiver = Receiver(s, k);
      if (receiver == -1) continue;
      const auto o = static_cast<size_t>(receiver);
      const bool is_shared = steps_[o].level != s.level;
      if (!is_shared && steps_[o].width == width && PassesAdjointUnchanged(s, k)) {
        AddUnchanged(o, g);
        continue;
      }
      parts[count++] = {k, steps_[o].width, is_shared, Add(o)};
      if (is_shared) std::fill_n(RowSum(k), width, T(0));
    }
    if (count == 0) return;
    OperandBlocks<T> operands(plan_, s, tile_.values(), rows, tile_.blocks());
    const int64_t block = std::min(operands.block_rows(), OperandBlocks<T>::BlockRows(width));
    for (int64_t r = 0; r < rows; r += block) {
      const int64_t n = std::min(block, rows - r);
      const RegionValues<T> in = operands.At(r, n);
      for (int p = 0; p < count; ++p) {
        AddPart(s, parts[p], in, y == nullptr ? nullptr : y + r * width, g.From(r), r, n);
      }
    }
    for (int p = 0; p < count; ++p) {
      const Part& part = parts[p];
      if (part.is_shared) {
        SumGroups<T>(RowSum(part.k), part.width, width / part.width, part.sum.base, part.sum.to);
      }
    }
  }

  // Operand k is a shared step. Returns memory for its gradient, as wide as the step that reads it.
  T* RowSum(int k) { return sums_.data() + static_cast<int64_t>(k) * plan_.widest; }

  // Adds the gradient from rows [r, r + n) of the step. y and g begin at the values and the adjoint of row r.
  void AddPart(const RegionStep& s, const Part& part, const RegionValues<T>& in, const T* y, const RegionRows<T>& g,
               int64_t r, int64_t n) {
    const int64_t at = r * part.width;
    const T* const base = part.sum.base == nullptr || part.is_shared ? nullptr : part.sum.base + at;
    const bool is_whole = !part.is_shared && part.width == s.width;
    T* const to = is_whole && base == nullptr ? part.sum.to + at : Spare();
    ValueGradient<T>(s, part.k, in, y, g, n, to);
    if (part.is_shared) {
      AddToRow<T>(to, n, s.width, RowSum(part.k));
    } else if (!is_whole) {
      SumGroups<T>(to, n * part.width, s.width / part.width, base, part.sum.to + at);
    } else if (base != nullptr) {
      AddValues<T>(base, to, n * s.width, part.sum.to + at);
    }
  }

  const RegionPlan& plan_;
  const std::vector<RegionStep>& steps_;
  const RegionGradientPlan& gradient_;
  const RegionInputs<T>& in_;
  const RegionGradients<T>& to_;
  RegionTile<T> tile_;
  std::vector<RegionRows<T>> adjoints_;  // for this tile; base null: none yet
  std::vector<T> shared_;                // adjoints of shared steps, summed over all tiles
  std::vector<T> sums_;
};

}  // namespace

template <class T>
void RunRegion(const RegionPlan& plan, const RegionInputs<T>& in, int64_t begin, int64_t end,
               std::span<T* const> outputs) {
  RegionTile<T> tile(plan, plan.forward, plan.registers, in, outputs);
  for (int64_t t = begin; t < end;) {
    t = tile.Take(t, end);
    tile.Compute();
  }
  FreeLarge<T>();
}

template <class T>
void RunRegionGradient(const RegionPlan& plan, const RegionGradientPlan& gradient, const RegionInputs<T>& in,
                       int64_t begin, int64_t end, const RegionGradients<T>& to) {
  TileGradient<T>(plan, gradient, in, to).Run(begin, end);
  FreeLarge<T>();
}

template void RunRegion<float>(const RegionPlan&, const RegionInputs<float>&, int64_t, int64_t,
                               std::span<float* const>);
template void RunRegion<double>(const RegionPlan&, const RegionInputs<double>&, int64_t, int64_t,
                                std::span<double* const>);
template void RunRegionGradient<float>(const RegionPlan&, const RegionGradientPlan&, const RegionInputs<float>&,
                                       int64_t, int64_t, const RegionGradients<float>&);
template void RunRegionGradient<double>(const RegionPlan&, const RegionGradientPlan&, const RegionInputs<double>&,
                                        int64_t, int64_t, const RegionGradients<double>&);

}  // namespace permafrost::nn
