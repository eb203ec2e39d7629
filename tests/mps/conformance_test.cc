// The conformance test once more, where the fake hooks make MPS present.
#include "../device/backend_conformance_test.cc"  // NOLINT(bugprone-suspicious-include)

#include "device/mps/stand_in.h"
#include "fake_mps.h"

namespace permafrost::device {
namespace {

// The main thread's, for all tests.
class WithFakeMps final : public testing::Environment {
 public:
  void SetUp() override { FakeMps::Get().Reset(); }

 private:
  const MpsStandIn within_;
};
const testing::Environment* const kWithFakeMps = testing::AddGlobalTestEnvironment(new WithFakeMps);

}  // namespace
}  // namespace permafrost::device
