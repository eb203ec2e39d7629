#include "api/wire/wire_fields.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/wire/convert_job.h"
#include "api/wire/resource_name.h"
#include "api/wire/wire_values.h"
#include "google/protobuf/reflection.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::api {

using google::protobuf::FieldDescriptor;
using google::protobuf::Reflection;

namespace {

// Returns the contract's field of a row. Every row must have a field: a row without a field fails every test that
// converts a job.
const FieldDescriptor& FieldOf(const google::protobuf::Message& message, const spec::Field& field) {
  return *message.GetDescriptor()->FindFieldByName(field.name);
}

}  // namespace

const FieldDescriptor& WireReader::Of(const spec::Field& field) const { return FieldOf(from_, field); }

bool WireReader::IsGiven(const FieldDescriptor& wire) const {
  const Reflection& reflection = *from_.GetReflection();
  return wire.is_repeated() ? reflection.FieldSize(from_, &wire) > 0 : reflection.HasField(from_, &wire);
}

int64_t WireReader::Integer(const FieldDescriptor& wire) const {
  const Reflection& reflection = *from_.GetReflection();
  switch (wire.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetInt32(from_, &wire);
    case FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<int64_t>(reflection.GetUInt64(from_, &wire));
    default:
      return reflection.GetInt64(from_, &wire);
  }
}

bool WireReader::HasRoom(const spec::Field& field, const FieldDescriptor& wire) const {
  if (field.accepts.kind != spec::Accepts::Kind::kEntries) return true;
  const int size = from_.GetReflection()->FieldSize(from_, &wire);
  if (size <= field.accepts.high) return true;
  violations_.Add(prefix_ + wire.name(),
                  absl::StrCat("has ", size, " entries; accepted: at most ", field.accepts.high));
  return false;
}

std::optional<std::string> WireReader::Name(const FieldDescriptor& wire, const std::vector<std::string>& names,
                                            std::optional<int> index) const {
  const Reflection& reflection = *from_.GetReflection();
  const int value =
      index ? reflection.GetRepeatedEnumValue(from_, &wire, *index) : reflection.GetEnumValue(from_, &wire);
  std::vector<std::string> accepted;
  for (const std::string& name : names) {
    const std::optional<int> number = ParseEnum(*wire.enum_type(), name);
    if (!number) continue;
    if (*number == value) return name;
    accepted.push_back(wire.enum_type()->FindValueByNumber(*number)->name());
  }
  // An entry of a list has no default, so an unspecified entry is a violation.
  violations_.Add(absl::StrCat(prefix_, wire.name(), index ? absl::StrCat("[", *index, "]") : ""),
                  absl::StrCat(index && value == 0 ? "says nothing" : absl::StrCat(value, " is unknown"),
                               "; accepted: ", absl::StrJoin(accepted, ", ")));
  return std::nullopt;
}

void WireReader::Value(const FieldDescriptor& wire, bool& option) const {
  option = from_.GetReflection()->GetBool(from_, &wire);
}

void WireReader::Value(const FieldDescriptor& wire, char& option) const {
  const std::string text = from_.GetReflection()->GetString(from_, &wire);
  option = text.empty() ? '\0' : text.front();
  const bool in_line = absl::ascii_isascii(static_cast<unsigned char>(option)) && option != '\n' && option != '\r';
  if (text.empty() || (text.size() == 1 && in_line && option != '\0')) return;
  option = '\0';
  violations_.Add(prefix_ + wire.name(),
                  absl::StrCat("'", Clip(ValidUtf8(text), 32), "' is not one ASCII character within a line"));
}

void WireReader::Value(const FieldDescriptor& wire, double& option) const {
  option = from_.GetReflection()->GetDouble(from_, &wire);
}

void WireReader::Value(const FieldDescriptor& wire, std::string& option) const {
  option = from_.GetReflection()->GetString(from_, &wire);
}

void WireReader::Value(const FieldDescriptor& wire, std::filesystem::path& option) const {
  option = from_.GetReflection()->GetString(from_, &wire);
}

void WireReader::Value(const FieldDescriptor& wire, std::vector<int64_t>& option) const {
  const auto values = from_.GetReflection()->GetRepeatedFieldRef<int64_t>(from_, &wire);
  option.assign(values.begin(), values.end());
}

void WireReader::Value(const FieldDescriptor& wire, std::vector<double>& option) const {
  const auto values = from_.GetReflection()->GetRepeatedFieldRef<double>(from_, &wire);
  option.assign(values.begin(), values.end());
}

void WireReader::Value(const FieldDescriptor& wire, std::vector<std::string>& option) const {
  const auto values = from_.GetReflection()->GetRepeatedFieldRef<std::string>(from_, &wire);
  option.assign(values.begin(), values.end());
}

void WireReader::Value(const FieldDescriptor& wire, DatasetId& option) const {
  auto id = ParseDatasetName(prefix_ + wire.name(), from_.GetReflection()->GetString(from_, &wire));
  if (!id.ok()) return violations_.AddMissing(id.status());
  option = *std::move(id);
}

