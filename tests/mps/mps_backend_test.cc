// Tests the MPS backend with this process's fake hooks.
#include <ATen/ATen.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>

#include "device/backend.h"
#include "device/mps/mps_backend.h"
#include "device/mps/stand_in.h"
#include "fake_mps.h"

namespace permafrost::device {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class MpsBackendTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!MpsStandIn::present()) GTEST_SKIP() << "MPS is real here";
    fake_.Reset();
  }
  std::unique_ptr<Backend> Open(const BackendOptions& options = {}) {
    auto backend = OpenBackend(DeviceKind::kMps, options);
    EXPECT_TRUE(backend.ok()) << backend.status();
    return backend.ok() ? *std::move(backend) : nullptr;
  }
  // Runs a step that multiplies matrices with `rows` rows.
  static absl::Status Step(int64_t rows) {
    const auto options = at::TensorOptions().dtype(at::kFloat).device(c10::kMPS);
    const at::Tensor product = at::mm(at::ones({rows, 4}, options), at::ones({4, 2}, options));
    return product.sizes() == at::IntArrayRef({rows, 2}) ? absl::OkStatus() : absl::InternalError("no product");
  }
  static int64_t Emptied(const Backend& backend, EmptyReason reason) {
    return backend.Observe().empty_caches.at(std::string(kEmptyReasonNames.Name(reason)));
  }

  FakeMps& fake_ = FakeMps::Get();
  const MpsStandIn within_;
};

// Runs a short version of a job's calls to a backend.
absl::Status TwoStepsAndAnEmptiedCache(const Backend& backend, const std::function<absl::Status(int64_t)>& step) {
  absl::Status status = backend.Enter();
  status.Update(backend.Within([&] {
    absl::Status inner = backend.Within([&] { return step(5); });
    inner.Update(backend.EndStep().status());
    inner.Update(backend.EmptyCaches(EmptyReason::kNever));
    inner.Update(backend.Within([&] { return step(7); }));
    inner.Update(backend.EndStep().status());
    return inner;
  }));
  return status;
}

// Behaves like the real backend, except for one method.
class Mutated : public Backend {
 public:
  explicit Mutated(const Backend& real) : real_(real) {}
  DeviceKind kind() const override { return real_.kind(); }
  c10::Device device() const override { return real_.device(); }
  void Synchronize() const override { real_.Synchronize(); }
  absl::Status CheckCapture() const override { return real_.CheckCapture(); }
  bool records() const override { return real_.records(); }
  std::unique_ptr<Capturer> MakeCapturer() const override { return real_.MakeCapturer(); }
  StorageUse storage() const override { return real_.storage(); }
  void RestartStoragePeak() const override { real_.RestartStoragePeak(); }
  DeviceState Observe() const override { return real_.Observe(); }
  int64_t memory_bytes() const override { return real_.memory_bytes(); }
  absl::Status Enter() const override { return real_.Enter(); }
  absl::Status Within(const std::function<absl::Status()>& step) const override { return real_.Within(step); }
  absl::StatusOr<bool> EndStep() const override { return real_.EndStep(); }
  absl::Status EmptyCaches(EmptyReason reason) const override { return real_.EmptyCaches(reason); }

 protected:
  const Backend& real_;
};
class WithoutAPool final : public Mutated {
  using Mutated::Mutated;
  absl::Status Within(const std::function<absl::Status()>& step) const override { return step(); }
};
class EmptiedWithinAStep final : public Mutated {
  using Mutated::Mutated;
  absl::Status EmptyCaches(EmptyReason reason) const override {
    return real_.Within([&] { return real_.EmptyCaches(reason); });
  }
};
class OnAThreadOfItsOwn final : public Mutated {
  using Mutated::Mutated;
  absl::Status Within(const std::function<absl::Status()>& step) const override {
    absl::Status status;
    std::thread([&] {
      const MpsStandIn within;
      const AutoreleasePool pool;
      status = step();
    }).join();
    return status;
  }
};
class EmptiedWithoutWaiting final : public Mutated {
  using Mutated::Mutated;
  absl::Status EmptyCaches(EmptyReason reason) const override {
    absl::Status status = real_.EmptyCaches(reason);
    at::detail::getMPSHooks().emptyCache();
    return status;
  }
};

