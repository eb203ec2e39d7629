// Raises the number of files that the process may hold open.
#pragma once

namespace permafrost {

// Raises the limit to the most that the system allows; where it cannot, says so in the log. Every watcher of a job is a
// file descriptor, and a checkpoint must find one free among thousands: the usual limit of 1024 is for programs that
// use select(). Threads: before others open files.
void RaiseOpenFilesLimit();

}  // namespace permafrost
