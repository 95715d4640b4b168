// Whole files. Errors name the file and give the operating system's words.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Errors: NotFound if there is none, InvalidArgument for what is no regular file, IoError.
Result<std::vector<uint8_t>> ReadFile(const std::filesystem::path& file);

// Replaces `file` by `bytes` atomically: a temporary file, synced and renamed, and the folder
// synced. A crash at any moment leaves either the old file or the new one, whole.
Status WriteFileAtomically(const std::filesystem::path& file, std::span<const uint8_t> bytes);

inline std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace elastiquant
