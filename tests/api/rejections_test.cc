// What the server says to each field of a job's spec at values that it takes and that it does not, as golden files: a
// rejection that is lost, another limit and other words are a difference.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/convert_graph_cache.h"
#include "complete_specs.h"
#include "golden.h"
#include "graphcache/command.h"
#include "message_leaves.h"

namespace permafrost::api {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;

// A value in protobuf's text format, and how the golden file names it. An empty text stands for a field that is not
// set.
struct Probe {
  std::string name;
  std::string text;
};

Probe As(const std::string& text) { return {text, text}; }

std::string Quoted(const std::string& text) { return absl::StrCat("\"", text, "\""); }

std::vector<std::string> MessageTexts(const FieldDescriptor& field) {
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

// The values of one element, by the type alone.
std::vector<std::string> Texts(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return {"true", "false"};
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return {"-1", "0", "1e-30", "0.5", "1", "1e+30", "nan", "inf", "-inf"};
    case FieldDescriptor::CPPTYPE_UINT64:
      return {"0", "1", "18446744073709551615"};
    case FieldDescriptor::CPPTYPE_INT32:
      return {"-2147483648", "-1", "0", "1", "2", "1000000007", "2147483647"};
    case FieldDescriptor::CPPTYPE_INT64:
      return {"-9223372036854775808", "-1", "0", "1", "2", "1000000007", "9223372036854775807"};
    case FieldDescriptor::CPPTYPE_ENUM: {
      std::vector<std::string> values = {"-1", "99"};
      for (int i = 0; i < field.enum_type()->value_count(); ++i) values.push_back(field.enum_type()->value(i)->name());
      return values;
    }
    case FieldDescriptor::CPPTYPE_STRING:
      return {Quoted(""),           Quoted("bad text"),       Quoted("\\001"),        Quoted("a"),
              Quoted("jobs/other"), Quoted("datasets/other"), Quoted("datasets/A B"), Quoted("datasets/linked"),
              Quoted("/a/../b"),    Quoted("/a.safetensors"), Quoted("convs.1"),      Quoted("\xc3\xa9")};
    default:
      return MessageTexts(field);
  }
}

// Returns the numbers that `said` names and the ones beside them: they may be limits.
std::vector<std::string> Limits(const FieldDescriptor& field, const std::set<std::string>& said) {
  const bool is_double = field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
  const bool is_int32 = field.cpp_type() == FieldDescriptor::CPPTYPE_INT32;
  if (!is_double && !is_int32 && field.cpp_type() != FieldDescriptor::CPPTYPE_INT64) return {};
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
  for (const int64_t n : whole) texts.push_back(absl::StrCat(n));
  for (const double x : real) texts.push_back(absl::StrCat(x));
  return texts;
}

std::string Times(size_t count, const std::string& text) {
  return absl::StrCat("[", absl::StrJoin(std::vector<std::string>(count, text), ", "), "]");
}

std::vector<Probe> Probes(const FieldDescriptor& field, const std::vector<std::string>& texts) {
  std::vector<Probe> probes;
  for (const std::string& text : texts) {
    if (!field.is_repeated()) {
      probes.push_back(As(text));
    } else {
      for (const size_t count : {1, 2}) probes.push_back(As(Times(count, text)));
    }
  }
  if (field.is_repeated() && !texts.empty()) {
    const std::string& text = texts[texts.size() / 2];
    for (const size_t count : {3, 65, 1025}) {
      probes.push_back({absl::StrCat(count, " times ", text), Times(count, text)});
    }
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    for (const size_t count : {63, 64, 5000}) {
      probes.push_back(
          {absl::StrCat("\"datasets/", count, " times x\""), Quoted("datasets/" + std::string(count, 'x'))});
    }
  }
  return probes;
}

// Returns the spec with the field as the probe has it.
v1::JobSpec With(const v1::JobSpec& base, const Leaf& leaf, const Probe& probe) {
  v1::JobSpec changed = base;
  if (probe.text.empty() && leaf.HolderIn(base) == nullptr) return changed;
  google::protobuf::Message& holder = leaf.MutableHolderIn(changed);
  holder.GetReflection()->ClearField(&holder, leaf.field());
  if (!probe.text.empty()) {
    const std::string text = absl::StrCat(leaf.field()->name(), ": ", probe.text);
    EXPECT_TRUE(TextFormat::MergeFromString(text, &holder)) << leaf.name << ": " << probe.text;
  }
  return changed;
}

// Returns the field's value as text.
std::string ValueIn(const v1::JobSpec& spec, const Leaf& leaf) {
  const google::protobuf::Message* const holder = leaf.HolderIn(spec);
  if (holder == nullptr) return "unset";
  const google::protobuf::Reflection& reflection = *holder->GetReflection();
  TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  if (!leaf.field()->is_repeated()) {
    if (leaf.field()->has_presence() && !reflection.HasField(*holder, leaf.field())) return "unset";
    printer.PrintFieldValueToString(*holder, leaf.field(), -1, &text);
    return leaf.field()->message_type() == nullptr ? text : absl::StrCat("{ ", text, "}");
  }
  const int size = reflection.FieldSize(*holder, leaf.field());
  if (size > 3) return absl::StrCat(size, " entries");
  std::vector<std::string> entries;
  for (int i = 0; i < size; ++i) {
    printer.PrintFieldValueToString(*holder, leaf.field(), i, &text);
    entries.push_back(text);
  }
  return absl::StrCat("[", absl::StrJoin(entries, ", "), "]");
}

std::string RefusalText(const absl::Status& status) {
  std::string text = absl::StatusCodeToString(status.code());
  const auto violations = GetViolations(status);
  for (const FieldViolation& v : violations) absl::StrAppend(&text, "\n    ", v.field, ": ", v.description);
  if (violations.empty()) absl::StrAppend(&text, "\n    ", AbslView(StdView(status.message())));
  return text;
}

const std::vector<Leaf>& SpecLeaves() {
  static const std::vector<Leaf> leaves = LeavesOf(v1::JobSpec::descriptor());
  return leaves;
}

std::vector<std::string> ValuesIn(const v1::JobSpec& spec) {
  std::vector<std::string> values;
  for (const Leaf& leaf : SpecLeaves()) values.push_back(ValueIn(spec, leaf));
  return values;
}

struct Base {
  std::string name;
  v1::JobSpec spec;
  std::vector<std::string> told;  // ValuesIn the spec that the server tells after it made a job of it
};

std::vector<Base> Bases() {
  std::vector<Base> bases;
  for (const bool complete : {false, true}) {
    for (size_t i = 0; i < kJobSpecs.size(); ++i) {
      const v1::JobSpec spec = complete ? Complete(kJobSpecs[i]) : Bare(kJobSpecs[i]);
      bases.push_back({absl::StrCat(complete ? "c" : "b", i), spec, ValuesIn(Complete(kJobSpecs[i]))});
    }
  }
  return bases;
}

// What the server makes of the spec: a refusal, or the fields in which the job differs from that of the base. A value
// that is kept as it was given is not repeated.
std::string OutcomeText(const Base& base, const Leaf& leaf, const v1::JobSpec& changed) {
  const auto spec = SpecOf(changed);
  if (!spec.ok()) return RefusalText(spec.status());
  const std::vector<std::string> told = ValuesIn(WireOf(*spec));
  std::string text = "accepted";
  for (size_t i = 0; i < told.size(); ++i) {
    const std::string& name = SpecLeaves()[i].name;
    const bool as_given = name == leaf.name && told[i] == ValueIn(changed, leaf);
    if (told[i] != base.told[i] && !as_given) absl::StrAppend(&text, "\n    ", name, ": ", told[i]);
    if (name == leaf.name && told[i] == base.told[i] && !as_given) absl::StrAppend(&text, ", and is left as it was");
  }
  return text;
}

// The names of bases that are together in the order of all: "b0-b5 c7".
std::string Ranges(const std::set<size_t>& indices, const std::vector<Base>& bases) {
  if (indices.size() == bases.size()) return "all";
  std::vector<std::string> ranges;
  for (auto it = indices.begin(); it != indices.end();) {
    const size_t first = *it;
    size_t last = first;
    while (++it != indices.end() && *it == last + 1 && bases[*it].name[0] == bases[first].name[0]) last = *it;
    ranges.push_back(first == last ? bases[first].name : absl::StrCat(bases[first].name, "-", bases[last].name));
  }
  return absl::StrJoin(ranges, " ");
}

// The outcomes of one field: values with the same outcomes stand together.
class Outcomes {
 public:
  Outcomes(const Leaf& leaf, const std::vector<Base>& bases) : leaf_(leaf), bases_(bases) {
    Try({{"unset", ""}});
    const std::vector<std::string> texts = Texts(*leaf.field());
    Try(Probes(*leaf.field(), texts));
    Try(Probes(*leaf.field(), Limits(*leaf.field(), said_)));
  }

