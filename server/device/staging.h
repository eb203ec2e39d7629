// A batch reaches an accelerator by one copy: its tensors on the host are gathered in one buffer, which is copied to
// the device. An upload waits only if the copy that was begun kSlots batches earlier is still on its way.
// Threads: the device thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "device/step_program.h"

namespace permafrost::device {

// The places of a batch's host tensors in one buffer: each storage once, whole, and aligned for every
// type and for the device's kernels. It follows from sizes and types, so that batches of one shape have equal layouts.
class InputLayout {
 public:
  static constexpr int64_t kAlignment = 256;

  explicit InputLayout(const graphcache::StepInputs& batch);
  // The buffer's size; 0 if no tensor of the batch is on the host.
  int64_t bytes() const { return bytes_; }
  // Copies the host tensors of `batch` to `buffer`, bytes on the host.
  void Gather(const graphcache::StepInputs& batch, const at::Tensor& buffer) const;
  // Returns the batch with its host tensors replaced by views into `buffer`.
  graphcache::StepInputs ViewsInto(const at::Tensor& buffer, const graphcache::StepInputs& batch) const;
  // Returns the first byte of an input's storage; nullopt if the input is not on the host.
  const std::optional<int64_t>& place(size_t input) const { return places_[input]; }
  bool operator==(const InputLayout&) const = default;

 private:
  std::vector<std::optional<int64_t>> places_;  // by input: the first byte of its storage
  int64_t bytes_ = 0;
};

// Copies a batch to `device`, into memory of its own, and waits for the copy; returns the batch itself on the CPU. Use
// it for what happens once: steps go through Staging.
graphcache::StepInputs CopyToDevice(const graphcache::StepInputs& batch, c10::Device device);

struct StagingOptions {
  // Allocates host memory that the device reads by itself (pinned); nullptr: plain memory.
  c10::Allocator* host_memory = nullptr;
  // True: copies go to a stream of their own and run beside the steps that were enqueued before. It needs a device that
  // has streams.
  bool own_stream = false;
};

class Staging {
 public:
  // At most so many copies are on their way: for the next step and for the two after it, as the host runs ahead.
  static constexpr size_t kSlots = 3;
  // Batches up to this size are copied straight into a graph's inputs, in the order of the steps. It is an estimate
  // that no GPU has confirmed: at 25 GB/s such a copy takes 10 us, about what launching a second copy would take.
  static constexpr int64_t kStraightBytes = 256 << 10;

  explicit Staging(c10::Device device, const StagingOptions& options = {});
  Staging(const Staging&) = delete;
  // Waits for the copies on their way.
  ~Staging();

  // Copies the batch to the device and returns it there; on the CPU returns the batch itself. Valid until the next call
  // of either method, for work on the stream that was current here. The batch may change once this has returned.
  const graphcache::StepInputs& Upload(const graphcache::StepInputs& batch);
  // Copies the batch into `inputs`, bytes on the device; steps enqueued before this and after it read them. `layout` is
  // the batch's.
  void UploadInto(const graphcache::StepInputs& batch, const InputLayout& layout, const at::Tensor& inputs);

 private:
  struct Slot {
    at::Tensor host, device;  // bytes, as many as the largest batch so far had
    c10::Event copied;        // once it has come, `host` may be overwritten
    c10::Event read;          // once it has come, `device` may be overwritten; used with own_stream only
  };

  // Returns the device's current stream.
  c10::Stream Current() const;
  // Gathers the batch in the next slot, and returns that.
  Slot& Fill(const graphcache::StepInputs& batch, const InputLayout& layout);
  // Enqueues the copy of a slot to the device, and returns its bytes there.
  at::Tensor CopyToSlot(Slot& slot, int64_t bytes);

  const c10::Device device_;
  const StagingOptions options_;
  std::vector<Slot> slots_;
  size_t next_ = 0;
  Slot* being_read_ = nullptr;  // by the steps that are enqueued now
  std::optional<c10::Stream> own_;
  graphcache::StepInputs inputs_;  // of the last batch
};

}  // namespace permafrost::device
