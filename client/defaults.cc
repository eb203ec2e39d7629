#include "client/defaults.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace permafrost::client {

std::string JobDefault(const std::function<std::string(const train::TrainOptions&)>& show) {
  // Values in the order in which models bring them up, each with its models.
  std::vector<std::pair<std::string, std::vector<std::string>>> models_of_value;
  for (const auto& [architecture, name] : nn::kArchitectureNames.rows) {
    const std::string value = show(train::DefaultOptions(architecture));
    auto it = models_of_value.begin();
    while (it != models_of_value.end() && it->first != value) ++it;
    if (it == models_of_value.end()) it = models_of_value.insert(it, {value, {}});
    it->second.emplace_back(name);
  }
  std::string text = absl::StrCat("default ", models_of_value.front().first);
  for (size_t i = 1; i < models_of_value.size(); ++i) {
    const auto& [value, models] = models_of_value[i];
    const std::string last = models.size() > 1 ? absl::StrCat(" and ", models.back()) : "";
    const auto rest = models.size() > 1 ? models.end() - 1 : models.end();
    absl::StrAppend(&text, "; of ", absl::StrJoin(models.begin(), rest, ", "), last, " ", value);
  }
  return text;
}

}  // namespace permafrost::client
