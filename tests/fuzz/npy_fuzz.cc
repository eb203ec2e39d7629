// Imports a good NPY directory in which one file has arbitrary bytes.
#include <cstring>

#include "fuzz_import.h"

namespace permafrost::data {
namespace {

template <class T>
std::string Array(const std::string& descr, const std::string& shape, const std::vector<T>& values) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize(117, ' ');
  header += '\n';
  std::string out("\x93NUMPY\x01\x00\x76\x00", 10);
  out += header;
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return out;
}

constexpr const char* kNames[] = {"edge_index.npy", "adj.npz",        "node_feat.npy",   "node_feat_bf16.npy",
                                  "node_feat.npz",  "node_label.npy", "edge_weight.npy", "edge_time.npy",
                                  "edge_feat.npy",  "train_idx.npy",  "train_mask.npy",  "node_pos.npy"};

}  // namespace
}  // namespace permafrost::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace permafrost::data;
  permafrost::FuzzInput input(data, size);
  const uint8_t flags = input.TakeByte();
  const std::string name = kNames[input.TakeByte() % std::size(kNames)];
  ImportOptions options{.format = ImportFormat::kNpy};
  options.inverse_edges = static_cast<InverseEdges>(flags % kInverseEdgesNames.rows.size());
  options.coalesce = (flags & 2) != 0;
  FuzzFiles files = {{name, input.rest()}};
  const bool masks = name == "train_mask.npy";
  if (name != "edge_index.npy" && name != "adj.npz") {
    files.emplace_back("edge_index.npy", Array<int64_t>("<i8", "(2, 3)", {0, 1, 2, 1, 2, 2}));
  }
  if ((flags & 4) != 0 && name != "node_label.npy") {
    files.emplace_back("node_label.npy", Array<float>("<f4", "(3,)", {0, 1, 0}));
  }
  if (masks || name == "train_idx.npy") {
    for (const std::string other : {"valid", "test"}) {
      files.emplace_back(other + (masks ? "_mask.npy" : "_idx.npy"),
                         masks ? Array<uint8_t>("|b1", "(3,)", {0, 0, 1}) : Array<int32_t>("<i4", "(0,)", {}));
    }
  }
  FuzzImport(files, "", options);
  return 0;
}
