// The collective operations of the ranks that train one job.
// Threads: a group belongs to the device thread of its daemon, and a Scope to the thread that made it.
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

// All ranks must call the same methods in the same order. Their tensors must have equal types and, except in
// AllGatherRows, equal sizes. Tensors are dense and on the CPU. If another rank is gone, or keeps this rank waiting
// for too long, a method throws std::exception. After that, every further call throws, and failure() returns the
// reason.
class Group {
 public:
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  bool leads() const { return rank_ == 0; }

  // A barrier: returns once every rank has called it. A rank may call it minutes after the others, for example if
  // each rank has captured a step by itself.
  virtual void Meet() = 0;
  // Sets x to its sum over all ranks. All ranks get the same bits, and the order of addition depends only on the
  // group's size. bfloat16 is added in float32.
  virtual void AllReduceSum(at::Tensor& x) = 0;
  // Sets `all` to the concatenation of every rank's x, in the order of ranks. `all` has size() * x.numel() values.
  virtual void AllGather(const at::Tensor& x, at::Tensor& all) = 0;
  // Gives every rank all rows of x, [n, ...]. Rank r has rows firsts[r] to firsts[r + 1] - 1 before the call, and
  // receives the remaining rows. `firsts` is [size() + 1] and equal on all ranks.
  virtual void ShareRows(at::Tensor& x, std::span<const int64_t> firsts) = 0;
  // Sets x to the x of rank 0.
  virtual void Broadcast(at::Tensor& x) = 0;
  // Returns the first error that any method had; OK if there was none.
  virtual absl::Status failure() const = 0;
  struct Traffic {
    int64_t exchanges = 0, sent_bytes = 0;
    absl::Duration time;  // time of the exchanges, including waits for other ranks
  };
  // Returns the traffic since the group was made.
  virtual Traffic traffic() const = 0;

  // Returns the values of all ranks in the order of ranks. The values of rank r begin at index r * x.size(). This
  // AllGather allocates no storage for tensors. So an operator that calls it allocates the same storage in a replay
  // as in the capture.
  std::vector<double> AllGather(std::span<const double> x);
  // Returns the rows of all ranks in the order of ranks. `rows` is [n, ...], where n may differ between ranks.
  at::Tensor AllGatherRows(const at::Tensor& rows);
  // Sets each tensor of x to that of rank 0. Small tensors are sent in one message, so that a slow network is crossed
  // less often.
  void BroadcastAll(std::span<at::Tensor> x);
  // The default limit of BroadcastText, in bytes.
  static constexpr int64_t kMostText = int64_t{1} << 24;
  // Returns rank 0's text, and ignores the texts of other ranks. Throws if rank 0's text has more than `most` bytes.
  std::string BroadcastText(std::string text, int64_t most = kMostText);

 protected:
  Group(int64_t rank, int64_t size) : rank_(rank), size_(size) {}

 private:
  const int64_t rank_, size_;
};

// While a Scope lives, shared operators (AllReduceSum below) on this thread sum over the ranks of `group`. With a
// null group, they exchange nothing.
class Scope {
 public:
  explicit Scope(Group* group);
  Scope(const Scope&) = delete;
  ~Scope();

 private:
  Group* const outer_;
};

// While an Apart lives, shared operators on this thread exchange nothing and return their input. Use it around a
// capture, in which other ranks take no part.
class Apart {
 public:
  Apart();
  Apart(const Apart&) = delete;
  ~Apart();

 private:
  const bool outer_;
};

// While a Rerun lives, this thread may run a step several times while the other ranks run it once. The first run
// exchanges values as usual. Runs after Again() get the values that the first run received. The audit of a replay
// uses it.
class Rerun {
 public:
  Rerun();
  Rerun(const Rerun&) = delete;
  ~Rerun();
  // Call it between runs. Later runs get the values that the first run received.
  void Again();

 private:
  class Recorder;
  std::unique_ptr<Recorder> recorder_;  // null: nothing is exchanged
  std::optional<Scope> scope_;
};

// While a Part lives, this thread contributes 0 to sums of gradients over ranks if `count` is 0. `count` is a tensor
// of one number, this rank's number of labels. Without a Part, a module that divides by 0 labels would send NaN to
// all ranks.
class Part {
 public:
  explicit Part(const at::Tensor& count);  // must outlive the Part
  Part(const Part&) = delete;
  ~Part();

 private:
  const at::Tensor* const outer_;
};

// Returns this rank's contribution to a sum of gradients: `gradient`, or 0 while a Part with count 0 lives.
at::Tensor OwnGradient(const at::Tensor& gradient);

// Returns true if a Scope with a group lives on this thread. Steps then use shared operators.
bool IsShared();
// Returns the group through which shared operators exchange values now. Returns nullptr if they exchange nothing.
Group* Current();

// permafrost::all_reduce_sum: returns the sum of x over all ranks, or a copy of x if Current() is null. The gradient
// of x is the sum of the ranks' gradients of the result, since each rank computes a part of the loss. Either all
// ranks or no rank must compute this gradient. Otherwise the ranks that compute it wait until they time out.
at::Tensor AllReduceSum(const at::Tensor& x);
// Returns the sum over all ranks of each tensor, computed in one exchange. The tensors have one type. If `on_wire` is
// given, the tensors are rounded to this type before they are sent, and the sums are rounded to it after the
// addition.
std::vector<at::Tensor> AllReduceSum(const std::vector<at::Tensor>& tensors,
                                     std::optional<at::ScalarType> on_wire = std::nullopt);

}  // namespace permafrost::collective
