// A prepared statement for one use: reset when done, or it would keep its read lock on the file.
// Threads: the connection's.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

namespace permafrost::jobs {

class Use {
 public:
  explicit Use(SQLite::Statement& statement) : statement_(statement) {}
  Use(const Use&) = delete;
  ~Use() { statement_.tryReset(); }
  SQLite::Statement* operator->() { return &statement_; }
  SQLite::Statement& operator*() { return statement_; }

 private:
  SQLite::Statement& statement_;
};

}  // namespace permafrost::jobs
