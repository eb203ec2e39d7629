// Converts options between the wire and the domain, by their rows (spec/field.h) and the descriptors of the contract.
// A new field needs a line in the contract and a row, and no change here.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/enum_names.h"
#include "base/id.h"
#include "base/status.h"
#include "google/protobuf/message.h"
#include "spec/checks.h"
#include "spec/field.h"
#include "spec/loss.h"

namespace permafrost::api {

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
// True for a list of structs that have rows.
template <class T>
inline constexpr bool kIsListOfFields = false;
template <class T>
inline constexpr bool kIsListOfFields<std::vector<T>> = spec::HasFields<T>;

class WireReader {
 public:
  // Prepends `prefix` ("spec.") to the names of fields in violations. Borrows the message and the violations.
  WireReader(const google::protobuf::Message& from, std::string prefix, Violations& violations)
      : from_(from), prefix_(std::move(prefix)), violations_(violations) {}

  // Sets the options that the message gives. For an unset field, an empty list or an unspecified enum, the option
  // keeps its value. Adds a violation for each value that the domain cannot represent.
  template <spec::HasFields T>
  void Read(T& options) const {
    VisitFields(spec::Options<T>(), [&](const spec::Field& field, auto member, const auto&... names) {
      if (!field.only_stored) Row(field, options.*member, names...);
    });
  }

 private:
  template <class M, class... Names>
  void Row(const spec::Field& field, M& option, const Names&... names) const {
    if constexpr (spec::HasFields<M>) {
      if (field.inlined != spec::Inline::kNo) return Read(option);
      const google::protobuf::FieldDescriptor& wire = Of(field);
      WireReader(from_.GetReflection()->GetMessage(from_, &wire), prefix_ + field.name + ".", violations_).Read(option);
    } else if (const google::protobuf::FieldDescriptor& wire = Of(field); IsGiven(wire) && HasRoom(field, wire)) {
      Value(wire, option, names...);
      if constexpr (std::is_same_v<M, bool>) option = option != field.inverted;
    }
  }

  const google::protobuf::FieldDescriptor& Of(const spec::Field& field) const;
  bool IsGiven(const google::protobuf::FieldDescriptor& wire) const;
  int64_t Integer(const google::protobuf::FieldDescriptor& wire) const;
  // Returns false and adds a violation if a list has more entries than the row accepts.
  bool HasRoom(const spec::Field& field, const google::protobuf::FieldDescriptor& wire) const;
  // Returns the domain's name for the value of an enum field or, for a repeated field, of its entry `index`. Adds a
  // violation and returns nullopt for an unknown value.
  std::optional<std::string> Name(const google::protobuf::FieldDescriptor& wire, const std::vector<std::string>& names,
                                  std::optional<int> index = std::nullopt) const;

  template <std::integral M>
  void Value(const google::protobuf::FieldDescriptor& wire, M& option) const {
    option = static_cast<M>(Integer(wire));
  }
  void Value(const google::protobuf::FieldDescriptor& wire, bool& option) const;
  // Reads one ASCII character. An empty string becomes '\0'.
  void Value(const google::protobuf::FieldDescriptor& wire, char& option) const;
  void Value(const google::protobuf::FieldDescriptor& wire, double& option) const;
  void Value(const google::protobuf::FieldDescriptor& wire, std::string& option) const;
  void Value(const google::protobuf::FieldDescriptor& wire, std::filesystem::path& option) const;
  void Value(const google::protobuf::FieldDescriptor& wire, std::vector<int64_t>& option) const;
  void Value(const google::protobuf::FieldDescriptor& wire, std::vector<double>& option) const;
  void Value(const google::protobuf::FieldDescriptor& wire, std::vector<std::string>& option) const;
  void Value(const google::protobuf::FieldDescriptor& wire, DatasetId& option) const;
  void Value(const google::protobuf::FieldDescriptor& wire, ProgramId& option) const;
  void Value(const google::protobuf::FieldDescriptor& wire, JobId& option) const;
  void Value(const google::protobuf::FieldDescriptor& wire, absl::Duration& option) const;
  void Value(const google::protobuf::FieldDescriptor& wire, absl::Time& option) const;
  void Value(const google::protobuf::FieldDescriptor& wire, std::vector<spec::Metric>& option,
             const EnumNames<spec::Metric, spec::kMetricNames.rows.size()>& names) const;
  template <class E, std::size_t N>
  void Value(const google::protobuf::FieldDescriptor& wire, E& option, const EnumNames<E, N>& names) const {
    if (const auto name = Name(wire, Known(names))) option = *names.Parse(*name);
  }
  template <class E, std::size_t N>
  void Value(const google::protobuf::FieldDescriptor& wire, std::vector<E>& option,
             const EnumNames<E, N>& names) const {
    const int size = from_.GetReflection()->FieldSize(from_, &wire);
    option.clear();
    option.reserve(static_cast<std::size_t>(size));
    for (int i = 0; i < size; ++i) {
      const auto name = Name(wire, Known(names), i);
      // Adds an arbitrary value in place of a refused entry, so that the list still counts as set.
      option.push_back(name ? *names.Parse(*name) : names.rows.back().first);
    }
  }
  template <class M, class... Names>
  void Value(const google::protobuf::FieldDescriptor& wire, std::optional<M>& option, const Names&... names) const {
    Value(wire, option.emplace(), names...);
  }
  template <class E, std::size_t N>
  static std::vector<std::string> Known(const EnumNames<E, N>& names) {
    std::vector<std::string> known;
    known.reserve(N);
    for (const auto& [value, name] : names.rows) known.emplace_back(name);
    return known;
  }

