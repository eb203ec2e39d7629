#include "data/disk/read_ahead.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/file.h"

namespace permafrost {
namespace {

// Asked for at once; two of them are on their way.
constexpr uint64_t kPieceBytes = uint64_t{4} << 20;

void AskFor(const Descriptor& file, uint64_t begin, uint64_t end) {
  const auto offset = static_cast<off_t>(begin);
#ifdef __APPLE__
  radvisory advice{.ra_offset = offset, .ra_count = static_cast<int>(end - begin)};
  fcntl(file.get(), F_RDADVISE, &advice);
#else
  posix_fadvise(file.get(), offset, static_cast<off_t>(end - begin), POSIX_FADV_WILLNEED);
#endif
}

}  // namespace

ReadAhead::ReadAhead(std::filesystem::path path, Range range)
    : thread_([this, path = std::move(path), range] {
        Run(path, range);
        done_.Notify();
      }) {}

ReadAhead::~ReadAhead() {
  stop_.Notify();
  thread_.join();
}

void ReadAhead::Run(const std::filesystem::path& path, Range range) {
  const Descriptor file = OpenRetrying(path, O_RDONLY);
  if (!file.valid() || range.begin >= range.end) return;
    // A range that is asked for comes as it is; what is read besides must not make the kernel guess.
#ifdef POSIX_FADV_RANDOM
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_RANDOM);
#endif
  const auto piece_end = [&](uint64_t begin) { return std::min(range.end, begin + kPieceBytes); };
  AskFor(file, range.begin, piece_end(range.begin));
  for (uint64_t begin = range.begin; begin < range.end; begin += kPieceBytes) {
    const uint64_t end = piece_end(begin);
    if (end < range.end) AskFor(file, end, piece_end(end));
    // The piece is there when its last byte is.
    char last = 0;
    if (stop_.HasBeenNotified() || pread(file.get(), &last, 1, static_cast<off_t>(end - 1)) != 1) return;
  }
}

}  // namespace permafrost
