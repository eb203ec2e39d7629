#include "client/spec_rows.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/string_view.h"
#include "client/commands.h"
#include "client/format.h"
#include "permafrost/v1/dataset.pb.h"
#include "permafrost/v1/enum_text.h"
#include "spec/checks.h"
#include "spec/import_options.h"
#include "spec/job_spec.h"

namespace permafrost::client {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// The default options, or one member of them, of three jobs: a job on a set of graphs, a job on one large graph, and
// a node2vec job. The jobs give only dataset and model.
template <class T>
struct Usual {
  const T &set, &graph, &walks;
};

// Returns a default as one word for the help, or an empty text if its type has no such word.
template <class M>
std::string WordOf(const M& value) {
  if constexpr (std::is_same_v<M, char>) {
    return value == '\0' ? "" : std::string(1, value);
  } else if constexpr (std::is_arithmetic_v<M> && !std::is_same_v<M, bool>) {
    return absl::StrCat(value);
  } else {
    return "";
  }
}
template <class M, class Names>
std::string WordOf(const M& value, const Names& names) {
  if constexpr (requires { names.Name(value); }) return absl::StrReplaceAll(NameOf(names, value), {{"_", "-"}});
  return "";
}

spec::JobSpec UsualJob(spec::ModelLevel level) {
  spec::JobSpec job;
  job.train = spec::DefaultOptions(level);
  return job;
}

// Returns whether the field has a meaning for a job of node2vec.
bool MeansSomethingForWalks(const spec::Field& field) {
  static const spec::TrainOptions kWalks = [] {
    spec::TrainOptions options = spec::DefaultOptions(spec::ModelLevel::kNode);
    options.model.architecture = spec::Architecture::kNode2Vec;
    spec::SetNode2VecDefaults(options);
    return options;
  }();
  return std::ranges::all_of(field.needs, [](spec::Need need) { return spec::Holds(need, kWalks); });
}

std::string ValueName(const spec::Field& field, const FieldDescriptor& of) {
  if (field.value != nullptr) return field.value;
  switch (of.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "";
    case FieldDescriptor::CPPTYPE_ENUM:
      return absl::StrJoin(EnumShortNames(*of.enum_type()), "|");
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return field.accepts.kind == spec::Accepts::Kind::kPart ? "P" : "X";
    default:
      return "N";
  }
}

// Makes rows for the fields of an API message.
class Walk {
 public:
  // `type` is the message in which the paths begin.
  explicit Walk(const Descriptor& type) : type_(&type) {}

  // The text about each default is `instead`. If `instead` is empty, the text is made from `options`.
  template <spec::HasFields T>
  void Add(const Usual<T>& options, const std::string& instead) {
    spec::VisitFields(spec::Options<T>(), [&](const spec::Field& field, auto member, const auto&... names) {
      const auto &set = options.set.*member, &graph = options.graph.*member, &walks = options.walks.*member;
      using M = std::remove_cvref_t<decltype(set)>;
      if constexpr (spec::HasFields<M>) {
        AddMessage(field, Usual<M>{set, graph, walks}, instead);
      } else {
        const std::string of_graph = WordOf(graph, names...);
        AddRow(field, !instead.empty()
                          ? instead
                          : DefaultText(WordOf(set, names...), of_graph,
                                        MeansSomethingForWalks(field) ? WordOf(walks, names...) : of_graph));
      }
    });
  }

  std::vector<SpecRow> Rows() && { return std::move(rows_); }

 private:
  template <class M>
  void AddMessage(const spec::Field& field, const Usual<M>& options, const std::string& instead) {
    if (field.inlined != spec::Inline::kNo) return Add(options, instead);
    const FieldDescriptor* const below = type_->FindFieldByName(field.name);
    const Descriptor* const above = std::exchange(type_, below->message_type());
    path_.push_back(below);
    // The server's options replace the fields that a job's cache policy leaves unset.
    Add(options, std::is_same_v<M, spec::PolicyOptions> ? "default: the server's" : instead);
    path_.pop_back();
    type_ = above;
  }

  void AddRow(const spec::Field& field, const std::string& text) {
    SpecRow row{.path = path_, .flag = "", .help = "", .value = ""};
    if (field.only_stored) {
      if (field.flag == nullptr) return;
    } else {
      row.path.push_back(type_->FindFieldByName(field.name));
      if (row.path.back() == nullptr) return;
    }
    if (field.flag != nullptr) {
      row.flag = field.flag;
      row.help = absl::StrReplaceAll(field.help, {{"{}", text}});
      row.value = ValueName(field, *row.path.back());
    }
    rows_.push_back(std::move(row));
  }

