#include "elastiquant/cli/file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace elastiquant::cli {
namespace {

Status FileError(const std::string& path, const std::string& what) {
  return IoError(path + ": " + what + ": " + std::strerror(errno));
}

bool IsRegular(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

Result<FilePtr> OpenForReading(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 && errno == ENOENT)
    return NotFound(path + ": no such file");
  if (S_ISDIR(info.st_mode)) return InvalidArgument(path + ": a folder, not a file");
  FilePtr file(std::fopen(path.c_str(), "rb"));
  if (!file) return FileError(path, "cannot be opened");
  return file;
}

Result<std::vector<uint8_t>> ReadFile(const std::string& path) {
  EQ_ASSIGN_OR_RETURN(const FilePtr file, OpenForReading(path));
  std::vector<uint8_t> bytes;
  struct stat info {};
  if (fstat(fileno(file.get()), &info) == 0 && S_ISREG(info.st_mode)) {
    bytes.resize(static_cast<size_t>(info.st_size) + 1);  // one more, to meet the end at once
  }
  size_t used = 0;
  while (true) {
    if (used == bytes.size()) bytes.resize(2 * used + 4096);
    const size_t got = std::fread(bytes.data() + used, 1, bytes.size() - used, file.get());
    used += got;
    if (got == 0) break;
  }
  if (std::ferror(file.get())) return FileError(path, "cannot be read");
  bytes.resize(used);
  return bytes;
}

Status WriteFile(const std::string& path,
                 std::initializer_list<std::span<const uint8_t>> parts) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return FileError(path, "cannot be created");
  bool good = true;
  for (const std::span<const uint8_t> part : parts) {
    if (part.empty()) continue;  // fwrite may not be given a null pointer
    good = good && std::fwrite(part.data(), 1, part.size(), file) == part.size();
  }
  int error = good ? 0 : errno;
  if (std::fclose(file) != 0 && good) {  // a full disk may show only here
    good = false;
    error = errno;
  }
  if (good) return Status::Ok();
  if (IsRegular(path)) std::remove(path.c_str());
  errno = error;
  return FileError(path, "cannot be written");
}

Status ReplaceFile(const std::string& path,
                   std::initializer_list<std::span<const uint8_t>> parts) {
  const std::string beside = path + ".new";  // on the same disk, or it could not be renamed
  EQ_RETURN_IF_ERROR(WriteFile(beside, parts));
  if (std::rename(beside.c_str(), path.c_str()) == 0) return Status::Ok();
  Status failed = FileError(path, "cannot be replaced");
  std::remove(beside.c_str());
  return failed;
}

}  // namespace elastiquant::cli