TEST_F(MpsBackendTest, AJobBreaksNoRule) {
  const auto backend = Open();
  EXPECT_EQ(TwoStepsAndAnEmptiedCache(*backend, Step), absl::OkStatus());
  EXPECT_THAT(fake_.violations(), IsEmpty());
  EXPECT_THAT(fake_.calls(), Not(IsEmpty()));
}

// The checks above detect each fault that they exist for.
TEST_F(MpsBackendTest, EachMutationIsNoticed) {
  const auto run = [&](const char* line, const auto& make) {
    fake_.Reset();
    const auto backend = Open();
    const auto mutated = make(*backend);
    static_cast<void>(TwoStepsAndAnEmptiedCache(mutated, Step));
    EXPECT_THAT(fake_.violations(), Contains(HasSubstr(line)));
  };
  run("outside of an autorelease pool", [](const Backend& b) { return WithoutAPool(b); });
  run("within a step", [](const Backend& b) { return EmptiedWithinAStep(b); });
  run("on a second thread", [](const Backend& b) { return OnAThreadOfItsOwn(b); });
  run("while operators may run", [](const Backend& b) { return EmptiedWithoutWaiting(b); });
}

TEST_F(MpsBackendTest, OnlyItsThreadMayUseIt) {
  const auto backend = Open();
  ASSERT_EQ(backend->Enter(), absl::OkStatus());
  ASSERT_EQ(backend->Enter(), absl::OkStatus()) << "again";
  int ran = 0;
  std::thread([&] {
    const auto expect_refused = [](const absl::Status& status, std::string_view what) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << what;
      EXPECT_THAT(std::string(status.message()), HasSubstr("another thread")) << what;
    };
    expect_refused(backend->Enter(), "Enter");
    expect_refused(backend->Within([&] {
      ++ran;
      return absl::OkStatus();
    }),
                   "Within");
    expect_refused(backend->EndStep().status(), "EndStep");
    expect_refused(backend->EmptyCaches(EmptyReason::kNever), "EmptyCaches");
    EXPECT_THROW(backend->Synchronize(), c10::Error);
    // These two are safe on any thread.
    backend->Observe();
    backend->storage();
  }).join();
  EXPECT_EQ(ran, 0);
  EXPECT_THAT(fake_.violations(), IsEmpty());
}

TEST_F(MpsBackendTest, NothingIsReadBeforeItsThreadIsKnown) {
  const auto backend = Open();
  std::thread([&] {
    backend->Observe();
    backend->storage();
  }).join();
  EXPECT_EQ(backend->Enter(), absl::OkStatus());
  EXPECT_EQ(TwoStepsAndAnEmptiedCache(*backend, Step), absl::OkStatus());
  EXPECT_THAT(fake_.violations(), IsEmpty());
}

TEST_F(MpsBackendTest, MemoryIsToldApart) {
  fake_.SetDriver(500 << 20, 1 << 20);
  const auto backend = Open();
  const DeviceMemory before = backend->Observe().memory;
  EXPECT_EQ(before.allocated, std::nullopt) << "nobody has read it yet";
  EXPECT_EQ(before.recommended_max, int64_t{16} << 30);
  ASSERT_EQ(backend->Enter(), absl::OkStatus());
  ASSERT_EQ(backend->Within([] { return Step(6); }), absl::OkStatus());
  ASSERT_EQ(*backend->EndStep(), false);
  const DeviceMemory memory = backend->Observe().memory;
  EXPECT_EQ(memory.driver, int64_t{501} << 20) << "with the one graph";
  EXPECT_GE(memory.reserved.value_or(0), memory.allocated.value_or(0));
  EXPECT_GT(memory.resident.value_or(0), 1 << 20);
  EXPECT_EQ(backend->storage().bytes, memory.allocated);
}

TEST_F(MpsBackendTest, EntriesAreThoseOfItsCache) {
  const auto backend = Open();
  EXPECT_EQ(backend->Observe().graph_entries, std::nullopt);
  EXPECT_EQ(backend->Observe().no_graph_entries_reason, "no job has run yet");
  ASSERT_EQ(backend->Enter(), absl::OkStatus());
  EXPECT_EQ(backend->Observe().no_graph_entries_reason, "");
  EXPECT_EQ(backend->Observe().graph_entries, 0) << "what the count was tried with is gone";
  for (const int64_t rows : {6, 8, 6, 8, 9}) {
    ASSERT_EQ(backend->Within([&] { return Step(rows); }), absl::OkStatus());
    ASSERT_TRUE(backend->EndStep().ok());
  }
  EXPECT_EQ(backend->Observe().graph_entries, 3);
  ASSERT_EQ(backend->Within([&] { return backend->EmptyCaches(EmptyReason::kCommand); }), absl::OkStatus());
  EXPECT_EQ(backend->Observe().graph_entries, 0);
}

