#include "elastiquant/ddp/ddp_state.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "elastiquant/ddp/engine_testing.h"
#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

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

TEST(DdpState, MemoryOutlivesBucketsAndProcesses) {
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

TEST(DdpState, GoesOnAsItWouldHaveThoughDdpHasItsFirstBuckets) {
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

TEST(DdpState, ADamagedStateIsRefusedAndChangesNothing) {
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

TEST(DdpState, StateOfAnotherWorkerOrCodecIsRefused) {
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

TEST(DdpState, WhatWasMeasuredOfLayersOutlivesARebuild) {
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

TEST(DdpState, WhatIsNotAppliedIsNotForgotten) {
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

}  // namespace
}  // namespace elastiquant
