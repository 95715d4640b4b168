// Computes MD5 (RFC 1321), because that is what the authors of data sets publish. It finds
// damaged downloads; it does not keep out a forger.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Returns the digest as 32 lower-case hexadecimal digits. Fails with Unsupported if this
// machine's OpenSSL does not allow MD5.
Result<std::string> Md5Of(std::span<const uint8_t> bytes);

// Returns the digest of a file's contents. Fails as MappedFile::Open and Md5Of do.
Result<std::string> Md5OfFile(const std::filesystem::path& path);

}  // namespace elastiquant
