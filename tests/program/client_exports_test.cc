// Programs that the Python package writes (permafrost.export) give PyTorch's results to the last bit.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "program/exported.h"

namespace permafrost::program {
namespace {

class ClientExports : public WithExports {
 protected:
  static void SetUpTestSuite() { Export("export_nets.py", ""); }
};

TEST_F(ClientExports, EqualPyTorchInOutputsLossesGradientsAndBuffers) {
  const std::vector<std::string> names = Names();
  ASSERT_GE(names.size(), 14u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    ExpectEqualsPyTorch(Load(name), Expected(name));
  }
}

}  // namespace
}  // namespace permafrost::program
