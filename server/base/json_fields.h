// Reads and writes structs as JSON objects. One list of fields serves both directions.
// Every value round-trips exactly. This holds for 64-bit unsigned integers, durations, times, and every bit of a
// double. Infinities and NaN are written as strings, because JSON lacks them. Objects of older and newer versions can
// be read: a missing field keeps its default, and an unknown field is skipped. Threads: pure functions.
//
//   struct Schema {
//     template <class A>
//     static void Fields(A& a, typename A::template Visited<Point>& p) {
//       a("x", p.x);
//       a("kind", p.kind, kKindNames);
//     }
//   };
//   WriteJson<Schema>(point);
//   ReadJson<Schema, Point>("point", text);  // DataLoss that names what is wrong
#pragma once

#include <cmath>
#include <concepts>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/enum_names.h"
#include "base/id.h"
#include "base/string_view.h"

namespace permafrost {

template <class Schema>
class JsonWriter {
 public:
  template <class T>
  using Visited = const T;

  template <std::integral T>
  void operator()(const char* name, const T& value) {
    object_[name] = value;
  }
  void operator()(const char* name, const double& value) { object_[name] = Number(value); }
  void operator()(const char* name, const std::string& value) { object_[name] = value; }
  void operator()(const char* name, const std::filesystem::path& value) { object_[name] = value.string(); }
  void operator()(const char* name, const absl::Duration& value) { object_[name] = absl::FormatDuration(value); }
  void operator()(const char* name, const absl::Time& value) {
    object_[name] = absl::FormatTime(absl::RFC3339_full, value, absl::UTCTimeZone());
  }
  template <class Tag>
  void operator()(const char* name, const Id<Tag>& value) {
    object_[name] = value.value();
  }
  template <class E, std::size_t N>
  void operator()(const char* name, const E& value, const EnumNames<E, N>& names) {
    object_[name] = std::string(names.Name(value));
  }
  // Leaves the field out if it has no value.
  template <class T, class... Names>
  void operator()(const char* name, const std::optional<T>& value, const Names&... names) {
    if (value) (*this)(name, *value, names...);
  }
  template <class T>
  void operator()(const char* name, const std::vector<T>& values) {
    nlohmann::json list = nlohmann::json::array();
    for (const T& value : values) list.push_back(Object(value));
    object_[name] = std::move(list);
  }
  template <std::integral T>
  void operator()(const char* name, const std::vector<T>& values) {
    object_[name] = values;
  }
  void operator()(const char* name, const std::vector<std::string>& values) { object_[name] = values; }
  void operator()(const char* name, const std::vector<double>& values) {
    nlohmann::json list = nlohmann::json::array();
    for (const double value : values) list.push_back(Number(value));
    object_[name] = std::move(list);
  }
  template <class E, std::size_t N>
  void operator()(const char* name, const std::vector<E>& values, const EnumNames<E, N>& names) {
    nlohmann::json list = nlohmann::json::array();
    for (const E value : values) list.push_back(std::string(names.Name(value)));
    object_[name] = std::move(list);
  }
  template <class T>
  requires std::is_class_v<T>
  void operator()(const char* name, const T& value) { object_[name] = Object(value); }

  template <class T>
  static nlohmann::json Object(const T& value) {
    JsonWriter inner;
    Schema::Fields(inner, value);
    return std::move(inner.object_);
  }

 private:
  static nlohmann::json Number(double value) {
    if (std::isfinite(value)) return value;
    return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  }
  nlohmann::json object_ = nlohmann::json::object();
};

// JsonReader throws this exception besides nlohmann::json::exception. ReadJson catches both.
struct BadJsonField {
  std::string description;
};

template <class Schema>
class JsonReader {
 public:
  template <class T>
  using Visited = T;

  explicit JsonReader(const nlohmann::json& object) : object_(object) {
    if (!object_.is_object()) throw BadJsonField{absl::StrCat("an object was expected, not ", object_.type_name())};
  }