void WireReader::Value(const FieldDescriptor& wire, ProgramId& option) const {
  auto id = ParseProgramName(prefix_ + wire.name(), from_.GetReflection()->GetString(from_, &wire));
  if (!id.ok()) return violations_.AddMissing(id.status());
  option = *std::move(id);
}

void WireReader::Value(const FieldDescriptor& wire, JobId& option) const {
  auto id = ParseJobName(prefix_ + wire.name(), from_.GetReflection()->GetString(from_, &wire));
  if (!id.ok()) return violations_.AddMissing(id.status());
  option = *std::move(id);
}

void WireReader::Value(const FieldDescriptor& wire, absl::Duration& option) const {
  const google::protobuf::Message& value = from_.GetReflection()->GetMessage(from_, &wire);
  option = DurationFromWire(static_cast<const google::protobuf::Duration&>(value), prefix_ + wire.name(), violations_);
}

void WireReader::Value(const FieldDescriptor& wire, absl::Time& option) const {
  const google::protobuf::Message& value = from_.GetReflection()->GetMessage(from_, &wire);
  option = TimeFromWire(static_cast<const google::protobuf::Timestamp&>(value), prefix_ + wire.name(), violations_);
}

void WireReader::Value(const FieldDescriptor& wire, std::vector<spec::Metric>& option,
                       const EnumNames<spec::Metric, spec::kMetricNames.rows.size()>& /*names*/) const {
  const auto values = from_.GetReflection()->GetRepeatedFieldRef<int32_t>(from_, &wire);
  const google::protobuf::RepeatedField<int> numbers(values.begin(), values.end());
  option = MetricsFromWire(numbers, prefix_ + wire.name(), violations_);
}

const FieldDescriptor& WireWriter::Of(const spec::Field& field) const { return FieldOf(to_, field); }

bool WireWriter::MeansSomething(const spec::Field& field) const {
  return std::ranges::all_of(field.needs,
                             [this](spec::Need need) { return job_ == nullptr || spec::Holds(need, *job_); });
}

void WireWriter::SetInteger(const FieldDescriptor& wire, int64_t option) const {
  const Reflection& reflection = *to_.GetReflection();
  switch (wire.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(&to_, &wire, static_cast<int32_t>(option));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.SetUInt64(&to_, &wire, static_cast<uint64_t>(option));
    default:
      return reflection.SetInt64(&to_, &wire, option);
  }
}

// Sets the unspecified value if the contract lacks the name.
void WireWriter::SetName(const FieldDescriptor& wire, std::string_view name) const {
  const int number = ParseEnum(*wire.enum_type(), name).value_or(0);
  const Reflection& reflection = *to_.GetReflection();
  if (wire.is_repeated()) return reflection.AddEnumValue(&to_, &wire, number);
  reflection.SetEnumValue(&to_, &wire, number);
}

void WireWriter::Set(const FieldDescriptor& wire, bool option) const {
  to_.GetReflection()->SetBool(&to_, &wire, option);
}

void WireWriter::Set(const FieldDescriptor& wire, char option) const {
  to_.GetReflection()->SetString(&to_, &wire, option == '\0' ? "" : std::string(1, option));
}

void WireWriter::Set(const FieldDescriptor& wire, double option) const {
  to_.GetReflection()->SetDouble(&to_, &wire, option);
}

void WireWriter::Set(const FieldDescriptor& wire, const std::string& option) const {
  to_.GetReflection()->SetString(&to_, &wire, ValidUtf8(option));
}

void WireWriter::Set(const FieldDescriptor& wire, const std::filesystem::path& option) const {
  Set(wire, option.string());
}

void WireWriter::Set(const FieldDescriptor& wire, const std::vector<int64_t>& option) const {
  for (const int64_t value : option) to_.GetReflection()->AddInt64(&to_, &wire, value);
}

void WireWriter::Set(const FieldDescriptor& wire, const std::vector<double>& option) const {
  for (const double value : option) to_.GetReflection()->AddDouble(&to_, &wire, value);
}

void WireWriter::Set(const FieldDescriptor& wire, const std::vector<std::string>& option) const {
  for (const std::string& value : option) to_.GetReflection()->AddString(&to_, &wire, ValidUtf8(value));
}

void WireWriter::Set(const FieldDescriptor& wire, const DatasetId& option) const {
  to_.GetReflection()->SetString(&to_, &wire, FormatDatasetName(option));
}

void WireWriter::Set(const FieldDescriptor& wire, const ProgramId& option) const {
  if (!option.empty()) to_.GetReflection()->SetString(&to_, &wire, FormatProgramName(option));
}

void WireWriter::Set(const FieldDescriptor& wire, const JobId& option) const {
  if (!option.empty()) to_.GetReflection()->SetString(&to_, &wire, FormatJobName(option));
}

void WireWriter::Set(const FieldDescriptor& wire, absl::Duration option) const {
  SetDuration(option, [&] {
    return static_cast<google::protobuf::Duration*>(to_.GetReflection()->MutableMessage(&to_, &wire));
  });
}

void WireWriter::Set(const FieldDescriptor& wire, absl::Time option) const {
  SetTime(option,
          [&] { return static_cast<google::protobuf::Timestamp*>(to_.GetReflection()->MutableMessage(&to_, &wire)); });
}

}  // namespace permafrost::api
