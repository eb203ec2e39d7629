#include "device/staging.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/fault.h"

namespace permafrost::device {
namespace {

// The least number of bytes for which one more thread takes part in copying. It is an estimate: copying fewer bytes
// should take less time than waking a thread.
constexpr int64_t kBytesOfAThread = 1 << 20;

bool IsOnHost(const at::Tensor& tensor) { return tensor.defined() && tensor.is_cpu(); }

// Returns a tensor that views `buffer`, a tensor of bytes, from byte `begin` on. Calls no operator, since a device
// that compiles by operator and shape would keep compiled code for each call.
at::Tensor ViewOf(const at::Tensor& buffer, int64_t begin, caffe2::TypeMeta type, at::IntArrayRef sizes,
                  at::IntArrayRef strides) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(buffer.storage()), buffer.key_set(), type);
  impl->set_sizes_and_strides(sizes, strides, begin / static_cast<int64_t>(type.itemsize()));
  return at::Tensor(std::move(impl));
}

at::Tensor FirstBytes(const at::Tensor& buffer, int64_t bytes) {
  return ViewOf(buffer, 0, caffe2::TypeMeta::Make<uint8_t>(), {bytes}, {1});
}

void CopyBytes(char* to, const char* from, int64_t bytes) {
  at::parallel_for(0, bytes, kBytesOfAThread, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

at::Tensor HostBytes(int64_t bytes, c10::Allocator* allocator) {
  if (allocator == nullptr) return at::empty({bytes}, at::kByte);
  const auto size = static_cast<size_t>(bytes);
  c10::Storage storage(c10::Storage::use_byte_size_t(), size, allocator->allocate(size), allocator,
                       /*resizable=*/false);
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                   caffe2::TypeMeta::Make<uint8_t>());
  impl->set_sizes_contiguous({bytes});
  return at::Tensor(std::move(impl));
}

// Enqueues a copy of the first `bytes` bytes on the current stream.
void Enqueue(const at::Tensor& from, const at::Tensor& to, int64_t bytes) {
  const at::NoGradGuard no_grad;
  FirstBytes(to, bytes).copy_(FirstBytes(from, bytes), /*non_blocking=*/true);
}

}  // namespace

InputLayout::InputLayout(const graphcache::StepInputs& batch) {
  std::vector<std::pair<const c10::StorageImpl*, int64_t>> known;
  for (const at::Tensor& tensor : batch.tensors) {
    places_.emplace_back();
    if (!IsOnHost(tensor)) continue;
    const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
    const auto found = std::ranges::find(known, storage, [](const auto& k) { return k.first; });
    if (found != known.end()) {
      places_.back() = found->second;
      continue;
    }
    places_.back() = bytes_;
    known.emplace_back(storage, bytes_);
    // An empty storage gets a byte too, because a recording distinguishes storages by their addresses.
    const auto bytes = std::max<int64_t>(1, static_cast<int64_t>(storage->nbytes()));
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
}

void InputLayout::Gather(const graphcache::StepInputs& batch, const at::Tensor& buffer) const {
  auto* const to = static_cast<char*>(buffer.mutable_data_ptr());
  std::optional<int64_t> last;
  for (size_t i = 0; i < places_.size(); ++i) {
    // Each new storage has a larger place than the storages before it. So a storage whose place is not above the last
    // copied place was copied already.
    if (!places_[i] || (last && *places_[i] <= *last)) continue;
    last = places_[i];
    const c10::Storage& storage = batch.tensors[i].storage();
    if (storage.nbytes() == 0) continue;
    CopyBytes(to + *last, static_cast<const char*>(storage.data()), static_cast<int64_t>(storage.nbytes()));
  }
}

graphcache::StepInputs InputLayout::ViewsInto(const at::Tensor& buffer, const graphcache::StepInputs& batch) const {
  graphcache::StepInputs views = batch;
  for (size_t i = 0; i < places_.size(); ++i) {
    if (!places_[i]) continue;
    const at::Tensor& host = batch.tensors[i];
    views.tensors[i] = ViewOf(buffer, *places_[i] + host.storage_offset() * host.element_size(), host.dtype(),
                              host.sizes(), host.strides());
  }
  return views;
}

graphcache::StepInputs CopyToDevice(const graphcache::StepInputs& batch, c10::Device device) {
  if (device.is_cpu()) return batch;
  const InputLayout layout(batch);
  if (layout.bytes() == 0) return batch;
  const at::Tensor host = at::empty({layout.bytes()}, at::kByte);
  layout.Gather(batch, host);
  return layout.ViewsInto(host.to(device), batch);
}

Staging::Staging(c10::Device device, const StagingOptions& options) : device_(device), options_(options) {
  if (device_.is_cpu()) return;
  for (size_t s = 0; s < kSlots; ++s) {
    slots_.push_back(
        {.host = {}, .device = {}, .copied = c10::Event(device_.type()), .read = c10::Event(device_.type())});
  }
}

Staging::~Staging() {
  UnlessFatal([this] {
    for (const Slot& slot : slots_) slot.copied.synchronize();
  });
}

c10::Stream Staging::Current() const { return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_); }

