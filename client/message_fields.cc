#include "client/message_fields.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/format.h"
#include "client/spec_field.h"
#include "client/time_text.h"
#include "google/protobuf/util/json_util.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Writes a Duration or a Timestamp as flags and files take it.
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

// `index`: of a list; -1: the field is none.
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
  // Fails only for malformed Any, Timestamp or Duration values; what was written until then is of no use.
  if (!google::protobuf::util::MessageToJsonString(message, &out, options).ok()) return "{}";
  return out;
}

}  // namespace permafrost::client
