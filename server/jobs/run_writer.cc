#include "jobs/run_writer.h"

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/patience.h"
#include "telemetry/log.h"

namespace permafrost::jobs {
namespace {

constexpr absl::Duration kStoreAgain = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<RunWriter>> RunWriter::Start(std::string what, std::function<absl::Status()> store) {
  std::unique_ptr<RunWriter> writer(new RunWriter(std::move(what), std::move(store)));
  try {
    writer->thread_ = std::thread([raw = writer.get()] { raw->Loop(); });
  } catch (const std::system_error& error) {
    return absl::UnavailableError(
        absl::StrCat(writer->what_, " needs a thread, and the system gives none: ", error.what()));
  }
  return writer;
}

RunWriter::~RunWriter() {
  stop_.Set();
  wake_.Set();
  if (thread_.joinable()) thread_.join();
}

void RunWriter::Loop() {
  // The next try finds out whether the database is free; the run's end, and who else changes jobs, must not wait for
  // this one.
  const Patience none(absl::ZeroDuration());
  bool told = false;
  while (true) {
    wake_.Wait();
    if (stop_.is_set()) return;
    wake_.Reset();
    const absl::Status stored = store_();
    if (!stored.ok() && !told) {
      telemetry::Log(telemetry::Severity::kWarning,
                     absl::StrCat(what_, " is not stored yet, which is tried again: ", stored.message()));
    }
    told = !stored.ok();
    if (stored.ok()) continue;
    if (stop_.WaitFor(kStoreAgain)) return;
    wake_.Set();
  }
}

}  // namespace permafrost::jobs
