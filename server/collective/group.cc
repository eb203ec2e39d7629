#include "collective/group.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <cstring>

namespace permafrost::collective {
namespace {

thread_local Group* scope_group = nullptr;
thread_local bool is_apart = false;

at::Tensor AllReduceSumCpu(const at::Tensor& x) {
  at::Tensor sum = x.clone(at::MemoryFormat::Contiguous);
  if (Group* const group = Current()) group->AllReduceSum(sum);
  return sum;
}

}  // namespace

Scope::Scope(Group* group) : outer_(std::exchange(scope_group, group)) {}
Scope::~Scope() { scope_group = outer_; }

Apart::Apart() : outer_(std::exchange(is_apart, true)) {}
Apart::~Apart() { is_apart = outer_; }

class Rerun::Recorder final : public Group {
 public:
  explicit Recorder(Group& group) : Group(group.rank(), group.size()), group_(group) {}

  void Again() {
    known_ = values_.size();
    next_ = 0;
  }

  void Meet() override { group_.Meet(); }
  void AllReduceSum(at::Tensor& x) override {
    Exchange(x, [&] { group_.AllReduceSum(x); });
  }
  void AllGather(const at::Tensor& x, at::Tensor& all) override {
    Exchange(all, [&] { group_.AllGather(x, all); });
  }
  void Broadcast(at::Tensor& x) override { group_.Broadcast(x); }
  absl::Status failure() const override { return group_.failure(); }
  Traffic traffic() const override { return group_.traffic(); }

 private:
  // It keeps bytes, and no tensors, whose storage lasts as long as the step.
  template <class Ask>
  void Exchange(at::Tensor& result, const Ask& ask) {
    const size_t bytes = result.nbytes();
    auto* const data = static_cast<char*>(result.mutable_data_ptr());
    if (next_ < known_) {
      const std::string& value = values_[next_++];
      TORCH_CHECK(value.size() == bytes, "a rerun exchanges ", bytes, " bytes where the run before it exchanged ",
                  value.size());
      std::memcpy(data, value.data(), bytes);
      return;
    }
    // Another step than the one before it: the other ranks are not there to answer.
    TORCH_CHECK(known_ == 0, "a rerun exchanges more values than the run before it");
    ask();
    values_.emplace_back(data, bytes);
  }

  Group& group_;
  std::vector<std::string> values_;
  size_t known_ = 0, next_ = 0;
};

Rerun::Rerun() {
  if (Group* const group = Current()) {
    recorder_ = std::make_unique<Recorder>(*group);
    scope_.emplace(recorder_.get());
  }
}
Rerun::~Rerun() = default;

void Rerun::Again() {
  if (recorder_) recorder_->Again();
}

bool IsShared() { return scope_group != nullptr; }
Group* Current() { return is_apart ? nullptr : scope_group; }

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  library.def("all_reduce_sum(Tensor x) -> Tensor");
  library.impl("all_reduce_sum", torch::dispatch(c10::DispatchKey::CPU, AllReduceSumCpu));
}

at::Tensor AllReduceSum(const at::Tensor& x) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("permafrost::all_reduce_sum", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  return op.call(x);
}

std::vector<at::Tensor> AllReduceSum(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  flat.reserve(tensors.size());
  for (const at::Tensor& t : tensors) flat.push_back(t.reshape({-1}));
  const at::Tensor sum = AllReduceSum(at::cat(flat));
  std::vector<at::Tensor> sums;
  sums.reserve(tensors.size());
  int64_t begin = 0;
  for (const at::Tensor& t : tensors) {
    sums.push_back(sum.narrow(0, begin, t.numel()).view(t.sizes()));
    begin += t.numel();
  }
  return sums;
}

std::vector<double> Group::AllGather(std::span<const double> x) {
  std::vector<double> all(x.size() * static_cast<size_t>(size()));
  // from_blob takes no pointer to what is const; nothing is written there.
  const at::Tensor from = at::from_blob(const_cast<double*>(x.data()), {std::ssize(x)}, at::kDouble);
  at::Tensor to = at::from_blob(all.data(), {std::ssize(all)}, at::kDouble);
  AllGather(from, to);
  return all;
}

at::Tensor Group::AllGatherRows(const at::Tensor& rows) {
  at::Tensor counts = at::empty({size()}, at::kLong);
  AllGather(at::full({1}, rows.size(0), at::kLong), counts);
  // No set has more graphs than this.
  constexpr int64_t kMostRows = int64_t{1} << 32;
  const int64_t most = counts.max().item<int64_t>();
  TORCH_CHECK(counts.min().item<int64_t>() >= 0 && most <= kMostRows, "a rank sends ", most, " rows");
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes[0] = most;
  at::Tensor padded = at::zeros(sizes, rows.options());
  padded.narrow(0, 0, rows.size(0)).copy_(rows);
  at::Tensor all = at::empty({size() * padded.numel()}, rows.options());
  if (padded.numel() > 0) AllGather(padded, all);
  sizes.insert(sizes.begin(), size());
  all = all.view(sizes);
  std::vector<at::Tensor> parts;
  for (int64_t r = 0; r < size(); ++r) parts.push_back(all[r].narrow(0, 0, counts[r].item<int64_t>()));
  return at::cat(parts);
}

std::string Group::BroadcastText(std::string text) {
  at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  Broadcast(size);
  constexpr int64_t kMostText = 1 << 24;
  TORCH_CHECK(size.item<int64_t>() >= 0 && size.item<int64_t>() <= kMostText, "rank 0 sends a text of ",
              size.item<int64_t>(), " bytes");
  at::Tensor bytes = at::zeros({size.item<int64_t>()}, at::kByte);
  if (leads()) std::memcpy(bytes.mutable_data_ptr<uint8_t>(), text.data(), text.size());
  if (bytes.numel() == 0) return {};
  Broadcast(bytes);
  return {reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>()), static_cast<size_t>(bytes.numel())};
}

}  // namespace permafrost::collective
