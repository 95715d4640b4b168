#include "elastiquant/ddp/ddp_engine.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "elastiquant/ddp/engine_testing.h"
#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

TEST(DdpPayoff, SwitchesToFp32TogetherWhereCompressionDoesNotPay) {
  const auto options = WorldOptions(2);
  UsersSum sum(2);
  std::mutex mutex;
  std::vector<std::string> notices;
  std::vector<std::vector<uint64_t>> exact(2);
  std::vector<uint64_t> sent(2);
  RunRanks(2, [&](int rank) {
    DdpOptions ddp = Switching(rank, sum);
    ddp.on_notice = [&](const std::string& notice) {
      const std::lock_guard lock(mutex);
      notices.push_back(notice);
    };
    Worker worker(options, rank, "elastic:bits=8", ddp);
    uint64_t before = 0;
    for (int step = 0; step < 60; ++step) {
      const bool is_exact = step >= kFirstExact;
      const auto means = worker.Step(step, kRebuilt);
      const double error = worker.Error(means, kRebuilt, step);
      EXPECT_LT(error, .1) << step;
      EXPECT_EQ(error < 1e-6, is_exact) << step;
      const DdpStats stats = worker.engine->stats();
      exact[static_cast<size_t>(rank)].push_back(stats.exact_steps);
      if (step == kFirstExact - 1) before = stats.traffic.bytes_up;
      if (step == 59) sent[static_cast<size_t>(rank)] = stats.traffic.bytes_up - before;
    }
  });
  EXPECT_EQ(exact[0], exact[1]) << "all workers choose alike";
  EXPECT_EQ(exact[0].back(), 60 - kFirstExact) << "by the slowest";
  EXPECT_EQ(sent[0], sent[1]) << "all values are counted that the sum sends";
  ASSERT_EQ(notices.size(), 1u) << "told by one";
  EXPECT_NE(notices[0].find("does not pay"), std::string::npos) << notices[0];
}

// Through the bucket that DDP begins with and those that it goes on with, whether they are sent
// ahead or not.
TEST(DdpPayoff, WhileMomentsSayLittleNothingIsCompressed) {
  for (const std::string codec : {"dither:bits=1", "topk:ratio=0.1|ef", "powersgd:rank=1|ef"}) {
    const auto options = WorldOptions(3);
    RunRanks(3, [&](int rank) {
      Worker worker(options, rank, codec, {.measure_every = 1, .has_uncompressed = true});
      worker.offers = [](size_t) { return true; };
      const std::vector<at::Tensor> none(Parameters(codec).size());
      ASSERT_TRUE(worker.engine->SetMetric(none, /*uncompressed=*/true).ok());
      for (int step = 0; step < 6; ++step) {
        if (step == 4) {
          ASSERT_TRUE(worker.engine->SetMetric(none).ok());
        }
        const Layout& layout = step == 0 ? kFirst : kRebuilt;
        const double error = worker.Error(worker.Step(step, layout), layout, step);
        EXPECT_EQ(error < 1e-6, step < 4) << codec << " in step " << step;
      }
      EXPECT_EQ(worker.engine->stats().exact_steps, 0u) << "they do not go by DDP's all-reduce";
    });
  }
}

TEST(DdpPayoff, WhatWasHeldBackIsSentWithTheFirstStepOfFp32) {
  for (const std::string codec :
       {"topk:ratio=0.1|ef", "elastic:bits=2|ef", "powersgd:rank=1|ef"}) {
    const auto options = WorldOptions(3);
    UsersSum sum(3);
    RunRanks(3, [&](int rank) {
      Worker worker(options, rank, codec, Switching(rank, sum));
      std::vector<at::Tensor> sent;  // since the first step
      double worst = 0;
      for (int step = 0; step <= kFirstExact; ++step) {
        const auto means = worker.Step(step, kRebuilt);
        for (size_t d = 0; d < means.size(); ++d) {
          if (step == 0) sent.push_back(at::zeros_like(means[d]));
          sent[d].add_(means[d]);
        }
        worst = worker.ErrorOfSum(sent, kRebuilt, step);
        if (step == kFirstExact) continue;
        EXPECT_GT(worst, .1) << codec << ": nothing is held back";
      }
      EXPECT_EQ(worker.engine->stats().exact_steps, 1u);
      EXPECT_LT(worst, 1e-4) << codec;
    });
  }
}

