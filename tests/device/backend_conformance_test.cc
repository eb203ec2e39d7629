// The duties of every backend to its callers (device/backend.h), tested on each backend that is present here.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/AutogradState.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/backend.h"

namespace permafrost::device {
namespace {

using at::Tensor;
using graphcache::StepInputs;
using testing::HasSubstr;
using Tensors = std::vector<Tensor>;

// Fits a line to the real rows of a padded batch by gradient descent.
class Fit {
 public:
  explicit Fit(c10::Device device) {
    weight_ = at::tensor({0.5F, -1.0F, 2.0F, 0.25F}).reshape({4, 1}).to(device).requires_grad_(true);
    bias_ = at::zeros({1}).to(device).requires_grad_(true);
    rate_ = at::full({}, 0.01).to(device);
    steps_ = at::zeros({}, at::kLong).to(device);
    program_.run = [this](const StepInputs& in) { return Step(in); };
    program_.state = {{"weight", weight_}, {"bias", bias_}, {"rate", rate_}, {"steps", steps_}};
    program_.on_phase = [this](int phase) { phases_.push_back(phase); };
  }
  Fit(const Fit&) = delete;

  const StepProgram& program() const { return program_; }
  std::vector<int>& phases() { return phases_; }
  Tensors State() const {
    Tensors out;
    for (const StateTensor& s : program_.state) out.push_back(s.value.detach().to(at::kCPU).clone());
    return out;
  }

 private:
  // The inputs are x [rows, 4], y [rows, 1] and the number of real rows [1].
  Tensors Step(const StepInputs& in) {
    const Tensor &x = in.tensors[0], &y = in.tensors[1], &real = in.tensors[2];
    const Tensor prediction = x.mm(weight_) + bias_;
    const Tensor is_real = at::arange(x.size(0), real.options()).lt(real).unsqueeze(1);
    const Tensor error = at::where(is_real, (prediction - y).square(), at::zeros({}, x.options()));
    const Tensor loss = error.sum() / real.to(x.scalar_type());
    const Tensors gradients = torch::autograd::grad({loss}, {weight_, bias_});
    MarkPhase(1, program_.on_phase);
    const at::NoGradGuard no_grad;
    weight_.sub_(gradients[0] * rate_);
    bias_.sub_(gradients[1] * rate_);
    steps_.add_(1);
    return {loss.detach(), prediction.detach()};
  }

  Tensor weight_, bias_, rate_, steps_;
  StepProgram program_;
  std::vector<int> phases_;
};

// Makes `real` rows that depend on the seed alone, and padding up to `rows` with arbitrary values.
StepInputs Batch(int64_t real, int64_t rows, int seed, c10::Device device) {
  at::manual_seed(static_cast<uint64_t>(seed));
  const Tensor x = at::randn({real, 4}), y = at::randn({real, 1});
  const Tensor padding = at::full({rows - real, 4}, 1e3);
  return {{at::cat({x, padding}).to(device), at::cat({y, padding.narrow(1, 0, 1)}).to(device),
           at::full({1}, real, at::kLong).to(device)}};
}

class BackendConformance : public testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    auto opened = OpenBackend(GetParam());
    if (!opened.ok()) {
      EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(std::string(opened.status().message()), HasSubstr(std::string(kDeviceNames.Name(GetParam()))));
      GTEST_SKIP() << opened.status().message();
    }
    backend_ = *std::move(opened);
    ASSERT_EQ(backend_->CheckCapture(), absl::OkStatus());
    ASSERT_EQ(backend_->Enter(), absl::OkStatus());
    // The backward pass runs on this thread, as in a step (train/loop/step_engine.cc).
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    capturer_ = backend_->MakeCapturer();
  }
  void TearDown() override { c10::AutogradState::get_tls_state().set_multithreading_enabled(true); }
  StepInputs Inputs(int64_t real, int64_t rows, int seed) const { return Batch(real, rows, seed, backend_->device()); }
  std::unique_ptr<graphcache::Executable> Capture(const StepProgram& program, int64_t rows) {
    auto made = capturer_->Capture(program, Inputs(rows - 1, rows, 1), Inputs(rows - 2, rows, 2));
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }
  static Tensors Replay(graphcache::Executable& executable, const StepInputs& inputs) {
    const auto result = executable.Replay(inputs);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? (*result)->tensors : Tensors();
  }
  // Expects equal bits if the backend replays a recording, and close values otherwise.
  void ExpectAsEager(const Tensors& got, const Tensors& want) const {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const Tensor a = got[i].to(at::kCPU), b = want[i].to(at::kCPU);
      EXPECT_TRUE(backend_->records() ? a.equal(b) : a.allclose(b, 1e-4, 1e-5)) << i << ": " << a << " against " << b;
    }
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Capturer> capturer_;
};

