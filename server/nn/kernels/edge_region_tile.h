// The values of a region's steps for one tile: a run of targets with all of their edges.
// Threads: one an object.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nn/kernels/edge_region_plan.h"
#include "nn/kernels/edge_region_rows.h"
#include "nn/kernels/edge_region_run.h"

namespace permafrost::nn {

// An uninitialized array that grows, and loses its values when it does.
template <class T>
class RegionMemory {
 public:
  T* Get(int64_t size) {
    if (size > size_) {
      data_.reset();  // before the larger one is there
      data_ = std::make_unique_for_overwrite<T[]>(static_cast<size_t>(size));
      size_ = size;
    }
    return data_.get();
  }
  void FreeIfAbove(int64_t size) {
    if (size_ <= size) return;
    data_.reset();
    size_ = 0;
  }

 private:
  std::unique_ptr<T[]> data_;
  int64_t size_ = 0;
};

// Memory that a thread keeps between calls.
template <class T>
struct RegionScratch {
  RegionMemory<T> tile, blocks, shared;
  RegionMemory<int64_t> rows;
  static RegionScratch& OfThread();
};

// The operands of a step that works value by value, block by block of its rows, each as wide as the step.
template <class T>
class OperandBlocks {
 public:
  // values: of each step, with base null where they were not computed. blocks: 3 blocks of BlockSize() values.
  OperandBlocks(const RegionPlan& plan, const RegionStep& step, std::span<const RegionRows<T>> values, int64_t rows,
                T* blocks);
  // Rows of a block. All of them, where no operand's values have to be repeated.
  int64_t block_rows() const { return block_rows_; }
  // Rows [first, first + rows) of the step, where `first` begins a block.
  RegionValues<T> At(int64_t first, int64_t rows);

  static int64_t BlockSize(const RegionPlan& plan);
  static int64_t BlockRows(int64_t width);

 private:
  RegionRows<T> OperandAt(size_t k, int64_t first, int64_t rows);

  struct Operand {
    RegionRows<T> from;  // base null: the block holds the same row again and again
    int64_t width = 1;
    T* block = nullptr;  // not null: holds rows of `width` values repeated to the step's width
  };
  Operand operands_[3];
  int64_t width_, block_rows_;
};

template <class T>
class RegionTile {
 public:
  // Computes the shared steps. outputs: as of RunRegion; empty: none.
  RegionTile(const RegionPlan& plan, const RegionPass& pass, const RegionRegisters& registers,
             const RegionInputs<T>& in, std::span<T* const> outputs);
  // Makes a tile of as many targets from `first` as fit, at least one and none from `end` on. Returns the next target.
  int64_t Take(int64_t first, int64_t end);
  // Computes the steps of the pass, and writes the outputs.
  void Compute();

  int64_t Rows(RegionLevel level) const;
  // The values of a step that is a root and no view; null: not computed.
  const T* value(size_t step) const { return values_[step].base; }
  std::span<const RegionRows<T>> values() const { return values_; }
  // For each edge, the place of its target in the tile. Valid until the next Take.
  const int64_t* TargetRows() { return RowsOf(static_cast<size_t>(plan_.region.num_indices)); }
  T* Register(int32_t which) const { return memory_ + registers_.Place(which, segments_.targets, edges_); }
  T* blocks() const { return blocks_; }
  const RegionSegments& segments() const { return segments_; }
  int64_t first() const { return first_; }
  const int32_t* places() const { return places_; }
  // True if the tile's edges have consecutive places. They then begin at first_place().
  bool in_order() const { return in_order_; }
  int64_t first_place() const { return edges_ == 0 ? 0 : places_[0]; }

 private:
  void ComputeStep(size_t i, T* out);
  RegionRows<T> View(const RegionStep& step);
  // For each edge, the row that the index names; after the last index, the place of its target.
  const int64_t* RowsOf(size_t index);
  void ComputeByValue(const RegionStep& step, T* out);
  // Where a step's rows are written: an output, or its register.
  T* Place(size_t i) const;
  void WriteOutputs() const;

  const RegionPlan& plan_;
  const RegionPass& pass_;
  const RegionRegisters& registers_;
  const RegionInputs<T>& in_;
  std::span<T* const> outputs_;
  std::vector<int32_t> output_of_;  // the output that a step may write to as it computes; -1: none
  std::vector<RegionRows<T>> values_;
  // Lists of rows, by index and then for targets. That for targets always counts for a tile's size, another if a view
  // reads it.
  std::vector<char> has_rows_;    // whether RowsOf made the list for this tile
  std::vector<int32_t> list_of_;  // its place in memory
  int32_t lists_ = 0;
  RegionScratch<T>& scratch_;
  T *memory_ = nullptr, *blocks_;
  RegionSegments segments_{};
  int64_t first_ = 0, edges_ = 0;
  const int32_t* places_ = nullptr;
  bool in_order_ = false;
};

}  // namespace permafrost::nn
