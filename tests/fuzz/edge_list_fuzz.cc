// Imports arbitrary bytes as an edge list, with arbitrary options.
#include "fuzz_import.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace permafrost::data;
  permafrost::FuzzInput input(data, size);
  const uint8_t flags = input.TakeByte(), more = input.TakeByte();
  constexpr NodeIds kIds[] = {NodeIds::kRows, NodeIds::kNumbers, NodeIds::kText, NodeIds::kRows};
  constexpr Header kHeaders[] = {Header::kAuto, Header::kNo, Header::kYes, Header::kAuto};
  constexpr char kDelimiters[] = {'\0', ',', '\t', ' ', ';', '|', '\0', '\0'};
  ImportOptions options{.format = ImportFormat::kEdgeList};
  options.inverse_edges = static_cast<InverseEdges>(flags % kInverseEdgesNames.rows.size());
  options.coalesce = (flags & 2) != 0;
  options.keep_out_edges = (flags & 4) != 0;
  options.edge_list.node_ids = kIds[(flags >> 3) & 3];
  options.edge_list.header = kHeaders[(flags >> 5) & 3];
  options.edge_list.delimiter = kDelimiters[more & 7];
  if ((more & 8) != 0) options.edge_list.columns = {EdgeColumn::kTimestamp, EdgeColumn::kIgnore, EdgeColumn::kWeight};
  if ((more & 16) != 0) options.edge_list.comment = '\0';
  options.edge_list.num_nodes = (more & 32) != 0 ? 9 : 0;
  if ((more & 64) != 0) options.edge_list.columns = {EdgeColumn::kTarget, EdgeColumn::kIgnore, EdgeColumn::kSource};
  if ((more & 128) != 0) options.edge_list.quote = '\0';
  FuzzImport({{"edges", input.rest()}}, "edges", options);
  return 0;
}
