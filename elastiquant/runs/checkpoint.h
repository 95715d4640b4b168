// Checkpoints are safetensors files whose metadata has a checksum of the whole file. They are
// written so that a crash at any moment leaves either the old files or the new one, whole.
//
// "crc32c" in the metadata is the CRC-32C of all bytes of the file, taken with "00000000" in
// the place of its own eight hexadecimal digits. "checkpoint_version" is "2", "format" is "pt".
// All else belongs to whoever saves: tensors by name, and texts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/runs/safetensors.h"

namespace elastiquant {

// What a checkpoint holds, without the three keys above.
using Checkpoint = Safetensors;

std::vector<uint8_t> SerializeCheckpoint(Checkpoint checkpoint);
// Whether a file is one of SerializeCheckpoint's, that is, whether it has a checksum to be held
// to.
bool IsCheckpoint(const Safetensors& file);
// Fails as ParseSafetensors does, and with CorruptData, which names the check that failed
// (checksum or version).
Result<Checkpoint> ParseCheckpoint(std::span<const uint8_t> bytes);

// Fails as ReadFile and ParseCheckpoint do; each error has the file's path.
Result<Checkpoint> ReadCheckpoint(const std::filesystem::path& file);

// Where the checkpoint of a step is.
struct CheckpointFile {
  int64_t step = 0;
  std::filesystem::path path;
};
// Returns the checkpoints of a run, newest first.
std::vector<CheckpointFile> ListCheckpoints(const std::filesystem::path& run);

// Returns those that were written before checkpoints were safetensors, workers' own among them.
std::vector<std::filesystem::path> ListOlderCheckpoints(const std::filesystem::path& run);

// Removes all checkpoints of a run: workers' own, older ones and those set aside among them.
void RemoveCheckpoints(const std::filesystem::path& run);

// Writes run/checkpoint-STEP.safetensors, then removes all but the newest two, so that there is
// a good one left should the newest prove damaged.
Status SaveCheckpoint(const std::filesystem::path& run, int64_t step, Checkpoint checkpoint);

// Writes what belongs to one worker alone to run/checkpoint-STEP.worker-RANK.safetensors, on
// that worker's own machine. Must be called before the run's checkpoint of the same step is
// written. Those of later steps are removed: the run goes on from an earlier one. So are all
// but the newest three, so that there is one for each of those that the run keeps.
Status SaveWorkerCheckpoint(const std::filesystem::path& run, int64_t step, int rank,
                            Checkpoint checkpoint);
// Reads what SaveWorkerCheckpoint wrote. Fails as ReadCheckpoint does.
Result<Checkpoint> ReadWorkerCheckpoint(const std::filesystem::path& run, int64_t step,
                                        int rank);
// Removes all checkpoints of one worker.
void RemoveWorkerCheckpoints(const std::filesystem::path& run, int rank);

// Returns the checkpoints that LoadNewestCheckpoint has found damaged and renamed.
std::vector<std::filesystem::path> ListSetAside(const std::filesystem::path& run);

// A checkpoint that passed its checks.
struct LoadedCheckpoint {
  int64_t step = 0;
  Checkpoint contents;
};
// Returns the newest checkpoint that passes its checks. Those that fail are renamed to
// *.corrupt, and what was wrong with them is added to `complaints`. Fails with NotFound if
// there is none at all, with Unsupported if there are only older ones, with CorruptData if none
// passes or all were set aside before, and as ReadFile does if one cannot be read: that one may
// be intact, and stays where it is.
Result<LoadedCheckpoint> LoadNewestCheckpoint(const std::filesystem::path& run,
                                              std::vector<std::string>* complaints);

}  // namespace elastiquant
