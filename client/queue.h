// The unfinished jobs of several servers, as text and as JSON.
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
  std::vector<v1::Job> jobs;  // the unfinished jobs, in the order of SortQueue
};

// Sorts the jobs: first those on the device, then waiting jobs by priority and age, then paused jobs.
void SortQueue(std::vector<v1::Job>& jobs);

// Makes a row for each server, and then a row for each job. The jobs are grouped by server, and each group is in the
// order of the server's queue.
std::string RenderQueues(const std::vector<ServerQueue>& queues, const ViewTime& time, const RenderStyle& style);
// Returns one line of JSON: {"servers":[{"server":...,"info":...}],"jobs":[{"server":...,"place":...,"job":...}]},
// with ServerInfo and Job in protobuf's mapping. `place` counts from 1, and is null for a job that is not queued.
std::string QueuesToJson(const std::vector<ServerQueue>& queues);

}  // namespace permafrost::client