  std::string Text() const {
    std::string out = absl::StrCat("\n", leaf_.name, "\n");
    std::set<std::string> written;
    for (const auto& [name, text] : tried_) {
      if (!written.insert(text).second) continue;
      std::vector<std::string> alike;
      for (const auto& [other, other_text] : tried_) {
        if (other_text == text) alike.push_back(other);
      }
      absl::StrAppend(&out, " ", absl::StrJoin(alike, " | "), "\n", text);
    }
    return out;
  }

 private:
  void Try(const std::vector<Probe>& probes) {
    for (const Probe& probe : probes) {
      const auto is_same = [&](const auto& tried) { return tried.first == probe.name; };
      if (std::ranges::any_of(tried_, is_same)) continue;
      std::map<std::string, std::set<size_t>> of_text;
      for (size_t i = 0; i < bases_.size(); ++i) {
        const v1::JobSpec changed = With(bases_[i].spec, leaf_, probe);
        const std::string text = OutcomeText(bases_[i], leaf_, changed);
        if (!text.starts_with("accepted")) said_.insert(text);
        of_text[text].insert(i);
      }
      std::map<size_t, std::string> by_base;
      for (const auto& [text, indices] : of_text) {
        by_base[*indices.begin()] = absl::StrCat("  ", Ranges(indices, bases_), ": ", text, "\n");
      }
      tried_.emplace_back(probe.name, "");
      for (const auto& [first, text] : by_base) tried_.back().second += text;
    }
  }

