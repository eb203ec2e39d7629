#include "client/spec_file.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "client/format.h"
#include "client/message_fields.h"
#include "nlohmann/json.hpp"
#include "yaml-cpp/yaml.h"

namespace permafrost::client {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr char kJobIdKey[] = "job_id";
constexpr char kJobIdJsonKey[] = "jobId";
constexpr char kLabelsKey[] = "labels";
// The accepted keys that are not fields of JobSpec, for error messages.
constexpr char kKeysBesideSpec[] = "job_id, labels";

// Fills messages from the parsed tree by their descriptors, so that a new field needs no code here.
class Filler {
 public:
  explicit Filler(std::string_view file) : file_(file) {}

  absl::Status FillRequest(const YAML::Node& root, v1::CreateJobRequest& request) const {
    if (!root.IsMap()) return Error(root, "", "is no mapping of keys to values");
    std::set<std::string> seen;
    const Descriptor& type = *v1::JobSpec::descriptor();
    for (const auto& entry : root) {
      const std::string key = entry.first.Scalar();
      if (key == kLabelsKey) {
        if (!seen.insert(kLabelsKey).second) return Error(entry.first, key, "is given twice");
        PF_RETURN_IF_ERROR(FillLabels(entry.second, *request.mutable_labels()));
        continue;
      }
      if (key != kJobIdKey && key != kJobIdJsonKey) {
        PF_RETURN_IF_ERROR(FillField(entry.first, entry.second, "", kKeysBesideSpec, seen, *request.mutable_spec()));
        continue;
      }
      if (!seen.insert(kJobIdKey).second) return Error(entry.first, key, "is given twice");
      if (!entry.second.IsScalar()) return Error(entry.second, key, "is no text");
      request.set_job_id(entry.second.Scalar());
    }
    if (seen.empty()) return Error(root, "", absl::StrCat("is empty; accepted keys: ", Keys(type, kKeysBesideSpec)));
    return absl::OkStatus();
  }

 private:
  absl::Status Error(const YAML::Node& where, std::string_view path, std::string_view what) const {
    // A node of an empty document has no position.
    const int line = std::max(0, where.Mark().line) + 1;
    const std::string at = absl::StrCat(AbslView(file_), ":", line, ": ");
    return absl::InvalidArgumentError(path.empty() ? absl::StrCat(at, AbslView(what))
                                                   : absl::StrCat(at, AbslView(path), ": ", AbslView(what)));
  }

  absl::Status FillLabels(const YAML::Node& node, WireLabels& labels) const {
    if (node.IsNull()) return absl::OkStatus();
    if (!node.IsMap()) return Error(node, kLabelsKey, "is no mapping of keys to texts");
    for (const auto& entry : node) {
      const std::string key = entry.first.Scalar();
      const std::string path = absl::StrCat(kLabelsKey, ".", key);
      if (!entry.second.IsScalar()) return Error(entry.second, path, "is no text");
      if (labels.contains(key)) return Error(entry.first, path, "is given twice");
      labels[key] = entry.second.Scalar();
    }
    return absl::OkStatus();
  }

  static std::string Keys(const Descriptor& type, std::string_view extra) {
    std::vector<std::string> keys;
    if (!extra.empty()) keys.emplace_back(extra);
    for (int i = 0; i < type.field_count(); ++i) keys.push_back(type.field(i)->name());
    return absl::StrJoin(keys, ", ");
  }

  absl::Status FillMessage(const YAML::Node& node, const std::string& path, Message& message) const {
    if (!node.IsMap()) {
      return Error(node, path, absl::StrCat("is no mapping; accepted keys: ", Keys(*message.GetDescriptor(), "")));
    }
    std::set<std::string> seen;
    for (const auto& entry : node)
      PF_RETURN_IF_ERROR(FillField(entry.first, entry.second, absl::StrCat(path, "."), "", seen, message));
    return absl::OkStatus();
  }

