// A read-only file in memory, its pages shared by every process that maps it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "elastiquant/base/status.h"

namespace elastiquant {

class MappedFile {
 public:
  // Errors: NotFound or Io, with the path and the operating system's words.
  static Result<MappedFile> Open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Stays where it is when the object is moved.
  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  std::span<const uint8_t> bytes_;
};

}  // namespace elastiquant
