// Text about the server.
// Threads: pure functions.
#pragma once

#include <string>

#include "client/job_view.h"
#include "client/style.h"
#include "permafrost/v1/server.pb.h"

namespace permafrost::client {

// Makes one row per fact that the server reports. A fact about the device has a row only if the device reports it.
std::string RenderServer(const v1::ServerInfo& info, const ViewTime& time, const RenderStyle& style);
// Shows the server's work and the memory of its device in one line.
std::string RenderServerLine(const v1::ServerInfo& info, const RenderStyle& style);

// Returns "400 days ahead of the time that it saw pass" or "2h behind the time that it saw pass".
std::string ClockJumpText(const google::protobuf::Duration& jump);

}  // namespace permafrost::client
