// Messages and their fields as text, by the contract's own description of itself, so that a new field of the contract
// needs no line here: every field apart, JSON for programs, and fields of a job's description set from what people
// write. Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {

// "optimizer.learning_rate" and "0.001", in the contract's order: what is no message, of the messages in it that are
// set. A field with presence that is not set is left out; a list is one text, "10,5".
std::vector<std::pair<std::string, std::string>> MessageFields(const google::protobuf::Message& message);

// Protobuf's JSON mapping, one object a line: lowerCamelCase names; fields at their default are written too, so that a
// reader finds every plain field. No newline.
std::string ToJson(const google::protobuf::Message& message);

// Returns whether it is a message that stands for one value: a Duration or a Timestamp.
bool IsTimeField(const google::protobuf::FieldDescriptor& field);
// Returns whether it is a message of fields.
bool IsMessageField(const google::protobuf::FieldDescriptor& field);
// Describes the values of the field's type, for messages.
std::string AcceptedBy(const google::protobuf::FieldDescriptor& field);
// Sets a field that is no list, and no message but a time, or adds to a list. False if `text` is no value of the
// field's type.
bool SetScalar(const google::protobuf::FieldDescriptor& field, const std::string& text,
               google::protobuf::Message& message);
bool AddScalar(const google::protobuf::FieldDescriptor& field, const std::string& text,
               google::protobuf::Message& message);

// Leads from a message down to a field.
using SpecPath = std::vector<const google::protobuf::FieldDescriptor*>;

// "model.hidden_channels".
std::string PathName(const SpecPath& path);

// The flag --negatives sets the first; in a job of node2vec it sets the second.
inline constexpr std::string_view kLinkNegatives = "link_prediction.negatives",
                                  kWalkNegatives = "node2vec.num_negative_samples";
bool Walks(const v1::JobSpec& spec);

// Returns "" if a flag takes `text` for the field, or for an item of its list; else "'x'; accepted: ...". Flags take
// what AcceptedBy says, and also: "all" neighbours, a "derived" freeze point, a job by its ID, a file by its path from
// here. `between`: stands between the items of a list.
std::string RefusalOf(const google::protobuf::FieldDescriptor& field, const std::string& text, char between);
// Makes the messages above the field, and sets it to `values`: one, or the items of a list. RefusalOf takes each of
// them.
void SetSpecField(const SpecPath& path, const std::vector<std::string>& values, google::protobuf::Message& root);
// Clears the field, where the messages above it are there.
void ClearSpecField(const SpecPath& path, google::protobuf::Message& root);

}  // namespace permafrost::client