  const google::protobuf::Message& from_;
  const std::string prefix_;
  Violations& violations_;
};

class WireWriter {
 public:
  // Writes every field. Borrows the message.
  explicit WireWriter(google::protobuf::Message& to) : to_(to) {}
  // Writes every field, except `told_where_needed` fields that have no meaning for `job`. Borrows the message and the
  // job.
  WireWriter(google::protobuf::Message& to, const spec::TrainOptions& job) : to_(to), job_(&job) {}

  // Writes each option that has a value to the field of its row. Skips rows without a field in the contract.
  template <spec::HasFields T>
  void Write(const T& options) const {
    VisitFields(spec::Options<T>(), [&](const spec::Field& field, auto member, const auto&... names) {
      if (field.only_stored || (field.told_where_needed && !MeansSomething(field))) return;
      Row(field, options.*member, names...);
    });
  }

 private:
  template <class M, class... Names>
  void Row(const spec::Field& field, const M& option, const Names&... names) const {
    if constexpr (spec::HasFields<M>) {
      if (field.inlined != spec::Inline::kNo) return Write(option);
      WireWriter(*to_.GetReflection()->MutableMessage(&to_, &Of(field)), job_).Write(option);
    } else if constexpr (kIsListOfFields<M>) {
      for (const auto& each : option) {
        WireWriter(*to_.GetReflection()->AddMessage(&to_, &Of(field)), job_).Write(each);
      }
    } else if constexpr (kIsOptional<M>) {
      if (option) Row(field, *option, names...);
    } else if constexpr (std::is_same_v<M, bool> && sizeof...(Names) == 0) {
      Set(Of(field), option != field.inverted);
    } else if constexpr (requires { Set(Of(field), option, names...); }) {
      Set(Of(field), option, names...);
    }
  }

  WireWriter(google::protobuf::Message& to, const spec::TrainOptions* job) : to_(to), job_(job) {}
  bool MeansSomething(const spec::Field& field) const;
  const google::protobuf::FieldDescriptor& Of(const spec::Field& field) const;

  template <std::integral M>
  void Set(const google::protobuf::FieldDescriptor& wire, M option) const {
    SetInteger(wire, static_cast<int64_t>(option));
  }
  void SetInteger(const google::protobuf::FieldDescriptor& wire, int64_t option) const;
  void SetName(const google::protobuf::FieldDescriptor& wire, std::string_view name) const;
  void Set(const google::protobuf::FieldDescriptor& wire, bool option) const;
  void Set(const google::protobuf::FieldDescriptor& wire, char option) const;
  void Set(const google::protobuf::FieldDescriptor& wire, double option) const;
  void Set(const google::protobuf::FieldDescriptor& wire, const std::string& option) const;
  void Set(const google::protobuf::FieldDescriptor& wire, const std::filesystem::path& option) const;
  void Set(const google::protobuf::FieldDescriptor& wire, const std::vector<int64_t>& option) const;
  void Set(const google::protobuf::FieldDescriptor& wire, const std::vector<double>& option) const;
  void Set(const google::protobuf::FieldDescriptor& wire, const std::vector<std::string>& option) const;
  void Set(const google::protobuf::FieldDescriptor& wire, const DatasetId& option) const;
  void Set(const google::protobuf::FieldDescriptor& wire, const ProgramId& option) const;
  void Set(const google::protobuf::FieldDescriptor& wire, const JobId& option) const;
  void Set(const google::protobuf::FieldDescriptor& wire, absl::Duration option) const;
  void Set(const google::protobuf::FieldDescriptor& wire, absl::Time option) const;
  template <class E, std::size_t N>
  void Set(const google::protobuf::FieldDescriptor& wire, const E& option, const EnumNames<E, N>& names) const {
    SetName(wire, names.Name(option));
  }
  template <class E, std::size_t N>
  void Set(const google::protobuf::FieldDescriptor& wire, const std::vector<E>& options,
           const EnumNames<E, N>& names) const {
    for (const E option : options) SetName(wire, names.Name(option));
  }

  google::protobuf::Message& to_;
  const spec::TrainOptions* const job_ = nullptr;
};

}  // namespace permafrost::api
