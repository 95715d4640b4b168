#include "elastiquant/data/md5.h"

#include <openssl/evp.h>

#include <array>

#include "elastiquant/data/mapped_file.h"

namespace elastiquant {

Result<std::string> Md5Of(std::span<const uint8_t> bytes) {
  std::array<uint8_t, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_md5(), nullptr) != 1) {
    return Unsupported(
        "this machine's OpenSSL does not allow MD5 (it may be in FIPS mode), which data sets' "
        "checksums are");
  }
  std::string hex;
  for (const uint8_t byte : std::span(digest).first(size)) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

Result<std::string> Md5OfFile(const std::filesystem::path& path) {
  EQ_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return Md5Of(file.bytes());
}

}  // namespace elastiquant
