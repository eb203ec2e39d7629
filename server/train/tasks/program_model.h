// A program (server/program) as a graph-level model: it reads the same batches as our own models, and its tensors are
// trained, saved and loaded under the module's own names.
// Threads: making and judging one is safe anywhere; a model belongs to the device thread.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/step.h"
#include "nn/models/encoder.h"
#include "nn/models/model.h"
#include "program/load.h"
#include "spec/train_options.h"

namespace permafrost::train {

struct ProgramModelOptions {
  std::string name;             // of the program, for messages
  nn::EncoderInput node, edge;  // what the dataset holds
  int64_t num_targets = 1;      // outputs a graph
  int64_t max_graph_nodes = 0;  // of the dataset's largest graph
  uint64_t seed = 0;            // of dropout's masks
  bool no_self_loops = false;   // the dataset has none: what removes them is left out (program/self_loops.h)
};

// The program reads, by the names of its inputs: x and edge_attr (the columns of the set; one column may lack its
// dimension), edge_index, batch, num_graphs or batch_size, num_nodes, and max_num_nodes, which is that of the set. It
// returns one prediction a graph, [G] or [G, num_targets].
//
// A batch is padded as little as it can be (data::Batcher::LeastPadded): by that Forward knows its real rows from its
// shape, hands on these alone, and can be captured for every shape. Predictions of padding graphs are 0. Dropout draws
// by (seed, step, place among the nodes that draw, row, column), as that of our own models. Forward throws c10::Error,
// with the node and its line, for what an operator refuses, and for batches below the fewest rows that the program was
// exported for.
//
// Parameters that the module froze, or does not use, are fixed. Buffers are saved where they are part of the module's
// state_dict or a step writes to them. Tensors of several names have the first.
//
// Errors: InvalidArgument that names an input, output, parameter or node that a set of graphs has nothing for.
absl::StatusOr<std::unique_ptr<nn::GraphModel>> MakeProgramModel(const program::LoadedProgram& loaded,
                                                                 const ProgramModelOptions& options,
                                                                 c10::Device device);

// The model of a job: its program, or one of our own. self_loops: edges of the dataset that begin and end at one node.
// Errors: InvalidArgument with a violation of PREFIXmodel.program; those of reading the program's archive.
struct MadeModel {
  std::unique_ptr<nn::GraphModel> model;
  std::string note;  // what the job's user should know, in one line; empty: nothing
};
absl::StatusOr<MadeModel> MakeModel(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                    int64_t self_loops, c10::Device device, std::string_view prefix);

// The cost of that model and of recording its steps, for a training step of `largest`, a batch that is padded. A
// program is run forward on the CPU, on a small batch without self-loops; each tensor that its operators read counts
// twice, for the backward pass, and as many times as `largest` is larger. 0 activations where it refuses that batch.
// Errors: as MakeModel; InvalidArgument for a program that predicts something else than is wanted.
struct StepCost {
  nn::ModelCost model;
  int64_t executable_bytes = 0;  // as device::ExecutableBytes
};
absl::StatusOr<StepCost> CostOfStep(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                    const BatchShape& largest, std::string_view prefix);

}  // namespace permafrost::train
