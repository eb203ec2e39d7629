// Programs (server/program) as models of either level: they read the same batches as our own models, and their tensors
// are trained, saved and loaded under the module's own names.
// Threads: making and judging one is safe anywhere; a model belongs to the device thread.
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
  std::string name;             // of the program, for messages
  nn::EncoderInput node, edge;  // what the dataset holds
  nn::EncoderInput positions;   // of the nodes
  nn::EncoderInput labels;      // columns of numbers, or one of classes
  bool weighted = false;        // whether the edges of one large graph have weights
  int64_t num_outputs = 1;      // columns of a prediction; 0: links are predicted
  int64_t max_graph_nodes = 0;  // of a set's largest graph
  int64_t padding_rows = 0;     // last rows of each block that are no nodes
  uint64_t seed = 0;            // of the numbers that it draws
  bool no_self_loops = false;   // the dataset has none: what removes them is left out (program/rewritings.h)
  // If set, batches may have any padding. Its rows run like real ones, but batch norms skip them (program_trials.h).
  // If not, batches have the least padding, and the program does not see it.
  std::optional<ProgramNorms> padding;
  bool fused = true;  // on the CPU, regions of edges run as one operator (program/rewritings.h)
};

// A program reads, by the names of its inputs:
//   of sets: x, edge_attr and pos, edge_index, batch, y, num_graphs or batch_size, num_nodes, and max_num_nodes, which
//   is that of the set. It returns one prediction a graph.
//   of one large graph: x, edge_attr and pos, edge_index, edge_weight, y, batch_size (the seeds), and num_nodes. It
//   returns one prediction a node, seeds first, or one a seed.
// x, edge_attr, pos and y have the columns of the dataset; one column may lack its dimension. A prediction is [rows] or
// [rows, num_outputs]. y has a row for each graph or node: what the job's loss compares with, int64 classes or float32
// values. A label that is missing, or of a node that is none of the seeds, is -100 or NaN. A loss that the program
// returns takes the place of the job's; it is to be the mean over the rows that have a label.
// If links are predicted, a program returns rows of nodes with any number of columns, or it reads edge_label_index, the
// ends of pairs as rows, and returns a score for each pair, [pairs] or [pairs, 1].
//
// Without `padding` a batch has only the least padding (data::Batcher::LeastPadded, train::LeastPadded). So Forward
// computes the real rows from the shape, passes only those on, and can be captured for every shape. Predictions of
// padding graphs are 0.
// Forward throws what BoundProgram::Run throws, and c10::ValueError for a prediction of another shape. A block for
// programs has edge_targets.
//
// Errors: InvalidArgument that names the input, output, parameter or node that the dataset cannot serve.
absl::StatusOr<std::unique_ptr<nn::GraphModel>> MakeProgramModel(const program::LoadedProgram& loaded,
                                                                 const ProgramModelOptions& options,
                                                                 c10::Device device);
absl::StatusOr<std::unique_ptr<nn::NodeModel>> MakeProgramOfNodes(const program::LoadedProgram& loaded,
                                                                  const ProgramModelOptions& options,
                                                                  c10::Device device);

// What trials found of a job's program (program_trials.h).
struct ProgramForm {
  std::optional<ProgramNorms> padding;  // as in ProgramModelOptions
  bool fused = true;
};

// The model of a job: its program, or one of our own. self_loops: edges of the dataset that begin and end at one node.
// Errors: InvalidArgument with a violation of PREFIXmodel.program; those of reading the program's archive.
struct MadeModel {
  std::unique_ptr<nn::GraphModel> model;
  const BoundProgram* program = nullptr;  // the model's; null for one of our own
  bool reads_positions = false;
  std::string note;  // what the job's user should know, in one line; empty: nothing
};
absl::StatusOr<MadeModel> MakeModel(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                    int64_t self_loops, c10::Device device, std::string_view prefix,
                                    const ProgramForm& form = {});

// The model of a job on one large graph.
struct MadeNodeModel {
  std::unique_ptr<nn::NodeModel> model;
  nn::LayerWiseModel* layers = nullptr;  // the same model, if it is one of our own
  const BoundProgram* program = nullptr;
  bool reads_edge_features = true, reads_edge_weights = true, reads_positions = false;
  bool scores_pairs = false;  // whether it returns scores of the block's pairs, and not rows of its nodes
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

// The labels that the job's loss compares with; none for links. outputs: columns of a prediction.
nn::EncoderInput LabelsOf(const spec::TrainOptions& options, int64_t outputs);
// Turns an InvalidArgument into a violation of PREFIXmodel.program.
absl::Status AsViolation(const absl::Status& status, std::string_view prefix);

}  // namespace permafrost::train
