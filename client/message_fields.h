// Converts messages to and from text: single fields, JSON for programs, and a job's fields from the text that people
// write. Uses the descriptors of the messages, so that a new field needs no code here. Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

// Returns each plain field's path and value, such as "optimizer.learning_rate" and "0.001", in the order of the
// .proto file. Descends into messages that are set. Leaves out lists of messages, and unset fields that have
// presence. A list is one text, such as "10,5".
std::vector<std::pair<std::string, std::string>> MessageFields(const google::protobuf::Message& message);

// Returns protobuf's JSON mapping as one line without a newline, with names in lowerCamelCase. Plain fields at their
// default are written too, so that a reader finds each of them.
std::string ToJson(const google::protobuf::Message& message);

// Returns whether the field is a message that stands for one value: a Duration or a Timestamp.
bool IsTimeField(const google::protobuf::FieldDescriptor& field);
// Returns whether the field is a message with fields of its own.
bool IsMessageField(const google::protobuf::FieldDescriptor& field);
// Describes the values of the field's type, for error messages.
std::string AcceptedBy(const google::protobuf::FieldDescriptor& field);
// SetScalar sets a singular field. AddScalar appends to a list. A field may be a Duration or a Timestamp, but no
// other message. Both functions return false if `text` is not a value of the field's type.
bool SetScalar(const google::protobuf::FieldDescriptor& field, const std::string& text,
               google::protobuf::Message& message);
bool AddScalar(const google::protobuf::FieldDescriptor& field, const std::string& text,
               google::protobuf::Message& message);

// The fields that lead from a message down to a nested field.
using SpecPath = std::vector<const google::protobuf::FieldDescriptor*>;

// Returns, for example, "model.hidden_channels".
std::string PathName(const SpecPath& path);

// The flag --negatives sets the first of these fields or, in a job of node2vec, the second one.
inline constexpr std::string_view kLinkNegatives = "link_prediction.negatives",
                                  kWalkNegatives = "node2vec.num_negative_samples";
bool Walks(const v1::JobSpec& spec);

// Returns "" if a flag accepts `text` as the field's value, or as an item of the field's list. Otherwise returns the
// reason, "'x'; accepted: ...". Flags accept the values of AcceptedBy. They also accept "all" neighbours, a "derived"
// freeze point, a job's ID, and a path relative to the working directory. `between` is the separator of list items.
std::string RefusalOf(const google::protobuf::FieldDescriptor& field, const std::string& text, char between);
// Makes the messages above the field, and sets the field to `values`: one value, or the items of a list. RefusalOf
// must return "" for each of `values`.
void SetSpecField(const SpecPath& path, const std::vector<std::string>& values, google::protobuf::Message& root);
// Clears the field, unless a message above it is unset already.
void ClearSpecField(const SpecPath& path, google::protobuf::Message& root);

}  // namespace permafrost::client
