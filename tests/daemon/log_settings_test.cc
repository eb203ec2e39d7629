#include "daemon/settings.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "daemon/options.h"

namespace permafrost {
namespace {

ParsedOptions ParseLogFormat(const char* value) {
  const std::vector<const char*> argv = {"permafrostd", "--log-format", value};
  return ParseOptions(static_cast<int>(argv.size()), argv.data(), [](const std::string&) { return std::nullopt; });
}

TEST(LogSettings, TextUnlessJsonIsAskedFor) {
  EXPECT_EQ(Options().log_format, telemetry::LogFormat::kText);
  EXPECT_EQ(ParseLogFormat("json").options.value_or(Options()).log_format, telemetry::LogFormat::kJson);
  EXPECT_EQ(ParseLogFormat("xml").text, "permafrostd: --log-format \"xml\": accepted: text, json\n");
}

}  // namespace
}  // namespace permafrost
