// Models, graph-level or node-level, that run a program (server/program). They read the same batches as our own
// models. A program's tensors are trained, saved and loaded under the names that they have in the user's module.
// Threads: the functions that make or check a program's model are thread-safe; a model belongs to the device thread.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/step.h"
#include "data/store/graph.h"
#include "nn/models/model.h"
#include "nn/models/parts.h"
#include "program/load.h"
#include "spec/train_options.h"
#include "train/tasks/bound_program.h"

namespace permafrost::train {

struct ProgramModelOptions {
  std::string name;             // the program's name, for messages
  nn::EncoderInput node, edge;  // node and edge features of the dataset
  nn::EncoderInput positions;   // positions of the nodes
  nn::EncoderInput labels;      // columns of numbers, or one column of classes
  bool weighted = false;        // for one large graph: whether its edges have weights
  int64_t num_outputs = 1;      // columns of a prediction; 0 if links are predicted
  int64_t max_graph_nodes = 0;  // nodes of the set's largest graph
  int64_t padding_rows = 0;     // rows at the end of each block that are not nodes
  uint64_t seed = 0;            // seeds the numbers that the program draws
  bool no_self_loops = false;   // the dataset has no self-loops, so removing them is left out (program/rewritings.h)
  // If set, batches may have any padding. The program's operators then process padding rows like real ones, but batch
  // norms skip them (program_trials.h). If not set, batches have the least padding, and the program does not see it.
  std::optional<ProgramNorms> padding;
  bool fused = true;  // on the CPU, each region of edges runs as one operator (program/rewritings.h)
};

// A program reads its inputs by name. On a set, the names are x, edge_attr, pos, edge_index, batch, y, num_graphs or
// batch_size, num_nodes, and max_num_nodes (the number of nodes of the set's largest graph). The program returns one
// prediction for each graph. On one large graph, the names are x, edge_attr, pos, edge_index, edge_weight, y,
// batch_size (the number of seeds), and num_nodes. The program returns one prediction for each node, seeds first, or
// one for each seed.
//
// x, edge_attr, pos and y have the columns of the dataset; a single column may lack the column dimension. A
// prediction is [rows] or [rows, num_outputs]. y has a row for each graph or node and holds the labels of the job's
// loss, as int64 classes or float32 values. Missing labels, and the labels of nodes that are not seeds, are -100
// (classes) or NaN (values). If the program returns a loss, that loss replaces the job's. It should be the mean over
// the rows that have a label.
//
// If links are predicted, a program returns a row for each node, with any number of columns. The input
// edge_label_index holds, for each pair, the rows of its two ends. A program that reads it returns a score for each
// pair instead, [pairs] or [pairs, 1].
//
// If `padding` is not set, a batch has only the least padding (data::Batcher::LeastPadded, train::LeastPadded).
// Forward then computes the number of real rows from the shape and passes only these rows to the program, so one
// capture can serve every shape. Predictions of padding graphs are 0. A block for programs must have edge_targets.
// Forward throws what BoundProgram::Run throws, and c10::ValueError if the prediction has another shape.
//
// Errors: InvalidArgument if the program does not suit the dataset, naming the program's input, output, parameter or
// node at fault.
absl::StatusOr<std::unique_ptr<nn::GraphModel>> MakeProgramModel(const program::LoadedProgram& loaded,
                                                                 const ProgramModelOptions& options,
                                                                 c10::Device device);
absl::StatusOr<std::unique_ptr<nn::NodeModel>> MakeProgramOfNodes(const program::LoadedProgram& loaded,
                                                                  const ProgramModelOptions& options,
                                                                  c10::Device device);

// The results of the trials of a job's program (program_trials.h).
struct ProgramForm {
  std::optional<ProgramNorms> padding;  // same as in ProgramModelOptions
  bool fused = true;
};

// The model of a job: its program, or one of our own.
struct MadeModel {
  std::unique_ptr<nn::GraphModel> model;
  const BoundProgram* program = nullptr;  // the model's program; null for one of our own
  bool reads_positions = false;
  std::string note;  // a line for the job's user; or empty
};
// `self_loops` counts the edges of the dataset that begin and end at one node. Errors: InvalidArgument with a
// violation of PREFIXmodel.program; those of reading the program's archive.
absl::StatusOr<MadeModel> MakeModel(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                    int64_t self_loops, c10::Device device, std::string_view prefix,
                                    const ProgramForm& form = {});

// The model of a job on one large graph.
struct MadeNodeModel {
  std::unique_ptr<nn::NodeModel> model;
  nn::LayerWiseModel* layers = nullptr;  // the same model, or null for a program
  const BoundProgram* program = nullptr;
  bool reads_edge_features = true, reads_edge_weights = true, reads_positions = false;
  bool scores_pairs = false;  // whether the model returns a score for each pair instead of a row for each node
  std::string note;
};
struct NodeProgramData {
  bool weighted = false;
  int64_t self_loops = 0;
  int64_t position_columns = 0;
};
inline NodeProgramData ProgramDataOf(const data::GraphSummary& graph) {
  return {.weighted = graph.weighted, .self_loops = graph.self_loops, .position_columns = graph.position_columns};
}
absl::StatusOr<MadeNodeModel> MakeModel(const spec::TrainOptions& options, const nn::NodeModelOptions& model,
                                        const NodeProgramData& data, c10::Device device, std::string_view prefix,
                                        const ProgramForm& form = {});

// Describes the labels of the job's loss, for predictions with `outputs` columns. Returns no columns if links are
// predicted.
nn::EncoderInput LabelsOf(const spec::TrainOptions& options, int64_t outputs);
// Turns an InvalidArgument into a violation of PREFIXmodel.program.
absl::Status AsViolation(const absl::Status& status, std::string_view prefix);

}  // namespace permafrost::train
