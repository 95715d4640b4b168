#include "elastiquant/ddp/ddp_engine.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/ddp/engine_testing.h"
#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

// The values of each parameter.
std::vector<at::Tensor> ByParameter(const std::vector<at::Tensor>& buckets,
                                    const Layout& layout) {
  const std::vector<DdpParameter> parameters = Parameters("fp32");
  std::vector<at::Tensor> values(parameters.size());
  for (size_t d = 0; d < layout.size(); ++d) {
    int64_t at = 0;
    for (const size_t p : layout[d]) {
      const auto size = static_cast<int64_t>(parameters[p].shape.elements);
      values[p] = buckets[d].narrow(0, at, size);
      at += size;
    }
  }
  return values;
}

// The state after so many steps.
Sections RunFor(Worker& worker, int steps) {
  for (int step = 0; step < steps; ++step) (void)worker.Step(step, kFirst);
  return worker.engine->SaveState();
}

std::vector<std::string> Keys(const Sections& sections) {
  std::vector<std::string> keys;
  for (const auto& [name, section] : sections) keys.push_back(name);
  return keys;
}

// What all ranks came to must be the same bits.
class Replicas {
 public:
  void Compare(const std::vector<at::Tensor>& means) {
    const std::lock_guard lock(mutex_);
    std::vector<at::Tensor> copy;
    for (const at::Tensor& t : means) copy.push_back(t.clone());
    if (first_.empty()) first_ = copy;
    ASSERT_EQ(first_.size(), copy.size());
    for (size_t i = 0; i < copy.size(); ++i) EXPECT_TRUE(at::equal(first_[i], copy[i]));
  }

 private:
  std::mutex mutex_;
  std::vector<at::Tensor> first_;
};

TEST(DdpEngine, AveragesExactlyInFp32ThroughARebuild) {
  for (const int world : {1, 2, 3}) {
    const auto options = WorldOptions(world);
    RunRanks(world, [&](int rank) {
      Worker worker(options, rank, "fp32");
      for (int step = 0; step < 5; ++step) {
        const Layout& layout = step == 0 ? kFirst : kRebuilt;
        const auto means = worker.Step(step, layout);
        EXPECT_LT(worker.Error(means, layout, step), 1e-6)
            << world << " workers, step " << step;
      }
      EXPECT_EQ(worker.engine->stats().steps, 5u);
    });
  }
}

TEST(DdpEngine, ReplicasAreTheSameBitsAndNearTheMean) {
  // With the greatest error of a coordinate that is still plausible: gradients are within 1.
  const std::pair<const char*, double> codecs[] = {
      {"elastic:bits=8", .2}, {"dither:bits=6", .2},        {"qsgd:bits=8,bucket=64", .2},
      {"alq:bits=8", 2},      {"powersgd:rank=4|ef", 1.01}, {"topk:ratio=0.9", .2}};
  for (const auto& entry : codecs) {
    const char* const codec = entry.first;  // clang's lambdas capture no structured bindings
    const double worst = entry.second;
    const auto options = WorldOptions(3);
    std::vector<Replicas> replicas(4);
    RunRanks(3, [&](int rank) {
      Worker worker(options, rank, codec);
      for (int step = 0; step < 4; ++step) {
        const Layout& layout = step == 0 ? kFirst : kRebuilt;
        const auto means = worker.Step(step, layout);
        replicas[static_cast<size_t>(step)].Compare(means);
        EXPECT_LT(worker.Error(means, layout, step), worst) << codec;
      }
      const DdpStats stats = worker.engine->stats();
      EXPECT_GT(stats.traffic.bytes_up, 0u);
      EXPECT_GT(stats.fp32_bytes_up, stats.traffic.bytes_up * 9 / 10) << codec;
    });
  }
}

// DDP frees its buckets when it rebuilds them, which must not wait for the engine's next step.
TEST(DdpEngine, LetsGoOfTensorsWhenAStepIsOver) {
  const auto options = WorldOptions(2);
  RunRanks(2, [&](int rank) {
    Worker worker(options, rank, "elastic:bits=4");
    for (int step = 0; step < 4; ++step) {
      const std::vector<at::Tensor> means = worker.Step(step, step < 1 ? kFirst : kRebuilt);
      for (const at::Tensor& mean : means) {
        // The thread that completed the future may not have returned yet.
        for (int tries = 0; mean.use_count() > 1 && tries < 5000; ++tries) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        EXPECT_EQ(mean.use_count(), 1u) << "step " << step;
      }
    }
  });
}

