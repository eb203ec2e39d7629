// A graph cache over the fakes. Tests name a batch by its number of nodes, from which its edges and graphs follow.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "graphcache/fakes.h"
#include "graphcache/graph_cache.h"

namespace permafrost::graphcache {

// Returns the least padded shape of a batch of `nodes` - 1 real nodes.
constexpr BatchShape Padded(int64_t nodes) { return {nodes, 2 * nodes, 5}; }

class CacheFixture : public testing::Test {
 public:
  ~CacheFixture() override { compiler_.recording_drops = false; }

 protected:
  GraphCache& Make(const spec::PolicyOptions& options) {
    GraphCacheSetup setup;
    setup.options = options;
    if (options.shapes == spec::Shapes::kAuto) setup.options.shapes = auto_shapes_;
    // Audits that a test did not ask for would appear among its events.
    if (options.audit_every == spec::PolicyOptions{}.audit_every) setup.options.audit_every = 0;
    setup.batch_size = 32;
    setup.sizes = sizes_;
    setup.plan = plan_;
    setup.of_seeds = of_seeds_;
    setup.pads = pads_;
    setup.now = [this] { return compiler_.now; };
    setup.elapsed = [this] { return compiler_.elapsed; };
    setup.log = [this](std::string_view line, bool warning) { (warning ? warnings_ : infos_).emplace_back(line); };
    setup.log_error = [this](std::string_view line) { errors_.emplace_back(line); };
    // Drops by the previous cache must not appear among the events of the new one.
    compiler_.recording_drops = false;
    cache_ = std::make_unique<GraphCache>(std::move(setup), compiler_);
    compiler_.recording_drops = true;
    return *cache_;
  }
  absl::StatusOr<StepResult> TryRun(Mode mode, int64_t nodes, int64_t step = 0) {
    const BatchShape padded = Padded(nodes);
    FakeBatch batch(compiler_, {padded.nodes - 1, padded.edges, padded.graphs - 1});
    return cache_->Run(mode, batch, step);
  }
  // Returns the events of the step.
  Events Train(int64_t nodes, int64_t step = 0) {
    EXPECT_EQ(TryRun(Mode::kTrain, nodes, step).status(), absl::OkStatus());
    return compiler_.Take();
  }
  Events Eval(int64_t nodes, int64_t step = 0) {
    EXPECT_EQ(TryRun(Mode::kEval, nodes, step).status(), absl::OkStatus());
    return compiler_.Take();
  }
  Events Apply(CommandKind kind, int64_t step = 0, const PolicyUpdate& update = {}) {
    EXPECT_EQ(cache_->Apply({.sequence = ++sequence_, .kind = kind, .update = update}, step), absl::OkStatus());
    return compiler_.Take();
  }
  ModeStats Stats(Mode mode = Mode::kTrain) const { return cache_->snapshot().of(mode); }
  // Returns the captured shapes, such as "train 5", in the cache's order.
  std::vector<std::string> Held() const {
    std::vector<std::string> held;
    for (const EntryInfo& info : cache_->entries()) held.push_back(EventOf("", info.mode, info.shape).substr(1));
    return held;
  }

  FakeCompiler compiler_;
  spec::Shapes auto_shapes_ = spec::Shapes::kExact;  // what Make uses for kAuto
  bool of_seeds_ = false;
  bool pads_ = true;
  GraphSizes sizes_{.graphs = 100, .std_nodes = 4.485530148154132, .std_edges = 10.53428923848216};
  ShapeSchedule plan_{.train_ceiling = Padded(90),
                      .train_shapes = 40,
                      .known_train_shapes = 40,
                      .train_rungs = {},
                      .eval_rungs = {Padded(20), Padded(40)},
                      .train_schedule = {},
                      .eval_schedule = {}};
  std::vector<std::string> warnings_, infos_, errors_;
  int64_t sequence_ = 0;
  std::unique_ptr<GraphCache> cache_;
};

}  // namespace permafrost::graphcache
