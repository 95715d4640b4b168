#include "elastiquant/runs/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace elastiquant {
namespace {

namespace fs = std::filesystem;

Status SystemError(const std::string& what, const fs::path& path) {
  return IoError("cannot " + what + " " + path.string() + ": " + std::strerror(errno));
}

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Status WriteAndSync(const fs::path& file, std::span<const uint8_t> bytes) {
  const Descriptor fd(open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (fd.get() < 0) return SystemError("create", file);
  while (!bytes.empty()) {
    const ssize_t written = write(fd.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError("write", file);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  if (fsync(fd.get()) != 0) return SystemError("sync", file);
  return Status::Ok();
}

Status SyncFolder(const fs::path& folder) {
  const Descriptor fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0 || fsync(fd.get()) != 0) return SystemError("sync the folder", folder);
  return Status::Ok();
}

}  // namespace

Result<std::vector<uint8_t>> ReadFile(const fs::path& file) {
  const Descriptor fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0 && errno == ENOENT) return NotFound("there is no file " + file.string());
  if (fd.get() < 0) return SystemError("open", file);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return SystemError("read", file);
  if (!S_ISREG(info.st_mode)) return InvalidArgument(file.string() + " is not a file");
  std::vector<uint8_t> bytes(static_cast<size_t>(info.st_size));
  for (size_t used = 0; used < bytes.size();) {
    const ssize_t got = read(fd.get(), bytes.data() + used, bytes.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError("read", file);
    if (got == 0) bytes.resize(used);  // it has become shorter meanwhile
    used += static_cast<size_t>(got);
  }
  return bytes;
}

Status MakeFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return Status::Ok();
  return IoError("cannot make the folder " + folder.string() + ": " + error.message());
}

Status WriteFileAtomically(const fs::path& file, std::span<const uint8_t> bytes) {
  fs::path temporary = file;
  temporary += ".tmp";
  Status status = WriteAndSync(temporary, bytes);
  if (status.ok() && rename(temporary.c_str(), file.c_str()) != 0) {
    status = SystemError("rename", temporary);
  }
  if (!status.ok()) {
    unlink(temporary.c_str());  // a part of a file would only keep a full disk full
    return status;
  }
  return SyncFolder(file.has_parent_path() ? file.parent_path() : fs::path("."));
}

}  // namespace elastiquant
