// A small graph of OGB's node layout whose files are any bytes: they are parted at bytes 0x01; an empty part leaves the
// file as it is in a good graph, and a part "-" leaves it out.
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
  };
  return files;
}

}  // namespace
}  // namespace permafrost::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace permafrost::data;
  FuzzInput input(data, size);
  const uint8_t flags = input.TakeByte();
  ImportOptions options{.format = ImportFormat::kOgbNodes};
  options.add_inverse_edges = (flags & 1) != 0;
  options.coalesce = (flags & 2) != 0;
  constexpr NodeFeatureChoice kChoices[] = {NodeFeatureChoice::kAuto, NodeFeatureChoice::kDense,
                                            NodeFeatureChoice::kSparse, NodeFeatureChoice::kAuto};
  options.node_features = kChoices[(flags >> 2) & 3];
  FuzzFiles files;
  std::string rest = input.rest();
  for (const auto& [name, good] : GoodFiles()) {
    const size_t stop = rest.find('\x01');
    const std::string part = rest.substr(0, stop);
    rest = stop == rest.npos ? "" : rest.substr(stop + 1);
    if (part == "-") continue;
    // The flag makes it the packed file, whatever it holds.
    files.emplace_back((flags & 16) != 0 && !part.empty() ? name + ".gz" : name, part.empty() ? good : part);
  }
  FuzzImport(files, "", options);
  return 0;
}
