// Imports a small set in OGB's graph layout. Parted divides the fuzzer's bytes among its files.
#include "fuzz_import.h"

namespace permafrost::data {
namespace {

const FuzzFiles& GoodGraphs() {
  static const FuzzFiles files = {
      {"raw/num-node-list.csv", "3\n1\n1\n"},
      {"raw/num-edge-list.csv", "4\n0\n1\n"},
      {"raw/edge.csv", "2,0\n0,1\n2,0\n1,2\n0,0\n"},
      {"raw/node-feat.csv", "1,10\n2,20\n3,30\n4,40\n5,50\n"},
      {"raw/edge-feat.csv", "0.5\n1\n-3e2\n3\n4\n"},
      {"raw/graph-label.csv", "1.5\n\n-2\n"},
      {"split/a/train.csv", "2\n0\n"},
      {"split/a/valid.csv", "1\n"},
      {"split/a/test.csv", ""},
      {"raw/node-pos.csv", "0,1,2\n1.5,-1,0\n3,4,5\n6,7,8\n-9,1e3,0.25\n"},
  };
  return files;
}

}  // namespace
}  // namespace permafrost::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace permafrost::data;
  permafrost::FuzzInput input(data, size);
  const uint8_t flags = input.TakeByte();
  ImportOptions options{.format = ImportFormat::kOgbGraphs};
  options.inverse_edges = static_cast<InverseEdges>(flags % kInverseEdgesNames.rows.size());
  FuzzImport(Parted(GoodGraphs(), input.rest(), (flags & 4) != 0), "", options);
  return 0;
}
