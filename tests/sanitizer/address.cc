// Reads freed memory, which AddressSanitizer must report. Tests that were not built with AddressSanitizer would find
// nothing.
#include <cstdio>
#include <memory>

int main() {
  auto number = std::make_unique<int>(1);
  const int* freed = number.get();
  number.reset();
  std::printf("%d\n", *freed);
}
