// Keeps two runs from writing to one folder.
#pragma once

#include <chrono>
#include <string>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Holds a folder for one process. It is given back when the lock is destroyed or the process
// ends, in whatever way.
class FolderLock {
 public:
  // Waits for up to `patience` for another process that holds the folder, as one that was
  // killed may take a moment to end. Fails with InvalidArgument if it goes on, and with IoError
  // if there is no such folder. Where the file system has no locks, nothing is held.
  static Result<FolderLock> Take(const std::string& folder, std::chrono::milliseconds patience);

  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  explicit FolderLock(int folder) : folder_(folder) {}

  int folder_;  // a descriptor
};

}  // namespace elastiquant
