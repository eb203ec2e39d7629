#include "daemon/log_settings.h"

#include "absl/strings/str_cat.h"
#include "daemon/options.h"
#include "telemetry/log.h"

namespace permafrost {

void AddLogSettings(std::vector<Setting>& settings) {
  settings.push_back(
      {.name = "log-format",
       .metavar = "NAME",
       .help = absl::StrCat("How the log on standard error is written: ", telemetry::kLogFormatNames.Accepted(),
                            ". json: an object\na line, with time, severity, logger, message, and job."),
       .is_list = false,
       .read = [](const std::string& v, Options& o) { return ReadName(v, telemetry::kLogFormatNames, o.log_format); },
       .show = [](const Options& o) { return std::string(telemetry::kLogFormatNames.Name(o.log_format)); }});
}

}  // namespace permafrost