TEST(DdpEngine, TakesHalfPrecision) {
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const auto options = WorldOptions(2);
    RunRanks(2, [&](int rank) {
      Worker worker(options, rank, "elastic:bits=8");
      for (int step = 0; step < 3; ++step) {
        const auto means = worker.Step(step, kRebuilt, type);
        EXPECT_EQ(means[0].scalar_type(), type);
        EXPECT_LT(worker.Error(means, kRebuilt, step), .1);
      }
    });
  }
}

TEST(DdpEngine, RefusesDoubles) {
  Worker worker(WorldOptions(1), 0, "fp32");
  EXPECT_THROW(worker.Step(0, kFirst, at::kDouble), c10::Error);
  EXPECT_THROW(worker.Step(1, kFirst), c10::Error) << "and does not go on as if nothing was";
}

TEST(DdpEngine, ANanOnOneWorkerIsNanOnAllAndIsForgotten) {
  const auto options = WorldOptions(2);
  RunRanks(2, [&](int rank) {
    Worker worker(options, rank, "elastic:bits=8|ef");
    for (int step = 0; step < 3; ++step) (void)worker.Step(step, kRebuilt);
    const auto poisoned = worker.Step(3, kRebuilt, at::kFloat, rank == 1);
    EXPECT_TRUE(at::isnan(poisoned[0]).any().item<bool>());
    EXPECT_EQ(worker.engine->stats().skipped, 1u);
    EXPECT_NE(worker.engine->stats().skip_reason.find("worker 1"), std::string::npos);
    const auto means = worker.Step(4, kRebuilt);
    EXPECT_LT(worker.Error(means, kRebuilt, 4), .1);
  });
}

TEST(DdpEngine, MemoryOutlivesBucketsAndProcesses) {
  const auto options = WorldOptions(2), resumed_options = WorldOptions(2);
  RunRanks(2, [&](int rank) {
    Worker whole(options, rank, "elastic:bits=2|ef");
    for (int step = 0; step < 3; ++step) (void)whole.Step(step, step < 2 ? kFirst : kRebuilt);
    const Sections state = whole.engine->SaveState();
    const auto after = whole.Step(3, kRebuilt);

    Worker resumed(resumed_options, rank, "elastic:bits=2|ef");
    ASSERT_TRUE(resumed.engine->LoadState(state).ok());
    EXPECT_EQ(resumed.engine->SaveState(), state) << "before the first step too";
    const auto again = resumed.Step(3, kRebuilt);
    for (size_t d = 0; d < after.size(); ++d) EXPECT_TRUE(at::equal(after[d], again[d]));
    EXPECT_EQ(resumed.engine->SaveState(), whole.engine->SaveState());
  });
}

TEST(DdpEngine, GoesOnAsItWouldHaveThoughDdpHasItsFirstBuckets) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto options = WorldOptions(2), resumed_options = WorldOptions(2);
    RunRanks(2, [&](int rank) {
      Worker whole(options, rank, "elastic:bits=2|ef");
      for (int step = 0; step < 3; ++step) {
        (void)whole.Step(step, step < 1 ? kFirst : kRebuilt, type);
      }
      const Sections state = whole.engine->SaveState();

      Worker resumed(resumed_options, rank, "elastic:bits=2|ef");
      ASSERT_TRUE(resumed.engine->LoadState(state).ok());
      for (int step = 3; step < 6; ++step) {
        const Layout& layout = step < 4 ? kFirst : kRebuilt;
        const auto after = ByParameter(whole.Step(step, kRebuilt, type), kRebuilt);
        const auto again = ByParameter(resumed.Step(step, layout, type), layout);
        for (size_t p = 0; p < after.size(); ++p) EXPECT_TRUE(at::equal(after[p], again[p]));
      }
      const Sections last = whole.engine->SaveState();
      EXPECT_EQ(resumed.engine->SaveState(), last);
      resumed.engine->Close();
      EXPECT_EQ(resumed.engine->SaveState(), last) << "closed";
      EXPECT_GT(resumed.engine->stats().traffic.bytes_up, 0u);
    });
  }
}

