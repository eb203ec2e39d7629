#include "data/import_record.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"

namespace permafrost::data {

using nlohmann::json;

std::string RecordToJson(const ImportRecord& record) {
  const json j = {{"create_time", absl::FormatTime(absl::RFC3339_full, record.create_time, absl::UTCTimeZone())},
                  {"source", record.options.source.string()},
                  {"add_inverse_edges", record.options.add_inverse_edges},
                  {"split", record.options.split},
                  {"split_seed", record.options.split_seed},
                  {"train_fraction", record.options.train_fraction},
                  {"valid_fraction", record.options.valid_fraction},
                  {"error", record.error},
                  {"starts", record.starts}};
  // An error may quote a file name that is not UTF-8.
  return j.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

absl::StatusOr<ImportRecord> RecordFromJson(std::string_view text) {
  // nlohmann reports by exceptions; they end here.
  try {
    const json j = json::parse(text);
    ImportRecord record;
    const auto time = j.at("create_time").get<std::string>();
    std::string error;
    if (!absl::ParseTime(absl::RFC3339_full, time, &record.create_time, &error)) {
      return absl::DataLossError(absl::StrCat("create_time: ", error));
    }
    record.options.source = j.at("source").get<std::string>();
    j.at("add_inverse_edges").get_to(record.options.add_inverse_edges);
    j.at("split").get_to(record.options.split);
    j.at("split_seed").get_to(record.options.split_seed);
    j.at("train_fraction").get_to(record.options.train_fraction);
    j.at("valid_fraction").get_to(record.options.valid_fraction);
    j.at("error").get_to(record.error);
    record.starts = j.value("starts", 0);
    return record;
  } catch (const json::exception& e) {
    return absl::DataLossError(e.what());
  }
}

}  // namespace permafrost::data
