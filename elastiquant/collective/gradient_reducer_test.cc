#include "elastiquant/collective/gradient_reducer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/collective/chunk.h"
#include "elastiquant/collective/testing.h"

namespace elastiquant {
namespace {

using Vectors = std::vector<std::vector<float>>;

uint32_t Hash(const Vectors& vectors) {
  uint32_t crc = 0;
  for (const auto& v : vectors) {
    crc = Crc32c({reinterpret_cast<const uint8_t*>(v.data()), v.size() * sizeof(float)}, crc);
  }
  return crc;
}

// A coordinate of worker `rank`, a small whole number, so that means are exact.
float Whole(int rank, size_t bucket, size_t i) {
  return static_cast<float>(static_cast<int>((i * 7 + bucket * 3 + rank * 5) % 23) - 11);
}
float WholeMean(int world_size, size_t bucket, size_t i) {
  float sum = 0;
  for (int r = 0; r < world_size; ++r) sum += Whole(r, bucket, i);
  return sum / static_cast<float>(world_size);
}
// One that needs all its bits.
float Rough(int rank, size_t bucket, size_t i, uint64_t step) {
  const StreamKey key = DeriveKey(7, step, static_cast<uint64_t>(rank), bucket);
  const float u = UniformFloat(RandomBits(MakeLaneKeys(key), static_cast<uint32_t>(i)));
  return std::ldexp(u - 0.5f, static_cast<int>(i % 9) - 4);
}

std::vector<GradientBucket> Buckets(Vectors& vectors, const std::string& codec) {
  std::vector<GradientBucket> buckets;
  for (size_t b = 0; b < vectors.size(); ++b) {
    buckets.push_back(
        {vectors[b], MakeCodec(codec).value(), "layer" + std::to_string(b) + ".weight"});
  }
  return buckets;
}

// Every rank marks the buckets in an order of its own.
Result<StepOutcome> Step(GradientReducer& reducer, uint64_t step, size_t buckets, int rank) {
  EQ_RETURN_IF_ERROR(reducer.BeginStep(step));
  for (size_t k = 0; k < buckets; ++k) {
    const size_t b = (k + static_cast<size_t>(rank)) % buckets;
    EQ_RETURN_IF_ERROR(reducer.MarkReady(rank % 2 == 0 ? b : buckets - 1 - b));
  }
  return reducer.Finish();
}

class WorldSizes : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, WorldSizes, testing::Values(1, 2, 3, 4, 8, 16));

TEST_P(WorldSizes, ReduceToTheExactMeanUnderFp32) {
  const int world = GetParam();
  RunWorld(WorldOptions(world), [&](Communicator& comm) {
    Vectors gradients;
    for (const size_t n : {0, 1, 3, 5, 1000, 100003}) gradients.emplace_back(n);
    auto reducer = GradientReducer::Create(&comm, Buckets(gradients, "fp32"), {});
    ASSERT_TRUE(reducer.ok()) << reducer.status().ToString();
    for (uint64_t step = 0; step < 2; ++step) {
      for (size_t b = 0; b < gradients.size(); ++b) {
        for (size_t i = 0; i < gradients[b].size(); ++i) {
          gradients[b][i] = Whole(comm.rank(), b, i);
        }
      }
      const auto outcome = Step(**reducer, step, gradients.size(), comm.rank());
      ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
      ASSERT_FALSE(outcome->skipped) << outcome->reason;
      for (size_t b = 0; b < gradients.size(); ++b) {
        for (size_t i = 0; i < gradients[b].size(); ++i) {
          ASSERT_EQ(gradients[b][i], WholeMean(world, b, i)) << "bucket " << b << " at " << i;
        }
      }
    }
    EXPECT_EQ((*reducer)->TakeStats().coordinates, 2u * (0 + 1 + 3 + 5 + 1000 + 100003));
  });
}

// The hashes of all ranks' gradients after three steps of rough numbers.
std::vector<uint32_t> RunRough(int world, const std::string& codec) {
  std::vector<uint32_t> hashes(static_cast<size_t>(world));
  RunWorld(WorldOptions(world), [&](Communicator& comm) {
    Vectors gradients;
    for (const size_t n : {1, 5, 1000, 20011}) gradients.emplace_back(n);
    auto reducer = GradientReducer::Create(&comm, Buckets(gradients, codec), {.seed = 3});
    ASSERT_TRUE(reducer.ok()) << reducer.status().ToString();
    uint32_t& hash = hashes[static_cast<size_t>(comm.rank())];
    for (uint64_t step = 0; step < 3; ++step) {
      for (size_t b = 0; b < gradients.size(); ++b) {
        for (size_t i = 0; i < gradients[b].size(); ++i) {
          gradients[b][i] = Rough(comm.rank(), b, i, step);
        }
      }
      const auto outcome = Step(**reducer, step, gradients.size(), comm.rank());
      ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
      const uint32_t now = Hash(gradients);
      const auto all = comm.AllGather(now);
      ASSERT_TRUE(all.ok());
      for (const uint64_t theirs : *all) ASSERT_EQ(theirs, now) << "step " << step;
      hash = static_cast<uint32_t>(Mix64(hash ^ Mix64(now)));
    }
  });
  return hashes;
}

TEST(GradientReducer, ReplicasAndRunsAgreeBitForBitUnderEveryCodec) {
  for (const CodecInfo& codec : ListCodecs()) {
    SCOPED_TRACE(codec.spec);
    const auto first = RunRough(3, codec.spec);
    EXPECT_EQ(first, RunRough(3, codec.spec));
    EXPECT_EQ(first[0], first[1]);
    EXPECT_EQ(first[0], first[2]);
  }
}

}  // namespace
}  // namespace elastiquant
