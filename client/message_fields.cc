#include "client/message_fields.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "client/format.h"
#include "google/protobuf/util/json_util.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Words that a flag accepts in place of a special number, or of a character that is awkward to type in a shell.
constexpr struct {
  const char *field, *word, *value;
} kWords[] = {{"fan_outs", "all", "-1"},  {"eval_fan_outs", "all", "-1"}, {"freeze_at", "derived", "0"},
              {"delimiter", "tab", "\t"}, {"delimiter", "space", " "},    {"delimiter", "none", ""},
              {"comment", "tab", "\t"},   {"comment", "space", " "},      {"comment", "none", ""},
              {"quote", "tab", "\t"},     {"quote", "space", " "},        {"quote", "none", ""}};

// Returns the API's value for a flag's text.
std::string ValueOf(const FieldDescriptor& field, const std::string& text) {
  for (const auto& [name, word, value] : kWords) {
    if (field.name() == name && text == word) return value;
  }
  if (field.containing_type() != v1::InitFrom::descriptor() || text.empty()) return text;
  if (field.number() == v1::InitFrom::kJobFieldNumber) return WithCollection("jobs", text);
  if (field.number() == v1::InitFrom::kFileFieldNumber)
    return std::filesystem::absolute(text).lexically_normal().string();
  return text;
}

// `message` must be a Duration or a Timestamp.
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

bool IsMessageField(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !IsTimeField(field);
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

bool Walks(const v1::JobSpec& spec) { return spec.model().architecture() == v1::ModelSpec::ARCHITECTURE_NODE2VEC; }

std::string RefusalOf(const FieldDescriptor& field, const std::string& text, char between) {
  const std::unique_ptr<Message> scratch(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(field.containing_type())->New());
  const std::string value = ValueOf(field, text);
  if (field.is_repeated() ? AddScalar(field, value, *scratch) : SetScalar(field, value, *scratch)) return "";
  std::string refusal = absl::StrCat("'", OneLine(text), "'; accepted: ", AcceptedBy(field));
  for (const auto& word : kWords) {
    if (field.name() == word.field) absl::StrAppend(&refusal, ", or ", word.word);
  }
  if (field.is_repeated()) absl::StrAppend(&refusal, "; a list has '", std::string(1, between), "' between its items");
  return refusal;
}

void SetSpecField(const SpecPath& path, const std::vector<std::string>& values, Message& root) {
  Message* message = &root;
  for (size_t i = 0; i + 1 < path.size(); ++i) message = message->GetReflection()->MutableMessage(message, path[i]);
  const FieldDescriptor& field = *path.back();
  if (!field.is_repeated()) {
    SetScalar(field, ValueOf(field, values.front()), *message);
    return;
  }
  message->GetReflection()->ClearField(message, &field);
  for (const std::string& value : values) AddScalar(field, ValueOf(field, value), *message);
}

void ClearSpecField(const SpecPath& path, Message& root) {
  Message* message = &root;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    if (!message->GetReflection()->HasField(*message, path[i])) return;
    message = message->GetReflection()->MutableMessage(message, path[i]);
  }
  message->GetReflection()->ClearField(message, path.back());
}

namespace {

// Formats a Duration or a Timestamp as flags and files accept it.
std::string TimeFieldText(const Message& message) {
  if (message.GetDescriptor() == google::protobuf::Duration::descriptor()) {
    google::protobuf::Duration duration;
    duration.CopyFrom(message);
    return absl::FormatDuration(ToDuration(duration));
  }
  google::protobuf::Timestamp time;
  time.CopyFrom(message);
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", ToTime(time), absl::UTCTimeZone());
}

// `index` is the position in a repeated field, or -1 for a singular field.
std::string ValueText(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& of = *message.GetReflection();
  const bool list = index >= 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(list ? of.GetRepeatedInt32(message, &field, index) : of.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(list ? of.GetRepeatedInt64(message, &field, index) : of.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(list ? of.GetRepeatedUInt32(message, &field, index) : of.GetUInt32(message, &field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(list ? of.GetRepeatedUInt64(message, &field, index) : of.GetUInt64(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return ExactText(list ? of.GetRepeatedDouble(message, &field, index) : of.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return ExactText(
          static_cast<double>(list ? of.GetRepeatedFloat(message, &field, index) : of.GetFloat(message, &field)));
    case FieldDescriptor::CPPTYPE_BOOL:
      return (list ? of.GetRepeatedBool(message, &field, index) : of.GetBool(message, &field)) ? "yes" : "no";
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumShortName(*field.enum_type(),
                           list ? of.GetRepeatedEnumValue(message, &field, index) : of.GetEnumValue(message, &field));
    case FieldDescriptor::CPPTYPE_STRING:
      return OneLine(list ? of.GetRepeatedString(message, &field, index) : of.GetString(message, &field));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (!list && IsTimeField(field)) return TimeFieldText(of.GetMessage(message, &field));
      break;
  }
  return "";
}

void AddFields(const Message& message, const std::string& prefix,
               std::vector<std::pair<std::string, std::string>>& fields) {
  const Reflection& of = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const std::string name = absl::StrCat(prefix, field.name());
    const bool is_message = IsMessageField(field);
    if (field.is_repeated()) {
      if (is_message) continue;
      std::vector<std::string> values;
      values.reserve(static_cast<size_t>(of.FieldSize(message, &field)));
      for (int v = 0; v < of.FieldSize(message, &field); ++v) values.push_back(ValueText(message, field, v));
      if (!values.empty()) fields.emplace_back(name, absl::StrJoin(values, ","));
    } else if (field.has_presence() && !of.HasField(message, &field)) {
      continue;
    } else if (is_message) {
      AddFields(of.GetMessage(message, &field), absl::StrCat(name, "."), fields);
    } else {
      fields.emplace_back(name, ValueText(message, field, -1));
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> MessageFields(const Message& message) {
  std::vector<std::pair<std::string, std::string>> fields;
  AddFields(message, "", fields);
  return fields;
}

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  std::string out;
  // This fails only for malformed Any, Timestamp or Duration values. The partial output is then useless.
  if (!google::protobuf::util::MessageToJsonString(message, &out, options).ok()) return "{}";
  return out;
}

}  // namespace permafrost::client
