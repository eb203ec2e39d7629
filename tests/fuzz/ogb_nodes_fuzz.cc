// Imports a small graph in OGB's node layout. Parted divides the fuzzer's bytes among its files.
#include "fuzz_import.h"

namespace permafrost::data {
namespace {

const FuzzFiles& GoodFiles() {
  static const FuzzFiles files = {
      {"raw/edge.csv", "0,1\n1,2\n2,2\n"},
      {"raw/num-node-list.csv", "3\n"},
      {"raw/num-edge-list.csv", "3\n"},
      {"raw/node-feat.csv", "1,0,0\n0,0,0\n0,0,2\n"},
      {"raw/node-feat-sparse.csv", "0,0\n2,2,\n"},
      {"raw/node-label.csv", "0\n\n1\n"},
      {"raw/edge-weight.csv", "0.5\n1\n2\n"},
      {"raw/edge-feat.csv", "1\n2.5\n3\n"},
      {"split/a/train.csv", "0\n"},
      {"split/a/valid.csv", "1\n"},
      {"split/a/test.csv", "2\n"},
      {"raw/node-pos.csv", "0,1\n1.5,-1\n3,4\n"},
  };
  return files;
}

}  // namespace
}  // namespace permafrost::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace permafrost::data;
  permafrost::FuzzInput input(data, size);
  const uint8_t flags = input.TakeByte();
  ImportOptions options{.format = ImportFormat::kOgbNodes};
  options.inverse_edges = static_cast<InverseEdges>(flags % kInverseEdgesNames.rows.size());
  options.coalesce = (flags & 2) != 0;
  constexpr NodeFeatureChoice kChoices[] = {NodeFeatureChoice::kAuto, NodeFeatureChoice::kDense,
                                            NodeFeatureChoice::kSparse, NodeFeatureChoice::kAuto};
  options.node_features = kChoices[(flags >> 2) & 3];
  FuzzImport(Parted(GoodFiles(), input.rest(), (flags & 16) != 0), "", options);
  return 0;
}
