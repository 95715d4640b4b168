// Checkpoint files: named sections of bytes under one checksum, written so that a crash at any
// moment leaves either the old files or the new one, whole.
//
//   u32 magic "EQCK", u32 version, u64 payload bytes, u32 CRC-32C of the payload, then the
//   payload: u32 section count; for each u16 name length, name, u64 size, bytes. Little endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Sections by name, such as "progress" or "parameter/fc.weight".
using Checkpoint = std::map<std::string, std::vector<uint8_t>>;

std::vector<uint8_t> SerializeCheckpoint(const Checkpoint& checkpoint);
// Errors: CorruptData naming the check that failed (size, magic, version, length, checksum).
Result<Checkpoint> ParseCheckpoint(std::span<const uint8_t> bytes);

// Errors: NotFound, IoError, and those of ParseCheckpoint, each with the file's path.
Result<Checkpoint> ReadCheckpoint(const std::filesystem::path& file);

// Replaces `file` by `bytes` atomically: a temporary file, synced and renamed, and the folder
// synced.
Status WriteFileAtomically(const std::filesystem::path& file, std::span<const uint8_t> bytes);

struct CheckpointFile {
  int64_t step = 0;
  std::filesystem::path path;
};
// The checkpoints of a run, newest first.
std::vector<CheckpointFile> ListCheckpoints(const std::filesystem::path& run);

// Writes run/checkpoint-STEP.eqc, then removes all but the newest two, so that there is a good
// one left should the newest prove damaged.
Status SaveCheckpoint(const std::filesystem::path& run, int64_t step,
                      const Checkpoint& checkpoint);

// What belongs to one worker alone: run/checkpoint-STEP.worker-RANK.eqc, on that worker's own
// machine. Written before the run's checkpoint of the same step; all but the newest three are
// removed, so that there is one for each of those that the run keeps.
Status SaveWorkerCheckpoint(const std::filesystem::path& run, int64_t step, int rank,
                            const Checkpoint& checkpoint);
// Errors: those of ReadCheckpoint.
Result<Checkpoint> ReadWorkerCheckpoint(const std::filesystem::path& run, int64_t step,
                                        int rank);
void RemoveWorkerCheckpoints(const std::filesystem::path& run, int rank);

// The newest checkpoint that passes its checks. Those that fail are renamed to *.corrupt and
// what was wrong with them is added to `complaints`. Errors: NotFound if there is none at all,
// the newest one's error if none passes.
struct LoadedCheckpoint {
  int64_t step = 0;
  Checkpoint contents;
};
Result<LoadedCheckpoint> LoadNewestCheckpoint(const std::filesystem::path& run,
                                              std::vector<std::string>* complaints);

}  // namespace elastiquant
