// A program (server/program) as a graph-level model: it reads the same batches as our own models, and its tensors are
// trained, saved and loaded under the module's own names.
// Threads: the device thread.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "nn/models/encoder.h"
#include "nn/models/model.h"
#include "program/load.h"

namespace permafrost::train {

struct ProgramModelOptions {
  std::string name;             // of the program, for messages
  nn::EncoderInput node, edge;  // what the dataset holds
  int64_t num_targets = 1;      // outputs a graph
  uint64_t seed = 0;            // of dropout's masks
};

// The program reads, by the names of its inputs: x and edge_attr (the columns of the set; one column may lack its
// dimension), edge_index, batch, num_graphs or batch_size, and num_nodes. It returns one prediction a graph, [G] or
// [G, num_targets].
//
// Forward hands it the rows that are real and reads their counts on the host, so that a capture of the step is refused;
// predictions of padding graphs are 0. Dropout draws by (seed, step, place among the nodes that draw, row, column), as
// that of our own models. Forward throws c10::Error, with the node and its line, for what an operator refuses, and for
// batches below the fewest rows that the program was exported for.
//
// Parameters that the module froze, or does not use, are fixed. Buffers are saved where they are part of the module's
// state_dict or a step writes to them. Tensors of several names have the first.
//
// Errors: InvalidArgument that names an input, output, parameter or node that a set of graphs has nothing for.
absl::StatusOr<std::unique_ptr<nn::GraphModel>> MakeProgramModel(const program::LoadedProgram& loaded,
                                                                 const ProgramModelOptions& options,
                                                                 c10::Device device);

}  // namespace permafrost::train
