// How often workers send that reuse what they have sent before (protocol/lazy.h), on the
// problem that the rules were published with: logistic regression without minibatch noise, on
// workers whose losses are of unequal smoothness.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "elastiquant/base/status.h"

namespace elastiquant::rates {

struct LazyUploadOptions {
  size_t workers = 9;  // from 2 to 64
  double gap = 1e-6;   // of the loss from the least one, at which a run has come to its end
  uint64_t seed = 1;
};

// Worker m, from 0, has 50 samples of 50 features, and a loss whose smoothness is at most
// (1.3^m + 1)^2, with a ridge of .001, as in the synthetic problem of LAG's authors (Chen et
// al., NeurIPS 2018, section 4). All descend along the mean gradient at the rate 1 / L, with L
// the mean of these.
//
// Returns {"workers", "gap", "seed", "rows": [...]}, a row for gradient descent and each rule:
// "rule", "codec", "steps" until the gap, or null if they are more than 100,000, "uploads" of
// all workers, "uploads_by_worker", and "bytes" that all workers put on the wire, headers of
// silent ones included. Fails with kInvalidArgument for options out of range.
Result<nlohmann::ordered_json> LazyUploads(const LazyUploadOptions& options);

}  // namespace elastiquant::rates
