// Tries good and bad values in each option of an import, and compares the outcome with a golden file. The outcome is
// the options as the server reports them and the record that it keeps, or the refusal.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "api/wire/convert_dataset.h"
#include "data/catalog/imports.h"
#include "golden.h"
#include "message_leaves.h"
#include "probes.h"

namespace permafrost::api {
namespace {

using google::protobuf::TextFormat;

std::string JsonOf(const data::ImportOptions& options) {
  return OneFieldALine(data::RecordToJson({.create_time = absl::UnixEpoch(), .uid = "0f", .options = options}));
}

// Returns the options as reported and as stored, one line for each, or the lines of a refusal.
std::vector<std::string> OutcomeOf(const v1::ImportDatasetRequest& request) {
  const auto read = ImportRequestFromWire(request);
  const absl::Status status = read.ok() ? data::CheckImport(read->id, read->options) : read.status();
  if (!status.ok()) return absl::StrSplit(RefusalText(status), "\n    ");
  std::string text;
  TextFormat::PrintToString(ImportOptionsToWire(read->options), &text);
  std::vector<std::string> lines = {"accepted"};
  for (const char* const from : {"told", "kept"}) {
    if (*from == 'k') text = JsonOf(read->options);
    for (const auto line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      lines.push_back(absl::StrCat(from, ": ", absl::StripAsciiWhitespace(line)));
    }
  }
  return lines;
}

struct Base {
  std::string name;
  v1::ImportDatasetRequest request;
  std::vector<std::string> outcome;
};

Base BaseOf(const std::string& name, const std::string& options) {
  Base base{.name = name, .request = {}, .outcome = {}};
  base.request.set_dataset_id("zinc");
  EXPECT_TRUE(TextFormat::ParseFromString("source_path: '/data/zinc' " + options, base.request.mutable_options()));
  base.outcome = OutcomeOf(base.request);
  return base;
}

std::vector<Base> Bases() {
  return {BaseOf("auto", ""),
          BaseOf("graphs", "format: FORMAT_OGB_GRAPHS"),
          BaseOf("nodes", "format: FORMAT_OGB_NODES"),
          BaseOf("edges", "format: FORMAT_EDGE_LIST"),
          BaseOf("npy", "format: FORMAT_NPY"),
          BaseOf("tu", "format: FORMAT_TU"),
          BaseOf("store", "format: FORMAT_STORE"),
          BaseOf("one-hot", "tu { one_hot: true }")};
}

// Returns the lines of the outcome that the base's outcome lacks.
std::string TextOf(const Base& base, const v1::ImportDatasetRequest& request) {
  std::vector<std::string> lines = OutcomeOf(request);
  std::erase_if(lines, [&](const std::string& line) {
    return line != "accepted" && std::ranges::find(base.outcome, line) != base.outcome.end();
  });
  return absl::StrJoin(lines, "\n    ");
}

std::vector<std::string> TextsFor(const google::protobuf::FieldDescriptor& field) {
  if (field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
    std::vector<std::string> texts;
    for (const char* const text : {"", "a", ";", "\\t", "#", "\\\"", "\\n", "\\000", "::", "..", "a/b", "\xc3\xa9"}) {
      texts.push_back(Quoted(text));
    }
    return texts;
  }
  std::vector<std::string> texts = ProbeTexts(field);
  if (field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_INT64) {
    for (const int64_t n : {1000, 4095, 4096, 999'999, 16'777'215, 16'777'216}) texts.push_back(absl::StrCat(n));
    for (const int64_t n : {4'294'967'295, 4'294'967'296}) texts.push_back(absl::StrCat(n));
  }
  return texts;
}

std::string TextOfLeaf(const Leaf& leaf, const std::vector<Base>& bases) {
  std::string out = absl::StrCat("\n", leaf.name, "\n");
  const std::vector<std::string> texts = TextsFor(*leaf.field());
  std::vector<Probe> probes = Probes(*leaf.field(), texts);
  probes.push_back({"unset", ""});
  // an outcome, and the values that lead to it
  std::vector<std::pair<std::string, std::vector<std::string>>> values_of;
  for (const Probe& probe : probes) {
    std::vector<std::pair<std::string, std::vector<std::string>>> bases_of;
    for (const Base& base : bases) {
      const std::string text = TextOf(base, With(base.request, leaf, probe));
      const auto found = std::ranges::find(bases_of, text, &std::pair<std::string, std::vector<std::string>>::first);
      (found == bases_of.end() ? bases_of.emplace_back(text, 0) : *found).second.push_back(base.name);
    }
    std::string text;
    for (const auto& [outcome, names] : bases_of) {
      absl::StrAppend(&text, "  ", names.size() == bases.size() ? "all" : absl::StrJoin(names, " "), ": ", outcome,
                      "\n");
    }
    const auto found = std::ranges::find(values_of, text, &std::pair<std::string, std::vector<std::string>>::first);
    (found == values_of.end() ? values_of.emplace_back(text, 0) : *found).second.push_back(probe.name);
  }
  for (const auto& [text, names] : values_of) absl::StrAppend(&out, " ", absl::StrJoin(names, " | "), "\n", text);
  return out;
}

// Options that are refused, or read differently, only in combination.
constexpr const char* kTogether[] = {
    "train_fraction: 0.8 valid_fraction: 0.2",
    "train_fraction: 0.8 valid_fraction: 0.3",
    "train_fraction: 0.95",
    "train_fraction: 2 valid_fraction: nan",
    "no_inverse_edges: true inverse_edges: INVERSE_EDGES_KEEP",
    "no_inverse_edges: true inverse_edges: INVERSE_EDGES_ADD",
    "no_inverse_edges: true inverse_edges: INVERSE_EDGES_AUTO",
    "edge_list { delimiter: ';' comment: ';' }",
    "edge_list { delimiter: ';' quote: ';' }",
    "edge_list { comment: '%' quote: '%' }",
    "edge_list { comment: '' quote: '' }",
    "edge_list { columns: [COLUMN_SOURCE, COLUMN_TARGET, COLUMN_WEIGHT] header: HEADER_YES }",
    "edge_list { columns: [COLUMN_TARGET, COLUMN_SOURCE, COLUMN_TARGET] }",
    "edge_list { columns: [COLUMN_IGNORE, COLUMN_IGNORE, COLUMN_WEIGHT] }",
    "edge_list { columns: [COLUMN_WEIGHT, COLUMN_UNSPECIFIED, 99] node_ids: 99 }",
    "tu { one_hot: true max_degree: 4095 }",
    "tu { one_hot: true max_degree: 4096 }",
    "format: FORMAT_TU coalesce: true no_inverse_edges: true",
};

TEST(ImportOptions, AreReadToldAndKeptAsTheGoldenFileSays) {
  const std::vector<Base> bases = Bases();
  std::string text =
      "What the server makes of an import (a base) in which one option has another value: a refusal, or `accepted` "
      "and\n"
      "what then is told and kept otherwise than of the base.\n";
  for (const Base& base : bases)
    absl::StrAppend(&text, "\n", base.name, ": ", base.request.options().ShortDebugString());
  absl::StrAppend(&text, "\n\nauto is ", absl::StrJoin(bases.front().outcome, "\n    "), "\n");
  for (const Leaf& leaf : LeavesOf(v1::ImportDatasetRequest::descriptor())) {
    if (leaf.name.starts_with("options.")) absl::StrAppend(&text, TextOfLeaf(leaf, bases));
  }
  for (const char* const options : kTogether) {
    absl::StrAppend(&text, "\n", options, "\n  ", TextOf(bases.front(), BaseOf("", options).request), "\n");
  }
  ExpectGolden("api/goldens/import_options.txt", text);
}

}  // namespace
}  // namespace permafrost::api
