#include "client/spec_field.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "base/string_view.h"
#include "client/format.h"
#include "client/time_text.h"
#include "client/wire_time.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Flags that are not called as their fields, and words that are a message as well.
constexpr struct {
  std::string_view flag, path;
} kFlags[] = {
    {"lr", "optimizer.learning_rate"},
    {"min_lr", "optimizer.min_learning_rate"},
    {"hidden", "model.hidden_channels"},
    {"layers", "model.num_layers"},
    {"model", "model.architecture"},
    {"optimizer", "optimizer.algorithm"},
    {"init_from", "init_from.job"},
    {"init_weights", "init_from.weights"},
    {"init_file", "init_from.file"},
    {"init_by_name", "init_from.by_name"},
    {"checkpoint_every", "checkpoint.every_steps"},
    {"checkpoint_seconds", "checkpoint.every_seconds"},
    {"checkpoint_keep", "checkpoint.keep"},
    {"batching", "batching.kind"},
    {"fold_seed", "cross_validation.seed"},
    {"fan_out", "neighbor_sampling.fan_outs"},
    {"eval_fan_out", "neighbor_sampling.eval_fan_outs"},
    {"layer_wise_eval", "neighbor_sampling.layer_wise_evaluation"},
    {"link_split", "link_prediction.split"},
    {"link_valid", "link_prediction.valid_part"},
    {"link_test", "link_prediction.test_part"},
    {"link_seed", "link_prediction.split_seed"},
    {"cache_policy", "graph_cache.policy"},
};

constexpr char kBetweenItems = ':';

// Returns what a flag's value says in the contract.
std::string ValueOf(std::string_view path, const std::string& text) {
  const bool fan_outs = path == "neighbor_sampling.fan_outs" || path == "neighbor_sampling.eval_fan_outs";
  if (fan_outs && text == "all") return "-1";
  if (path == "graph_cache.freeze_at" && text == "derived") return "0";
  if (path == "init_from.job") return WithCollection("jobs", text);
  if (path == "init_from.file" && !text.empty()) return std::filesystem::absolute(text).lexically_normal().string();
  return text;
}

void AddPaths(const Descriptor& type, const SpecPath& above, std::vector<SpecPath>& paths) {
  for (int i = 0; i < type.field_count(); ++i) {
    SpecPath path = above;
    path.push_back(type.field(i));
    if (type.field(i)->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !IsTimeField(*type.field(i))) {
      if (!type.field(i)->is_repeated()) AddPaths(*type.field(i)->message_type(), path, paths);
    } else {
      paths.push_back(std::move(path));
    }
  }
}

// `message`: a Duration or a Timestamp.
bool SetTimeText(const std::string& text, Message& message) {
  if (message.GetDescriptor() == google::protobuf::Duration::descriptor()) {
    const auto duration = ParseDurationText(text);
    if (duration) message.CopyFrom(ToWire(*duration));
    return duration.has_value();
  }
  const auto time = ParseTimeText(text, absl::Now());
  if (time) message.CopyFrom(ToWire(*time));
  return time.has_value();
}

}  // namespace

bool IsTimeField(const FieldDescriptor& field) {
  return field.message_type() == google::protobuf::Duration::descriptor() ||
         field.message_type() == google::protobuf::Timestamp::descriptor();
}

std::string AcceptedBy(const FieldDescriptor& field) {
  if (field.message_type() == google::protobuf::Duration::descriptor()) return kAcceptedDuration;
  if (field.message_type() == google::protobuf::Timestamp::descriptor()) return kAcceptedTime;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return "a whole number of 32 bits";
    case FieldDescriptor::CPPTYPE_INT64:
      return "a whole number";
    case FieldDescriptor::CPPTYPE_UINT64:
      return "a whole number, 0 or more";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "a number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true, false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return absl::StrJoin(EnumShortNames(*field.enum_type()), ", ");
    default:
      return "text";
  }
}

