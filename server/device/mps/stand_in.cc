#include "device/mps/stand_in.h"

#include <ATen/ATen.h>

#ifndef __APPLE__
#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "device/cpu/tape.h"
#include "device/mps/mps_operators.h"

namespace permafrost::device {
namespace {

// Returns the name of an operator of aten, such as "mm" or "add.Tensor"; "" for other operators.
std::string NameOf(const c10::OperatorName& op) {
  constexpr std::string_view kAten = "aten::";
  const std::string_view name = op.name;
  if (!name.starts_with(kAten)) return "";
  return absl::StrCat(std::string(name.substr(kAten.size())), op.overload_name.empty() ? "" : ".", op.overload_name);
}

bool HasMpsKernel(const c10::OperatorName& op) {
  static const absl::flat_hash_set<std::string> operators =
      absl::StrSplit(absl::string_view(kMpsOperators.data(), kMpsOperators.size()), ' ', absl::SkipEmpty());
  return op.name == "aten::copy_" || operators.contains(NameOf(op));
}

void AddTensor(const at::Tensor& tensor, graphcache::OpCall& call) {
  graphcache::CallTensor& added = call.tensors.emplace_back();
  if (!tensor.defined()) return;
  added.type = c10::toString(tensor.scalar_type());
  added.sizes = tensor.sizes().vec();
  added.contiguous = tensor.is_contiguous();
}

void AddArgument(const c10::IValue& value, graphcache::OpCall& call) {
  if (value.isTensor()) {
    AddTensor(value.toTensor(), call);
  } else if (value.isInt()) {
    call.integers.push_back(value.toInt());
  } else if (value.isList() || value.isTensorList()) {
    const auto elements = value.toListRef();
    absl::StrAppend(&call.rest, "[", elements.size(), "]");
    for (const c10::IValue& element : elements) AddArgument(element, call);
  } else if (value.isDouble()) {
    absl::StrAppend(&call.rest, value.toDouble(), ";");
  } else if (value.isBool()) {
    absl::StrAppend(&call.rest, value.toBool() ? "true;" : "false;");
  } else if (value.isString()) {
    absl::StrAppend(&call.rest, value.toStringRef(), ";");
  } else {
    absl::StrAppend(&call.rest, value.tagKind(), ";");
  }
}

bool IsOnMps(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() && value.toTensor().is_mps();
  if (value.isDevice()) return value.toDevice().is_mps();
  return (value.isList() || value.isTensorList()) && std::ranges::any_of(value.toListRef(), IsOnMps);
}

}  // namespace

std::vector<graphcache::OpCall> RecordMpsCalls(const std::function<void()>& body) {
  std::vector<graphcache::OpCall> calls;
  Tape::Listen(
      [&](const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
        const auto first = stack.end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size());
        if (!HasMpsKernel(op.operator_name())) return true;
        if (!std::any_of(first, stack.end(), IsOnMps)) return true;
        graphcache::OpCall& call = calls.emplace_back();
        call.op = op.operator_name().name;
        for (auto value = first; value != stack.end(); ++value) AddArgument(*value, call);
        return false;
      },
      body);
  return calls;
}

#ifdef __APPLE__

MpsStandIn::MpsStandIn() : outer_(false) {}
MpsStandIn::~MpsStandIn() = default;
bool MpsStandIn::present() { return false; }

#else

namespace {

const c10::Device kMpsDevice{c10::kMPS, 0};
const c10::Device kHostDevice{c10::kCPU};

// True while this thread is within an MpsStandIn.
thread_local bool within = false;

// Hooks that make libtorch see an MPS device while this thread is within an MpsStandIn. Autograd needs them, since it
// asks the accelerator for its stream.
struct StandInHooks final : at::MPSHooksInterface {
  bool isBuilt() const override { return within; }
  bool hasMPS() const override { return within; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return within; }
};
// The hooks are registered as a fallback, so that other hooks, such as a test's, take precedence.
const bool kHooksRegistered = [] {
  at::MPSHooksRegistry()->Register(
      "MPSHooks", [](const auto&... /*libtorch 2.11 passes one*/) { return std::make_unique<StandInHooks>(); },
      c10::REGISTRY_FALLBACK);
  return true;
}();

// Shows one device with one stream to a thread within an MpsStandIn, and no device to other threads, since autograd
// makes a thread for each device.
class StandInGuard final : public c10::impl::NoOpDeviceGuardImpl<c10::kMPS> {
 public:
  c10::Device exchangeDevice(c10::Device /*device*/) const override { return kMpsDevice; }
  c10::Device getDevice() const override { return kMpsDevice; }
  c10::Stream getStream(c10::Device /*device*/) const noexcept override { return OneStream(); }
  c10::Stream getNewStream(c10::Device /*device*/, int /*priority*/) const override { return OneStream(); }
  c10::Stream exchangeStream(c10::Stream /*stream*/) const noexcept override { return OneStream(); }
  c10::DeviceIndex deviceCount() const noexcept override { return within ? 1 : 0; }
  // The stand-in does work at once when the work is enqueued, so every event has occurred already.
  void record(void** /*event*/, const c10::Stream& /*stream*/, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {}
  void block(void* /*event*/, const c10::Stream& /*stream*/) const override {}
  bool queryEvent(void* /*event*/) const override { return true; }
  void synchronizeEvent(void* /*event*/) const override {}

 private:
  static c10::Stream OneStream() { return c10::Stream(c10::Stream::DEFAULT, kMpsDevice); }
};

// Returns true if the operator may be called with tensors of both devices.
bool MixesDevices(std::string_view op) { return op == "aten::copy_"; }

// One call of an operator. Converts the arguments to tensors of the host, and the results to tensors of MPS.
class HostCall {
 public:
  explicit HostCall(const c10::OperatorHandle& op) : name_(op.operator_name().name) {}
  HostCall(const HostCall&) = delete;

