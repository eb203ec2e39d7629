#include "nn/tensor_set.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "nn/ops/lowering.h"

namespace permafrost::nn {
namespace {

std::string Describe(const at::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.scalar_type() << tensor.sizes();
  return out.str();
}

bool IsPrefix(const std::string& prefix, const std::string& name) {
  return !prefix.empty() && name.starts_with(prefix) &&
         (name.size() == prefix.size() || prefix.back() == '.' || name[prefix.size()] == '.');
}

// Returns the prefix that a user would name: "convs.0" for "convs.0.lin_l.weight", "head" for "head.weight".
std::string StemOf(const std::string& name) {
  const size_t dot = name.find('.');
  if (dot == std::string::npos) return name;
  const size_t next = name.find_first_not_of("0123456789", dot + 1);
  return name.substr(0, next != dot + 1 && next != std::string::npos && name[next] == '.' ? next : dot);
}

// Lists the first kMost names, and tells how many more there are.
std::string Some(const std::set<std::string>& names) {
  constexpr size_t kMost = 12;
  std::string text;
  size_t told = 0;
  for (const std::string& name : names) {
    if (told++ == kMost) return absl::StrCat(text, ", and ", names.size() - kMost, " more");
    absl::StrAppend(&text, text.empty() ? "" : ", ", name);
  }
  return text;
}

}  // namespace

at::Tensor TensorSet::AddParameter(std::string name, at::Tensor value) {
  value.set_requires_grad(true);
  parameters_.push_back({std::move(name), value});
  return value;
}

at::Tensor TensorSet::AddBuffer(std::string name, at::Tensor value) {
  buffers_.push_back({std::move(name), value});
  return value;
}

at::Tensor TensorSet::AddFixedParameter(std::string name, at::Tensor value) {
  value.set_requires_grad(false);
  ++fixed_;
  fixed_values_ += value.numel();
  return AddBuffer(std::move(name), std::move(value));
}

absl::Status TensorSet::Fix(const std::vector<std::string>& prefixes) {
  std::set<std::string> used, stems;
  std::vector<NamedTensor> trained, fixed;
  for (const NamedTensor& p : parameters_) {
    stems.insert(StemOf(p.name));
    bool is_fixed = false;
    for (const std::string& prefix : prefixes) {
      if (!IsPrefix(prefix, p.name)) continue;
      used.insert(prefix);
      is_fixed = true;
    }
    (is_fixed ? fixed : trained).push_back(p);
  }
  for (const std::string& prefix : prefixes) {
    if (used.contains(prefix)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", prefix, "' begins the name of no parameter; there are ", Some(stems)));
  }
  if (trained.empty()) return absl::InvalidArgumentError("all parameters are fixed; at least one is to be trained");
  for (const NamedTensor& p : fixed) {
    AddFixedParameter(p.name, p.value);
  }
  parameters_ = std::move(trained);
  return absl::OkStatus();
}

std::vector<NamedTensor> TensorSet::All() const {
  std::vector<NamedTensor> all = parameters_;
  all.insert(all.end(), buffers_.begin(), buffers_.end());
  return all;
}

int64_t TensorSet::num_parameter_values() const {
  int64_t count = fixed_values_;
  for (const NamedTensor& p : parameters_) count += p.value.numel();
  return count;
}

absl::Status TensorSet::CopyFrom(const std::vector<NamedTensor>& values) { return CopyByName(values, All()); }

std::vector<NamedTensor> Clone(const std::vector<NamedTensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<NamedTensor> out;
  out.reserve(tensors.size());
  for (const NamedTensor& t : tensors) out.push_back({t.name, t.value.detach().clone()});
  return out;
}

void CopyInto(const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& to) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK(from.size() == to.size(), "CopyInto: ", from.size(), " tensors into ", to.size());
  for (size_t i = 0; i < from.size(); ++i) to[i].value.copy_(from[i].value);
}

absl::Status CopyByName(const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& to) {
  const at::NoGradGuard no_grad;
  std::unordered_map<std::string_view, const at::Tensor*> by_name;
  for (const NamedTensor& t : from) by_name[t.name] = &t.value;
  for (const NamedTensor& t : to) {
    const auto found = by_name.find(t.name);
    if (found == by_name.end()) return absl::InvalidArgumentError(absl::StrCat(t.name, ": missing"));
    const at::Tensor& value = *found->second;
    if (value.sizes() != t.value.sizes() || value.scalar_type() != t.value.scalar_type()) {
      return absl::InvalidArgumentError(
          absl::StrCat(t.name, ": is ", Describe(value), ", the model has ", Describe(t.value)));
    }
  }
  if (by_name.size() != to.size()) {
    for (const NamedTensor& t : to) by_name.erase(t.name);
    return absl::InvalidArgumentError(absl::StrCat(AbslView(by_name.begin()->first), ": the model has no such tensor"));
  }
  for (const NamedTensor& t : to) t.value.copy_(*by_name.at(t.name));
  return absl::OkStatus();
}

using at::Tensor;

Tensor Linear::operator()(const Tensor& x) const { return LinearRows(x, weight, bias); }

WeightMaker::WeightMaker(uint64_t seed, at::Device device, TensorSet& tensors)
    : device_(device), generator_(at::make_generator<at::CPUGeneratorImpl>(seed)), tensors_(tensors) {}

// draw(tensor) fills a CPU tensor and returns it.
template <class Draw>
Tensor WeightMaker::Drawn(std::string name, at::IntArrayRef sizes, const Draw& draw) {
  Tensor value = at::empty(sizes, at::TensorOptions(at::kFloat).device(device_.is_meta() ? device_ : at::kCPU));
  if (!device_.is_meta()) value = draw(value).to(device_);
  return tensors_.AddParameter(std::move(name), std::move(value));
}

Tensor WeightMaker::Uniform(std::string name, at::IntArrayRef sizes, double bound) {
  return Drawn(std::move(name), sizes, [&](Tensor& value) { return value.uniform_(-bound, bound, generator_); });
}

Tensor WeightMaker::Filled(std::string name, at::IntArrayRef sizes, double value) {
  return tensors_.AddParameter(std::move(name), at::full(sizes, value, at::TensorOptions(at::kFloat).device(device_)));
}

Tensor WeightMaker::Glorot(std::string name, at::IntArrayRef sizes, int64_t in, int64_t out) {
  return Uniform(std::move(name), sizes, std::sqrt(6.0 / static_cast<double>(in + out)));
}

Tensor WeightMaker::Normal(std::string name, at::IntArrayRef sizes) {
  return Drawn(std::move(name), sizes, [&](Tensor& value) { return value.normal_(0, 1, generator_); });
}

Linear WeightMaker::MakeLinear(const std::string& name, int64_t in, int64_t out) {
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  const Tensor weight = Uniform(name + ".weight", {out, in}, bound);
  return {weight, Uniform(name + ".bias", {out}, bound)};
}

Tensor WeightMaker::Buffer(std::string name, at::IntArrayRef sizes, double value, at::ScalarType type) {
  return tensors_.AddBuffer(std::move(name), at::full(sizes, value, at::TensorOptions(type).device(device_)));
}

}  // namespace permafrost::nn
