// Ctrl-C: ends the program with 130, or, while something that can be cancelled in good order is under way, cancels it.
// A second Ctrl-C always ends the program.
// Threads: one waits for the signal; everything here is safe from any thread.
#pragma once

#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/monotonic.h"
#include "grpcpp/client_context.h"

namespace permafrost::client {

class Interrupt {
 public:
  // Blocks SIGINT in the calling thread and those it starts, so that only the waiting thread sees it: construct before
  // any other thread runs.
  Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  bool requested() const;
  // Returns early, and true, on Ctrl-C.
  bool WaitFor(absl::Duration duration) const;

  // While one lives, Ctrl-C does not end the program: it cancels `context` (null: nothing) and requested() turns true.
  // Borrows the context, which outlives the scope.
  class Scope {
   public:
    Scope(Interrupt& interrupt, grpc::ClientContext* context);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    Interrupt& interrupt_;
    grpc::ClientContext* context_;
  };

 private:
  void Wait();
  void OnSignal();

  Event requested_;
  mutable absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<grpc::ClientContext*> scopes_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace permafrost::client