TEST_P(BackendConformance, IsTheDeviceThatWasAskedFor) {
  EXPECT_EQ(backend_->kind(), GetParam());
  EXPECT_EQ(at::ones({1}).to(backend_->device()).device(), backend_->device());
  EXPECT_GT(backend_->memory_bytes(), int64_t{64} << 20);
  backend_->Synchronize();
}

TEST_P(BackendConformance, AReplayIsTheEagerStep) {
  Fit eager(backend_->device()), replayed(backend_->device());
  const auto executable = Capture(replayed.program(), 9);
  ASSERT_NE(executable, nullptr);
  for (int step = 0; step < 5; ++step) {
    const StepInputs batch = Inputs(8, 9, 10 + step);
    const Tensors want = eager.program().run(batch);
    ExpectAsEager(Replay(*executable, batch), want);
    ExpectAsEager(replayed.State(), eager.State());
  }
  EXPECT_GT(executable->bytes(), 0);
}

// The batches of jobs are on the host.
TEST_P(BackendConformance, ABatchOnTheHostIsReplayedAndRunAsOneOnTheDevice) {
  Fit eager(backend_->device()), replayed(backend_->device()), run(backend_->device());
  const auto on_host = [](int seed) { return Batch(8, 9, seed, at::kCPU); };
  const auto executable = capturer_->Capture(replayed.program(), on_host(1), Batch(7, 9, 2, at::kCPU));
  ASSERT_TRUE(executable.ok()) << executable.status();
  for (int step = 0; step < 7; ++step) {
    const Tensors want = eager.program().run(Inputs(8, 9, 10 + step));
    ExpectAsEager(Replay(**executable, on_host(10 + step)), want);
    ExpectAsEager(capturer_->RunEager(run.program(), on_host(10 + step)), want);
  }
  ExpectAsEager(replayed.State(), eager.State());
  ExpectAsEager(run.State(), eager.State());
}

TEST_P(BackendConformance, APaddedReplayIsTheExactStep) {
  Fit exact(backend_->device()), padded(backend_->device());
  const auto executable = Capture(padded.program(), 40);
  ASSERT_NE(executable, nullptr);
  for (int step = 0; step < 5; ++step) {
    const Tensor want = exact.program().run(Inputs(8, 9, 20 + step)).at(0);
    const Tensor got = Replay(*executable, Inputs(8, 40, 20 + step)).at(0);
    EXPECT_TRUE(got.to(at::kCPU).allclose(want.to(at::kCPU), 1e-5, 1e-6));
  }
  const Tensors a = padded.State(), b = exact.State();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].allclose(b[i], 1e-5, 1e-6)) << i;
}

TEST_P(BackendConformance, ACaptureLeavesNoTraceAndAReplayTellsItsPhases) {
  Fit fit(backend_->device());
  const Tensors before = fit.State();
  at::manual_seed(3);
  const Tensor drawn = at::rand({4});
  const StepInputs first = Inputs(8, 9, 1), second = Inputs(7, 9, 2);
  at::manual_seed(3);
  const auto executable = capturer_->Capture(fit.program(), first, second);
  ASSERT_TRUE(executable.ok()) << executable.status();
  EXPECT_TRUE(at::rand({4}).equal(drawn)) << "the generator";
  const Tensors after = fit.State();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(after[i].equal(before[i])) << i;
  EXPECT_THAT(fit.phases(), testing::IsEmpty());
  Replay(**executable, first);
  EXPECT_THAT(fit.phases(), testing::ElementsAre(1));
}

TEST_P(BackendConformance, ExecutablesOfOneCapturerServeInTurn) {
  Fit eager(backend_->device()), replayed(backend_->device());
  const auto small = Capture(replayed.program(), 9), large = Capture(replayed.program(), 300);
  ASSERT_TRUE(small != nullptr && large != nullptr);
  for (int step = 0; step < 4; ++step) {
    const int64_t rows = step % 2 == 0 ? 9 : 300;
    const StepInputs batch = Inputs(8, rows, 30 + step);
    const Tensors want = eager.program().run(batch);
    ExpectAsEager(Replay(step % 2 == 0 ? *small : *large, batch), want);
  }
  ExpectAsEager(replayed.State(), eager.State());
}

