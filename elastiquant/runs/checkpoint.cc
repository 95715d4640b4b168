#include "elastiquant/runs/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <utility>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/runs/file.h"

namespace elastiquant {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kSetAside = ".corrupt";  // behind the name of a damaged one
constexpr std::string_view kUnfinished = ".tmp";    // behind that of one under way
constexpr std::string_view kOlderSuffix = ".eqc";   // before checkpoints were safetensors
constexpr size_t kKeep = 2;

// What a file has in its metadata beside the checkpoint's own.
constexpr char kFormatKey[] = "format";  // some readers of safetensors ask for it
constexpr char kFormat[] = "pt";         // with PyTorch's layout of tensors
constexpr char kVersionKey[] = "checkpoint_version";
constexpr char kVersion[] = "2";
constexpr char kChecksumKey[] = "crc32c";
constexpr std::string_view kChecksumPlace = "00000000";

// Where the checksum's digits are in the file; npos if it has none. The quotes of such words
// within a text would be escaped.
size_t FindChecksum(std::span<const uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string before = std::string("\"") + kChecksumKey + "\":\"";
  const size_t found = text.find(before);
  if (found == text.npos || text.size() - found < before.size() + kChecksumPlace.size()) {
    return text.npos;
  }
  return found + before.size();
}

// Of the whole file, as if its digits were zeros.
std::string ChecksumOf(std::span<const uint8_t> bytes, size_t digits) {
  uint32_t crc = Crc32c(bytes.first(digits));
  crc = Crc32c(AsBytes(kChecksumPlace), crc);
  crc = Crc32c(bytes.subspan(digits + kChecksumPlace.size()), crc);
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", crc);
  return text;
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

std::vector<uint8_t> SerializeCheckpoint(Checkpoint checkpoint) {
  checkpoint.metadata[kFormatKey] = kFormat;
  checkpoint.metadata[kVersionKey] = kVersion;
  checkpoint.metadata[kChecksumKey] = kChecksumPlace;
  std::vector<uint8_t> bytes = SerializeSafetensors(checkpoint);
  const size_t digits = FindChecksum(bytes);
  std::ranges::copy(ChecksumOf(bytes, digits), bytes.begin() + static_cast<ptrdiff_t>(digits));
  return bytes;
}

bool IsCheckpoint(const Safetensors& file) { return file.metadata.contains(kChecksumKey); }

Result<Checkpoint> ParseCheckpoint(std::span<const uint8_t> bytes) {
  EQ_ASSIGN_OR_RETURN(Checkpoint checkpoint, ParseSafetensors(bytes));
  if (!IsCheckpoint(checkpoint)) {
    return CorruptData("checksum check failed: the metadata has no " +
                       std::string(kChecksumKey) + ", which this program writes");
  }
  const size_t digits = FindChecksum(bytes);
  if (digits == std::string_view::npos ||
      ChecksumOf(bytes, digits) != checkpoint.metadata[kChecksumKey]) {
    return CorruptData("checksum check failed");
  }
  const std::string version = checkpoint.metadata[kVersionKey];
  if (version != kVersion) {
    return CorruptData("version check failed: version '" + version + "', this program reads '" +
                       kVersion + "'");
  }
  for (const char* key : {kFormatKey, kVersionKey, kChecksumKey})
    checkpoint.metadata.erase(key);
  return checkpoint;
}

Result<Checkpoint> ReadCheckpoint(const fs::path& file) {
  EQ_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadFile(file));
  auto checkpoint = ParseCheckpoint(bytes);
  if (checkpoint.ok()) return checkpoint;
  return Status(checkpoint.status().code(),
                "checkpoint " + file.string() + ": " + checkpoint.status().message());
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

// Whatever the step, and whether they are a worker's own or the run's.
std::vector<fs::path> FilesEndingIn(std::string_view ending, const fs::path& run) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(run, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(ending)) files.push_back(entry);
  }
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

std::vector<fs::path> ListOlderCheckpoints(const fs::path& run) {
  return FilesEndingIn(kOlderSuffix, run);
}

std::vector<fs::path> ListSetAside(const fs::path& run) {
  return FilesEndingIn(kSetAside, run);
}

void RemoveCheckpoints(const fs::path& run) {
  std::error_code ignored;  // a file that cannot be removed is found again by a later run
  for (const std::string_view ending : {kSuffix, kOlderSuffix, kSetAside, kUnfinished}) {
    for (const fs::path& file : FilesEndingIn(ending, run)) fs::remove(file, ignored);
  }
}

Status SaveCheckpoint(const fs::path& run, int64_t step, Checkpoint checkpoint) {
  EQ_RETURN_IF_ERROR(WriteFileAtomically(FileOf(run, step, kSuffix),
                                         SerializeCheckpoint(std::move(checkpoint))));
  RemoveAllBut(kKeep, run, kSuffix);
  return Status::Ok();
}

Status SaveWorkerCheckpoint(const fs::path& run, int64_t step, int rank,
                            Checkpoint checkpoint) {
  const std::string suffix = WorkerSuffix(rank);
  std::error_code ignored;
  for (const CheckpointFile& file : ListFiles(run, suffix)) {
    if (file.step > step) fs::remove(file.path, ignored);
  }
  EQ_RETURN_IF_ERROR(WriteFileAtomically(FileOf(run, step, suffix),
                                         SerializeCheckpoint(std::move(checkpoint))));
  RemoveAllBut(kKeep + 1, run, suffix);
  return Status::Ok();
}

Result<Checkpoint> ReadWorkerCheckpoint(const fs::path& run, int64_t step, int rank) {
  return ReadCheckpoint(FileOf(run, step, WorkerSuffix(rank)));
}

void RemoveWorkerCheckpoints(const fs::path& run, int rank) {
  RemoveAllBut(0, run, WorkerSuffix(rank));
}

namespace {

// A folder that is there and cannot be listed must not pass for one without checkpoints.
Status CheckListing(const fs::path& run) {
  std::error_code error;
  const fs::directory_iterator listing(run, error);
  if (!error || error == std::errc::no_such_file_or_directory) return Status::Ok();
  return IoError("cannot list " + run.string() + ": " + error.message());
}

}  // namespace

Result<LoadedCheckpoint> LoadNewestCheckpoint(const fs::path& run,
                                              std::vector<std::string>* complaints) {
  EQ_RETURN_IF_ERROR(CheckListing(run));
  Status newest = NotFound("no checkpoint in " + run.string());
  if (const auto older = ListOlderCheckpoints(run); !older.empty()) {
    newest = Unsupported("the checkpoints in " + run.string() + ", such as " +
                         older.front().filename().string() +
                         ", come from an older version of this program, and this one reads "
                         "checkpoint-STEP.safetensors. Go on with that version, start anew by "
                         "--overwrite, or give another --out");
  }
  const std::vector<CheckpointFile> files = ListCheckpoints(run);
  if (files.empty() && !ListSetAside(run).empty()) {
    return CorruptData("all checkpoints in " + run.string() +
                       " were damaged, and have been set aside as *" + std::string(kSetAside) +
                       ": start anew by --overwrite, or give another --out");
  }
  bool first = true;
  for (const CheckpointFile& file : files) {
    auto checkpoint = ReadCheckpoint(file.path);
    if (checkpoint.ok()) return LoadedCheckpoint{file.step, std::move(checkpoint).value()};
    // One that cannot be read now may be read the next time. A link to a disk that is not there
    // is listed and not found, and must not pass for no checkpoint.
    if (checkpoint.status().code() == StatusCode::kNotFound) {
      return IoError(checkpoint.status().message() + ", though the folder lists it");
    }
    if (checkpoint.status().code() != StatusCode::kCorruptData) return checkpoint.status();
    complaints->push_back(checkpoint.status().message());
    if (first) newest = checkpoint.status();
    first = false;
    fs::path aside = file.path;
    aside += kSetAside;
    std::error_code ignored;  // it was read already and will be found damaged again
    fs::rename(file.path, aside, ignored);
  }
  return newest;
}

}  // namespace elastiquant
