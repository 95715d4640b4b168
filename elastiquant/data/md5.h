// MD5 (RFC 1321), because that is what the authors of data sets publish. It finds damaged
// downloads; it does not keep out a forger.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "elastiquant/base/status.h"

namespace elastiquant {

// The digest as 32 lower-case hexadecimal digits.
// Errors: Unsupported if this machine's OpenSSL does not allow MD5.
Result<std::string> Md5Of(std::span<const uint8_t> bytes);

// The digest of a file's contents. Errors: those of MappedFile::Open and of Md5Of.
Result<std::string> Md5OfFile(const std::filesystem::path& path);

}  // namespace elastiquant