TEST_P(BackendConformance, ADynamicExecutableIsTheEagerStepAtEveryShape) {
  Fit eager(backend_->device()), replayed(backend_->device());
  StepInputs probe;
  const auto probes = [&](size_t i) -> absl::StatusOr<const StepInputs*> {
    constexpr std::array<int64_t, kDynamicProbes> kRows{80, 13, 29, 50};
    probe = Inputs(kRows[i] - 1, kRows[i], static_cast<int>(i));
    return &probe;
  };
  const auto made = capturer_->CaptureDynamic(replayed.program(), probes);
  if (!backend_->records()) {
    EXPECT_EQ(made.status().code(), absl::StatusCode::kUnimplemented);
    return;
  }
  ASSERT_TRUE(made.ok()) << made.status();
  const int64_t shared = capturer_->shared_bytes(), bytes = (*made)->bytes();
  for (int64_t rows = 2; rows < 100; ++rows) {
    const StepInputs batch = Inputs(rows - 1, rows, static_cast<int>(rows));
    const Tensors want = eager.program().run(batch);
    ExpectAsEager(Replay(**made, batch), want);
  }
  ExpectAsEager(replayed.State(), eager.State());
  EXPECT_EQ(capturer_->shared_bytes(), shared);
  EXPECT_EQ((*made)->bytes(), bytes);
}

TEST_P(BackendConformance, AValueReadBackIsAGraphBreakAndIsTold) {
  if (backend_->kind() == DeviceKind::kMps) GTEST_SKIP() << "runs the program as it is: nothing breaks";
  Fit fit(backend_->device());
  const Tensors before = fit.State();
  StepProgram program = fit.program();
  program.run = [&](const StepInputs& in) {
    Tensors out = fit.program().run(in);
    if (out[0].item<float>() > 1e30F) out.pop_back();
    return out;
  };
  const auto captured = capturer_->Capture(program, Inputs(8, 9, 1), Inputs(7, 9, 2));
  EXPECT_EQ(captured.status().code(), absl::StatusCode::kFailedPrecondition);
  const ErrorReason reason = GetReason(captured.status());
  EXPECT_EQ(reason.reason, graphcache::kGraphBreakReason);
  EXPECT_EQ(reason.metadata.at("op"), "aten::_local_scalar_dense");
  EXPECT_THAT(reason.metadata.at("why"), HasSubstr("reads a value back"));
  const Tensors after = fit.State();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(after[i].equal(before[i])) << i;
}

TEST_P(BackendConformance, StorageIsCounted) {
  constexpr int64_t kBytes = 4 << 20;
  const auto allocate = [&] {
    return at::empty({kBytes / 4}, at::TensorOptions().dtype(at::kFloat).device(backend_->device()));
  };
  { const Tensor first = allocate(); }  // the device keeps some memory after a first use
  backend_->RestartStoragePeak();
  const StorageUse before = backend_->storage();
  {
    const Tensor held = allocate();
    const StorageUse during = backend_->storage();
    EXPECT_GE(during.bytes, before.bytes + kBytes);
    EXPECT_LT(during.bytes, before.bytes + 2 * kBytes);
    EXPECT_GE(during.peak_bytes, during.bytes);
  }
  backend_->Synchronize();
  const StorageUse after = backend_->storage();
  EXPECT_EQ(after.bytes, before.bytes);
  EXPECT_GE(after.peak_bytes, before.bytes + kBytes);
  EXPECT_TRUE(after.allocations == 0 || after.allocations > before.allocations);
}

std::vector<DeviceKind> EveryKind() {
  std::vector<DeviceKind> kinds;
  for (const auto& [kind, name] : kDeviceNames.rows)
    if (kind != DeviceKind::kAuto) kinds.push_back(kind);
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Devices, BackendConformance, testing::ValuesIn(EveryKind()),
                         [](const auto& kind) { return std::string(kDeviceNames.Name(kind.param)); });

TEST(Backend, AutoOpensWhatIsThere) {
  const auto backend = OpenBackend(DeviceKind::kAuto);
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_NE((*backend)->kind(), DeviceKind::kAuto);
}

TEST(Backend, ThreadsAreAtLeastOne) {
  EXPECT_EQ(UseThreads(1), 1);
  EXPECT_GE(UseThreads(0), 1);
}

}  // namespace
}  // namespace permafrost::device