TEST(DdpPayoff, MomentumGoesOnInStepsOfFp32) {
  constexpr int kLast = kFirstExact + 4;
  const auto options = WorldOptions(2);
  UsersSum sum(2);
  RunRanks(2, [&](int rank) {
    Worker worker(options, rank, "dgc:ratio=0.1,momentum=0.5", Switching(rank, sum));
    at::Tensor before;
    for (int step = 0; step <= kLast; ++step) {
      const auto means = worker.Step(step, kRebuilt);
      const at::Tensor velocity = ByParameter(means, kRebuilt)[0].clone();
      if (step > kFirstExact + 1) {
        const at::Tensor gradient = worker.Mean(step, 0);
        EXPECT_TRUE(at::allclose(velocity, .5 * before + gradient, 1e-5, 1e-5)) << step;
      }
      before = velocity;
    }
    EXPECT_EQ(worker.engine->stats().exact_steps, 5u);
  });
}

TEST(DdpPayoff, AStepOfFp32ThatIsSkippedLeavesTheMemory) {
  const auto options = WorldOptions(2);
  UsersSum sum(2);
  RunRanks(2, [&](int rank) {
    Worker worker(options, rank, "topk:ratio=0.1|ef", Switching(rank, sum));
    for (int step = 0; step < kFirstExact; ++step) (void)worker.Step(step, kRebuilt);
    const Sections before = worker.engine->SaveState();
    (void)worker.Step(kFirstExact, kRebuilt, at::kFloat, rank == 1);
    EXPECT_EQ(worker.engine->stats().exact_steps, 1u);
    for (const auto& [name, section] : worker.engine->SaveState()) {
      if (name.find("memory/") == std::string::npos) continue;
      EXPECT_EQ(section, before.at(name)) << name;
    }
  });
}

TEST(DdpPayoff, ALostWorkerIsNamedInAStepOfFp32) {
  const auto options = WorldOptions(2);
  UsersSum sum(2);
  RunRanks(2, [&](int rank) {
    Worker worker(options, rank, "topk|ef", Switching(rank, sum));
    for (int step = 0; step < kFirstExact + 2; ++step) (void)worker.Step(step, kRebuilt);
    if (rank == 1) {  // one bucket of two, and then no more
      (void)worker.engine->Reduce(0, false, at::zeros({5004}), kRebuilt[0]);
      worker.engine->Close();
      return;
    }
    try {
      (void)worker.Step(kFirstExact + 2, kRebuilt);
      ADD_FAILURE() << "nothing was raised";
    } catch (const c10::DistBackendError& e) {
      EXPECT_NE(std::string(e.what()).find("worker 1"), std::string::npos) << e.what();
    }
  });
}

TEST(DdpPayoff, AFailingAllReduceOfTheUsersEndsTheStepWithItsWords) {
  auto options = WorldOptions(2);
  options.timeout = std::chrono::milliseconds(1000);
  UsersSum sum(2);
  RunRanks(2, [&](int rank) {
    Worker worker(options, rank, "topk|ef", Switching(rank, sum));
    for (int step = 0; step < kFirstExact + 2; ++step) (void)worker.Step(step, kRebuilt);
    if (rank == 0) sum.fails = true;
    try {
      (void)worker.Step(kFirstExact + 2, kRebuilt);
      ADD_FAILURE() << "nothing was raised";
    } catch (const std::exception& e) {
      EXPECT_NE(std::string(e.what()).find("process group failed: Connection reset"),
                std::string::npos)
          << e.what();
    }
  });
}

}  // namespace
}  // namespace elastiquant
