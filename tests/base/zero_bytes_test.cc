#include "base/buffer.h"

#include <gtest/gtest.h>

#include <string>

namespace permafrost {
namespace {

TEST(ZeroBytesTest, AnyOtherByteIsFoundWhereverItLies) {
  EXPECT_TRUE(AreZero({}));
  for (const size_t size : {1, 2, 7, 64, 1000}) {
    std::string bytes(size, '\0');
    EXPECT_TRUE(AreZero(bytes));
    for (char& byte : bytes) {
      byte = '\x80';
      EXPECT_FALSE(AreZero(bytes)) << &byte - bytes.data() << " of " << size;
      byte = '\0';
    }
  }
}

}  // namespace
}  // namespace permafrost
