// The way of a batch to a device. Tensors are those of the stand-in for MPS, and fake streams and events note the
// calls made to them.
#include "device/staging.h"

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/cpu/tape.h"
#include "device/mps/stand_in.h"

namespace permafrost::device {
namespace {

using at::Tensor;
using graphcache::StepInputs;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const c10::Device kDevice{c10::kMPS, 0};

// Replaces the streams and events of MPS while an object lives. Steps go to stream 0, and stream 1 is the other one.
class NotedStreams final : public c10::impl::NoOpDeviceGuardImpl<c10::kMPS> {
 public:
  NotedStreams() : before_(Registered().exchange(this)) {}
  NotedStreams(const NotedStreams&) = delete;
  ~NotedStreams() override { Registered().store(before_); }

  std::vector<std::string> Taken() { return std::exchange(notes_, {}); }
  void Note(const std::string& what) const { notes_.push_back(what); }
  std::string current() const { return "stream " + std::to_string(current_.id()); }

  c10::Device exchangeDevice(c10::Device /*device*/) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  c10::Stream getStream(c10::Device /*device*/) const noexcept override { return current_; }
  c10::Stream getNewStream(c10::Device /*device*/, int /*priority*/) const override {
    return c10::Stream(c10::Stream::UNSAFE, kDevice, 1);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return std::exchange(current_, stream); }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) {
      numbers_.push_back(std::make_unique<int>(static_cast<int>(numbers_.size()) + 1));
      *event = numbers_.back().get();
    }
    Note("event " + Number(*event) + " follows stream " + std::to_string(stream.id()));
  }
  void block(void* event, const c10::Stream& stream) const override {
    Note("stream " + std::to_string(stream.id()) + " awaits event " + Number(event));
  }
  bool queryEvent(void* /*event*/) const override { return !behind_; }
  void synchronizeEvent(void* event) const override { Note("the host awaits event " + Number(event)); }
  // If `behind` is true, every event that is queried is still pending.
  void SetBehind(bool behind) { behind_ = behind; }

 private:
  static std::atomic<const c10::impl::DeviceGuardImplInterface*>& Registered() {
    return c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kMPS)];
  }
  static std::string Number(const void* event) { return std::to_string(*static_cast<const int*>(event)); }

  const c10::impl::DeviceGuardImplInterface* const before_;
  mutable c10::Stream current_{c10::Stream::DEFAULT, kDevice};
  mutable std::vector<std::string> notes_;
  mutable std::vector<std::unique_ptr<int>> numbers_;  // the targets of event pointers
  bool behind_ = false;
};

// Makes a batch of three types. Two of its tensors share a storage, one is undefined and one is empty.
StepInputs Batch(int64_t rows, int64_t first) {
  const Tensor keys = at::arange(first, first + rows, at::kLong);
  return {.tensors = {at::arange(3 * rows, at::kFloat).reshape({rows, 3}).add(first), Tensor(), keys.narrow(0, 0, 2),
                      at::full({5}, first % 2 == 0, at::kBool), keys, at::empty({0}, at::kLong),
                      at::full({1}, first, at::kLong)},
          .resident = {}};
}

void ExpectEqual(const StepInputs& got, const StepInputs& want) {
  ASSERT_EQ(got.tensors.size(), want.tensors.size());
  for (size_t i = 0; i < got.tensors.size(); ++i) {
    ASSERT_EQ(got.tensors[i].defined(), want.tensors[i].defined()) << i;
    if (!want.tensors[i].defined()) continue;
    EXPECT_EQ(got.tensors[i].device(), kDevice) << i;
    EXPECT_TRUE(got.tensors[i].cpu().equal(want.tensors[i].cpu())) << i;
  }
}

class StagingTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!MpsStandIn::present()) GTEST_SKIP() << "MPS is real here";
    within_ = std::make_unique<MpsStandIn>();
    streams_ = std::make_unique<NotedStreams>();
  }
  // Returns the calls that `work` makes to the device, in order.
  std::vector<std::string> Asked(const std::function<void()>& work) {
    streams_->Taken();
    Tape::Listen(
        [&](const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
          if (op.operator_name().name != "aten::copy_") return false;
          const Tensor &to = stack[stack.size() - 3].toTensor(), &from = stack[stack.size() - 2].toTensor();
          streams_->Note(std::to_string(from.nbytes()) + " bytes from " + from.device().str() + " to " +
                         to.device().str() + (stack.back().toBool() ? "" : " waited for") + ", " + streams_->current());
          return false;
        },
        work);
    return streams_->Taken();
  }

  std::unique_ptr<MpsStandIn> within_;
  std::unique_ptr<NotedStreams> streams_;
};

