// Has a data race, which ThreadSanitizer must report. Tests that were not built with ThreadSanitizer would find
// nothing.
#include <cstdio>
#include <thread>

int main() {
  int count = 0;
  const auto add = [&count] {
    for (int i = 0; i < 1000; ++i) ++count;
  };
  std::thread one(add), other(add);
  one.join();
  other.join();
  std::printf("%d\n", count);
}