  c10::IValue ToHost(const c10::IValue& value);
  c10::IValue ToMps(const c10::IValue& value);
  // If the call changed sizes or storage of its host arguments, makes the same changes to the MPS arguments.
  void TellArguments();

 private:
  struct Argument {
    at::Tensor mps, host;
  };
  struct Bytes {
    c10::Storage mps, host;
  };

  at::Tensor HostTensor(const at::Tensor& mps);
  at::Tensor MpsTensor(const at::Tensor& host);
  c10::Storage HostStorage(const c10::Storage& mps);
  c10::Storage MpsStorage(const c10::Storage& host);

  const std::string& name_;
  std::vector<Argument> arguments_;
  std::vector<Bytes> bytes_;
};

// Returns the storage's bytes as memory of `device`. The pointer keeps `storage` alive.
c10::DataPtr Lend(const c10::Storage& storage, c10::Device device) {
  return {storage.mutable_data(), new c10::Storage(storage),
          [](void* owner) { delete static_cast<c10::Storage*>(owner); }, device};
}

at::Tensor TensorOn(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return at::Tensor(std::move(impl));
}

c10::Storage HostCall::HostStorage(const c10::Storage& mps) {
  for (const Bytes& known : bytes_) {
    if (known.mps.unsafeGetStorageImpl() == mps.unsafeGetStorageImpl()) return known.host;
  }
  c10::Storage host(c10::Storage::use_byte_size_t(), mps.nbytes(), c10::DataPtr(mps.mutable_data(), kHostDevice),
                    at::getCPUAllocator(), /*resizable=*/true);
  bytes_.push_back({mps, host});
  return host;
}

c10::Storage HostCall::MpsStorage(const c10::Storage& host) {
  for (const Bytes& known : bytes_) {
    if (known.host.unsafeGetStorageImpl() == host.unsafeGetStorageImpl()) return known.mps;
  }
  c10::Storage mps(c10::Storage::use_byte_size_t(), host.nbytes(), Lend(host, kMpsDevice), /*allocator=*/nullptr,
                   /*resizable=*/false);
  bytes_.push_back({mps, host});
  return mps;
}

at::Tensor HostCall::HostTensor(const at::Tensor& mps) {
  if (!mps.defined()) return mps;
  if (mps.is_cpu()) {
    TORCH_CHECK(mps.dim() == 0 || MixesDevices(name_), name_,
                ": takes tensors of one device, but found one of mps and one ", mps.toString(), mps.sizes(), " of cpu");
    return mps;
  }
  for (const Argument& known : arguments_) {
    if (known.mps.is_same(mps)) return known.host;
  }
  at::Tensor host = TensorOn(HostStorage(mps.storage()), c10::DispatchKey::CPU, mps);
  arguments_.push_back({mps, host});
  return host;
}

at::Tensor HostCall::MpsTensor(const at::Tensor& host) {
  if (!host.defined()) return host;
  for (const Argument& known : arguments_) {
    if (known.host.is_same(host)) return known.mps;
  }
  TORCH_CHECK_TYPE(host.scalar_type() != at::kDouble && host.scalar_type() != at::kComplexDouble, name_,
                   ": would make a tensor of type ", host.scalar_type(),
                   " on mps, which has no float64; use float32 instead");
  return TensorOn(MpsStorage(host.storage()), c10::DispatchKey::MPS, host);
}

// Applies `convert` to the tensors in a value, which may be a tensor or a list.
template <class Convert>
c10::IValue ConvertTensors(const c10::IValue& value, const Convert& convert) {
  if (value.isTensor()) return convert(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& tensor : value.toListRef()) list.push_back(convert(tensor.toTensor()));
    return list;
  }
  if (!value.isList() || !std::ranges::any_of(value.toListRef(), &c10::IValue::isTensor)) return value;
  c10::List<std::optional<at::Tensor> > list;
  for (const c10::IValue& element : value.toListRef()) {
    list.push_back(element.isTensor() ? std::optional(convert(element.toTensor())) : std::nullopt);
  }
  return list;
}

c10::IValue HostCall::ToHost(const c10::IValue& value) {
  if (value.isDevice()) return value.toDevice().is_mps() ? kHostDevice : value.toDevice();
  return ConvertTensors(value, [this](const at::Tensor& tensor) { return HostTensor(tensor); });
}

c10::IValue HostCall::ToMps(const c10::IValue& value) {
  return ConvertTensors(value, [this](const at::Tensor& tensor) { return MpsTensor(tensor); });
}

void HostCall::TellArguments() {
  for (const Bytes& of : bytes_) {
    if (of.host.data() == of.mps.data() && of.host.nbytes() == of.mps.nbytes()) continue;
    of.mps.unsafeGetStorageImpl()->set_data_ptr_noswap(Lend(of.host, kMpsDevice));
    of.mps.unsafeGetStorageImpl()->set_nbytes(of.host.nbytes());
  }
  for (const Argument& of : arguments_) {
    if (of.mps.sizes() == of.host.sizes() && of.mps.strides() == of.host.strides()) continue;
    of.mps.unsafeGetTensorImpl()->set_sizes_and_strides(of.host.sizes(), of.host.strides(), of.host.storage_offset());
  }
}

// The kernel of every MPS operator: runs the CPU's kernel on the same bytes.
void RunOnHost(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  HostCall call(op);
  const auto arguments = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  for (auto value = stack->end() - arguments; value != stack->end(); ++value) *value = call.ToHost(*value);
  {
    // The host's kernel runs below autograd and below the recording key, so that neither sees its work as part of the
    // step.
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::impl::ExcludeDispatchKeyGuard below_recording(kRecordKey);
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  }
  call.TellArguments();
  const auto returns = static_cast<std::ptrdiff_t>(op.schema().returns().size());
  for (auto value = stack->end() - returns; value != stack->end(); ++value) *value = call.ToMps(*value);
}

// The kernel of linear_backward, the only operator of a step that MPS has and the CPU lacks. On the CPU, product and
// bias are separate operators.
std::tuple<at::Tensor, at::Tensor, at::Tensor> LinearBackward(const at::Tensor& self, const at::Tensor& grad,
                                                              const at::Tensor& weight, std::array<bool, 3> needed) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard below_recording(kRecordKey);
  const at::Tensor rows = grad.reshape({-1, grad.size(-1)});
  return {needed[0] ? rows.mm(weight).reshape(self.sizes()) : at::Tensor(),
          needed[1] ? rows.t().mm(self.reshape({-1, self.size(-1)})) : at::Tensor(),
          needed[2] ? rows.sum(0) : at::Tensor()};
}

