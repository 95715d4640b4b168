#include "elastiquant/ddp/virtual_workers.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "elastiquant/ddp/engine_testing.h"
#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

// ThreadSanitizer does not see how OpenMP's threads, on which libtorch computes, wait for each
// other.
class VirtualWorkersTest : public testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

std::unique_ptr<VirtualWorkers> MakeWorkers(int workers, const std::string& codec,
                                            const DdpOptions& options = {.seed = 3}) {
  auto made = VirtualWorkers::Create(workers, Parameters(codec), options);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(made).value();
}

// The gradients of all workers in a step, with each parameter where the workers want it.
at::Tensor GradientsOf(const VirtualWorkers& workers, int step) {
  const std::vector<DdpParameter> parameters = Parameters("fp32");
  at::Tensor rows = at::empty({workers.size(), static_cast<int64_t>(workers.elements())});
  for (int w = 0; w < workers.size(); ++w) {
    for (size_t p = 0; p < parameters.size(); ++p) {
      float* values = rows[w].data_ptr<float>() + workers.offsets()[p];
      for (size_t i = 0; i < parameters[p].shape.elements; ++i) {
        values[i] = Gradient(w, step, p, i);
      }
    }
  }
  return rows;
}

TEST_F(VirtualWorkersTest, GiveTheBitsThatWorkersOfTheirOwnHave) {
  const Layout reverse = {{3, 2, 1, 0}};
  for (const std::string codec : {"dither:bits=2", "topk:ratio=0.1|ef", "qsgd:bits=4"}) {
    const int world = 3, steps = 4;
    const auto workers = MakeWorkers(world, codec);
    std::vector<at::Tensor> means;
    for (int step = 0; step < steps; ++step) {
      at::Tensor rows = GradientsOf(*workers, step);
      ASSERT_TRUE(workers->AllReduce(rows).ok()) << codec;
      for (int w = 1; w < world; ++w) EXPECT_TRUE(rows[w].equal(rows[0])) << codec;
      means.push_back(rows[0]);
    }
    const CommunicatorOptions options = WorldOptions(world);
    RunRanks(world, [&](int rank) {
      Worker worker(options, rank, codec, {.seed = 3});
      for (int step = 0; step < steps; ++step) {
        const std::vector<at::Tensor> own = worker.Step(step, reverse);
        EXPECT_TRUE(own[0].equal(means[static_cast<size_t>(step)])) << codec << " " << step;
      }
      if (rank == 0) {
        EXPECT_EQ(worker.engine->stats().traffic.bytes_up, workers->stats().traffic.bytes_up);
      }
    });
  }
}

TEST_F(VirtualWorkersTest, AverageExactlyUnderFp32) {
  for (const int world : {1, 2, 7}) {
    const auto workers = MakeWorkers(world, "fp32");
    at::Tensor rows = GradientsOf(*workers, 0);
    const at::Tensor mean = rows.mean(0);
    ASSERT_TRUE(workers->AllReduce(rows).ok());
    EXPECT_TRUE(rows[0].allclose(mean, 1e-5, 1e-6)) << world;
    EXPECT_EQ(workers->stats().steps, 1u);
  }
}

TEST_F(VirtualWorkersTest, GiveNaNToAllWhereOneHasIt) {
  const auto workers = MakeWorkers(2, "dither:bits=2");
  at::Tensor rows = GradientsOf(*workers, 0);
  rows[1][5] = std::numeric_limits<float>::infinity();
  ASSERT_TRUE(workers->AllReduce(rows).ok());
  EXPECT_TRUE(std::isnan(rows[0][5].item<float>()));
  EXPECT_EQ(workers->stats().skipped, 1u);
  rows = GradientsOf(*workers, 1);
  ASSERT_TRUE(workers->AllReduce(rows).ok());
  EXPECT_TRUE(rows.isfinite().all().item<bool>());
}

TEST_F(VirtualWorkersTest, GoOnFromAState) {
  const std::string codec = "topk:ratio=0.1|ef";
  const auto first = MakeWorkers(2, codec);
  for (int step = 0; step < 3; ++step) {
    at::Tensor rows = GradientsOf(*first, step);
    ASSERT_TRUE(first->AllReduce(rows).ok());
  }
  const auto second = MakeWorkers(2, codec);
  ASSERT_TRUE(second->LoadState(first->SaveState()).ok());
  at::Tensor expected = GradientsOf(*first, 3), found = GradientsOf(*second, 3);
  ASSERT_TRUE(first->AllReduce(expected).ok());
  ASSERT_TRUE(second->AllReduce(found).ok());
  EXPECT_TRUE(found.equal(expected));
  EXPECT_FALSE(MakeWorkers(3, codec)->LoadState(first->SaveState()).ok());

  std::vector<Sections> damaged = first->SaveState();
  damaged[1].erase("step");
  const auto third = MakeWorkers(2, codec);
  const std::vector<Sections> before = third->SaveState();
  EXPECT_EQ(third->LoadState(damaged).code(), StatusCode::kCorruptData);
  EXPECT_EQ(third->SaveState(), before) << "the first worker has none of its either";
}

TEST_F(VirtualWorkersTest, RefuseWhatTheyCannotDo) {
  const auto why = [](int workers, const std::string& codec) {
    return VirtualWorkers::Create(workers, Parameters(codec), {}).status().ToString();
  };
  EXPECT_NE(why(0, "fp32").find("1 to 64"), std::string::npos);
  EXPECT_NE(why(65, "fp32").find("1 to 64"), std::string::npos);
  EXPECT_NE(why(2, "qsdg").find("qsdg"), std::string::npos);
  const auto workers = MakeWorkers(2, "fp32");
  at::Tensor rows = GradientsOf(*workers, 0);
  EXPECT_FALSE(workers->AllReduce(rows[0]).ok());
  EXPECT_FALSE(workers->AllReduce(rows.to(at::kDouble)).ok());
  EXPECT_FALSE(workers->AllReduce(rows.narrow(1, 0, 5)).ok());
  EXPECT_TRUE(workers->AllReduce(rows).ok());
}

}  // namespace
}  // namespace elastiquant
