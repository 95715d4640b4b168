#include "elastiquant/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace elastiquant {

Result<MappedFile> MappedFile::Open(const std::filesystem::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    std::string message = "cannot open " + path.string() + ": " + std::strerror(errno);
    return errno == ENOENT ? NotFound(std::move(message)) : IoError(std::move(message));
  }
  MappedFile file;
  struct stat info {};
  void* address = nullptr;
  bool ok = fstat(fd, &info) == 0;
  const auto size = static_cast<size_t>(ok ? info.st_size : 0);
  if (ok && size > 0) {
    address = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    ok = address != MAP_FAILED;
  }
  const int error = errno;
  close(fd);
  if (!ok) return IoError("cannot read " + path.string() + ": " + std::strerror(error));
  file.bytes_ = {static_cast<const uint8_t*>(address), size};
  return file;
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

}  // namespace elastiquant
