// A worker for tests of the reducer, with gradients, and steps over them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/net/memory/testing.h"

namespace elastiquant {

using Vectors = std::vector<std::vector<float>>;
using Lengths = std::vector<size_t>;

// Returns a coordinate of worker `rank` that needs all its bits.
inline float Rough(int rank, size_t bucket, size_t i, uint64_t step) {
  const StreamKey key = DeriveKey(7, step, static_cast<uint64_t>(rank), bucket);
  const float u = UniformFloat(RandomBits(MakeLaneKeys(key), static_cast<uint32_t>(i)));
  return std::ldexp(u - 0.5f, static_cast<int>(i % 9) - 4);
}

// Fills a worker's gradients, one vector a bucket, with such coordinates.
inline void Fill(Vectors& gradients, int rank, uint64_t step) {
  for (size_t b = 0; b < gradients.size(); ++b) {
    for (size_t i = 0; i < gradients[b].size(); ++i) gradients[b][i] = Rough(rank, b, i, step);
  }
}

// One rank's gradients and their reducer. All buckets have the same codec.
struct Worker {
  Worker(Communicator* c, const std::string& codec, const Lengths& lengths,
         std::optional<Exchange> exchange, const ReducerOptions& options = {})
      : comm(c) {
    for (const size_t n : lengths) gradients.emplace_back(n);
    std::vector<GradientBucket> buckets;
    for (auto& g : gradients) {
      buckets.push_back({g, MakeCodec(codec).value(), "layer", exchange});
    }
    reducer = GradientReducer::Create(comm, std::move(buckets), options).value();
  }
  void Fill(uint64_t step) { elastiquant::Fill(gradients, comm->rank(), step); }
  Result<StepOutcome> TryStep(uint64_t step) {
    EQ_RETURN_IF_ERROR(reducer->BeginStep(step));
    for (size_t b = 0; b < gradients.size(); ++b) EQ_RETURN_IF_ERROR(reducer->MarkReady(b));
    return reducer->Finish();
  }
  StepOutcome Step(uint64_t step) {
    const auto outcome = TryStep(step);
    EXPECT_TRUE(outcome.ok()) << outcome.status().ToString();
    return outcome.ok() ? *outcome : StepOutcome{};
  }
  // Makes a step, and returns the bytes that this worker has sent in it.
  uint64_t BytesOfStep(uint64_t step) {
    const uint64_t before = comm->traffic().bytes_up;
    EXPECT_FALSE(Step(step).skipped);
    return comm->traffic().bytes_up - before;
  }
  // Returns all that the codecs remember, by bucket and field.
  Vectors Remembered() {
    Vectors all;
    for (size_t b = 0; b < gradients.size(); ++b) {
      for (const auto field : reducer->Memory(b)) all.emplace_back(field.begin(), field.end());
    }
    return all;
  }

  Communicator* comm;
  Vectors gradients;
  std::unique_ptr<GradientReducer> reducer;
};

// Ends one of three workers within a step, before it has sent anything of it, and expects the
// others to stop and to name it.
inline void ExpectALostWorkerStopsTheOthers(const std::string& codec,
                                            std::optional<Exchange> exchange) {
  RunWorld(WorldOptions(3), [&](Communicator& comm) {
    Worker worker(&comm, codec, {5000}, exchange);
    worker.Fill(0);
    EXPECT_FALSE(worker.Step(0).skipped);
    if (comm.rank() == 1) {
      ASSERT_TRUE(worker.reducer->BeginStep(1).ok());
      comm.Abort(Internal("out of memory"));
      return;
    }
    const auto outcome = worker.TryStep(1);
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.status().code(), StatusCode::kUnavailable);
    EXPECT_NE(outcome.status().message().find("worker 1"), std::string::npos)
        << outcome.status().ToString();
  });
}

}  // namespace elastiquant
