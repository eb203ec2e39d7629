#include "client/label_flags.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace permafrost::client {

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

std::string LabelsText(const WireLabels& labels) {
  const std::map<std::string, std::string> by_key(labels.begin(), labels.end());
  return absl::StrJoin(by_key, ", ", absl::PairFormatter("="));
}

}  // namespace permafrost::client
