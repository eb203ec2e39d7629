// Computes the values of a region's steps for one tile: a range of targets with all of their edges. Threads: one
// thread per object.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nn/kernels/edge_region_plan.h"
#include "nn/kernels/edge_region_rows.h"
#include "nn/kernels/edge_region_run.h"

namespace permafrost::nn {

// An uninitialised array that grows on demand. When it grows, its values are lost.
template <class T>
class RegionMemory {
 public:
  T* Get(int64_t size) {
    if (size > size_) {
      data_.reset();  // frees the old array first
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

// Memory that each thread keeps between calls.
template <class T>
struct RegionScratch {
  RegionMemory<T> tile, blocks, shared;
  RegionMemory<int64_t> rows;
  static RegionScratch& OfThread();
};

// The operands of an elementwise step, each as wide as the step. They are made for one block of rows at a time.
template <class T>
class OperandBlocks {
 public:
  // values: the rows of each step; base is null if the step was not computed. blocks: memory of 3 * BlockSize()
  // values.
  OperandBlocks(const RegionPlan& plan, const RegionStep& step, std::span<const RegionRows<T>> values, int64_t rows,
                T* blocks);
  // Returns the number of rows in a block. If no operand has to be repeated, one block holds all rows of the step.
  int64_t block_rows() const { return block_rows_; }
  // Returns the operands for rows [first, first + rows) of the step. `first` must begin a block.
  RegionValues<T> At(int64_t first, int64_t rows);

  static int64_t BlockSize(const RegionPlan& plan);
  static int64_t BlockRows(int64_t width);

 private:
  RegionRows<T> OperandAt(size_t k, int64_t first, int64_t rows);

  struct Operand {
    RegionRows<T> from;  // null base: every row equals the one in `block`
    int64_t width = 1;
    T* block = nullptr;  // not null: holds rows of `width` values, repeated to the step's width
  };
  Operand operands_[3];
  int64_t width_, block_rows_;
};

template <class T>
class RegionTile {
 public:
  // Computes the shared steps. outputs: as for RunRegion; empty if there are none.
  RegionTile(const RegionPlan& plan, const RegionPass& pass, const RegionRegisters& registers,
             const RegionInputs<T>& in, std::span<T* const> outputs);
  // Makes a tile that begins at target `first`. It takes as many targets below `end` as fit, but at least one.
  // Returns the first target after the tile.
  int64_t Take(int64_t first, int64_t end);
  // Computes the steps of the pass, and writes the outputs.
  void Compute();

  int64_t Rows(RegionLevel level) const;
  // Returns the values of a step, which must be a root and not a view; null if they were not computed.
  const T* value(size_t step) const { return values_[step].base; }
  std::span<const RegionRows<T>> values() const { return values_; }
  // Returns, for each edge, the position of its target within the tile. Valid until the next Take.
  const int64_t* TargetRows() { return RowsOf(static_cast<size_t>(plan_.region.num_indices)); }
  T* Register(int32_t which) const { return memory_ + registers_.Place(which, segments_.targets, edges_); }
  T* blocks() const { return blocks_; }
  const RegionSegments& segments() const { return segments_; }
  int64_t first() const { return first_; }
  const int32_t* places() const { return places_; }
  // Returns true if the tile's edges have consecutive places. They then begin at first_place().
  bool in_order() const { return in_order_; }
  int64_t first_place() const { return edges_ == 0 ? 0 : places_[0]; }

 private:
  void ComputeStep(size_t i, T* out);
  RegionRows<T> View(const RegionStep& step);
  // Returns, for each edge, the row that index number `index` selects. If `index` equals the number of indices,
  // returns the position of each edge's target.
  const int64_t* RowsOf(size_t index);
  void ComputeByValue(const RegionStep& step, T* out);
  // Sums, over each target's edges, the values that `value` describes.
  void SumComputed(const SummedValue& value, T* out) const;
  // Returns where a step's rows are written: in an output or in its register.
  T* Place(size_t i) const;
  void WriteOutputs() const;

  const RegionPlan& plan_;
  const RegionPass& pass_;
  const RegionRegisters& registers_;
  const RegionInputs<T>& in_;
  std::span<T* const> outputs_;
  std::vector<int32_t> output_of_;  // the output into which a step may compute directly; -1: none
  std::vector<RegionRows<T>> values_;
  // Lists of rows: one for each index, then one for targets. When a tile's size is chosen, the list for targets
  // always counts, and the list for an index counts if a view reads it.
  std::vector<char> has_rows_;    // true if RowsOf has made the list for this tile
  std::vector<int32_t> list_of_;  // position of the list in memory
  int32_t lists_ = 0;
  RegionScratch<T>& scratch_;
  T *memory_ = nullptr, *blocks_;
  RegionSegments segments_{};
  int64_t first_ = 0, edges_ = 0;
  const int32_t* places_ = nullptr;
  bool in_order_ = false;
};

}  // namespace permafrost::nn