// Returns true if the operator works on storages themselves or on tensors without storage, or is linear_backward.
// RunOnHost cannot run such an operator on bytes that two devices share.
bool IsOfStorage(std::string_view op) {
  return op.starts_with("set_") || op == "is_set_to" || op == "_efficientzerotensor" || op == "linear_backward";
}

void RegisterStandIn(torch::Library& library) {
  for (std::string_view left = kMpsOperators; !left.empty(); left.remove_prefix(left.find(' ') + 1)) {
    const std::string_view name = left.substr(0, left.find(' '));
    if (IsOfStorage(name)) continue;
    library.impl(std::string(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&RunOnHost>());
  }
  // The table does not list copy_, since MPS implements it inside the kernel that serves every device.
  library.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&RunOnHost>());
  library.impl("linear_backward", &LinearBackward);
}

C10_REGISTER_GUARD_IMPL(MPS, StandInGuard)
TORCH_LIBRARY_IMPL(aten, MPS, library) { RegisterStandIn(library); }

}  // namespace

MpsStandIn::MpsStandIn() : outer_(std::exchange(within, true)) {}
MpsStandIn::~MpsStandIn() { within = outer_; }
bool MpsStandIn::present() {
  const auto accelerator = at::accelerator::getAccelerator();
  return kHooksRegistered && (!accelerator || *accelerator == c10::kMPS);
}

#endif

}  // namespace permafrost::device
