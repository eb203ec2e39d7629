#include "client/spec_flags.h"

#include <utility>

#include "client/commands.h"

namespace permafrost::client {
namespace {

using google::protobuf::FieldDescriptor;

constexpr char kComma = ',';

bool IsSwitch(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL || IsMessageField(field);
}

// Makes the messages of a path whose last field is one.
void MakeMessage(const SpecPath& path, google::protobuf::Message& root) {
  google::protobuf::Message* message = &root;
  for (const FieldDescriptor* field : path) message = message->GetReflection()->MutableMessage(message, field);
}

}  // namespace

void SpecSetting::Apply(google::protobuf::Message& message) const {
  const FieldDescriptor& field = *path.back();
  const bool is_message = IsMessageField(field);
  if (IsSwitch(field) && values.front() == "false" && (is_message || !field.has_presence())) {
    ClearSpecField(path, message);
  } else if (is_message) {
    MakeMessage(path, message);
  } else {
    SetSpecField(path, values, message);
  }
}

SpecFlags::SpecFlags(const std::vector<SpecRow>& rows) {
  for (const SpecRow& row : rows) {
    if (!row.flag.empty()) flags_.push_back({.row = row, .on = {}, .text = {}, .items = {}});
  }
}

void SpecFlags::AddTo(CLI::App& command) {
  for (Flag& flag : flags_) {
    const SpecRow& row = flag.row;
    const FieldDescriptor& field = *row.path.back();
    if (IsSwitch(field)) {
      AddSwitch(command, row.flag, flag.on, row.help);
      continue;
    }
    CLI::Option* option = field.is_repeated() ? command.add_option(row.flag, flag.items, row.help)->delimiter(kComma)
                                              : command.add_option(row.flag, flag.text, row.help);
    option->check(CLI::Validator([&field](const std::string& text) { return RefusalOf(field, text, kComma); }, ""))
        ->type_name(row.value);
  }
}

std::vector<SpecSetting> SpecFlags::Given() const {
  std::vector<SpecSetting> given;
  for (const Flag& flag : flags_) {
    std::vector<std::string> values = flag.items;
    if (flag.on) values = {*flag.on ? "true" : "false"};
    if (flag.text) values = {*flag.text};
    if (!values.empty()) given.push_back({.path = flag.row.path, .values = std::move(values)});
  }
  return given;
}

std::vector<std::string> SpecFlags::Names() const {
  std::vector<std::string> names;
  names.reserve(flags_.size());
  for (const Flag& flag : flags_) names.push_back(FlagNames(flag.row).front());
  return names;
}

}  // namespace permafrost::client
