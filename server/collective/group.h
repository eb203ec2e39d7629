// The collective operations of the ranks that train one job. Threads: a group belongs to the device thread of its
// daemon, and a Scope to the thread that made it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace permafrost::collective {

// Every rank calls the same methods in the same order, with tensors of equal types and, but for AllGatherRows, equal
// sizes. Tensors are dense and on the CPU. A method throws std::exception once another rank is gone or keeps it waiting
// for too long; every later call then throws, and failure() tells why.
class Group {
 public:
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  bool leads() const { return rank_ == 0; }

  // Barrier: returns once every rank has called it. A rank may come to it minutes after the others: for what takes each
  // rank its own time, such as the capture of a step.
  virtual void Meet() = 0;
  // Sets x to its sum over all ranks. Groups of one size add in one order, and all ranks get the same bits. bfloat16 is
  // added in float32.
  virtual void AllReduceSum(at::Tensor& x) = 0;
  // Sets all, of size() * x.numel() values, to x of every rank, in their order.
  virtual void AllGather(const at::Tensor& x, at::Tensor& all) = 0;
  // Gives every rank all rows. x: [n, ...]; of its rows each rank r has made firsts[r] to firsts[r + 1] - 1, and
  // receives the others. firsts: [size() + 1], equal on all ranks.
  virtual void ShareRows(at::Tensor& x, std::span<const int64_t> firsts) = 0;
  // Sets x to that of rank 0.
  virtual void Broadcast(at::Tensor& x) = 0;
  // The first error of a method; Ok: there was none.
  virtual absl::Status failure() const = 0;
  struct Traffic {
    int64_t exchanges = 0, sent_bytes = 0;
    absl::Duration time;  // in them, waiting for the others included
  };
  // Since the group was made.
  virtual Traffic traffic() const = 0;

  // Returns the values of every rank, in their order: rank r's from r * x.size() on. No tensor is allocated, so that an
  // operator of a step that is replayed allocates what it did when it was captured.
  std::vector<double> AllGather(std::span<const double> x);
  // Returns the rows of every rank, in their order. rows: [n, ...], where n may differ between ranks.
  at::Tensor AllGatherRows(const at::Tensor& rows);
  // Sets each tensor of x to rank 0's. Small ones travel together, so that a slow network is crossed less often.
  void BroadcastAll(std::span<at::Tensor> x);
  // Bytes of a text, unless the caller allows more.
  static constexpr int64_t kMostText = int64_t{1} << 24;
  // Returns rank 0's text; those of the other ranks are ignored. Throws if it has more than `most` bytes.
  std::string BroadcastText(std::string text, int64_t most = kMostText);

 protected:
  Group(int64_t rank, int64_t size) : rank_(rank), size_(size) {}

 private:
  const int64_t rank_, size_;
};

// While one lives, the operators of a training step on this thread share their sums with the group's other ranks.
// nullptr: they do not.
class Scope {
 public:
  explicit Scope(Group* group);
  Scope(const Scope&) = delete;
  ~Scope();

 private:
  Group* const outer_;
};

// While one lives, shared operators on this thread exchange nothing and return their input. Used during a capture, in
// which other ranks take no part.
class Apart {
 public:
  Apart();
  Apart(const Apart&) = delete;
  ~Apart();

 private:
  const bool outer_;
};

// While one lives, a step of this thread may be run again and again, though the other ranks take it once: its first run
// exchanges values as ever, and those after Again() get the values that the first one got. For an audit of a replay.
class Rerun {
 public:
  Rerun();
  Rerun(const Rerun&) = delete;
  ~Rerun();
  // Called between runs: later runs get the values that the first one received.
  void Again();

 private:
  class Recorder;
  std::unique_ptr<Recorder> recorder_;  // nullptr: nothing is exchanged
  std::optional<Scope> scope_;
};

// While one lives and its `count` (one number: this rank's labels) is 0, this thread adds 0 to the gradients that ranks
// add up. Without it a module that divides by the number of labels would send NaN to all ranks.
class Part {
 public:
  explicit Part(const at::Tensor& count);  // outlives this
  Part(const Part&) = delete;
  ~Part();

 private:
  const at::Tensor* const outer_;
};

// Returns what this rank adds to the sum of a gradient: the gradient, or 0 where Part says so.
at::Tensor OwnGradient(const at::Tensor& gradient);

// Returns whether a step of this thread has the operators of a shared one.
bool IsShared();
// Returns the group with which an operator exchanges values now; nullptr: it leaves them as they are.
Group* Current();

// permafrost::all_reduce_sum: returns the sum of x over all ranks; x itself, copied, where Current() is nullptr. The
// gradient of x is the sum of the ranks' gradients, since each rank has a part of the loss. Either all ranks compute it
// or none: else those that do wait in vain.
at::Tensor AllReduceSum(const at::Tensor& x);
// Returns the sums of tensors of one type over all ranks, found in one exchange. If `on_wire` is given, the
// tensors are rounded to it before they are sent, and the sums once they are added.
std::vector<at::Tensor> AllReduceSum(const std::vector<at::Tensor>& tensors,
                                     std::optional<at::ScalarType> on_wire = std::nullopt);

}  // namespace permafrost::collective
