#include "api/convert_device.h"

#include "api/text.h"

namespace permafrost::api {

v1::DeviceState DeviceStateToWire(const DeviceState& state) {
  v1::DeviceState wire;
  v1::DeviceMemory& memory = *wire.mutable_memory();
  if (state.memory.allocated) memory.set_allocated_bytes(*state.memory.allocated);
  if (state.memory.reserved) memory.set_reserved_bytes(*state.memory.reserved);
  if (state.memory.driver) memory.set_driver_bytes(*state.memory.driver);
  if (state.memory.recommended_max) memory.set_recommended_max_bytes(*state.memory.recommended_max);
  if (state.memory.resident) memory.set_resident_bytes(*state.memory.resident);
  if (state.graph_entries) wire.set_graph_entries(*state.graph_entries);
  wire.set_no_graph_entries_reason(state.no_graph_entries_reason);
  for (const auto& [reason, count] : state.empty_caches) {
    v1::EmptyCacheCount& emptied = *wire.add_empty_caches();
    emptied.set_reason(reason);
    emptied.set_count(count);
  }
  if (state.utilization) wire.set_utilization(*state.utilization);
  for (const DeviceSetting& setting : state.settings) {
    v1::DeviceSetting& told = *wire.add_settings();
    // Both come from the environment, and may be any bytes.
    told.set_name(ValidUtf8(setting.name));
    told.set_value(ValidUtf8(setting.value));
  }
  for (const std::string& warning : state.warnings) wire.add_warnings(ValidUtf8(warning));
  return wire;
}

}  // namespace permafrost::api
