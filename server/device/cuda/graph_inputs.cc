#include "device/cuda/graph_inputs.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace permafrost::device {
namespace {

bool IsOfShape(const at::Tensor& tensor, const at::Tensor& like) {
  if (!tensor.defined() || !like.defined()) return tensor.defined() == like.defined();
  return tensor.sizes() == like.sizes() && tensor.scalar_type() == like.scalar_type();
}

}  // namespace

GraphInputs::GraphInputs(const graphcache::StepInputs& batch, c10::Device device)
    : layout_(batch),
      buffer_(at::empty({layout_.bytes()}, at::TensorOptions().dtype(at::kByte).device(device))),
      inputs_(layout_.ViewsInto(buffer_, batch)),
      given_(inputs_.tensors.size()) {
  for (size_t i = 0; i < inputs_.tensors.size(); ++i) {
    at::Tensor& input = inputs_.tensors[i];
    const bool resident = std::ranges::find(inputs_.resident, i) != inputs_.resident.end();
    if (!input.defined() || layout_.place(i) || resident) continue;
    input = at::empty_like(input);
    own_.push_back(i);
  }
}

int64_t GraphInputs::bytes() const {
  int64_t bytes = layout_.bytes();
  for (const size_t i : own_) bytes += static_cast<int64_t>(inputs_.tensors[i].nbytes());
  return bytes;
}

absl::Status GraphInputs::Check(const graphcache::StepInputs& batch) const {
  if (InputLayout(batch) != layout_ || !std::ranges::equal(batch.tensors, inputs_.tensors, IsOfShape)) {
    return absl::InternalError("a graph of the device was given a batch of another shape than it was captured with");
  }
  for (const size_t place : inputs_.resident) {
    if (batch.tensors[place].const_data_ptr() == inputs_.tensors[place].const_data_ptr()) continue;
    return absl::InternalError(absl::StrCat("a graph of the device was given another tensor than it reads as input ",
                                            place, ", which is to be the same in every batch"));
  }
  return absl::OkStatus();
}

absl::Status GraphInputs::Take(const graphcache::StepInputs& batch, Staging& staging) {
  PF_RETURN_IF_ERROR(Check(batch));
  staging.UploadInto(batch, layout_, buffer_);
  const at::NoGradGuard no_grad;
  for (const size_t i : own_) {
    // The same tensor on the device is not copied again, such as a split's labels in each epoch.
    if (given_[i].is_same(batch.tensors[i])) continue;
    inputs_.tensors[i].copy_(batch.tensors[i], /*non_blocking=*/true);
    given_[i] = batch.tensors[i];
  }
  return absl::OkStatus();
}

}  // namespace permafrost::device
