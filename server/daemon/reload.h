// What SIGHUP does: certificates, tokens and options are read again.
// Threads: the main one.
#pragma once

#include <functional>

#include "access/certificate_files.h"
#include "access/token_store.h"
#include "daemon/drain.h"
#include "daemon/options.h"

namespace permafrost {

struct Reloaded {
  access::TokenStore& tokens;
  access::CertificateFiles* certificates;  // null: plain text
  DrainSignal& drain;
};

// `read` reads the options as at start. What can change while the daemon runs takes effect; of the rest the log says
// that it does at the next start. What cannot be read is told in a line, and stays as it was. `options` becomes what
// holds from here on.
void Reload(const std::function<ParsedOptions()>& read, const Reloaded& what, Options& options);

}  // namespace permafrost