TEST(DdpEngine, ADamagedStateIsRefusedAndChangesNothing) {
  Worker worker(WorldOptions(1), 0, "topk|ef");
  EXPECT_EQ(Keys(worker.engine->SaveState()), Keys(RunFor(worker, 1)))
      << "the same before the first step";
  const Sections state = worker.engine->SaveState();
  for (const std::string layout : {"[[\"conv.weight\"], [\"other\"]]", "{", "3"}) {
    Sections damaged = state;
    damaged["layout"].assign(layout.begin(), layout.end());
    EXPECT_EQ(worker.engine->LoadState(damaged).code(), StatusCode::kCorruptData) << layout;
  }
  Worker fresh(WorldOptions(1), 0, "topk|ef");
  for (Worker* to : {&worker, &fresh}) {
    (void)RunFor(worker, 1);
    const Sections before = to->engine->SaveState();
    for (const auto& [name, section] : state) {
      Sections damaged = state;
      damaged.erase(name);
      const Status status = to->engine->LoadState(damaged);
      EXPECT_EQ(status.code(), StatusCode::kCorruptData) << name;
      EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
      EXPECT_EQ(to->engine->SaveState(), before);
    }
  }
}

TEST(DdpEngine, StateOfAnotherWorkerOrCodecIsRefused) {
  const auto options = WorldOptions(2);
  std::vector<Sections> states(2);
  RunRanks(2, [&](int rank) {
    Worker worker(options, rank, "elastic:bits=2|ef");
    states[static_cast<size_t>(rank)] = RunFor(worker, 2);
  });
  const auto said = [](const std::shared_ptr<DdpEngine>& engine, const Sections& state) {
    const Status status = engine->LoadState(state);
    EXPECT_EQ(status.code(), StatusCode::kCorruptData);
    return status.message();
  };
  const auto again = WorldOptions(2);
  RunRanks(2, [&](int rank) {
    Worker worker(again, rank, "elastic:bits=2|ef");
    const auto other = static_cast<size_t>(1 - rank);
    EXPECT_NE(
        said(worker.engine, states[other]).find("saved by worker " + std::to_string(other)),
        std::string::npos);
    EXPECT_TRUE(worker.engine->LoadState(states[1 - other]).ok());
  });
  Worker alone(WorldOptions(1), 0, "elastic:bits=2|ef");
  EXPECT_NE(said(alone.engine, states[0]).find("one of 2 workers"), std::string::npos);
  Worker alq(WorldOptions(1), 0, "alq:bits=4"), topk(WorldOptions(1), 0, "topk|ef");
  EXPECT_NE(said(alq.engine, RunFor(topk, 1)).find("codec of 'conv.weight' was 'topk|ef'"),
            std::string::npos);
}

TEST(DdpEngine, CertifiesItsLayers) {
  const auto options = WorldOptions(2);
  RunRanks(2, [&](int rank) {
    Worker worker(options, rank, "elastic:bits=4,levels=exp");
    for (int step = 0; step < 12; ++step) (void)worker.Step(step, kRebuilt);
    const auto lines = worker.engine->Layers();
    ASSERT_EQ(lines.size(), 3u) << "two layers, and all";
    for (const auto& line : lines) {
      EXPECT_GT(line["nmse"], 0);
      EXPECT_EQ(line["verdict"], "holds");
    }
    worker.engine->ResetStats();
    EXPECT_EQ(worker.engine->stats().steps, 0u);
    EXPECT_TRUE(worker.engine->Layers().empty());

    (void)worker.Step(12, kRebuilt);
    const auto latest = worker.engine->Layers();
    worker.engine->Close();
    EXPECT_EQ(latest.size(), 3u);
    EXPECT_EQ(worker.engine->Layers(), latest);
    worker.engine->ResetStats();
    EXPECT_TRUE(worker.engine->Layers().empty());
  });
}

TEST(DdpEngine, WhatWasMeasuredOfLayersOutlivesARebuild) {
  const auto options = WorldOptions(2);
  RunRanks(2, [&](int rank) {
    Worker worker(options, rank, "elastic:bits=4,levels=exp", {.measure_every = 50});
    const auto errors = [&] {
      std::map<std::string, double> by_layer;
      for (const auto& line : worker.engine->Layers()) by_layer[line["layer"]] = line["nmse"];
      return by_layer;
    };
    (void)worker.Step(0, kFirst);
    const auto measured = errors();
    EXPECT_EQ(measured.size(), 3u);
    (void)worker.Step(1, kRebuilt);
    EXPECT_EQ(errors(), measured);
  });
}

