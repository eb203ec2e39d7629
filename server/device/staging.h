// Brings a batch to an accelerator by one copy: the batch's host tensors are gathered in one buffer, which is copied
// to the device. An upload waits only if the copy that was begun kSlots batches earlier is still on its way.
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

// The places of a batch's host tensors in one buffer. Each storage is there once, as a whole, aligned for every type
// and for the device's kernels. The layout follows from sizes and types, so batches of one shape have equal layouts.
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
// copies that are made once; the batches of steps go through Staging.
graphcache::StepInputs CopyToDevice(const graphcache::StepInputs& batch, c10::Device device);

struct StagingOptions {
  // Allocates pinned host memory, which the device reads directly. nullptr means plain memory.
  c10::Allocator* host_memory = nullptr;
  // If true, copies go to a stream of their own and run beside the steps that were enqueued before. The device must
  // have streams.
  bool own_stream = false;
};

class Staging {
 public:
  // The most copies that are on their way at once. One is for the next step. Two are for the steps after it, since
  // the host runs ahead of the device.
  static constexpr size_t kSlots = 3;
  // Batches up to this size are copied straight into a graph's inputs, in the order of the steps. The bound is an
  // estimate that no GPU has confirmed. At 25 GB/s a copy of this size takes 10 us, about as long as launching a
  // second copy.
  static constexpr int64_t kStraightBytes = 256 << 10;

  explicit Staging(c10::Device device, const StagingOptions& options = {});
  Staging(const Staging&) = delete;
  // Waits for the copies that are on their way.
  ~Staging();

  // Copies the batch to the device and returns the copy. On the CPU it returns the batch itself. The copy is valid
  // until the next call of Upload or UploadInto, for work on the stream that is current in this call. The caller may
  // change the batch once this returns.
  const graphcache::StepInputs& Upload(const graphcache::StepInputs& batch);
  // Copies the batch into `inputs`, a tensor of bytes on the device from which steps read. The copy runs between the
  // steps enqueued before this call and those enqueued after it. `layout` is the batch's layout.
  void UploadInto(const graphcache::StepInputs& batch, const InputLayout& layout, const at::Tensor& inputs);

 private:
  struct Slot {
    at::Tensor host, device;  // as many bytes as the largest batch so far
    c10::Event copied;        // `host` may be overwritten once this event has come
    c10::Event read;          // `device` may be overwritten once this event has come; used with own_stream only
  };

  // Returns the device's current stream.
  c10::Stream Current() const;
  // Gathers the batch in the next slot, and returns that slot.
  Slot& Fill(const graphcache::StepInputs& batch, const InputLayout& layout);
  // Enqueues the copy of the slot's first `bytes` bytes to the device, and returns the bytes on the device.
  at::Tensor CopyToSlot(Slot& slot, int64_t bytes);

  const c10::Device device_;
  const StagingOptions options_;
  std::vector<Slot> slots_;
  size_t next_ = 0;
  Slot* being_read_ = nullptr;  // the slot that the steps enqueued now read
  std::optional<c10::Stream> own_;
  graphcache::StepInputs inputs_;  // the last batch that Upload returned
};

}  // namespace permafrost::device
