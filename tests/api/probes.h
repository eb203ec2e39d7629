// Values to try in a message's fields, and the text of a refusal.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/string_view.h"
#include "message_leaves.h"

namespace permafrost::api {

// A value in protobuf's text format, and its name in the golden file. An empty text leaves the field unset.
struct Probe {
  std::string name;
  std::string text;
};

inline Probe ProbeOf(const std::string& text) { return {text, text}; }

inline std::string Quoted(const std::string& text) { return absl::StrCat("\"", text, "\""); }

inline std::vector<std::string> MessageTexts(const google::protobuf::FieldDescriptor& field) {
  const std::string& type = field.message_type()->full_name();
  if (type == "google.protobuf.Duration") {
    return {"{ }",
            "{ nanos: 1 }",
            "{ seconds: 7 nanos: 5 }",
            "{ seconds: -1 }",
            "{ seconds: 1 nanos: -1 }",
            "{ nanos: 1000000000 }",
            "{ seconds: 1000000007 }",
            "{ seconds: 315576000001 }"};
  }
  if (type == "google.protobuf.Timestamp") {
    return {"{ }",
            "{ seconds: 2000000000 nanos: 7 }",
            "{ seconds: -1 }",
            "{ nanos: -1 }",
            "{ nanos: 1000000000 }",
            "{ seconds: 253402300800 }"};
  }
  return {"{ }"};
}

// Returns values for one element of the field. They depend on its type alone.
inline std::vector<std::string> ProbeTexts(const google::protobuf::FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case google::protobuf::FieldDescriptor::CPPTYPE_BOOL:
      return {"true", "false"};
    case google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE:
      return {"-1", "0", "1e-30", "0.5", "1", "1e+30", "nan", "inf", "-inf"};
    case google::protobuf::FieldDescriptor::CPPTYPE_UINT64:
      return {"0", "1", "18446744073709551615"};
    case google::protobuf::FieldDescriptor::CPPTYPE_INT32:
      return {"-2147483648", "-1", "0", "1", "2", "1000000007", "2147483647"};
    case google::protobuf::FieldDescriptor::CPPTYPE_INT64:
      return {"-9223372036854775808", "-1", "0", "1", "2", "1000000007", "9223372036854775807"};
    case google::protobuf::FieldDescriptor::CPPTYPE_ENUM: {
      std::vector<std::string> values = {"-1", "99"};
      for (int i = 0; i < field.enum_type()->value_count(); ++i) values.push_back(field.enum_type()->value(i)->name());
      return values;
    }
    case google::protobuf::FieldDescriptor::CPPTYPE_STRING:
      return {Quoted(""),           Quoted("bad text"),       Quoted("\\001"),        Quoted("a"),
              Quoted("jobs/other"), Quoted("datasets/other"), Quoted("datasets/A B"), Quoted("datasets/linked"),
              Quoted("/a/../b"),    Quoted("/a.safetensors"), Quoted("convs.1"),      Quoted("\xc3\xa9")};
    default:
      return MessageTexts(field);
  }
}

// Returns the numbers in `said` and their neighbours, because those numbers may be limits.
inline std::vector<std::string> LimitsNamedIn(const google::protobuf::FieldDescriptor& field,
                                              const std::set<std::string>& said) {
  const bool is_double = field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE;
  const bool is_int32 = field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_INT32;
  if (!is_double && !is_int32 && field.cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_INT64) return {};
  static const std::regex number(R"(-?[0-9][0-9,]*(\.[0-9]+)?(e[+-]?[0-9]+)?)");
  std::set<int64_t> whole;
  std::set<double> real;
  for (const std::string& text : said) {
    for (std::sregex_iterator it(text.begin(), text.end(), number), end; it != end; ++it) {
      std::string digits = it->str();
      std::erase(digits, ',');
      int64_t n = 0;
      if (double x = 0; is_double && absl::SimpleAtod(digits, &x)) real.insert({x * 0.999, x, x * 1.001});
      if (!is_double && absl::SimpleAtoi(digits, &n) && n > -1'000'000'000 && n < 1'000'000'000)
        whole.insert({n - 1, n, n + 1});
    }
  }
  std::vector<std::string> texts;
  texts.reserve(whole.size() + real.size());
  for (const int64_t n : whole) texts.push_back(absl::StrCat(n));
  for (const double x : real) texts.push_back(absl::StrCat(x));
  return texts;
}

inline std::string ListOf(size_t count, const std::string& text) {
  return absl::StrCat("[", absl::StrJoin(std::vector<std::string>(count, text), ", "), "]");
}

inline std::vector<Probe> Probes(const google::protobuf::FieldDescriptor& field,
                                 const std::vector<std::string>& texts) {
  std::vector<Probe> probes;
  for (const std::string& text : texts) {
    if (!field.is_repeated()) {
      probes.push_back(ProbeOf(text));
    } else {
      for (const size_t count : {1, 2}) probes.push_back(ProbeOf(ListOf(count, text)));
    }
  }
  if (field.is_repeated() && !texts.empty()) {
    const std::string& text = texts[texts.size() / 2];
    for (const size_t count : {3, 65, 1025}) {
      probes.push_back({absl::StrCat(count, " times ", text), ListOf(count, text)});
    }
  } else if (field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
    for (const size_t count : {63, 64, 5000}) {
      probes.push_back(
          {absl::StrCat("\"datasets/", count, " times x\""), Quoted("datasets/" + std::string(count, 'x'))});
    }
  }
  return probes;
}

// Returns a copy of `base` in which the field has the value of the probe.
template <class Message>
Message With(const Message& base, const Leaf& leaf, const Probe& probe) {
  Message changed = base;
  if (probe.text.empty() && leaf.HolderIn(base) == nullptr) return changed;
  google::protobuf::Message& holder = leaf.MutableHolderIn(changed);
  holder.GetReflection()->ClearField(&holder, leaf.field());
  if (!probe.text.empty()) {
    const std::string text = absl::StrCat(leaf.field()->name(), ": ", probe.text);
    EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(text, &holder)) << leaf.name << ": " << probe.text;
  }
  return changed;
}

// Returns the leaves and the messages that hold them. Each message comes before its leaves.
inline std::vector<Leaf> LeavesAndHoldersOf(const google::protobuf::Descriptor* type) {
  std::vector<Leaf> all;
  std::set<std::string> seen;
  for (const Leaf& leaf : LeavesOf(type)) {
    Leaf holder;
    for (size_t i = 0; i + 1 < leaf.path.size(); ++i) {
      holder.path.push_back(leaf.path[i]);
      holder.name += (i == 0 ? "" : ".") + leaf.path[i]->name();
      if (seen.insert(holder.name).second) all.push_back(holder);
    }
    all.push_back(leaf);
  }
  return all;
}

inline std::string RefusalText(const absl::Status& status) {
  std::string text = absl::StatusCodeToString(status.code());
  const auto violations = GetViolations(status);
  for (const FieldViolation& v : violations) absl::StrAppend(&text, "\n    ", v.field, ": ", v.description);
  if (violations.empty()) absl::StrAppend(&text, "\n    ", AbslView(StdView(status.message())));
  return text;
}

}  // namespace permafrost::api