TEST_F(StagingTest, ABatchComesAsItIs) {
  Staging staging(kDevice);
  for (const int64_t rows : {4, 700, 3, 50, 51}) ExpectEqual(staging.Upload(Batch(rows, rows)), Batch(rows, rows));
  ExpectEqual(CopyToDevice(Batch(9, 2), kDevice), Batch(9, 2));
}

TEST_F(StagingTest, TensorsLieApartAndAlignedAndAStorageOnce) {
  Staging staging(kDevice);
  const StepInputs& batch = staging.Upload(Batch(4, 1));
  std::vector<int64_t> begins;
  for (const Tensor& t : batch.tensors) {
    if (t.defined()) begins.push_back(t.storage_offset() * t.element_size());
  }
  // The offsets are those of the features, a part of the keys, the flags, the keys, the empty tensor and the number.
  EXPECT_THAT(begins, ElementsAre(0, 256, 512, 256, 768, 1024));
  EXPECT_EQ(InputLayout(Batch(4, 1)).bytes(), 1280);
}

TEST_F(StagingTest, LayoutsOfOneShapeAreEqual) {
  EXPECT_EQ(InputLayout(Batch(4, 1)), InputLayout(Batch(4, 2)));
  EXPECT_NE(InputLayout(Batch(4, 1)), InputLayout(Batch(400, 1)));
}

TEST_F(StagingTest, WhatIsOnTheDeviceStaysWhereItIs) {
  Staging staging(kDevice);
  StepInputs batch = Batch(4, 1);
  batch.tensors[0] = batch.tensors[0].to(kDevice);
  batch.resident = {0};
  const StepInputs& uploaded = staging.Upload(batch);
  EXPECT_TRUE(uploaded.tensors[0].is_same(batch.tensors[0]));
  EXPECT_THAT(uploaded.resident, ElementsAre(0));
  ExpectEqual(uploaded, batch);
  const StepInputs all{.tensors = {batch.tensors[0]}, .resident = {}};
  EXPECT_THAT(Asked([&] { EXPECT_EQ(&staging.Upload(all), &all); }), IsEmpty());
}

TEST_F(StagingTest, OnTheCpuNothingIsCopied) {
  Staging staging(at::kCPU);
  const StepInputs batch = Batch(4, 1);
  EXPECT_EQ(&staging.Upload(batch), &batch);
  EXPECT_TRUE(CopyToDevice(batch, at::kCPU).tensors[0].is_same(batch.tensors[0]));
}

// The host's buffer of a batch is written again only after it was copied. The host waits for the copy only if it
// must.
TEST_F(StagingTest, InTheOrderOfTheStepsABatchIsOneCopy) {
  auto staging = std::make_unique<Staging>(kDevice);
  const auto upload = [&] { staging->Upload(Batch(4, 1)); };
  const std::string copy = "1280 bytes from cpu to mps:0, stream 0";
  EXPECT_THAT(Asked(upload), ElementsAre(copy, "event 1 follows stream 0"));
  EXPECT_THAT(Asked(upload), ElementsAre(copy, "event 2 follows stream 0"));
  EXPECT_THAT(Asked(upload), ElementsAre(copy, "event 3 follows stream 0"));
  EXPECT_THAT(Asked(upload), ElementsAre(copy, "event 1 follows stream 0"));
  streams_->SetBehind(true);
  EXPECT_THAT(Asked(upload), ElementsAre("the host awaits event 2", copy, "event 2 follows stream 0"));
  EXPECT_THAT(Asked([&] { staging.reset(); }),
              ElementsAre("the host awaits event 1", "the host awaits event 2", "the host awaits event 3"));
}

