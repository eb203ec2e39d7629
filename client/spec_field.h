// Fields of a job's description as text, by the contract's own description of itself, so that a new field of the
// contract needs no line here. Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

// Returns whether it is a message that stands for one value: a Duration or a Timestamp.
bool IsTimeField(const google::protobuf::FieldDescriptor& field);
// Describes the values of the field's type, for messages.
std::string AcceptedBy(const google::protobuf::FieldDescriptor& field);
// Sets a field that is no list, and no message but a time, or adds to a list. False if `text` is no value of the
// field's type.
bool SetScalar(const google::protobuf::FieldDescriptor& field, const std::string& text,
               google::protobuf::Message& message);
bool AddScalar(const google::protobuf::FieldDescriptor& field, const std::string& text,
               google::protobuf::Message& message);

// From JobSpec down to a field that is no message but a time.
using SpecPath = std::vector<const google::protobuf::FieldDescriptor*>;

// The field that `name` means: "model.hidden_channels"; the last part alone where it is the only one of its depth or
// lies less deep than all others of that name; or the flag of `job submit` without its dashes ("lr"). Hyphens count as
// underscores. Errors: InvalidArgument naming what is like it, or what it may mean.
absl::StatusOr<SpecPath> FindSpecField(std::string_view name);
// A field whose 0 is, in the contract, no value but the default, and its flag of `job submit`.
struct ZeroIsDefault {
  const char *flag, *path;
};
inline constexpr ZeroIsDefault kZeroIsDefault[] = {
    {"--hidden", "model.hidden_channels"},
    {"--layers", "model.num_layers"},
    {"--heads", "model.heads"},
    {"--epochs", "epochs"},
    {"--batch-size", "batch_size"},
    {"--lr", "optimizer.learning_rate"},
    {"--decay-factor", "optimizer.decay_factor"},
    {"--accumulate-steps", "optimizer.accumulate_steps"},
    {"--checkpoint-keep", "checkpoint.keep"},
    {"--look-ahead", "neighbor_sampling.look_ahead"},
    {"--negatives", "link_prediction.negatives"},
    {"--negatives", "node2vec.num_negative_samples"},
    {"--eval-negatives", "link_prediction.eval_negatives"},
    {"--walk-length", "node2vec.walk_length"},
    {"--context-size", "node2vec.context_size"},
    {"--walks-per-node", "node2vec.walks_per_node"},
    {"--p", "node2vec.p"},
    {"--q", "node2vec.q"},
};

// "model.hidden_channels".
std::string PathName(const SpecPath& path);
// `text`: as the field's flag takes it; a list has ':' between its items, which become the list. InvalidArgument where
// it is no value of the field.
absl::Status SetSpecField(const SpecPath& path, const std::string& text, v1::JobSpec& spec);

}  // namespace permafrost::client
