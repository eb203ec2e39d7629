// Copies a batch to an accelerator in one piece. The batch's host tensors are gathered in one buffer, and the buffer
// is copied to the device. An upload waits only if the copy that was begun kSlots uploads earlier has not ended.
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

// The places of a batch's host tensors in one buffer. The buffer has each storage once, as a whole, aligned for every
// type and for the device's kernels. The layout depends only on sizes and types, so batches of one shape have equal
// layouts.
class InputLayout {
 public:
  static constexpr int64_t kAlignment = 256;

  explicit InputLayout(const graphcache::StepInputs& batch);
  // The buffer's size; 0 if no tensor of the batch is on the host.
  int64_t bytes() const { return bytes_; }
  // Copies the host tensors of `batch` to `buffer`, a tensor of bytes on the host.
  void Gather(const graphcache::StepInputs& batch, const at::Tensor& buffer) const;
  // Returns the batch with its host tensors replaced by views into `buffer`.
  graphcache::StepInputs ViewsInto(const at::Tensor& buffer, const graphcache::StepInputs& batch) const;
  // Returns the offset in the buffer of an input's storage; nullopt if the input is not on the host.
  const std::optional<int64_t>& place(size_t input) const { return places_[input]; }
  bool operator==(const InputLayout&) const = default;

 private:
  std::vector<std::optional<int64_t>> places_;  // by input: the offset of its storage
  int64_t bytes_ = 0;
};

// Copies a batch to new memory on `device` and waits for the copy. On the CPU it returns the batch itself. Use it for
// copies that are made once. For the batches of steps, use Staging.
graphcache::StepInputs CopyToDevice(const graphcache::StepInputs& batch, c10::Device device);

struct StagingOptions {
  // Allocates pinned host memory, which the device reads directly. nullptr means that plain memory is used instead.
  c10::Allocator* host_memory = nullptr;
  // If true, copies are enqueued on a separate stream and run beside the steps enqueued before them. The device must
  // have streams.
  bool own_stream = false;
};

class Staging {
 public:
  // The most copies that run at once: one for the next step, and two for the steps after it, since the host runs
  // ahead of the device.
  static constexpr size_t kSlots = 3;
  // Batches up to this size are copied directly into a graph's inputs, on the stream of the steps. The bound is an
  // estimate, not measured on a GPU. At 25 GB/s a copy of this size takes 10 us, about as long as launching a second
  // copy.
  static constexpr int64_t kStraightBytes = 256 << 10;

  explicit Staging(c10::Device device, const StagingOptions& options = {});
  Staging(const Staging&) = delete;
  // Waits for the copies that have not ended.
  ~Staging();

  // Copies the batch to the device and returns the copy. On the CPU it returns the batch itself. Only work on the
  // stream that is current in this call may read the copy. The copy is valid until the next call of Upload or
  // UploadInto. Once this call returns, the caller may change the batch.
  const graphcache::StepInputs& Upload(const graphcache::StepInputs& batch);
  // Copies the batch into `inputs`, a tensor of bytes on the device. Steps read their inputs from this tensor. The
  // copy takes effect after all steps enqueued before this call, and before all steps enqueued later. `layout` is the
  // batch's layout.
  void UploadInto(const graphcache::StepInputs& batch, const InputLayout& layout, const at::Tensor& inputs);

 private:
  struct Slot {
    at::Tensor host, device;  // bytes, as many as the largest batch so far
    c10::Event copied;        // once this event has occurred, `host` may be overwritten
    c10::Event read;          // once this event has occurred, `device` may be overwritten; used with own_stream only
  };

  // Returns the device's current stream.
  c10::Stream Current() const;
  // Gathers the batch in the next slot's `host`, and returns the slot.
  Slot& Fill(const graphcache::StepInputs& batch, const InputLayout& layout);
  // Enqueues the copy of the first `bytes` bytes of slot.host to the device. Returns the tensor on the device.
  at::Tensor CopyToSlot(Slot& slot, int64_t bytes);

  const c10::Device device_;
  const StagingOptions options_;
  std::vector<Slot> slots_;
  size_t next_ = 0;
  Slot* being_read_ = nullptr;  // the slot of the last Upload; steps enqueued now read it
  std::optional<c10::Stream> own_;
  graphcache::StepInputs inputs_;  // the last batch that Upload returned
};

}  // namespace permafrost::device
