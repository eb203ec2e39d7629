#include "train/loop/state_aside.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/status.h"
#include "device/fault.h"

namespace permafrost::train {

AveragedWeights::AveragedWeights(nn::TensorSet& tensors, const nn::Optimizer& optimizer)
    : tensors_(tensors), optimizer_(optimizer) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& average : optimizer.averages()) aside_.push_back(at::empty_like(average));
}

std::vector<nn::NamedTensor> AveragedWeights::All() const {
  std::vector<nn::NamedTensor> all = tensors_.All();
  if (!optimizer_.has_averages()) return all;
  for (size_t i = 0; i < aside_.size(); ++i) all[i].value = optimizer_.averages()[i];
  return all;
}

AveragedWeights::Scope::Scope(AveragedWeights& weights) : weights_(weights) {
  const at::NoGradGuard no_grad;
  const auto& parameters = weights.optimizer_.parameters();
  const auto& averages = weights.optimizer_.averages();
  for (size_t i = 0; i < weights.aside_.size(); ++i) {
    weights.aside_[i].copy_(parameters[i]);
    if (weights.optimizer_.has_averages()) parameters[i].copy_(averages[i]);
  }
}

AveragedWeights::Scope::~Scope() {
  device::UnlessFatal([this] {
    const at::NoGradGuard no_grad;
    const auto& parameters = weights_.optimizer_.parameters();
    for (size_t i = 0; i < weights_.aside_.size(); ++i) parameters[i].copy_(weights_.aside_[i]);
  });
}

namespace {

namespace fs = std::filesystem;

// The least size of a tensor to be parked. A smaller tensor costs less as a copy in memory than as a part of the
// file.
constexpr size_t kLeastBytes = size_t{64} << 10;

bool IsWorthParking(const at::Tensor& tensor) {
  if (!tensor.is_cpu() || !tensor.is_contiguous() || tensor.nbytes() < kLeastBytes) return false;
  return !AreZero({static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()});
}

// Opens a new file that has no name.
absl::StatusOr<Descriptor> OpenUnnamed(const fs::path& directory) {
#ifdef O_TMPFILE
  if (Descriptor file = OpenRetrying(directory, O_TMPFILE | O_RDWR, 0600); file.valid()) return file;
#endif
  std::string name = (directory / ".parked-XXXXXX").string();
  Descriptor file(mkostemp(name.data(), O_CLOEXEC));
  if (!file.valid()) return SystemError(errno, directory, "make a file in");
  unlink(name.c_str());
  return file;
}

absl::Status ReadInto(int fd, const fs::path& directory, std::span<char> to) {
  while (!to.empty()) {
    const ssize_t count = read(fd, to.data(), to.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(errno, directory, "read a file without a name in");
    if (count == 0)
      return absl::DataLossError(absl::StrCat(directory.string(), ": a file without a name is too short"));
    to = to.subspan(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<ParkedState>> ParkedState::Park(const fs::path& directory, const DiskReserve& reserve,
                                                             const std::vector<nn::NamedTensor>& tensors) {
  std::vector<Parked> parked;
  uint64_t bytes = 0;
  for (const nn::NamedTensor& named : tensors) {
    const at::Tensor value = named.value.detach();
    if (!IsWorthParking(value)) continue;
    bytes += value.nbytes();
    parked.push_back({.tensor = value, .hash = Hash128(value.const_data_ptr(), value.nbytes())});
  }
  if (parked.empty()) return std::nullopt;
  PF_RETURN_IF_ERROR(reserve.Check(bytes));
  PF_ASSIGN_OR_RETURN(Descriptor file, OpenUnnamed(directory));
  for (const Parked& p : parked) {
    PF_RETURN_IF_ERROR(
        WriteAll(file.get(), directory, {static_cast<const char*>(p.tensor.const_data_ptr()), p.tensor.nbytes()}));
  }
  for (const Parked& p : parked) at::Tensor(p.tensor).zero_();
  return ParkedState(std::move(file), directory, std::move(parked));
}

absl::Status ParkedState::Restore() {
  if (lseek(file_.get(), 0, SEEK_SET) != 0) return AsTransient(SystemError(errno, directory_, "read a file in"));
  for (const Parked& p : parked_) {
    char* const data = static_cast<char*>(p.tensor.mutable_data_ptr());
    if (const absl::Status read = ReadInto(file_.get(), directory_, {data, p.tensor.nbytes()}); !read.ok()) {
      return AsTransient(read);
    }
    if (Hash128(data, p.tensor.nbytes()) == p.hash) continue;
    return AsTransient(absl::DataLossError(
        absl::StrCat(directory_.string(), ": a file without a name has other bytes than were written")));
  }
  return absl::OkStatus();
}

std::string FindNotFinite(const std::vector<nn::NamedTensor>& tensors) {
  for (const nn::NamedTensor& named : tensors) {
    if (!named.value.is_floating_point() || named.value.numel() == 0) continue;
    if (!named.value.cpu().isfinite().all().item<bool>()) return named.name;
  }
  return {};
}

absl::Status NonFiniteError(const std::string& message) {
  return WithReason(absl::FailedPreconditionError(message), "NON_FINITE_LOSS");
}

void CarefulSteps::Keep() {
  if (kept_.empty()) {
    kept_ = nn::Clone(tensors_);
  } else {
    nn::CopyInto(tensors_, kept_);
  }
}

}  // namespace permafrost::train
