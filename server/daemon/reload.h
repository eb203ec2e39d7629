// Does what SIGHUP asks for: certificates, tokens and options are read again.
// Threads: the main one.
#pragma once

#include <functional>

#include "access/tls.h"
#include "access/token_store.h"
#include "daemon/drain.h"
#include "daemon/options.h"

namespace permafrost {

struct Reloaded {
  access::TokenStore& tokens;
  access::CertificateFiles* certificates;  // null: plain text
  DrainSignal& drain;
};

// `read` reads the options as at start. Options that can change while the daemon runs take effect; the log says of the
// others that they do at the next start. A part that cannot be read is told in a line, and stays as it was. `options`
// becomes what holds from here on.
void Reload(const std::function<ParsedOptions()>& read, const Reloaded& what, Options& options);

}  // namespace permafrost
