#include "collective/group.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>

namespace permafrost::collective {
namespace {

thread_local Group* scope_group = nullptr;
thread_local bool is_apart = false;
thread_local const at::Tensor* part_count = nullptr;

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

Part::Part(const at::Tensor& count) : outer_(std::exchange(part_count, &count)) {}
Part::~Part() { part_count = outer_; }

at::Tensor OwnGradient(const at::Tensor& gradient) {
  return part_count == nullptr ? gradient : at::where(*part_count > 0, gradient, 0.0);
}

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
  void ShareRows(at::Tensor& x, std::span<const int64_t> firsts) override { group_.ShareRows(x, firsts); }
  void Broadcast(at::Tensor& x) override { group_.Broadcast(x); }
  absl::Status failure() const override { return group_.failure(); }
  Traffic traffic() const override { return group_.traffic(); }

 private:
  // In the first run, calls ask(), which sets `result`. In later runs, sets `result` to its value in the first run.
  // Keeps values as bytes, since a tensor's storage lasts only as long as the step.
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
    // If known_ is not 0, this run exchanges more values than the first one, but the other ranks take no part in this
    // run.
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

namespace {

at::Tensor CallAllReduceSum(const at::Tensor& x) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("permafrost::all_reduce_sum", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  return op.call(x);
}

class AllReduceSumFunction : public torch::autograd::Function<AllReduceSumFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x) {
    return CallAllReduceSum(x);
  }
  // Sums the gradients over ranks, because each rank's loss is a part of the whole loss.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& gradients) {
    return {CallAllReduceSum(OwnGradient(gradients[0]))};
  }
};

}  // namespace

at::Tensor AllReduceSum(const at::Tensor& x) { return AllReduceSumFunction::apply(x); }

std::vector<at::Tensor> AllReduceSum(const std::vector<at::Tensor>& tensors, std::optional<at::ScalarType> on_wire) {
  std::vector<at::Tensor> flat;
  flat.reserve(tensors.size());
  for (const at::Tensor& t : tensors) flat.push_back(t.reshape({-1}));
  const at::Tensor own = at::cat(flat);
  const at::Tensor sum = on_wire ? AllReduceSum(own.to(*on_wire)).to(own.scalar_type()) : AllReduceSum(own);
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
  // from_blob takes no pointer to const, but nothing is written to x.
  const at::Tensor from = at::from_blob(const_cast<double*>(x.data()), {std::ssize(x)}, at::kDouble);
  at::Tensor to = at::from_blob(all.data(), {std::ssize(all)}, at::kDouble);
  AllGather(from, to);
  return all;
}

at::Tensor Group::AllGatherRows(const at::Tensor& rows) {
  at::Tensor counts = at::empty({size()}, at::kLong);
  AllGather(at::full({1}, rows.size(0), at::kLong), counts);
  // A larger number of rows is an error, since no dataset has more graphs than this.
  constexpr int64_t kMostRows = int64_t{1} << 32;
  const int64_t most = counts.max().item<int64_t>();
  TORCH_CHECK(counts.min().item<int64_t>() >= 0 && most <= kMostRows, "a rank sends ", most, " rows");
  std::vector<int64_t> firsts{0};
  for (int64_t r = 0; r < size(); ++r) firsts.push_back(firsts.back() + counts[r].item<int64_t>());
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes[0] = firsts.back();
  at::Tensor all = at::empty(sizes, rows.options());
  all.narrow(0, firsts[static_cast<size_t>(rank())], rows.size(0)).copy_(rows);
  ShareRows(all, firsts);
  return all;
}

void Group::BroadcastAll(std::span<at::Tensor> x) {
  constexpr size_t kSmall = 64 << 10;
  const auto is_small = [](const at::Tensor& t) { return t.nbytes() <= kSmall; };
  size_t bytes = 0;
  for (const at::Tensor& t : x) bytes += is_small(t) ? t.nbytes() : 0;
  at::Tensor together = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  const auto each_small = [&](const auto& copy) {
    auto* at = together.mutable_data_ptr<uint8_t>();
    for (at::Tensor& t : x) {
      if (!is_small(t)) continue;
      TORCH_CHECK(t.is_cpu() && t.is_contiguous(), "ranks exchange dense tensors of the CPU");
      copy(at, static_cast<uint8_t*>(t.mutable_data_ptr()), t.nbytes());
      at += t.nbytes();
    }
  };
  if (leads()) each_small([](uint8_t* to, const uint8_t* from, size_t size) { std::copy_n(from, size, to); });
  Broadcast(together);
  if (!leads()) each_small([](const uint8_t* from, uint8_t* to, size_t size) { std::copy_n(from, size, to); });
  for (at::Tensor& t : x) {
    if (!is_small(t)) Broadcast(t);
  }
}

std::string Group::BroadcastText(std::string text, int64_t most) {
  at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  Broadcast(size);
  TORCH_CHECK(size.item<int64_t>() >= 0 && size.item<int64_t>() <= most, "rank 0 sends ", size.item<int64_t>(),
              " bytes; accepted: at most ", most);
  at::Tensor bytes = at::zeros({size.item<int64_t>()}, at::kByte);
  if (leads()) std::memcpy(bytes.mutable_data_ptr<uint8_t>(), text.data(), text.size());
  if (bytes.numel() == 0) return {};
  Broadcast(bytes);
  return {reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>()), static_cast<size_t>(bytes.numel())};
}

}  // namespace permafrost::collective
