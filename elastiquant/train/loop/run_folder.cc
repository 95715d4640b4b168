#include "elastiquant/train/loop/run_folder.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "elastiquant/base/json_text.h"
#include "elastiquant/base/stopwatch.h"
#include "elastiquant/runs/checkpoint.h"
#include "elastiquant/runs/file.h"
#include "elastiquant/train/fingerprint.h"
#include "elastiquant/train/gradient_dump.h"

namespace elastiquant {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr char kBucketKib[] = "--bucket-kib";
constexpr char kSummaryFile[] = "summary.json";

// Texts of a checkpoint.
constexpr char kProgress[] = "progress";
constexpr char kWeightsHash[] = "weights-hash";
constexpr char kIdentity[] = "identity";

}  // namespace

Status MakeRunFolder(const TrainOptions& options) {
  EQ_RETURN_IF_ERROR(MakeFolder(options.out));
  if (options.resume || options.overwrite) return Status::Ok();
  if (!ListOlderCheckpoints(options.out).empty() || !ListCheckpoints(options.out).empty()) {
    return InvalidArgument(options.out +
                           " holds checkpoints of a run; go on with it by --resume, replace it "
                           "by --overwrite, or give another --out");
  }
  std::error_code ignored;
  if (fs::exists(fs::path(options.out) / kSummaryFile, ignored)) {
    return InvalidArgument(options.out +
                           " holds a run that has ended; replace it by --overwrite, or give "
                           "another --out");
  }
  return Status::Ok();
}

void ClearRunFolder(const TrainOptions& options) {
  RemoveCheckpoints(options.out);
  RemoveGradientDumps(fs::path(options.out) / kGradientFolder);
  std::error_code ignored;
  fs::remove(fs::path(options.out) / kSummaryFile, ignored);
}

namespace {

// What SaveRun has saved of a run beside its weights.
Result<json> ProgressOf(const Checkpoint& checkpoint) {
  const auto text = checkpoint.metadata.find(kProgress);
  if (text == checkpoint.metadata.end()) {
    return CorruptData("checkpoint: progress is missing");
  }
  json saved = json::parse(text->second, nullptr, /*allow_exceptions=*/false);
  if (!saved.is_object()) return CorruptData("checkpoint: progress is not JSON");
  return saved;
}

// Fails if the run was started with options that make another run of it. Notes those that only
// round its numbers in another way.
Status CheckOptions(const TrainOptions& options, const json& saved, json before,
                    const json& now, Progress* progress) {
  if (const json was = std::exchange(before[kBucketKib], now[kBucketKib]);
      was != now[kBucketKib]) {
    if (!options.bits_policy.empty()) {
      return InvalidArgument("the run in " + options.out + " had --bucket-kib " + was.dump() +
                             ", and --bits-policy remembers its buckets: give it as it was");
    }
    progress->Note("warning: the run had --bucket-kib " + was.dump() + " and goes on with " +
                   now[kBucketKib].dump() +
                   ": other numbers round its gradients than would have without a break");
  }
  const std::string differences = CompareFingerprints(before, now);
  if (!differences.empty()) {
    return InvalidArgument("the run in " + options.out + " was started with other options: " +
                           differences + ". Give them as they were, or another --out");
  }
  if (const int threads = saved.at("threads"); threads != at::get_num_threads()) {
    progress->Note(
        fmt::format("warning: the run had --threads {} and goes on with {}: sums may "
                    "differ in their last bits from an uninterrupted run",
                    threads, at::get_num_threads()));
  }
  return Status::Ok();
}

// Checkpoints of earlier versions do not have the number.
Status CheckSamples(const TrainOptions& options, const json& saved, int64_t now) {
  const int64_t was = saved.value("samples", now);
  if (was == now) return Status::Ok();
  return InvalidArgument(fmt::format(
      "the run in {} was started on {} training samples, and --data has {} now: bring "
      "the old ones back, or give another --out",
      options.out, was, now));
}

void TakeUp(const json& saved, RunState* state) {
  state->record.LoadState(saved.at("record"));
  state->skipped_in_a_row = saved.at("skipped_in_a_row");
  state->step = saved.at("step");
  state->rounds = saved.value("rounds", uint64_t{0});
  state->uploads = saved.value("uploads", std::vector<uint64_t>());
  state->codec = saved.value("codec", "");
  state->losses = saved.value("losses", json::array());
  state->absent = saved.value("absent", std::vector<int>());
  state->certificate = saved.value("certificate", json());
}

}  // namespace