TEST_F(MpsBackendTest, ACountThatDoesNotDoAsACountDoesIsNotTold) {
  fake_.SetKeptGraphs(true);
  const auto backend = Open();
  ASSERT_EQ(backend->Enter(), absl::OkStatus());
  EXPECT_EQ(backend->Observe().graph_entries, std::nullopt);
  EXPECT_THAT(backend->Observe().no_graph_entries_reason, HasSubstr("emptying the caches made it 2, not 0"));
}

TEST_F(MpsBackendTest, EmptyingIsCountedByReason) {
  const auto backend = Open();
  ASSERT_EQ(backend->Enter(), absl::OkStatus());
  EXPECT_EQ(backend->Observe().empty_caches.size(), kEmptyReasonNames.rows.size());
  EXPECT_EQ(Emptied(*backend, EmptyReason::kNever), 0);
  ASSERT_EQ(backend->Within([&] {
    absl::Status status = backend->EmptyCaches(EmptyReason::kNever);
    status.Update(backend->EmptyCaches(EmptyReason::kJob));
    status.Update(backend->EmptyCaches(EmptyReason::kNever));
    return status;
  }),
            absl::OkStatus());
  EXPECT_EQ(Emptied(*backend, EmptyReason::kNever), 2);
  EXPECT_EQ(Emptied(*backend, EmptyReason::kJob), 1);
  EXPECT_EQ(Emptied(*backend, EmptyReason::kThreshold), 0);
}

TEST_F(MpsBackendTest, TheDriversMemoryPassesItsThreshold) {
  fake_.SetRecommendedMax(1000);
  fake_.SetDriver(899, 0);
  const auto backend = Open({.mps_driver_threshold = 0.9});
  const auto without = Open({.mps_driver_threshold = 0});
  ASSERT_EQ(backend->Enter(), absl::OkStatus());
  EXPECT_FALSE(*backend->EndStep());
  fake_.SetDriver(900, 0);
  EXPECT_TRUE(*backend->EndStep());
  EXPECT_FALSE(*without->EndStep());
  ASSERT_EQ(backend->Within([&] { return backend->EmptyCaches(EmptyReason::kThreshold); }), absl::OkStatus());
  EXPECT_FALSE(*backend->EndStep()) << "what the next step finds again";
  EXPECT_FALSE(*backend->EndStep()) << "what emptying did not bring down";
  fake_.SetDriver(1125, 0);
  EXPECT_TRUE(*backend->EndStep()) << "a quarter more";
}

TEST_F(MpsBackendTest, SettingsAreToldAndBadOnesRefused) {
  setenv("PYTORCH_ENABLE_MPS_FALLBACK", "1", 1);
  const auto backend = Open();
  const DeviceState state = backend->Observe();
  EXPECT_THAT(state.settings, Contains(DeviceSetting{"PYTORCH_ENABLE_MPS_FALLBACK", "1"}));
  EXPECT_THAT(state.settings, Contains(DeviceSetting{"PYTORCH_MPS_HIGH_WATERMARK_RATIO", "1.7"}));
  EXPECT_THAT(state.settings, Contains(DeviceSetting{"mps-driver-threshold", "0.9"}));
  EXPECT_THAT(state.warnings, ElementsAre(HasSubstr("PYTORCH_ENABLE_MPS_FALLBACK=1: ")));
  unsetenv("PYTORCH_ENABLE_MPS_FALLBACK");
  setenv("PYTORCH_MPS_HIGH_WATERMARK_RATIO", "lots", 1);
  const auto refused = OpenBackend(DeviceKind::kMps);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("PYTORCH_MPS_HIGH_WATERMARK_RATIO: \"lots\""));
  unsetenv("PYTORCH_MPS_HIGH_WATERMARK_RATIO");
}

}  // namespace
}  // namespace permafrost::device
