#include "client/defaults.h"

#include "absl/strings/str_cat.h"

namespace permafrost::client {

std::string DefaultText(const std::string& set, const std::string& graph, const std::string& walks) {
  return absl::StrCat("default ", set, graph == set ? "" : absl::StrCat("; on one large graph ", graph),
                      walks == graph ? "" : absl::StrCat("; of node2vec ", walks));
}

}  // namespace permafrost::client
