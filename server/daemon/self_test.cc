#include "daemon/self_test.h"

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/catalog/catalog.h"
#include "train/loop/device_self_test.h"

namespace permafrost {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kPoll = absl::Milliseconds(20);

// A temporary directory, which the destructor removes.
class WorkFolder {
 public:
  static absl::StatusOr<std::unique_ptr<WorkFolder>> Make() {
    std::string path = fs::temp_directory_path() / "permafrost-self-test-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) return SystemError(errno, path, "make a folder like it");
    return std::unique_ptr<WorkFolder>(new WorkFolder(path));
  }
  WorkFolder(const WorkFolder&) = delete;
  ~WorkFolder() { RemoveAll(path_).IgnoreError(); }
  const fs::path& path() const { return path_; }

 private:
  explicit WorkFolder(fs::path path) : path_(std::move(path)) {}
  const fs::path path_;
};

absl::StatusOr<data::OpenedDataset> ImportSample(const fs::path& source, const fs::path& folder, int threads) {
  std::error_code error;
  const fs::path resolved = fs::canonical(source, error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("--self-test-data \"", source.string(),
                     "\" is not there: accepted: a folder that imports read, as deploy/sample/zinc"));
  }
  data::CatalogOptions options{.directory = folder, .import_roots = {resolved}, .warn = [](std::string_view) {}};
  if (threads > 0) options.threads = threads;
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<data::Catalog> catalog, data::Catalog::Create(std::move(options)));
  const DatasetId id("self-test");
  PF_RETURN_IF_ERROR(catalog->Import(id, {.source = resolved}).status());
  while (true) {
    PF_ASSIGN_OR_RETURN(const data::Dataset dataset, catalog->Get(id));
    if (dataset.state == data::DatasetState::kReady) return catalog->Open(id);
    // An import that waits to retry after an error of the machine counts as failed, because the self-test does not
    // wait.
    const std::string& failed = dataset.error.empty() ? dataset.last_error : dataset.error;
    if (!failed.empty()) return absl::FailedPreconditionError(absl::StrCat("--self-test-data: ", failed));
    absl::SleepFor(kPoll);
  }
}

absl::StatusOr<train::SelfTestReport> Run(const Options& options) {
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<WorkFolder> folder, WorkFolder::Make());
  PF_ASSIGN_OR_RETURN(const data::OpenedDataset dataset,
                      ImportSample(options.self_test_data, folder->path() / "datasets", options.threads));
  return train::RunSelfTest({.device = *options.self_test_device,
                             .threads = options.threads,
                             .mps_driver_threshold = options.mps_driver_threshold,
                             .steps = options.self_test_steps},
                            dataset, [](std::string_view line) {
                              std::cerr << "self-test: " << line << "\n" << std::flush;
                            });
}

}  // namespace

int SelfTest(const Options& options) {
  const absl::StatusOr<train::SelfTestReport> report = Run(options);
  if (!report.ok()) {
    std::cerr << "permafrostd: self-test: " << StdView(report.status().message()) << "\n";
    return kExitFailure;
  }
  std::cout << train::Show(*report) << std::flush;
  return report->failures.empty() ? kExitDrained : kExitFailure;
}

}  // namespace permafrost
