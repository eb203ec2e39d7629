#include "daemon/reload.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/string_view.h"
#include "telemetry/log.h"

namespace permafrost {
namespace {

void TellReload(const std::string& line) { telemetry::Log(telemetry::Severity::kInfo, absl::StrCat("reload: ", line)); }

void ReloadOptions(const std::function<ParsedOptions()>& read, DrainSignal& drain, Options& options) {
  const ParsedOptions parsed = read();
  if (!parsed.options) {
    telemetry::Log(telemetry::Severity::kError,
                   absl::StrCat("reload: options stay as they were: ",
                                absl::StripPrefix(absl::string_view(parsed.text), "permafrostd: ")));
    return;
  }
  for (const OptionChange& change : ChangesBetween(options, *parsed.options)) {
    TellReload(absl::StrCat(change.name, " ", change.from, " -> ", change.to,
                            change.reloads ? "" : ": takes effect at the next start"));
  }
  options.exit_timeout = parsed.options->exit_timeout;
  drain.SetExitTimeout(options.exit_timeout);
}

}  // namespace

void Reload(const std::function<ParsedOptions()>& read, const Reloaded& what, Options& options) {
  if (const absl::Status tokens = what.tokens.Reload(); tokens.ok()) {
    TellReload(absl::StrCat(what.tokens.List().size(), " tokens"));
  } else {
    telemetry::Log(telemetry::Severity::kError, absl::StrCat("reload: tokens stay as they were: ", tokens.message()));
  }
  if (what.certificates != nullptr) {
    // Current itself tells of files that cannot be read.
    const auto current = what.certificates->Current();
    TellReload(absl::StrCat("certificate of ", current->subject, ", valid until ",
                            absl::FormatTime("%Y-%m-%d", current->not_after, absl::UTCTimeZone())));
  }
  ReloadOptions(read, what.drain, options);
}

}  // namespace permafrost
