#include "elastiquant/runs/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace elastiquant {
namespace {

constexpr std::chrono::milliseconds kPause{20};

}  // namespace

Result<FolderLock> FolderLock::Take(const std::string& folder,
                                    std::chrono::milliseconds patience) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return IoError("cannot open the folder " + folder + ": " + std::strerror(errno));
  FolderLock lock(fd);
  const auto end = std::chrono::steady_clock::now() + patience;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    if (std::chrono::steady_clock::now() >= end) {
      return InvalidArgument("another process is writing a run to " + folder +
                             ": wait until it has ended, or give another --out");
    }
    std::this_thread::sleep_for(kPause);
  }
  return lock;
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : folder_(std::exchange(other.folder_, -1)) {}

FolderLock::~FolderLock() {
  if (folder_ >= 0) close(folder_);
}

}  // namespace elastiquant
