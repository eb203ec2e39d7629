// The server as text.
// Threads: pure functions.
#pragma once

#include <string>

#include "client/job_view.h"
#include "client/style.h"
#include "permafrost/v1/server.pb.h"

namespace permafrost::client {

// Makes a row for each thing that the server tells. About its device it shows what the device tells.
std::string RenderServer(const v1::ServerInfo& info, const ViewTime& time, const RenderStyle& style);
// One line: its work and its device's memory.
std::string RenderServerLine(const v1::ServerInfo& info, const RenderStyle& style);

// "400 days ahead of the time that it saw pass", "2h behind the time that it saw pass".
std::string ClockJumpText(const google::protobuf::Duration& jump);

}  // namespace permafrost::client