TEST(DdpEngine, SwitchesToFp32TogetherWhereCompressionDoesNotPay) {
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
TEST(DdpEngine, WhileMomentsSayLittleNothingIsCompressed) {
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

TEST(DdpEngine, WhatWasHeldBackIsSentWithTheFirstStepOfFp32) {
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

TEST(DdpEngine, MomentumGoesOnInStepsOfFp32) {
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

TEST(DdpEngine, AStepOfFp32ThatIsSkippedLeavesTheMemory) {
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

TEST(DdpEngine, MemoryFollowsTheUnitsOfTheGradient) {
  for (const std::string codec : {"qsgdv:bits=3|ef", "dgc:ratio=0.1", "powersgd:rank=1|ef"}) {
    const auto options = WorldOptions(2), scaled_options = WorldOptions(2);
    RunRanks(2, [&](int rank) {
      Worker plain(options, rank, codec), scaled(scaled_options, rank, codec);
      for (int step = 0; step < 8; ++step) {
        scaled.scale = step < 3 ? 4 : step < 6 ? 64 : 8;
        ASSERT_TRUE(scaled.engine->SetUnits(std::vector<double>(4, 1 / scaled.scale)).ok());
        const auto expected = plain.Step(step, kRebuilt), found = scaled.Step(step, kRebuilt);
        for (size_t d = 0; d < expected.size(); ++d) {
          EXPECT_TRUE(at::equal(found[d], scaled.scale * expected[d])) << codec << " " << step;
        }
        if (step != 4) continue;  // the state tells its units
        const Sections state = scaled.engine->SaveState();
        ASSERT_TRUE(scaled.engine->SetUnits(std::vector<double>(4, 1)).ok());
        ASSERT_TRUE(scaled.engine->LoadState(state).ok());
      }
    });
  }
  Worker worker(WorldOptions(1), 0, "topk|ef");
  EXPECT_EQ(worker.engine->SetUnits({1, 1, 1}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(worker.engine->SetUnits({1, 1, 1, -1}).code(), StatusCode::kInvalidArgument);
}

// What the state remembers of one parameter.
Sections MemoryOf(const Sections& state, const std::string& parameter) {
  Sections memory;
  for (const auto& [name, section] : state) {
    if (name.find("memory/") != std::string::npos && name.ends_with(parameter)) {
      memory[name] = section;
    }
  }
  return memory;
}

TEST(DdpEngine, WhatIsNotAppliedIsNotForgotten) {
  for (const std::string codec : {"elastic:bits=2|ef", "dgc:ratio=0.1", "powersgd:rank=1|ef"}) {
    const auto options = WorldOptions(2);
    UsersSum sum(2);
    RunRanks(2, [&](int rank) {
      DdpOptions ddp = Switching(rank, sum);
      ddp.may_discard = true;
      Worker worker(options, rank, codec, ddp);
      for (int step = 0; step <= kFirstExact; ++step) {
        const Sections before = worker.engine->SaveState();
        const bool is_unused = step == 4 || step == kFirstExact, has_rate = step != 6;
        worker.unused = is_unused ? std::set<size_t>{0} : std::set<size_t>{};
        ASSERT_TRUE(worker.engine->SetUnits({has_rate ? 1. : 0., 1, 1, 1}).ok());
        (void)worker.Step(step, kRebuilt);
        if (is_unused) worker.engine->RestoreMemory({0});
        const Sections after = worker.engine->SaveState();
        const bool stays = is_unused || !has_rate;
        const auto same = [&](const std::string& parameter) {
          return MemoryOf(after, parameter) == MemoryOf(before, parameter);
        };
        EXPECT_EQ(same("conv.weight"), stays) << codec << ", step " << step;
        EXPECT_FALSE(same("fc.weight")) << codec << ", step " << step;
      }
      EXPECT_EQ(worker.engine->stats().exact_steps, 1u);
    });
  }
}

TEST(DdpEngine, ALostWorkerIsNamedInAStepOfFp32) {
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

TEST(DdpEngine, AFailingAllReduceOfTheUsersEndsTheStepWithItsWords) {
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

TEST(DdpEngine, AWorkerThatClosesEndsTheOthers) {
  const auto options = WorldOptions(2);
  RunRanks(2, [&](int rank) {
    Worker worker(options, rank, "elastic:bits=4|ef");
    for (int step = 0; step < 3; ++step) (void)worker.Step(step, kRebuilt);
    const Sections state = worker.engine->SaveState();
    if (rank == 1) {
      // One bucket of two, and then no more.
      (void)worker.engine->Reduce(0, false, at::zeros({5004}), kRebuilt[0]);
      worker.engine->Close();
      EXPECT_EQ(worker.engine->SaveState(), state) << "what was remembered before the step";
      EXPECT_THROW(worker.Step(4, kRebuilt), c10::Error);
    } else {
      try {
        (void)worker.Step(3, kRebuilt);
        ADD_FAILURE() << "nothing was raised";
      } catch (const c10::Error& e) {
        EXPECT_NE(std::string(e.what()).find("worker 1"), std::string::npos) << e.what();
      }
    }
  });
}

TEST(DdpEngine, OffersAreSentEarlyAndChangeNoBit) {
  const std::pair<const char*, at::ScalarType> cases[] = {{"elastic:bits=4|ef", at::kFloat},
                                                          {"elastic:bits=4|ef", at::kBFloat16},
                                                          {"alq:bits=4", at::kFloat},
                                                          {"powersgd:rank=2|ef", at::kHalf},
                                                          {"fp32", at::kFloat}};
  for (const auto& [codec, type] : cases) {
    const auto options = WorldOptions(3), options_late = WorldOptions(3);
    RunRanks(3, [&, codec = codec, type = type](int rank) {
      const DdpOptions ddp{.bucket_elements = 4000};
      Worker early(options, rank, codec, ddp), late(options_late, rank, codec, ddp);
      // Every worker others, and one none.
      early.offers = [&](size_t p) { return rank == 0 || (rank == 1 && p >= 2); };
      for (int step = 0; step < 6; ++step) {
        const Layout& layout = step == 0 ? kFirst : kRebuilt;
        const auto means = early.Step(step, layout, type);
        const auto expected = late.Step(step, layout, type);
        for (size_t d = 0; d < means.size(); ++d) {
          EXPECT_TRUE(at::equal(means[d], expected[d])) << codec << ", step " << step;
        }
      }
      EXPECT_EQ(early.engine->stats().early > 0, rank < 2) << codec;
      EXPECT_EQ(late.engine->stats().early, 0u);
      EXPECT_EQ(early.engine->SaveState(), late.engine->SaveState());
    });
  }
}

TEST(DdpEngine, WaitsUntilDdpHasSettledItsBuckets) {
  // As in a static graph, which DDP looks at for two steps; the first bucket stays as it was.
  const Layout rebuilt = {{3, 2}, {0, 1}};
  Worker worker(WorldOptions(1), 0, "fp32");
  worker.offers = [](size_t) { return true; };
  for (int step = 0; step < 6; ++step) {
    const Layout& layout = step < 2 ? kRebuilt : rebuilt;
    worker.engine->SetMayRebuild(step < 2);
    EXPECT_LT(worker.Error(worker.Step(step, layout), layout, step), 1e-6) << step;
    EXPECT_EQ(worker.engine->stats().early > 0, step > 3) << step;
  }
}

TEST(DdpEngine, WhatIsNotAsInDdpsBucketIsLeftToIt) {
  Worker worker(WorldOptions(1), 0, "fp32");
  for (int step = 0; step < 3; ++step) (void)worker.Step(step, kRebuilt);
  worker.engine->Offer(2, at::zeros({3, 1667}, at::kDouble));
  worker.engine->Offer(3, at::zeros({4}));
  worker.engine->Offer(0, at::zeros({1, 30}).expand({100, 30}));
  worker.engine->Offer(1, at::zeros({60}).as_strided({30}, {2}));
  const auto means = worker.Step(3, kRebuilt);
  EXPECT_LT(worker.Error(means, kRebuilt, 3), 1e-6);
  EXPECT_EQ(worker.engine->stats().early, 0u);
}

TEST(DdpEngine, ABackwardThatWasBrokenOffIsNotMixedWithTheNext) {
  Worker worker(WorldOptions(1), 0, "fp32");
  for (int step = 0; step < 3; ++step) (void)worker.Step(step, kRebuilt);
  worker.engine->Offer(3, at::zeros({3}));
  worker.engine->Offer(3, at::zeros({3}));
  EXPECT_THROW(worker.Step(3, kRebuilt), c10::Error);
}

TEST(DdpEngine, AnOfferAfterDdpsBucketIsTooLate) {
  Worker worker(WorldOptions(1), 0, "fp32");
  for (int step = 0; step < 3; ++step) (void)worker.Step(step, kRebuilt);
  auto first = worker.engine->Reduce(0, false, at::ones({5004}), kRebuilt[0]);
  worker.engine->Offer(2, at::zeros({3, 1667}));
  auto second = worker.engine->Reduce(1, true, at::ones({3030}), kRebuilt[1]);
  first->waitAndThrow();
  second->waitAndThrow();
  EXPECT_TRUE(at::equal(first->value().toTensor(), at::ones({5004})));
}

}  // namespace
}  // namespace elastiquant
