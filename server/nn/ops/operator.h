// Defines each operator of the library `permafrost` in one place: its schema, and the function that the CPU runs. A
// call of an Operator goes through the dispatcher, so a capture below autograd sees it. A capture does not see the
// work of a raw autograd::Function. Threads: any.
#pragma once

#include <ATen/ATen.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace permafrost::nn {

// Usage:
//   constexpr Operator<SumCpu> kSum{"sum(Tensor x, ...) -> Tensor"};
//   TORCH_LIBRARY_FRAGMENT(permafrost, library) { kSum.Register(library); }
// Then kSum(x, ...) calls the operator below autograd. The caller provides the gradient.
template <auto* kCpuKernel>
class Operator {
 public:
  explicit constexpr Operator(const char* schema) : schema_(schema) {}

  // Registers the operator. composite: the function for all other devices, made of other operators; may be null. gpu:
  // the function for a GPU with compiled kernels (nn/gpu); may be null.
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

// Converts a tensor that may be undefined to a schema's `Tensor?`.
using OptionalTensor = std::optional<at::Tensor>;
inline OptionalTensor IfDefined(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

// Returns the data that a kernel reads; null if there is no tensor.
template <class T>
const T* DataOrNull(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}
template <class T>
const T* DataOrNull(const OptionalTensor& tensor) {
  return tensor ? DataOrNull<T>(*tensor) : nullptr;
}

}  // namespace permafrost::nn