Staging::Slot& Staging::Fill(const graphcache::StepInputs& batch, const InputLayout& layout) {
  // Steps that are enqueued from here on do not read the previous upload.
  if (being_read_ != nullptr) std::exchange(being_read_, nullptr)->read.record(Current());
  Slot& slot = slots_[std::exchange(next_, (next_ + 1) % kSlots)];
  // The host waits only if the device is kSlots batches behind, since query() itself does not wait.
  if (!slot.copied.query()) slot.copied.synchronize();
  if (!slot.host.defined() || slot.host.numel() < layout.bytes()) {
    slot.host = HostBytes(layout.bytes(), options_.host_memory);
  }
  layout.Gather(batch, slot.host);
  return slot;
}

at::Tensor Staging::CopyToSlot(Slot& slot, int64_t bytes) {
  const c10::Stream current = Current();
  // If copies have no stream of their own, one device buffer is enough, since a copy then begins only after the
  // previous step has ended.
  at::Tensor& device = options_.own_stream ? slot.device : slots_.front().device;
  const bool is_new = !device.defined() || device.numel() < bytes;
  if (is_new) device = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device_));
  if (!options_.own_stream) {
    Enqueue(slot.host, device, bytes);
    slot.copied.record(current);
    return device;
  }
  // The new buffer may reuse memory that enqueued steps still read or write.
  if (is_new) slot.read.record(current);
  if (!own_) own_ = c10::impl::VirtualGuardImpl(device_.type()).getNewStream(device_);
  slot.read.block(*own_);
  {
    const c10::StreamGuard on_own(*own_);
    Enqueue(slot.host, device, bytes);
  }
  slot.copied.record(*own_);
  slot.copied.block(current);
  being_read_ = &slot;
  return device;
}

const graphcache::StepInputs& Staging::Upload(const graphcache::StepInputs& batch) {
  if (device_.is_cpu()) return batch;
  const InputLayout layout(batch);
  if (layout.bytes() == 0) return batch;
  Slot& slot = Fill(batch, layout);
  inputs_ = layout.ViewsInto(CopyToSlot(slot, layout.bytes()), batch);
  return inputs_;
}

void Staging::UploadInto(const graphcache::StepInputs& batch, const InputLayout& layout, const at::Tensor& inputs) {
  if (layout.bytes() == 0) return;
  Slot& slot = Fill(batch, layout);
  if (options_.own_stream && layout.bytes() > kStraightBytes) {
    Enqueue(CopyToSlot(slot, layout.bytes()), inputs, layout.bytes());
    return;
  }
  Enqueue(slot.host, inputs, layout.bytes());
  slot.copied.record(Current());
}

}  // namespace permafrost::device
