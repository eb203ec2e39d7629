// A read of freed memory, which AddressSanitizer must report: a run of tests that were not built with it would find
// nothing.
#include <cstdio>
#include <memory>

int main() {
  auto number = std::make_unique<int>(1);
  const int* freed = number.get();
  number.reset();
  std::printf("%d\n", *freed);
}