  const Descriptor* type_;
  SpecPath path_;
  std::vector<SpecRow> rows_;
};

SpecRow& RowOf(std::vector<SpecRow>& rows, std::string_view path) {
  return *std::ranges::find_if(rows, [path](const SpecRow& row) { return PathName(row.path) == path; });
}

std::vector<SpecRow> MakeJobRows() {
  const spec::JobSpec set = UsualJob(spec::ModelLevel::kGraph), graph = UsualJob(spec::ModelLevel::kNode);
  spec::JobSpec walks = graph;
  spec::SetNode2VecDefaults(walks.train);
  Walk walk(*v1::JobSpec::descriptor());
  walk.Add(Usual<spec::JobSpec>{set, graph, walks}, "");
  std::vector<SpecRow> rows = std::move(walk).Rows();
  // `job submit` has --cache-policy, because --policy alone would not say which policy is meant.
  RowOf(rows, "graph_cache.policy").flag = "--cache-policy";
  SpecRow& freeze_at = RowOf(rows, "graph_cache.freeze_at");
  freeze_at.help = absl::StrReplaceAll(
      freeze_at.help, {{"the server's)", "the server's; derived where --cache-policy differs from the server's)"}});
  return rows;
}

}  // namespace

const std::vector<SpecRow>& JobRows() {
  static const std::vector<SpecRow> kRows = MakeJobRows();
  return kRows;
}

std::vector<SpecRow> PolicyRows() {
  const spec::PolicyOptions options;
  Walk walk(*v1::GraphCachePolicy::descriptor());
  walk.Add(Usual<spec::PolicyOptions>{options, options, options}, "default: as it is");
  return std::move(walk).Rows();
}

std::vector<SpecRow> DrawRows() {
  const spec::NodeTrainingOptions options;
  Walk walk(*v1::SampleDatasetRequest::Neighbors::descriptor());
  walk.Add(Usual<spec::NodeTrainingOptions>{options, options, options}, "");
  std::vector<SpecRow> rows = std::move(walk).Rows();
  RowOf(rows, "fan_outs").help = "Neighbours drawn of each node, hop by hop";
  return rows;
}

std::vector<SpecRow> WalkRows() {
  const spec::WalkOptions options;
  Walk walk(*v1::SampleDatasetRequest::Walk::descriptor());
  walk.Add(Usual<spec::WalkOptions>{options, options, options}, "");
  return std::move(walk).Rows();
}

std::vector<SpecRow> ImportRows() {
  const spec::ImportOptions options;
  Walk walk(*v1::ImportOptions::descriptor());
  walk.Add(Usual<spec::ImportOptions>{options, options, options}, "");
  std::vector<SpecRow> rows = std::move(walk).Rows();
  const auto inverse_edges = rows.begin() + (&RowOf(rows, "inverse_edges") - rows.data());
  rows.insert(inverse_edges + 1, {.path = {v1::ImportOptions::descriptor()->FindFieldByName("no_inverse_edges")},
                                  .flag = "--no-inverse-edges,--directed",
                                  .help = "The same as --inverse-edges keep",
                                  .value = ""});
  return rows;
}

std::vector<std::string> FlagNames(const SpecRow& row) {
  std::vector<std::string> names = absl::StrSplit(row.flag, ',', absl::SkipEmpty());
  std::erase_if(names, [](const std::string& name) { return name.starts_with("!"); });
  return names;
}

absl::StatusOr<SpecPath> FindSpecField(std::string_view name) {
  const auto plain = [](std::string_view text) { return absl::StrReplaceAll(AbslView(text), {{"-", "_"}}); };
  const std::string wanted = plain(name);
  std::vector<SpecPath> found;
  for (const SpecRow& row : JobRows()) {
    const FieldDescriptor& field = *row.path.back();
    if (IsMessageField(field)) continue;
    for (const std::string& flag : FlagNames(row)) {
      if (plain(flag.substr(2)) == wanted) return row.path;
    }
    if (PathName(row.path) == wanted) return row.path;
    if (field.name() == wanted) found.push_back(row.path);
  }
  std::ranges::sort(found, {}, [](const SpecPath& path) { return std::pair(path.size(), PathName(path)); });
  if (found.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", OneLine(name),
                     "' is no field of a job; accepted: a flag of `permafrost job submit` without its "
                     "dashes, as hidden, or the path of a field, as model.hidden_channels"));
  }
  if (found.size() > 1 && found[0].size() == found[1].size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", OneLine(name), "' may mean ", absl::StrJoin(found, ", ", [](std::string* out, const SpecPath& path) {
          absl::StrAppend(out, PathName(path));
        })));
  }
  return found.front();
}

std::string DefaultText(const std::string& set, const std::string& graph, const std::string& walks) {
  return absl::StrCat("default ", set, graph == set ? "" : absl::StrCat("; on one large graph ", graph),
                      walks == graph ? "" : absl::StrCat("; of node2vec ", walks));
}

namespace {

constexpr char kComma = ',';
// Marks a number of bytes, with or without a unit.
constexpr std::string_view kSize = "SIZE";

bool IsSwitch(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL || IsMessageField(field);
}

// Makes the messages of a path that ends in a message.
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
    if (row.value == kSize) option->transform(CLI::AsSizeValue(/*kb_is_1000=*/true).description(""));
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
