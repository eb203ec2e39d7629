// The jobs that have not ended on several servers, as text and JSON.
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "client/job_view.h"
#include "client/style.h"
#include "permafrost/v1/job.pb.h"
#include "permafrost/v1/server.pb.h"

namespace permafrost::client {

struct ServerQueue {
  std::string name;  // as the user names the server
  v1::ServerInfo info;
  std::vector<v1::Job> jobs;  // that have not ended; SortQueue gives their order
};

// Jobs on the device first, then queued ones by priority and age, then paused ones.
void SortQueue(std::vector<v1::Job>& jobs);

// A row for each server, then a row for each job in the order of its server's queue.
std::string RenderQueues(const std::vector<ServerQueue>& queues, const ViewTime& time, const RenderStyle& style);
// The same as one line of JSON: {"servers":[{"server":...,"info":...}],"jobs":[{"server":...,"place":...,"job":...}]},
// with ServerInfo and Job in protobuf's mapping. place: from 1; null unless the job is queued.
std::string QueuesToJson(const std::vector<ServerQueue>& queues);

}  // namespace permafrost::client
