// The conformance test once more, where the fake hooks make MPS present.
#include "../device/backend_conformance_test.cc"  // NOLINT(bugprone-suspicious-include)
