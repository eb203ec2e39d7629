#include "client/job_flags.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "client/format.h"
#include "client/spec_file.h"
#include "client/spec_view.h"

namespace permafrost::client {
namespace {

void Override(const SpecFlags& flags, v1::JobSpec& spec) {
  // The flag for the model is applied first, so Walks(spec) is right for all later flags.
  for (SpecSetting& setting : flags.Given()) {
    if (Walks(spec) && PathName(setting.path) == kLinkNegatives) setting.path = *FindSpecField(kWalkNegatives);
    setting.Apply(spec);
  }
  CompleteNames(spec);
}

}  // namespace

void CompleteNames(v1::JobSpec& spec) {
  if (!spec.dataset().empty()) spec.set_dataset(WithCollection("datasets", spec.dataset()));
  if (!spec.model().program().empty()) {
    spec.mutable_model()->set_program(WithCollection("programs", spec.model().program()));
  }
  if (!spec.init_from().job().empty()) {
    spec.mutable_init_from()->set_job(WithCollection("jobs", spec.init_from().job()));
  }
}

void AddJobFlags(CLI::App& command, JobFlags& flags) {
  command.add_option("--file", flags.file, "Job in YAML, or in JSON (*.json); flags override it")->type_name("FILE");
  flags.spec.AddTo(command);
}

bool ReadJob(const JobFlags& flags, Session& session, v1::CreateJobRequest& request, ExitCode& exit,
             DatasetNeed dataset) {
  if (!flags.file.empty()) {
    auto from_file = ReadSpecFile(flags.file);
    if (!from_file.ok()) {
      exit = session.Fail(FileFailure(from_file.status()));
      return false;
    }
    request = *std::move(from_file);
  }
  Override(flags.spec, *request.mutable_spec());
  if (!request.spec().dataset().empty() || dataset == DatasetNeed::kLater) return true;
  exit = session.Fail(UsageFailure("--dataset is missing: name one, or give it as `dataset` in --file"));
  return false;
}

std::string SubjectOf(const v1::JobSpec& spec) {
  const std::string dataset = OneLine(StripCollection("datasets", spec.dataset()));
  if (HasOnlyBudget(spec)) return absl::StrCat(dataset, ", batches of a budget");
  return spec.batch_size() > 0 ? absl::StrCat(dataset, ", batches of ", CountText(spec.batch_size())) : dataset;
}

void AddLabelOption(CLI::App& command, std::vector<std::string>& labels, const std::string& help) {
  command.add_option("--label", labels, help)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("KEY=VALUE");
}

absl::Status ReadLabels(const std::vector<std::string>& texts, WireLabels& labels) {
  std::set<std::string> seen;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(absl::StrCat("--label: '", text, "' is no label; accepted: KEY=VALUE"));
    }
    const std::string key = text.substr(0, equals);
    if (!seen.insert(key).second) return absl::InvalidArgumentError(absl::StrCat("--label: ", key, " is given twice"));
    labels[key] = text.substr(equals + 1);
  }
  return absl::OkStatus();
}

}  // namespace permafrost::client
