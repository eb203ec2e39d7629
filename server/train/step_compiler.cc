#include "train/step_compiler.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "device/capture.h"
#include "train/step_inputs.h"

namespace permafrost::train {
namespace {

// Of the two probes: a step that keeps the number on the host would be caught.
constexpr std::array<int64_t, 2> kProbeSteps{0, 1};

std::vector<data::Split> SplitsOf(graphcache::Mode mode) {
  if (mode == graphcache::Mode::kTrain) return {data::Split::kTrain};
  return {data::Split::kValid, data::Split::kTest};
}

// Where only one graph fits: the same edges with other values, all of them valid.
void MakeOther(data::PaddedBatch& batch) {
  for (std::vector<int64_t>* categories : {&batch.node_ints, &batch.edge_ints}) std::ranges::fill(*categories, 0);
  for (std::vector<float>* values : {&batch.node_floats, &batch.edge_floats, &batch.labels})
    for (float& value : *values) value = 2 * value + 1;
}

}  // namespace

std::vector<uint32_t> StepCompiler::ProbeGraphs(graphcache::Mode mode, const BatchShape& shape, int which) const {
  std::vector<uint32_t> graphs;
  BatchShape room{shape.nodes - 1, shape.edges, shape.graphs - 1};
  for (const data::Split split : SplitsOf(mode)) {
    for (const uint32_t graph : batcher_.split(split)) {
      const BatchShape size = batcher_.ShapeOf({&graph, 1});
      if (!room.Holds(size)) continue;
      if (which == 0) {
        graphs.push_back(graph);
        room = {room.nodes - size.nodes, room.edges - size.edges, room.graphs - size.graphs};
        if (room.graphs == 0) return graphs;
      } else {
        // The second that fits alone, else the first.
        const bool second = !graphs.empty();
        graphs.assign(1, graph);
        if (second) return graphs;
      }
    }
  }
  return graphs;
}

absl::StatusOr<std::unique_ptr<graphcache::Executable>> StepCompiler::Capture(graphcache::Mode mode,
                                                                              const BatchShape& shape) {
  std::array<graphcache::StepInputs, 2> inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<uint32_t> graphs = ProbeGraphs(mode, shape, static_cast<int>(i));
    if (graphs.empty()) {
      return absl::InternalError(absl::StrCat("no graph of the ", AbslView(graphcache::kModeNames.Name(mode)),
                                              " splits fits the shape ", ToString(shape)));
    }
    PF_RETURN_IF_ERROR(batcher_.Assemble(graphs, shape, probes_[i]));
    if (i > 0 && probes_[i].graph_ids == probes_[0].graph_ids) MakeOther(probes_[i]);
    inputs[i] = MakeInputs(probes_[i], batcher_.summary(), kProbeSteps[i], device_);
  }
  return device::Capture(*programs_[static_cast<size_t>(mode)], device_, inputs[0], inputs[1], outputs_, arena_);
}

absl::Status StepCompiler::RunEager(graphcache::Mode mode, const graphcache::StepInputs& inputs) {
  outputs_.clear();
  outputs_ = programs_[static_cast<size_t>(mode)]->run(inputs);
  return absl::OkStatus();
}

}  // namespace permafrost::train
