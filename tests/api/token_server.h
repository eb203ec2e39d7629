// The api room behind a real port, where callers must show a bearer token.
#pragma once

#include <memory>
#include <optional>

#include "access/gate.h"
#include "access/token_store.h"
#include "api/server_fixture.h"
#include "temp_dir.h"

namespace permafrost::api {

// A job `a` runs on this server.
class TokenServerTest : public ServerTest {
 protected:
  void SetUp() override {
    tokens_ = *access::TokenStore::Open(dir_.path() / "tokens.json");
    store_of_tokens_ = tokens_.get();
    gate_ = &asking_.emplace(access::GateOptions{.auth = access::Auth::kToken, .certificate_role = std::nullopt},
                             tokens_.get());
    ServerTest::SetUp();
    run_ = &jobs_.Run("a");
  }

  const TempDir dir_;
  std::unique_ptr<access::TokenStore> tokens_;
  train::RunContext* run_ = nullptr;  // the run of job `a`

 private:
  std::optional<access::Gate> asking_;
};

}  // namespace permafrost::api