  Leaf leaf_;
  const std::vector<Base>& bases_;
  std::vector<std::pair<std::string, std::string>> tried_;  // a probe's name, its outcomes
  std::set<std::string> said_;                              // all refusals
};

// Returns the leaves and the messages that hold them, each message before its own.
std::vector<Leaf> LeavesAndHolders() {
  std::vector<Leaf> all;
  std::set<std::string> seen;
  for (const Leaf& leaf : SpecLeaves()) {
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

TEST(Rejections, OfEveryFieldOfASpec) {
  const std::vector<Base> bases = Bases();
  std::string text =
      "What the server makes of a spec (a base) in which one field has another value: a status with its violations, "
      "or\n"
      "`accepted` and the fields of the job that then differ from the base's job otherwise than as they were given.\n"
      "Bases as they are written have the names b0, b1, ..., and those in which every field says its value c0, c1, "
      "...\n\n";
  for (size_t i = 0; i < kJobSpecs.size(); ++i) absl::StrAppend(&text, "b", i, " c", i, ": ", kJobSpecs[i], "\n");
  for (const Leaf& leaf : LeavesAndHolders()) absl::StrAppend(&text, Outcomes(leaf, bases).Text());
  ExpectGolden("api/goldens/rejections.txt", text);
}

}  // namespace
}  // namespace permafrost::api