  template <std::integral T>
  void operator()(const char* name, T& value) {
    if (const nlohmann::json* field = Find(name)) field->get_to(value);
  }
  void operator()(const char* name, double& value) {
    if (const nlohmann::json* field = Find(name)) value = Number(name, *field);
  }
  void operator()(const char* name, std::string& value) {
    if (const nlohmann::json* field = Find(name)) field->get_to(value);
  }
  void operator()(const char* name, std::filesystem::path& value) {
    if (const nlohmann::json* field = Find(name)) value = field->get<std::string>();
  }
  void operator()(const char* name, absl::Duration& value) {
    const nlohmann::json* field = Find(name);
    if (field == nullptr) return;
    const auto& text = field->get_ref<const std::string&>();
    if (!absl::ParseDuration(text, &value)) {
      throw BadJsonField{absl::StrCat(name, ": \"", text, "\" is not a duration")};
    }
  }
  void operator()(const char* name, absl::Time& value) {
    const nlohmann::json* field = Find(name);
    if (field == nullptr) return;
    const auto& text = field->get_ref<const std::string&>();
    std::string error;
    if (!absl::ParseTime(absl::RFC3339_full, text, &value, &error)) {
      throw BadJsonField{absl::StrCat(name, ": \"", text, "\" is not a time")};
    }
  }
  template <class Tag>
  void operator()(const char* name, Id<Tag>& value) {
    if (const nlohmann::json* field = Find(name)) value = Id<Tag>(field->get<std::string>());
  }
  template <class E, std::size_t N>
  void operator()(const char* name, E& value, const EnumNames<E, N>& names) {
    if (const nlohmann::json* field = Find(name)) value = Named(name, *field, names);
  }
  template <class T, class... Names>
  void operator()(const char* name, std::optional<T>& value, const Names&... names) {
    if (Find(name) == nullptr) return;
    value.emplace();
    (*this)(name, *value, names...);
  }
  template <class T>
  void operator()(const char* name, std::vector<T>& values) {
    if (const nlohmann::json* field = Find(name)) values = List<T>(name, *field);
  }
  template <std::integral T>
  void operator()(const char* name, std::vector<T>& values) {
    const nlohmann::json* field = Find(name);
    if (field == nullptr) return;
    values.clear();
    for (const nlohmann::json& element : Checked(name, *field)) values.push_back(element.get<T>());
  }
  void operator()(const char* name, std::vector<std::string>& values) {
    if (const nlohmann::json* field = Find(name)) Checked(name, *field).get_to(values);
  }
  void operator()(const char* name, std::vector<double>& values) {
    const nlohmann::json* field = Find(name);
    if (field == nullptr) return;
    values.clear();
    for (const nlohmann::json& element : Checked(name, *field)) values.push_back(Number(name, element));
  }
  template <class E, std::size_t N>
  void operator()(const char* name, std::vector<E>& values, const EnumNames<E, N>& names) {
    const nlohmann::json* field = Find(name);
    if (field == nullptr) return;
    values.clear();
    for (const nlohmann::json& element : Checked(name, *field)) values.push_back(Named(name, element, names));
  }
  template <class T>
  requires std::is_class_v<T>
  void operator()(const char* name, T& value) {
    if (const nlohmann::json* field = Find(name)) {
      JsonReader inner(*field);
      Schema::Fields(inner, value);
    }
  }

  bool Has(const char* name) const { return Find(name) != nullptr; }

  template <class T>
  static std::vector<T> List(const char* name, const nlohmann::json& list) {
    std::vector<T> values;
    for (const nlohmann::json& element : Checked(name, list)) {
      JsonReader inner(element);
      Schema::Fields(inner, values.emplace_back());
    }
    return values;
  }

 private:
  static const nlohmann::json& Checked(const char* name, const nlohmann::json& list) {
    if (!list.is_array()) throw BadJsonField{absl::StrCat(name, ": a list was expected, not ", list.type_name())};
    return list;
  }
  static double Number(const char* name, const nlohmann::json& field) {
    if (!field.is_string()) return field.get<double>();
    const auto& text = field.get_ref<const std::string&>();
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
    throw BadJsonField{absl::StrCat(name, ": \"", text, "\" is not a number, nan, inf or -inf")};
  }
  template <class E, std::size_t N>
  static E Named(const char* name, const nlohmann::json& field, const EnumNames<E, N>& names) {
    const auto& text = field.get_ref<const std::string&>();
    const auto parsed = names.Parse(text);
    if (!parsed) throw BadJsonField{absl::StrCat(name, ": \"", text, "\" is none of ", names.Accepted())};
    return *parsed;
  }
  const nlohmann::json* Find(const char* name) const {
    const auto it = object_.find(name);
    return it == object_.end() ? nullptr : &*it;
  }
  const nlohmann::json& object_;
};

template <class Schema, class T>
std::string WriteJson(const T& value) {
  return JsonWriter<Schema>::Object(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}
template <class Schema, class T>
std::string WriteJsonList(const std::vector<T>& values) {
  nlohmann::json list = nlohmann::json::array();
  for (const T& value : values) list.push_back(JsonWriter<Schema>::Object(value));
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Parses `text` and returns read(json). Turns an exception of the parser or of `read` into DataLoss, with `what`
// before the message.
template <class T, class F>
absl::StatusOr<T> CatchJsonErrors(const char* what, const std::string& text, F read) {
  try {
    return read(nlohmann::json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(absl::StrCat(what, ": ", error.what()));
  } catch (const BadJsonField& error) {
    return absl::DataLossError(absl::StrCat(what, ": ", error.description));
  }
}

template <class Schema, class T>
absl::StatusOr<T> ReadJson(const char* what, const std::string& text) {
  return CatchJsonErrors<T>(what, text, [](const nlohmann::json& object) {
    T value;
    JsonReader<Schema> reader(object);
    Schema::Fields(reader, value);
    return value;
  });
}
template <class Schema, class T>
absl::StatusOr<std::vector<T>> ReadJsonList(const char* what, const std::string& text) {
  return CatchJsonErrors<std::vector<T>>(
      what, text, [what](const nlohmann::json& list) { return JsonReader<Schema>::template List<T>(what, list); });
}

}  // namespace permafrost
