// Repeats the conformance test with MPS present, by the fake hooks.
#include "../device/backend_conformance_test.cc"  // NOLINT(bugprone-suspicious-include)

#include "device/mps/stand_in.h"
#include "fake_mps.h"

namespace permafrost::device {
namespace {

// Lets the main thread use the stand-in for MPS, in all tests.
class WithFakeMps final : public testing::Environment {
 public:
  void SetUp() override { FakeMps::Get().Reset(); }

 private:
  const MpsStandIn within_;
};
const testing::Environment* const kWithFakeMps = testing::AddGlobalTestEnvironment(new WithFakeMps);

}  // namespace
}  // namespace permafrost::device
