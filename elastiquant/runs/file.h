// Reads and writes whole files. Errors name the file and give the operating system's words.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Fails with NotFound if there is no such file, with InvalidArgument if it is not a regular
// file, and with IoError if it cannot be read.
Result<std::vector<uint8_t>> ReadFile(const std::filesystem::path& file);

// Makes a folder that may be there already, and those above it. Fails with IoError.
Status MakeFolder(const std::filesystem::path& folder);

// Replaces `file` by `bytes` atomically: writes a temporary file, syncs and renames it, and
// syncs the folder. A crash at any moment leaves either the old file or the new one, whole.
// Fails with IoError.
Status WriteFileAtomically(const std::filesystem::path& file, std::span<const uint8_t> bytes);

inline std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace elastiquant
