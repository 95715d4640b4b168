// What a run's weights depend on, by which a checkpoint is known to be of the same run.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "elastiquant/base/status.h"
#include "elastiquant/train/train_options.h"

namespace elastiquant {

// Returns the options that the weights depend on, by option name. Two runs with equal
// fingerprints on the same machine give the same weights. A checkpoint is only resumed by a run
// whose fingerprint is its own but for --bucket-kib. `init` is what LoadInitialWeights says of
// --init's file, and `edges` what DescribeEdges says of --graph's, which may lie at any path.
nlohmann::json Fingerprint(const TrainOptions& options, int world_size,
                           const std::string& init = "", const std::string& edges = "");

// Returns text that tells the edges of --graph's file from any others. It is empty if --graph
// names no file. Fails as Graph::Parse does.
Result<std::string> DescribeEdges(const TrainOptions& options, int world_size);

// Says which entries differ, such as "--lr was 0.1 and is 0.2". The text is empty if none does.
std::string CompareFingerprints(const nlohmann::json& saved, const nlohmann::json& now);

// Returns the options in which all workers of a run must be alike, by option name: those of the
// fingerprint, and those that say when workers meet. Paths may differ between machines, and so
// may the devices of --compute.
nlohmann::json OptionsOfAll(const TrainOptions& options, int world_size,
                            const std::string& edges);
// Fails with InvalidArgument, which says in which of them the worker of that name differs from
// another one, such as "--lr is 0.2 and not 0.1".
Status CheckAlike(int worker, const nlohmann::json& others, const nlohmann::json& mine);

}  // namespace elastiquant
