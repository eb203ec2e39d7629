// Gives each flag of `permafrost dataset import` good and bad values, and compares what the client sends with a
// golden file.
#include <google/protobuf/text_format.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/fake_server.h"
#include "client/program.h"
#include "client/sample_jobs.h"
#include "golden.h"
#include "gtest/gtest.h"

namespace permafrost::client {
namespace {

TEST(ImportFlags, SendWhatTheGoldenFileSays) {
  FakeServer fake;
  Recorder<v1::ImportDatasetRequest> imports;
  fake.datasets.import = [&](const v1::ImportDatasetRequest& request, v1::Dataset& dataset) {
    imports.Add(request);
    dataset = ImportingDataset(0);
    return grpc::Status::OK;
  };
  fake.Start();
  const std::vector<std::string> numbers = {"0", "7", "-1", "0.5", "1e3", "x", "", "99999999999999999999"};
  const std::vector<std::string> characters = {";", "tab", "space", "none", "", "::"};
  const struct {
    const char* flag;
    std::vector<std::string> values;
  } kFlags[] = {
      {"--format", {"auto", "ogb-graphs", "ogb_nodes", "TU", "edge-list", "npy", "parquet", ""}},
      {"--split", {"time", "", "a b"}},
      {"--split-seed", numbers},
      {"--train-fraction", numbers},
      {"--valid-fraction", numbers},
      {"--inverse-edges", {"auto", "add", "keep", "no"}},
      {"--coalesce", {}},
      {"--no-out-edges", {}},
      {"--no-inverse-edges", {}},
      {"--directed", {}},
      {"--node-features", {"auto", "dense", "sparse", "all"}},
      {"--feature-type", {"as-is", "float32", "float16", "bfloat16", "int8", "int4"}},
      {"--order", {"none", "degree", "community", "rows"}},
      {"--node-ids", {"rows", "numbers", "text", "names"}},
      {"--columns", {"weight", "target,timestamp,source", "ignore,ignore", "weight,colour", ""}},
      {"--header", {"auto", "yes", "no", "maybe"}},
      {"--delimiter", characters},
      {"--comment", characters},
      {"--quote", characters},
      {"--num-nodes", numbers},
      {"--tu-features", {"all", "labels", "attributes", "degree", "none"}},
      {"--one-hot", {}},
      {"--max-degree", numbers},
      {"--memory", {"0", "7", "512MiB", "1GB", "-1", "x", ""}},
  };
  std::string text = "What `permafrost dataset import zinc /data FLAG=VALUE` sends, or why it does not.\n";
  const auto append = [&](const std::string& argument) {
    const size_t before = imports.seen().size();
    const ProgramResult result =
        RunProgram({"--server", fake.address(), "dataset", "import", "zinc", "/data", "--no-watch", argument});
    absl::StrAppend(&text, argument, ": ");
    if (imports.seen().size() == before) {
      absl::StrAppend(&text, "exit ", result.exit_code, "\n");
    } else {
      v1::ImportOptions options = imports.seen().back().options();
      if (!options.has_edge_list() || options.edge_list().ByteSizeLong() == 0) options.clear_edge_list();
      absl::StrAppend(&text, options.ShortDebugString(), "\n");
    }
  };
  for (const auto& [flag, values] : kFlags) {
    if (values.empty()) append(flag);
    for (const std::string& value : values) append(absl::StrCat(flag, "=", value));
  }
  ExpectGolden("client/goldens/import_flags.txt", text);
}

}  // namespace
}  // namespace permafrost::client
