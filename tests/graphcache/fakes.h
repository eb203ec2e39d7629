// A compiler and batches that record the calls of the cache.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "graphcache/executable.h"

namespace permafrost::graphcache {

// The part of a batch that device/ knows. Here it is the shape that the batch was padded to.
class StepInputs {
 public:
  BatchShape shape;
  int64_t step = 0;
};

// The result of a step: its event, and the step number that its batch was given.
class StepOutputs {
 public:
  StepOutputs(std::string by, int64_t of) : event(std::move(by)), step(of) {}
  std::string event;
  int64_t step;
};

// The events in order, such as "capture train 5", "replay train 5", "pad 5", "drop train 5" or "eager eval 5". The
// number is the shape's nodes.
using Events = std::vector<std::string>;

inline std::string EventOf(const char* what, Mode mode, const BatchShape& shape) {
  return absl::StrCat(what, " ", std::string(kModeNames.Name(mode)), " ", shape.nodes);
}

class FakeCompiler : public Compiler {
 public:
  static constexpr int64_t kBytes = 100;

  absl::StatusOr<std::unique_ptr<Executable>> Capture(Mode mode, const BatchShape& shape) override {
    elapsed += absl::Seconds(2);
    now += wall_clock_step;
    if (fail_captures.contains(mode)) return absl::ResourceExhaustedError("no memory for a capture");
    if (const auto it = breaks.find(mode); it != breaks.end()) {
      events.push_back(EventOf("break", mode, shape));
      return WithReason(absl::FailedPreconditionError("graph break"), kGraphBreakReason,
                        {{"op", it->second}, {"why", "reads a value back"}});
    }
    events.push_back(EventOf("capture", mode, shape));
    return std::make_unique<FakeExecutable>(*this, mode, shape);
  }
  absl::StatusOr<std::unique_ptr<Executable>> CaptureDynamic(Mode mode) override {
    elapsed += absl::Seconds(2);
    now += wall_clock_step;
    if (fail_captures.contains(mode)) return absl::ResourceExhaustedError("no memory for a capture");
    const std::string name(kModeNames.Name(mode));
    if (resisting.contains(mode) || breaks.contains(mode)) {
      events.push_back(absl::StrCat("resist ", name));
      return WithReason(absl::FailedPreconditionError("graph break"), kGraphBreakReason,
                        {{"op", "aten::zeros"}, {"why", "size[0] is 1, 4, 9, 16 at as many shapes"}});
    }
    events.push_back(absl::StrCat("capture every ", name));
    return std::make_unique<FakeExecutable>(*this, mode, BatchShape());
  }
  absl::Status WarmUp(Mode mode, const BatchShape& shape) override {
    if (warms) events.push_back(EventOf("warm", mode, shape));
    return warm_up_status;
  }
  std::string NoDynamicReason() const override { return no_dynamic_reason; }
  absl::StatusOr<StepResult> RunEager(Mode mode, const StepInputs& inputs) override {
    events.push_back(EventOf("eager", mode, inputs.shape));
    return std::make_shared<const StepOutputs>(events.back(), inputs.step);
  }
  int64_t shared_bytes() const override { return 1000; }

  // Returns the events since the last call.
  Events Take() { return std::exchange(events, {}); }

  Events events;
  bool warms = false;  // whether events include warm-ups
  absl::Status warm_up_status;
  std::map<Mode, std::string> breaks;  // the op that cannot be captured
  std::set<Mode> resisting;            // modes that no executable serves at every shape
  std::set<Mode> fail_captures;        // modes whose captures run out of memory
  bool records = true;                 // whether replays can be audited
  std::map<Mode, Difference> faults;   // what audits of a mode find
  std::string no_dynamic_reason = "the test has none";
  absl::Time now = absl::FromUnixSeconds(1000);
  absl::Duration elapsed;
  absl::Duration wall_clock_step = absl::Seconds(2);  // how far a capture moves the wall clock
  absl::Duration replay_time;
  bool recording_drops = true;

 private:
  class FakeExecutable : public Executable {
   public:
    FakeExecutable(FakeCompiler& compiler, Mode mode, const BatchShape& shape)
        : compiler_(compiler), mode_(mode), shape_(shape) {}
    FakeExecutable(const FakeExecutable&) = delete;
    ~FakeExecutable() override {
      if (compiler_.recording_drops) compiler_.events.push_back(EventOf("drop", mode_, shape_));
    }
    absl::StatusOr<StepResult> Replay(const StepInputs& inputs) override {
      compiler_.elapsed += compiler_.replay_time;
      if (shape_ == BatchShape()) {
        compiler_.events.push_back(EventOf("replay every", mode_, inputs.shape));
        return std::make_shared<const StepOutputs>(compiler_.events.back(), inputs.step);
      }
      if (inputs.shape != shape_) {
        return absl::InternalError(absl::StrCat(ToString(inputs.shape), " replayed in ", ToString(shape_)));
      }
      compiler_.events.push_back(EventOf("replay", mode_, shape_));
      return std::make_shared<const StepOutputs>(compiler_.events.back(), inputs.step);
    }
    absl::StatusOr<std::optional<AuditedStep>> ReplayAudited(const StepInputs& inputs) override {
      if (!compiler_.records) return std::nullopt;
      compiler_.events.push_back(EventOf("audit", mode_, inputs.shape));
      AuditedStep audited{.result = std::make_shared<const StepOutputs>(compiler_.events.back(), inputs.step)};
      audited.operators = {{"aten::mm", 2, 0.5}};
      audited.replay_seconds = 1;
      audited.eager_seconds = 2;
      audited.product_seconds = 3;
      if (const auto it = compiler_.faults.find(mode_); it != compiler_.faults.end()) audited.difference = it->second;
      return audited;
    }
    int64_t bytes() const override { return kBytes; }

   private:
    FakeCompiler& compiler_;
    const Mode mode_;
    const BatchShape shape_;  // unset: every shape
  };
};

class FakeBatch : public Batch {
 public:
  FakeBatch(FakeCompiler& compiler, const BatchShape& real) : compiler_(compiler), real_(real) {}
  BatchShape real() const override { return real_; }
  BatchShape least_padded() const override { return {real_.nodes + 1, real_.edges, real_.graphs + 1}; }
  absl::StatusOr<const StepInputs*> PadDynamic(int64_t step) override { return PadTo(dynamic_shape(), step); }
  BatchShape dynamic_shape() const override { return AtLeastDynamic(least_padded()); }
  absl::StatusOr<const StepInputs*> PadTo(const BatchShape& shape, int64_t step) override {
    inputs_.step = step;
    if (std::exchange(padded_, true)) return absl::InternalError("a batch was padded twice");
    if (!shape.Holds(least_padded())) return absl::InternalError(absl::StrCat("padded to ", ToString(shape)));
    compiler_.events.push_back(absl::StrCat("pad ", shape.nodes));
    inputs_.shape = shape;
    return &inputs_;
  }

 private:
  FakeCompiler& compiler_;
  const BatchShape real_;
  bool padded_ = false;
  StepInputs inputs_;
};

}  // namespace permafrost::graphcache
