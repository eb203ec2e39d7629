// Compares the answers to the remaining parts of job requests, and to updates of jobs, with a golden file.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "api/wire/convert_graph_cache.h"
#include "api/wire/convert_job.h"
#include "complete_specs.h"
#include "golden.h"
#include "graphcache/command.h"
#include "probes.h"

namespace permafrost::api {
namespace {

// Returns texts that are valid, and texts that are invalid, as a name, a key or a value.
std::vector<std::string> NameTexts() {
  std::vector<std::string> texts = {"",    "a",    "A",    "7",    "-a", "a-",   "a_b", "a.b", "a/b",
                                    "a b", "a\nb", "\x01", "\xff", "é",  "a--b", ".a",  "a."};
  for (const size_t length : {63, 64, 65, 128, 129, 255, 256, 257}) texts.emplace_back(length, 'x');
  return texts;
}

std::string NameOf(const std::string& text) {
  if (text == std::string(text.size(), 'x') && !text.empty())
    return absl::StrCat(text.size(), " times ", text.substr(0, 1));
  return absl::StrCat("\"", absl::CHexEscape(text), "\"");
}

std::string LineOf(const std::string& what, const absl::Status& status) {
  return absl::StrCat(" ", what, ": ", status.ok() ? "accepted" : RefusalText(status), "\n");
}

absl::Status StatusOfCreating(const v1::CreateJobRequest& request) {
  const auto made = CreateRequestFromWire(request, kServerDefault, TraitsOf);
  return made.ok() ? jobs::CheckRequest(*made) : made.status();
}

std::string CreatingText() {
  std::string text = "\nCreateJobRequest\n";
  absl::StrAppend(&text, LineOf("nothing", StatusOfCreating({})));
  for (const std::string& value : NameTexts()) {
    const std::string name = NameOf(value);
    v1::CreateJobRequest request = Minimal();
    request.set_job_id(value);
    absl::StrAppend(&text, LineOf("job_id " + name, StatusOfCreating(request)));
    request = Minimal();
    request.set_request_id(value);
    absl::StrAppend(&text, LineOf("request_id " + name, StatusOfCreating(request)));
    request = Minimal();
    (*request.mutable_labels())[value] = "v";
    absl::StrAppend(&text, LineOf("a label's key " + name, StatusOfCreating(request)));
    request = Minimal();
    (*request.mutable_labels())["k"] = value;
    absl::StrAppend(&text, LineOf("a label's value " + name, StatusOfCreating(request)));
  }
  for (const int count : {16, 32, 33, 63, 64, 65, 100}) {
    v1::CreateJobRequest request = Minimal();
    for (int i = 0; i < count; ++i) (*request.mutable_labels())[absl::StrCat("k", i)] = "v";
    absl::StrAppend(&text, LineOf(absl::StrCat(count, " labels"), StatusOfCreating(request)));
  }
  return text;
}

// Returns the names and values of the parts that an update sets, or the text of its refusal.
std::string TextOf(const absl::StatusOr<jobs::JobUpdate>& update) {
  if (!update.ok()) return RefusalText(update.status());
  std::string text = "accepted";
  if (update->labels) absl::StrAppend(&text, ", ", update->labels->size(), " labels");
  for (const auto& [key, value] : update->label_changes) absl::StrAppend(&text, ", ", key, "=", value.value_or("none"));
  if (update->priority) absl::StrAppend(&text, ", priority ", *update->priority);
  if (update->max_runtime) absl::StrAppend(&text, ", max_runtime ", absl::FormatDuration(*update->max_runtime));
  if (update->deadline) {
    absl::StrAppend(&text, ", deadline ", absl::FormatTime(*update->deadline, absl::UTCTimeZone()));
  }
  if (!update->etag.empty()) absl::StrAppend(&text, ", etag ", update->etag);
  return text;
}

v1::UpdateJobRequest FullUpdate() {
  v1::UpdateJobRequest request;
  (*request.mutable_job()->mutable_labels())["k"] = "v";
  request.mutable_job()->set_etag("e");
  v1::JobSpec& spec = *request.mutable_job()->mutable_spec();
  spec = Complete(kJobSpecs.front());
  spec.set_priority(7);
  spec.mutable_max_runtime()->set_seconds(9);
  spec.mutable_deadline()->set_seconds(2'000'000'000);
  return request;
}

std::string UpdatingText() {
  std::string text = "\nUpdateJobRequest\n";
  absl::StrAppend(&text, " no mask: ", TextOf(UpdateFromWire(FullUpdate())), "\n");
  absl::StrAppend(&text, " no mask, no job: ", TextOf(UpdateFromWire({})), "\n");
  std::vector<std::string> paths = {"labels",
                                    "labels.k",
                                    "labels.other",
                                    "labels.",
                                    "labels.A B",
                                    "labels.k.l",
                                    "spec",
                                    "*",
                                    "",
                                    "name",
                                    "etag",
                                    "state",
                                    "job.labels",
                                    "job.spec.priority",
                                    "priority",
                                    std::string(200, 'x')};
  for (const Leaf& leaf : LeavesOf(v1::JobSpec::descriptor())) paths.push_back("spec." + leaf.name);
  for (const std::string& path : paths) {
    v1::UpdateJobRequest request = FullUpdate();
    request.mutable_update_mask()->add_paths(path);
    absl::StrAppend(&text, " mask ", NameOf(path), ": ", TextOf(UpdateFromWire(request)), "\n");
  }
  for (const Leaf& leaf : LeavesOf(v1::UpdateJobRequest::descriptor())) {
    if (leaf.name != "job.spec.priority" && leaf.name != "job.spec.max_runtime" && leaf.name != "job.spec.deadline") {
      continue;
    }
    std::vector<Probe> probes = Probes(*leaf.field(), ProbeTexts(*leaf.field()));
    probes.push_back({"unset", ""});
    for (const Probe& probe : probes) {
      v1::UpdateJobRequest request = With(FullUpdate(), leaf, probe);
      absl::StrAppend(&text, " no mask, ", leaf.name, " ", probe.name, ": ", TextOf(UpdateFromWire(request)), "\n");
      request.mutable_update_mask()->add_paths(leaf.name.substr(std::string("job.").size()));
      absl::StrAppend(&text, " mask, ", leaf.name, " ", probe.name, ": ", TextOf(UpdateFromWire(request)), "\n");
    }
  }
  return text;
}

// Returns the policy after a change, or the reason why the change is refused.
std::string TextOf(const v1::UpdateGraphCachePolicyRequest& request, const spec::PolicyOptions& before) {
  Violations violations;
  const graphcache::PolicyUpdate update = PolicyUpdateFromWire(request, violations);
  if (!violations.empty()) return RefusalText(violations.ToStatus());
  const absl::Status fits =
      graphcache::Check({.kind = graphcache::CommandKind::kUpdatePolicy, .update = update}, before);
  if (!fits.ok()) return RefusalText(fits);
  std::string after;
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.PrintToString(GraphCachePolicyToWire(graphcache::Updated(before, update)), &after);
  return absl::StrCat("accepted, leaves ", after);
}

std::string PolicyText() {
  std::string text;
  for (const auto& [policy, name] : spec::kPolicyNames.rows) {
    spec::PolicyOptions before = kServerDefault;
    before.policy = policy;
    absl::StrAppend(&text, "\nUpdateGraphCachePolicyRequest under ", AbslView(name), "\n");
    v1::UpdateGraphCachePolicyRequest request;
    absl::StrAppend(&text, " nothing: ", TextOf(request, before), "\n");
    request.mutable_policy();
    absl::StrAppend(&text, " policy { }: ", TextOf(request, before), "\n");
    for (const Leaf& leaf : LeavesOf(v1::UpdateGraphCachePolicyRequest::descriptor())) {
      if (!leaf.name.starts_with("policy.")) continue;
      std::set<std::string> said;
      const auto append = [&](const Probe& probe) {
        const std::string outcome = TextOf(With(request, leaf, probe), before);
        said.insert(outcome);
        absl::StrAppend(&text, " ", leaf.name, " ", probe.name, ": ", outcome, "\n");
      };
      const std::vector<std::string> texts = ProbeTexts(*leaf.field());
      for (const Probe& probe : Probes(*leaf.field(), texts)) append(probe);
      for (const std::string& limit : LimitsNamedIn(*leaf.field(), said)) {
        if (std::ranges::find(texts, limit) == texts.end()) append(ProbeOf(limit));
      }
    }
  }
  return text;
}

TEST(Rejections, OfOtherPartsOfRequestsAndOfChanges) {
  ExpectGolden("api/goldens/request_rejections.txt",
               "What the server reads in the other parts of a request for a job, and in requests that change one.\n" +
                   CreatingText() + UpdatingText() + PolicyText());
}

}  // namespace
}  // namespace permafrost::api