  // `prefix` is the path of the message, with a dot at the end. `extra_key` is a key that is accepted besides the
  // message's fields. The error for an unknown key lists `extra_key`.
  absl::Status FillField(const YAML::Node& key_node, const YAML::Node& value, const std::string& prefix,
                         std::string_view extra_key, std::set<std::string>& seen, Message& message) const {
    const Descriptor& type = *message.GetDescriptor();
    if (!key_node.IsScalar()) return Error(key_node, prefix, "a key must be plain text");
    const std::string& key = key_node.Scalar();
    const FieldDescriptor* field = nullptr;
    for (int i = 0; i < type.field_count(); ++i) {
      if (key == type.field(i)->name() || key == type.field(i)->json_name()) field = type.field(i);
    }
    const std::string path = absl::StrCat(prefix, key);
    if (field == nullptr) return Error(key_node, path, absl::StrCat("unknown key; accepted: ", Keys(type, extra_key)));
    if (!seen.insert(field->name()).second) return Error(key_node, path, "is given twice");
    // Null means the default, as in protobuf's JSON mapping.
    if (value.IsNull()) return absl::OkStatus();
    if (field->is_repeated()) return FillList(*field, value, path, message);
    if (IsMessageField(*field)) {
      return FillMessage(value, path, *message.GetReflection()->MutableMessage(&message, field));
    }
    if (!value.IsScalar())
      return Error(value, path, absl::StrCat("is no single value; accepted: ", AcceptedBy(*field)));
    if (!SetScalar(*field, value.Scalar(), message)) {
      return Error(value, path, absl::StrCat("'", OneLine(value.Scalar()), "'; accepted: ", AcceptedBy(*field)));
    }
    return absl::OkStatus();
  }

  // The items of every list are numbers or names. A single item may stand without brackets.
  absl::Status FillList(const FieldDescriptor& field, const YAML::Node& value, const std::string& path,
                        Message& message) const {
    if (value.IsScalar()) return AddToList(field, value, path, message);
    if (!value.IsSequence()) return Error(value, path, absl::StrCat("is no list; each entry is ", AcceptedBy(field)));
    int index = 0;
    for (const YAML::Node& entry : value)
      PF_RETURN_IF_ERROR(AddToList(field, entry, absl::StrCat(path, "[", index++, "]"), message));
    return absl::OkStatus();
  }

  absl::Status AddToList(const FieldDescriptor& field, const YAML::Node& entry, const std::string& path,
                         Message& message) const {
    if (entry.IsScalar() && AddScalar(field, entry.Scalar(), message)) return absl::OkStatus();
    const std::string what = entry.IsScalar() ? absl::StrCat("'", OneLine(entry.Scalar()), "'") : "is no single value";
    return Error(entry, path, absl::StrCat(what, "; accepted: ", AcceptedBy(field)));
  }

  std::string_view file_;
};

// Refuses a .json file that is YAML but not JSON. The file's fields are read by the YAML parser, which knows the line
// numbers.
absl::Status CheckJson(std::string_view name, const std::string& text) {
  try {
    const auto parsed = nlohmann::json::parse(text);
    return absl::OkStatus();
  } catch (const nlohmann::json::parse_error& e) {
    const size_t end = std::min(text.size(), e.byte == 0 ? 0 : e.byte - 1);
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
    // e.what() is "[json.exception...] parse error at line 1, column 2: syntax error while ...". Only its end is
    // needed.
    std::string_view what = e.what();
    if (const size_t at = what.find(": "); at != std::string_view::npos) what.remove_prefix(at + 2);
    return absl::InvalidArgumentError(absl::StrCat(AbslView(name), ":", line, ": is no JSON: ", OneLine(what)));
  }
}

}  // namespace

absl::StatusOr<v1::CreateJobRequest> ReadSpecFile(const std::string& path) {
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseSpec(path, absl::EndsWith(path, ".json") ? SpecSyntax::kJson : SpecSyntax::kYaml, text);
}

absl::StatusOr<v1::CreateJobRequest> ParseSpec(std::string_view name, SpecSyntax syntax, const std::string& text) {
  if (syntax == SpecSyntax::kJson) PF_RETURN_IF_ERROR(CheckJson(name, text));
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() != 1) {
      return absl::InvalidArgumentError(absl::StrCat(AbslView(name), ": holds ", documents.size(),
                                                     " YAML documents; accepted: one, a job's keys and values"));
    }
    v1::CreateJobRequest request;
    PF_RETURN_IF_ERROR(Filler(name).FillRequest(documents[0], request));
    return request;
  } catch (const YAML::Exception& e) {
    return absl::InvalidArgumentError(
        absl::StrCat(AbslView(name), ":", std::max(0, e.mark.line) + 1, ": is no YAML: ", OneLine(e.msg)));
  }
}

}  // namespace permafrost::client
