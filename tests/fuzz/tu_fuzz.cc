// Imports a small TUDataset, or a ZIP archive of arbitrary bytes. Parted divides the fuzzer's bytes among the
// dataset's files.
#include "fuzz_import.h"

namespace permafrost::data {
namespace {

const FuzzFiles& GoodTu() {
  static const FuzzFiles files = {
      {"S_A.txt", "1, 2\n2, 1\n1, 2\n4, 4\n"},
      {"S_graph_indicator.txt", "1\n1\n2\n3\n"},
      {"S_graph_labels.txt", "1\n-1\n1\n"},
      {"S_node_labels.txt", "0\n1\n3\n0\n"},
      {"S_edge_labels.txt", "0\n1\n2\n0\n"},
      {"S_node_attributes.txt", "0.5\n1\n-3e2\n0\n"},
      {"S_edge_attributes.txt", "0.5, 1\n1, 1\n-3e2, 1\n0, 1\n"},
      {"S_graph_attributes.txt", "0.5\nnan\n2\n"},
  };
  return files;
}

}  // namespace
}  // namespace permafrost::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace permafrost::data;
  permafrost::FuzzInput input(data, size);
  const uint8_t flags = input.TakeByte();
  ImportOptions options{.format = ImportFormat::kTu};
  options.coalesce = (flags & 1) != 0;
  options.tu.one_hot = (flags & 2) != 0;
  constexpr TuNodeFeatures kChoices[] = {TuNodeFeatures::kAll, TuNodeFeatures::kLabels, TuNodeFeatures::kAttributes,
                                         TuNodeFeatures::kDegree};
  options.tu.node_features = kChoices[(flags >> 2) & 3];
  options.tu.max_degree = (flags & 16) != 0 ? 1 : 1000;
  if ((flags & 32) != 0) {
    FuzzImport({{"set.zip", input.rest()}}, "set.zip", options);
    return 0;
  }
  FuzzImport(Parted(GoodTu(), input.rest()), "", options);
  return 0;
}
