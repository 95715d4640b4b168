// A read-only file in memory, whose pages are shared by all processes that map it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "elastiquant/base/status.h"

namespace elastiquant {

class MappedFile {
 public:
  // Fails with NotFound or IoError, with the path and the operating system's words.
  static Result<MappedFile> Open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Returns the contents, which stay where they are when the object is moved.
  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  std::span<const uint8_t> bytes_;
};

}  // namespace elastiquant