Status LoadRun(const TrainOptions& options, int world_size, Replica* replica, RunState* state,
               Progress* progress) {
  std::vector<std::string> complaints;
  const auto loaded = LoadNewestCheckpoint(options.out, &complaints);
  if (loaded.status().code() == StatusCode::kNotFound) {
    progress->Note("no checkpoint in " + options.out + " yet: starting from step 0");
    return Status::Ok();
  }
  if (!loaded.ok()) return loaded.status();
  for (const std::string& complaint : complaints) progress->Note("warning: " + complaint);

  EQ_ASSIGN_OR_RETURN(const json saved, ProgressOf(loaded->contents));
  try {
    const json& before = saved.at("fingerprint");
    if (options.init.empty()) state->init = before.value("--init", "");  // it is in the weights
    const json now = Fingerprint(options, world_size, state->init, state->edges);
    EQ_RETURN_IF_ERROR(CheckOptions(options, saved, before, now, progress));
    EQ_RETURN_IF_ERROR(CheckSamples(options, saved, state->samples));
    TakeUp(saved, state);
  } catch (const json::exception& error) {
    return CorruptData("the checkpoint in " + options.out +
                       " lacks a part of its progress: " + error.what());
  }
  EQ_RETURN_IF_ERROR(replica->Load(loaded->contents));
  progress->Note(fmt::format("resuming {} after step {}{}", options.out, state->step,
                             complaints.empty() ? "" : ", from the checkpoint before"));
  return Status::Ok();
}

Status SaveRun(const TrainOptions& options, int world_size, const Replica& replica,
               RunState* state) {
  const Stopwatch watch;
  Checkpoint checkpoint;
  replica.Save(&checkpoint);
  checkpoint.metadata[kProgress] =
      JsonText({{"step", state->step},
                {"skipped_in_a_row", state->skipped_in_a_row},
                {"codec", state->codec},
                {"rounds", state->rounds},
                {"uploads", state->uploads},
                {"certificate", state->certificate},
                {"losses", state->losses},
                {"absent", state->absent},
                {"samples", state->samples},
                {"threads", at::get_num_threads()},
                {"fingerprint", Fingerprint(options, world_size, state->init, state->edges)},
                {"record", state->record.SaveState()}});
  EQ_RETURN_IF_ERROR(SaveCheckpoint(options.out, state->step, std::move(checkpoint)));
  state->record.AddOverhead(0, watch.Seconds());
  return Status::Ok();
}

namespace {

Status CheckWorker(Checkpoint* loaded, const StateIdentity& mine, const Replica& replica) {
  EQ_RETURN_IF_ERROR(CheckIdentity(AsBytes(loaded->metadata[kIdentity]), mine));
  if (loaded->metadata[kWeightsHash] == std::to_string(replica.Hash())) return Status::Ok();
  return CorruptData("it does not go with the run's weights");
}

}  // namespace

Status SaveWorker(const TrainOptions& options, const StateIdentity& mine, int64_t step,
                  const Replica& replica, Checkpoint checkpoint) {
  EQ_RETURN_IF_ERROR(MakeFolder(options.out));  // on another machine than worker 0's
  const std::vector<uint8_t> identity = IdentitySection(mine);
  checkpoint.metadata[kIdentity].assign(identity.begin(), identity.end());
  checkpoint.metadata[kWeightsHash] = std::to_string(replica.Hash());
  return SaveWorkerCheckpoint(options.out, step, mine.rank, std::move(checkpoint));
}

Result<Checkpoint> LoadWorker(const TrainOptions& options, const StateIdentity& mine,
                              int64_t step, const Replica& replica) {
  Result<Checkpoint> loaded = ReadWorkerCheckpoint(options.out, step, mine.rank);
  Status status = loaded.status();
  if (status.ok()) {
    status = CheckWorker(&*loaded, mine, replica);
    if (status.ok()) return loaded;
    status = {status.code(), "the memory of worker " + std::to_string(mine.rank) + " at step " +
                                 std::to_string(step) + " in " + options.out + ": " +
                                 status.message()};
  }
  return Status(status.code(),
                status.message() +
                    ". It has what this worker's codec remembers; --forget-memory goes on "
                    "without. To go on from the run's checkpoint before this one, if there is "
                    "one, take checkpoint-" +
                    std::to_string(step) + ".safetensors out of worker 0's --out");
}

}  // namespace elastiquant
