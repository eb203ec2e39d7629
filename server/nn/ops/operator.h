// Operators of the library `permafrost`, each said once: its schema, and the function that the CPU runs. A call through
// one is dispatched, so that a capture below autograd sees it; the work of a raw autograd::Function is not. Threads:
// any.
#pragma once

#include <ATen/ATen.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace permafrost::nn {

//   constexpr Operator<SumCpu> kSum{"sum(Tensor x, ...) -> Tensor"};
//   TORCH_LIBRARY_FRAGMENT(permafrost, library) { kSum.Register(library); }
// Then kSum(x, ...) calls it below autograd, whose gradient the caller gives.
template <auto* kCpuKernel>
class Operator {
 public:
  explicit constexpr Operator(const char* schema) : schema_(schema) {}

  // composite: what other devices run, of their own operators; gpu: what a GPU with compiled kernels runs (nn/gpu);
  // null: they have none.
  void Register(torch::Library& library, decltype(kCpuKernel) composite = nullptr,
                decltype(kCpuKernel) gpu = nullptr) const {
    library.def(schema_);
    const std::string name(Name());
    library.impl(name.c_str(), torch::dispatch(c10::DispatchKey::CPU, kCpuKernel));
    if (gpu != nullptr) library.impl(name.c_str(), torch::dispatch(c10::DispatchKey::CUDA, gpu));
    if (composite != nullptr) {
      library.impl(name.c_str(), torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, composite));
    }
  }

  template <class... Arguments>
  auto operator()(Arguments&&... arguments) const {
    static const auto handle = c10::Dispatcher::singleton()
                                   .findSchemaOrThrow(("permafrost::" + std::string(Name())).c_str(), "")
                                   .template typed<std::remove_pointer_t<decltype(kCpuKernel)>>();
    const at::AutoDispatchBelowADInplaceOrView below;
    return handle.call(std::forward<Arguments>(arguments)...);
  }

 private:
  constexpr std::string_view Name() const {
    return std::string_view(schema_).substr(0, std::string_view(schema_).find('('));
  }

  const char* schema_;
};

// The conversions between a schema's `Tensor?` and a tensor that may be undefined.
using OptionalTensor = std::optional<at::Tensor>;
inline OptionalTensor IfDefined(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

// The data that a kernel reads of either; nullptr where there is none.
template <class T>
const T* DataOrNull(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}
template <class T>
const T* DataOrNull(const OptionalTensor& tensor) {
  return tensor ? DataOrNull<T>(*tensor) : nullptr;
}

}  // namespace permafrost::nn
