#include "client/defaults.h"

#include "absl/strings/str_cat.h"

namespace permafrost::client {

std::string JobDefault(const std::function<std::string(const spec::TrainOptions&)>& show) {
  const std::string of_sets = show(spec::DefaultOptions(spec::ModelLevel::kGraph)),
                    of_nodes = show(spec::DefaultOptions(spec::ModelLevel::kNode));
  return absl::StrCat("default ", of_sets, of_nodes == of_sets ? "" : absl::StrCat("; on one large graph ", of_nodes));
}

}  // namespace permafrost::client
