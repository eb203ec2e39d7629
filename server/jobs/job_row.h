// A job as a row of the table of jobs: what is written into its columns, and read from them.
// Threads: each call has the statement for itself. All throw SQLite::Exception.
#pragma once

#include "jobs/job.h"

namespace SQLite {
class Statement;
}  // namespace SQLite

namespace permafrost::jobs {

// The columns that ReadRow reads, from the table of jobs.
extern const char kSelectJob[];
// Without epochs. One that cannot be read is given as far as it can be (Job::unreadable).
Job ReadRow(SQLite::Statement& row);

// The columns that change while a job lives, in this order.
inline constexpr char kLiveColumns[] =
    "state = ?, start_time = ?, end_time = ?, progress = ?, result = ?, error = ?, resumes = ?, history = ?, failure = "
    "?";
// Binds them from `index` on; returns the index after them.
int BindLiveColumns(SQLite::Statement& statement, int index, const Job& job);

inline constexpr char kInsertJob[] =
    "INSERT INTO jobs (id, request_id, create_time, spec, labels, state, start_time, end_time, progress, result, "
    "error, "
    "resumes, history, failure) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
void BindInsert(SQLite::Statement& insert, const Job& job);

}  // namespace permafrost::jobs