bool AddScalar(const FieldDescriptor& field, const std::string& text, Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    const std::optional<int> value = ParseEnum(*field.enum_type(), text);
    if (!value) return false;
    reflection.AddEnumValue(&message, &field, *value);
    return true;
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(text, &value)) return false;
    reflection.AddInt64(&message, &field, value);
    return true;
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    if (text.empty()) return false;
    reflection.AddString(&message, &field, text);
    return true;
  }
  double value = 0;
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE || !absl::SimpleAtod(text, &value)) return false;
  reflection.AddDouble(&message, &field, value);
  return true;
}

bool SetScalar(const FieldDescriptor& field, const std::string& text, Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const absl::string_view view(text);
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: {
      int32_t value = 0;
      if (!absl::SimpleAtoi(view, &value)) return false;
      reflection.SetInt32(&message, &field, value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      int64_t value = 0;
      if (!absl::SimpleAtoi(view, &value)) return false;
      reflection.SetInt64(&message, &field, value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      uint64_t value = 0;
      if (!absl::SimpleAtoi(view, &value)) return false;
      reflection.SetUInt64(&message, &field, value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      double value = 0;
      if (!absl::SimpleAtod(view, &value)) return false;
      reflection.SetDouble(&message, &field, value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      if (text != "true" && text != "false") return false;
      reflection.SetBool(&message, &field, text == "true");
      return true;
    case FieldDescriptor::CPPTYPE_ENUM: {
      const std::optional<int> value = ParseEnum(*field.enum_type(), text);
      if (!value) return false;
      reflection.SetEnumValue(&message, &field, *value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_STRING:
      reflection.SetString(&message, &field, text);
      return true;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return IsTimeField(field) && SetTimeText(text, *reflection.MutableMessage(&message, &field));
    default:
      return false;
  }
}

std::string PathName(const SpecPath& path) {
  return absl::StrJoin(path, ".",
                       [](std::string* out, const FieldDescriptor* field) { absl::StrAppend(out, field->name()); });
}

absl::StatusOr<SpecPath> FindSpecField(std::string_view name) {
  std::string wanted = absl::StrReplaceAll(AbslView(name), {{"-", "_"}});
  for (const auto& [flag, path] : kFlags) {
    if (wanted == flag) wanted = path;
  }
  std::vector<SpecPath> paths;
  AddPaths(*v1::JobSpec::descriptor(), {}, paths);
  std::vector<SpecPath> found;
  for (const SpecPath& path : paths) {
    if (PathName(path) == wanted) return path;
    if (path.back()->name() == wanted) found.push_back(path);
  }
  std::ranges::sort(found, {}, [](const SpecPath& path) { return std::pair(path.size(), PathName(path)); });
  const auto join = [](const std::vector<SpecPath>& list) {
    return absl::StrJoin(list, ", ",
                         [](std::string* out, const SpecPath& path) { absl::StrAppend(out, PathName(path)); });
  };
  if (found.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", OneLine(name),
                     "' is no field of a job; accepted: a flag of `permafrost job submit` without its "
                     "dashes, as hidden, or the path of a field, as model.hidden_channels"));
  }
  if (found.size() > 1 && found[0].size() == found[1].size()) {
    return absl::InvalidArgumentError(absl::StrCat("'", OneLine(name), "' may mean ", join(found)));
  }
  return found.front();
}

absl::Status SetSpecField(const SpecPath& path, const std::string& text, v1::JobSpec& spec) {
  Message* message = &spec;
  for (size_t i = 0; i + 1 < path.size(); ++i) message = message->GetReflection()->MutableMessage(message, path[i]);
  const FieldDescriptor& field = *path.back();
  const std::string name = PathName(path);
  if (!field.is_repeated()) {
    if (SetScalar(field, ValueOf(name, text), *message)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(name, ": '", OneLine(text), "'; accepted: ", AcceptedBy(field)));
  }
  message->GetReflection()->ClearField(message, &field);
  for (const std::string& item : std::vector<std::string>(absl::StrSplit(text, kBetweenItems))) {
    if (AddScalar(field, ValueOf(name, item), *message)) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, ": '", OneLine(item), "'; accepted: a list with '",
                                                   std::string(1, kBetweenItems), "' between its items, each ",
                                                   AcceptedBy(field)));
  }
  return absl::OkStatus();
}

}  // namespace permafrost::client
