// MD5 (RFC 1321), because that is what data sets' authors publish. It finds damaged downloads;
// it does not keep out a forger.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "elastiquant/base/status.h"

namespace elastiquant {

class Md5 {
 public:
  void Add(std::span<const uint8_t> bytes);
  // The digest as 32 hexadecimal digits. Ends the computation.
  std::string Finish();

 private:
  void AddBlock(const uint8_t* block);

  std::array<uint32_t, 4> state_{0x67452301u, 0xEFCDAB89u, 0x98BADCFEu, 0x10325476u};
  std::array<uint8_t, 64> pending_{};
  uint64_t length_ = 0;
};

// Errors: those of MappedFile::Open.
Result<std::string> Md5OfFile(const std::filesystem::path& path);

}  // namespace elastiquant
