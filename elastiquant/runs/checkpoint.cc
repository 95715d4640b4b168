#include "elastiquant/runs/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>

#include "elastiquant/base/bytes.h"
#include "elastiquant/base/crc32c.h"

namespace elastiquant {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kMagic = 0x4B435145;  // "EQCK"
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 20;
constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kSuffix = ".eqc";
constexpr size_t kKeep = 2;

std::span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

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

std::string WorkerSuffix(int rank) {
  return ".worker-" + std::to_string(rank) + std::string(kSuffix);
}

// The step in "checkpoint-STEP" followed by `suffix`, or -1.
int64_t StepOf(const std::string& name, std::string_view suffix) {
  if (!name.starts_with(kPrefix) || !name.ends_with(suffix)) return -1;
  int64_t step = -1;
  const char* end = name.data() + name.size() - suffix.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  return error == std::errc() && stop == end ? step : -1;
}

}  // namespace

std::vector<uint8_t> SerializeCheckpoint(const Checkpoint& checkpoint) {
  size_t payload = sizeof(uint32_t);
  for (const auto& [name, bytes] : checkpoint) {
    payload += sizeof(uint16_t) + name.size() + sizeof(uint64_t) + bytes.size();
  }
  std::vector<uint8_t> out(kHeaderBytes + payload);
  ByteWriter body({out.data() + kHeaderBytes, payload});
  body.Write(static_cast<uint32_t>(checkpoint.size()));
  for (const auto& [name, bytes] : checkpoint) {
    body.Write(static_cast<uint16_t>(name.size()));
    body.WriteSpan(AsBytes(name));
    body.Write(static_cast<uint64_t>(bytes.size()));
    body.WriteSpan(bytes);
  }
  ByteWriter header(out);
  header.Write(kMagic);
  header.Write(kVersion);
  header.Write(static_cast<uint64_t>(payload));
  header.Write(Crc32c(std::span(out).subspan(kHeaderBytes)));
  return out;
}

Result<Checkpoint> ParseCheckpoint(std::span<const uint8_t> bytes) {
  ByteReader reader(bytes);
  uint32_t magic = 0, version = 0, crc = 0, count = 0;
  uint64_t payload = 0;
  if (!reader.Read(&magic) || !reader.Read(&version) || !reader.Read(&payload) ||
      !reader.Read(&crc)) {
    return CorruptData("size check failed: " + std::to_string(bytes.size()) +
                       " bytes, but a checkpoint has at least " + std::to_string(kHeaderBytes));
  }
  if (magic != kMagic) return CorruptData("magic check failed: not a checkpoint");
  if (version != kVersion) {
    return CorruptData("version check failed: version " + std::to_string(version) +
                       ", this program reads " + std::to_string(kVersion));
  }
  if (payload != reader.remaining()) {
    return CorruptData("length check failed: the header says " + std::to_string(payload) +
                       " bytes of payload, there are " + std::to_string(reader.remaining()));
  }
  if (Crc32c(bytes.subspan(kHeaderBytes)) != crc) return CorruptData("checksum check failed");

  Checkpoint checkpoint;
  bool ok = reader.Read(&count);
  for (uint32_t i = 0; ok && i < count; ++i) {
    uint16_t name_size = 0;
    uint64_t size = 0;
    std::span<const uint8_t> name, section;
    ok = reader.Read(&name_size) && reader.ReadSpan(name_size, &name) && reader.Read(&size) &&
         reader.ReadSpan(size, &section);
    if (ok) checkpoint[{name.begin(), name.end()}].assign(section.begin(), section.end());
  }
  if (!ok || reader.remaining() != 0) return CorruptData("section check failed");
  return checkpoint;
}

Result<Checkpoint> ReadCheckpoint(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return NotFound("cannot open the checkpoint " + file.string());
  const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) return IoError("cannot read the checkpoint " + file.string());
  auto checkpoint = ParseCheckpoint(bytes);
  if (checkpoint.ok()) return checkpoint;
  return Status(checkpoint.status().code(),
                "checkpoint " + file.string() + ": " + checkpoint.status().message());
}

Status WriteFileAtomically(const fs::path& file, std::span<const uint8_t> bytes) {
  fs::path temporary = file;
  temporary += ".tmp";
  EQ_RETURN_IF_ERROR(WriteAndSync(temporary, bytes));
  if (rename(temporary.c_str(), file.c_str()) != 0) return SystemError("rename", temporary);
  return SyncFolder(file.has_parent_path() ? file.parent_path() : fs::path("."));
}

namespace {

// Newest first.
std::vector<CheckpointFile> ListFiles(const fs::path& run, std::string_view suffix) {
  std::vector<CheckpointFile> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(run, ignored)) {
    const int64_t step = StepOf(entry.path().filename().string(), suffix);
    if (step >= 0) files.push_back({step, entry.path()});
  }
  std::ranges::sort(files, [](const auto& a, const auto& b) { return a.step > b.step; });
  return files;
}

void RemoveAllBut(size_t keep, const fs::path& run, std::string_view suffix) {
  const std::vector<CheckpointFile> files = ListFiles(run, suffix);
  std::error_code ignored;  // an old file that cannot be removed does no harm
  for (size_t i = keep; i < files.size(); ++i) fs::remove(files[i].path, ignored);
}

fs::path FileOf(const fs::path& run, int64_t step, std::string_view suffix) {
  return run / (std::string(kPrefix) + std::to_string(step) + std::string(suffix));
}

}  // namespace

std::vector<CheckpointFile> ListCheckpoints(const fs::path& run) {
  return ListFiles(run, kSuffix);
}

Status SaveCheckpoint(const fs::path& run, int64_t step, const Checkpoint& checkpoint) {
  EQ_RETURN_IF_ERROR(
      WriteFileAtomically(FileOf(run, step, kSuffix), SerializeCheckpoint(checkpoint)));
  RemoveAllBut(kKeep, run, kSuffix);
  return Status::Ok();
}

Status SaveWorkerCheckpoint(const fs::path& run, int64_t step, int rank,
                            const Checkpoint& checkpoint) {
  const std::string suffix = WorkerSuffix(rank);
  EQ_RETURN_IF_ERROR(
      WriteFileAtomically(FileOf(run, step, suffix), SerializeCheckpoint(checkpoint)));
  RemoveAllBut(kKeep + 1, run, suffix);
  return Status::Ok();
}

Result<Checkpoint> ReadWorkerCheckpoint(const fs::path& run, int64_t step, int rank) {
  return ReadCheckpoint(FileOf(run, step, WorkerSuffix(rank)));
}

void RemoveWorkerCheckpoints(const fs::path& run, int rank) {
  RemoveAllBut(0, run, WorkerSuffix(rank));
}

Result<LoadedCheckpoint> LoadNewestCheckpoint(const fs::path& run,
                                              std::vector<std::string>* complaints) {
  Status newest = NotFound("no checkpoint in " + run.string());
  bool first = true;
  for (const CheckpointFile& file : ListCheckpoints(run)) {
    auto checkpoint = ReadCheckpoint(file.path);
    if (checkpoint.ok()) return LoadedCheckpoint{file.step, std::move(checkpoint).value()};
    complaints->push_back(checkpoint.status().message());
    if (first) newest = checkpoint.status();
    first = false;
    fs::path aside = file.path;
    aside += ".corrupt";
    std::error_code ignored;  // it was read already and will be found damaged again
    fs::rename(file.path, aside, ignored);
  }
  return newest;
}

}  // namespace elastiquant