// Stream 1 copies while stream 0 computes. Each of three batches in flight has device memory of its own, which is
// written again only after the step that reads it has ended.
TEST_F(StagingTest, OnAStreamOfItsOwnABatchIsCopiedBesideTheSteps) {
  Staging staging(kDevice, {.host_memory = at::getCPUAllocator(), .own_stream = true});
  std::vector<const void*> places;
  const auto upload = [&] { places.push_back(staging.Upload(Batch(4, 1)).tensors[0].const_data_ptr()); };
  const std::string copy = "1280 bytes from cpu to mps:0, stream 1";
  // Event 1 means that the first device memory may be written. Event 2 means that it has been written.
  EXPECT_THAT(Asked(upload), ElementsAre("event 1 follows stream 0", "stream 1 awaits event 1", copy,
                                         "event 2 follows stream 1", "stream 0 awaits event 2"));
  EXPECT_THAT(Asked(upload),
              ElementsAre("event 1 follows stream 0", "event 3 follows stream 0", "stream 1 awaits event 3", copy,
                          "event 4 follows stream 1", "stream 0 awaits event 4"));
  EXPECT_THAT(Asked(upload),
              ElementsAre("event 3 follows stream 0", "event 5 follows stream 0", "stream 1 awaits event 5", copy,
                          "event 6 follows stream 1", "stream 0 awaits event 6"));
  EXPECT_THAT(Asked(upload), ElementsAre("event 5 follows stream 0", "stream 1 awaits event 1", copy,
                                         "event 2 follows stream 1", "stream 0 awaits event 2"));
  EXPECT_NE(places[0], places[1]);
  EXPECT_NE(places[1], places[2]);
  EXPECT_NE(places[0], places[2]);
  EXPECT_EQ(places[0], places[3]);
  EXPECT_EQ(streams_->current(), "stream 0");
  streams_->SetBehind(true);
  EXPECT_THAT(Asked(upload),
              ElementsAre("event 1 follows stream 0", "the host awaits event 4", "stream 1 awaits event 3", copy,
                          "event 4 follows stream 1", "stream 0 awaits event 4"));
  ExpectEqual(staging.Upload(Batch(4, 7)), Batch(4, 7));
}

TEST_F(StagingTest, ASmallBatchGoesStraightIntoAGraphsInputs) {
  Staging staging(kDevice, {.host_memory = nullptr, .own_stream = true});
  const StepInputs batch = Batch(4, 1);
  const InputLayout layout(batch);
  const Tensor inputs = at::empty({layout.bytes()}, at::TensorOptions().dtype(at::kByte).device(kDevice));
  EXPECT_THAT(Asked([&] { staging.UploadInto(batch, layout, inputs); }),
              ElementsAre("1280 bytes from cpu to mps:0, stream 0", "event 1 follows stream 0"));
  ExpectEqual(layout.ViewsInto(inputs, batch), batch);
}

TEST_F(StagingTest, ALargeOneComesBesideTheStepBefore) {
  const StepInputs batch = Batch(50'000, 3);
  const InputLayout layout(batch);
  ASSERT_GT(layout.bytes(), Staging::kStraightBytes);
  const std::string bytes = std::to_string(layout.bytes());
  const Tensor inputs = at::empty({layout.bytes()}, at::TensorOptions().dtype(at::kByte).device(kDevice));
  Staging beside(kDevice, {.host_memory = nullptr, .own_stream = true}), in_order(kDevice);
  EXPECT_THAT(Asked([&] { beside.UploadInto(batch, layout, inputs); }),
              ElementsAre("event 1 follows stream 0", "stream 1 awaits event 1",
                          bytes + " bytes from cpu to mps:0, stream 1", "event 2 follows stream 1",
                          "stream 0 awaits event 2", bytes + " bytes from mps:0 to mps:0, stream 0"));
  ExpectEqual(layout.ViewsInto(inputs, batch), batch);
  EXPECT_THAT(Asked([&] { in_order.UploadInto(Batch(50'000, 8), layout, inputs); }),
              ElementsAre(bytes + " bytes from cpu to mps:0, stream 0", HasSubstr("follows stream 0")));
  ExpectEqual(layout.ViewsInto(inputs, batch), Batch(50'000, 8));
}

}  // namespace
}  // namespace permafrost::device
