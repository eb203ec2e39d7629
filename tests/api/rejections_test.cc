// Tries good and bad values in each field of a job's spec, and compares the answers with a golden file. It shows
// every lost refusal, new limit and changed text.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "complete_specs.h"
#include "golden.h"
#include "message_leaves.h"
#include "probes.h"

namespace permafrost::api {
namespace {

using google::protobuf::TextFormat;

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
  std::vector<std::string> told;  // ValuesIn the spec that the server reports after it made a job of `spec`
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

// Returns the server's answer to the spec: a refusal, or the fields in which the job differs from the base's job.
// Leaves out a value that was kept as given.
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

// Returns the names of the bases, with consecutive ones as a range: "b0-b5 c7".
std::string Ranges(const std::set<size_t>& indices, const std::vector<Base>& bases) {
  if (indices.size() == bases.size()) return "all";
  std::vector<std::string> ranges;
  for (auto it = indices.begin(); it != indices.end();) {
    const size_t first = *it;
    size_t last = first;
    for (++it; it != indices.end() && *it == last + 1 && bases[*it].name[0] == bases[first].name[0]; ++it) last = *it;
    ranges.push_back(first == last ? bases[first].name : absl::StrCat(bases[first].name, "-", bases[last].name));
  }
  return absl::StrJoin(ranges, " ");
}

// The outcomes of one field. Values with equal outcomes are grouped.
class Outcomes {
 public:
  Outcomes(const Leaf& leaf, const std::vector<Base>& bases) : leaf_(leaf), bases_(bases) {
    Try({{"unset", ""}});
    const std::vector<std::string> texts = ProbeTexts(*leaf.field());
    Try(Probes(*leaf.field(), texts));
    Try(Probes(*leaf.field(), LimitsNamedIn(*leaf.field(), said_)));
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
  std::vector<std::pair<std::string, std::string>> tried_;  // a probe's name and its outcomes
  std::set<std::string> said_;                              // the texts of all refusals
};

TEST(Rejections, OfEveryFieldOfASpec) {
  const std::vector<Base> bases = Bases();
  std::string text =
      "What the server makes of a spec (a base) in which one field has another value: a status with its violations,\n"
      "or `accepted` and the fields of the job that then differ from the base's job otherwise than as they were "
      "given.\n"
      "Bases as they are written have the names b0, b1, ..., and those in which every field says its value c0, c1,\n"
      "...\n\n";
  for (size_t i = 0; i < kJobSpecs.size(); ++i) absl::StrAppend(&text, "b", i, " c", i, ": ", kJobSpecs[i], "\n");
  for (const Leaf& leaf : LeavesAndHoldersOf(v1::JobSpec::descriptor()))
    absl::StrAppend(&text, Outcomes(leaf, bases).Text());
  ExpectGolden("api/goldens/rejections.txt", text);
}

}  // namespace
}  // namespace permafrost::api
