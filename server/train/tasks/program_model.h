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
// A batch has only the least padding (data::Batcher::LeastPadded). So Forward computes the real rows from the shape,
// passes only those on, and can be captured for every shape. Predictions of padding graphs are 0. Dropout draws
// by (seed, step, place among the nodes that draw, row, column), as that of our own models. Forward throws c10::Error,
// with the node and its line, for what an operator refuses, and for batches below the fewest rows that the program was
// exported for.
//
// Parameters that the module froze, or does not use, are fixed. A buffer is saved if it is in the module's state_dict
// or a step writes to it. A tensor with several names is saved under the first.
//
// Errors: InvalidArgument that names the input, output, parameter or node that a set of graphs cannot serve.
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

// Estimates the memory for a training step of `largest`, padding included, and for its recording. A program runs
// forward on the CPU, on two small batches without self-loops: the bytes of the tensors that it makes, and how they
// grow with the batch, tell those for `largest`, twice for the backward pass. If it refuses such a batch, or reads more
// than a bound, activations are 0. Errors: as MakeModel; InvalidArgument for a program that predicts something else
// than is wanted.
struct StepCost {
  nn::ModelCost model;
  int64_t executable_bytes = 0;  // as device::ExecutableBytes
  // Mean values for each operator of a program; 0: not known, or no program; infinite: beyond that bound.
  double operator_values = 0;
};
absl::StatusOr<StepCost> CostOfStep(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                    const BatchShape& largest, std::string_view prefix);

}  // namespace permafrost::train
