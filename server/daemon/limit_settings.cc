#include "daemon/limit_settings.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace permafrost {
namespace {

constexpr int64_t kMostJobs = 1'000'000;
constexpr int64_t kMostConnections = 1'000'000;

}  // namespace

void AddLimitSettings(std::vector<Setting>& settings) {
  settings.push_back({.name = "max-upload",
                      .metavar = "SIZE",
                      .help = "Most bytes of all uploads together, as 500MB, 2GiB or bytes. 0: uploads are refused.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadSize(v, o.max_upload_bytes); },
                      .show = [](const Options& o) { return absl::StrCat(o.max_upload_bytes); }});
  settings.push_back({.name = "max-dataset-bytes",
                      .metavar = "SIZE",
                      .help = "Most bytes on disk of all datasets together, as 500MB, 2GiB or bytes: an import that\n"
                              "would take more fails. 0: any number.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadSize(v, o.max_dataset_bytes); },
                      .show = [](const Options& o) { return absl::StrCat(o.max_dataset_bytes); }});
  settings.push_back(
      {.name = "max-jobs",
       .metavar = "N",
       .help = absl::StrCat("Most jobs that have not ended, 0 to ", kMostJobs, "; one more is refused. 0: any number."),
       .is_list = false,
       .read = [](const std::string& v, Options& o) { return ReadCount(v, kMostJobs, o.max_jobs); },
       .show = [](const Options& o) { return absl::StrCat(o.max_jobs); }});
  settings.push_back(
      {.name = "max-connections-per-client",
       .metavar = "N",
       .help = absl::StrCat("Most connections that one client (a token, a certificate, else another machine) calls\n"
                            "on at once, 0 to ",
                            kMostConnections, "; a call on one more is refused. 0: any number."),
       .is_list = false,
       .read = [](const std::string& v,
                  Options& o) { return ReadCount(v, kMostConnections, o.max_connections_per_client); },
       .show = [](const Options& o) { return absl::StrCat(o.max_connections_per_client); }});
  settings.push_back({.name = "min-free-disk",
                      .metavar = "SIZE",
                      .help = "Kept free on the disk of --state-dir, as 500MB, 2GiB or bytes: imports, uploads and\n"
                              "checkpoints that are due wait while less is, so that jobs stay on record. 0: nothing.",
                      .is_list = false,
                      .read = [](const std::string& v, Options& o) { return ReadSize(v, o.min_free_disk_bytes); },
                      .show = [](const Options& o) { return absl::StrCat(o.min_free_disk_bytes); }});
}

}  // namespace permafrost
