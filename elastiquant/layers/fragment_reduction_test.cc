#include "elastiquant/layers/fragment_reduction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

const std::vector<ParameterShape> kFragmentShapes{
    {"conv.weight", 3000, 4, 30, 25}, {"bn.bias", 10, 1, 1}, {"fc.weight", 5000, 2, 50}};

std::unique_ptr<FragmentReduction> MakeThree(Communicator* comm, const std::string& codec) {
  FragmentOptions options;
  options.fragments = {0, 1, 2};
  options.codec = codec;
  options.scalars = 2;
  options.reducer = {.seed = 5, .measure_every = 1};
  return FragmentReduction::Make(comm, kFragmentShapes, std::move(options)).value();
}

float ValueOf(int rank, size_t parameter, size_t i) {
  return static_cast<float>((i * 7919 + parameter * 31 + static_cast<size_t>(rank) * 17) %
                            101) /
             64 -
         .75f;
}

void FillFragment(FragmentReduction& reduction, size_t fragment, int rank) {
  for (const size_t p : reduction.members(fragment)) {
    const auto values = reduction.values(p);
    for (size_t i = 0; i < values.size(); ++i) values[i] = ValueOf(rank, p, i);
  }
}

class FragmentWorlds : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, FragmentWorlds, testing::Values(1, 2, 4, 7));

// Workers may begin and finish fragments in different orders: each travels by itself.
TEST_P(FragmentWorlds, AveragesSeveralFragmentsAtOnceInAnyOrder) {
  const int world = GetParam();
  RunWorld(WorldOptions(world), [&](Communicator& comm) {
    const auto reduction = MakeThree(&comm, "fp32");
    for (uint64_t round = 0; round < 3; ++round) {
      reduction->scalars()[1] = static_cast<float>(comm.rank());
      for (size_t f = 0; f < 3; ++f) FillFragment(*reduction, f, comm.rank());
      const size_t first = static_cast<size_t>(comm.rank()) % 3;
      for (size_t f = 0; f < 3; ++f) ASSERT_TRUE(reduction->Begin((first + f) % 3, round).ok());
      for (size_t f = 0; f < 3; ++f) {
        ASSERT_TRUE(reduction->is_under_way((2 * first + f) % 3));
        ASSERT_TRUE(reduction->Finish((2 * first + f) % 3).ok());
      }
      EXPECT_FLOAT_EQ(reduction->scalars()[1], static_cast<float>(world - 1) / 2);
      for (size_t p = 0; p < 3; ++p) {
        for (size_t i = 0; i < kFragmentShapes[p].elements; ++i) {
          double mean = 0;
          for (int r = 0; r < world; ++r) mean += static_cast<double>(ValueOf(r, p, i));
          ASSERT_NEAR(reduction->values(p)[i], mean / world, 1e-6);
        }
      }
    }
  });
}

TEST_P(FragmentWorlds, LeavesTheSameBitsOnAllAndGoesOnFromWhatItSaved) {
  const int world = GetParam();
  std::vector<std::vector<float>> ends(static_cast<size_t>(world));
  RunWorld(WorldOptions(world), [&](Communicator& comm) {
    const auto run = [&](FragmentReduction& reduction, uint64_t round) {
      for (size_t f = 0; f < 3; ++f) {
        FillFragment(reduction, f, comm.rank());
        ASSERT_TRUE(reduction.Begin(f, round).ok());
        ASSERT_TRUE(reduction.Finish(f).ok());
      }
    };
    const auto whole = MakeThree(&comm, "elastic:bits=2|ef");
    run(*whole, 0);
    Sections saved;
    whole->SaveMemory(&saved);
    run(*whole, 1);
    const auto resumed = MakeThree(&comm, "elastic:bits=2|ef");
    ASSERT_TRUE(resumed->LoadMemory(saved).ok());
    run(*resumed, 1);
    auto& end = ends[static_cast<size_t>(comm.rank())];
    for (size_t p = 0; p < 3; ++p) {
      const auto was = whole->values(p), is = resumed->values(p);
      EXPECT_TRUE(std::ranges::equal(was, is)) << p;
      end.insert(end.end(), was.begin(), was.end());
    }
    // One line for each layer that is not exact, and one for all, if anything was sent.
    EXPECT_EQ(whole->certificate().Lines(1, 1).size(), world > 1 ? 3u : 0u);
    EXPECT_EQ(whole->SpecsByParameter()[1], "fp32");
  });
  for (const auto& end : ends) EXPECT_EQ(end, ends[0]);
}

Sections MemoryOf(const FragmentReduction& reduction) {
  Sections memory;
  reduction.SaveMemory(&memory);
  return memory;
}

TEST(FragmentReductionTest, ADamagedStateOfOneFragmentChangesNone) {
  RunWorld(WorldOptions(2), [](Communicator& comm) {
    const auto reduction = MakeThree(&comm, "elastic:bits=2|ef");
    const Sections empty = MemoryOf(*reduction);
    for (size_t f = 0; f < 3; ++f) {
      FillFragment(*reduction, f, comm.rank());
      ASSERT_TRUE(reduction->Begin(f, 0).ok());
      ASSERT_TRUE(reduction->Finish(f).ok());
    }
    const Sections now = MemoryOf(*reduction);
    ASSERT_NE(now, empty);
    for (const auto& [name, section] : empty) {
      Sections damaged = empty;
      damaged.erase(name);
      EXPECT_EQ(reduction->LoadMemory(damaged).code(), StatusCode::kCorruptData) << name;
      EXPECT_EQ(MemoryOf(*reduction), now) << name;
    }
  });
}

TEST_P(FragmentWorlds, ARoundCanBeTakenBack) {
  for (const char* codec : {"topk:ratio=0.05|ef", "elastic:bits=2|ef",
                            "chunktopk:k=32|ef:decay=0.5", "powersgd|ef"}) {
    RunWorld(WorldOptions(GetParam()), [&](Communicator& comm) {
      const auto reduction = MakeThree(&comm, codec);
      Sections before, after;
      for (uint64_t round = 0; round < 2; ++round) {
        before = MemoryOf(*reduction);
        FillFragment(*reduction, 0, comm.rank());
        ASSERT_TRUE(reduction->Begin(0, round).ok());
        ASSERT_TRUE(reduction->Finish(0).ok());
        after = MemoryOf(*reduction);
      }
      const auto counted = reduction->TakeBackMemory(0, /*has_come=*/true);
      ASSERT_TRUE(counted);
      EXPECT_EQ(MemoryOf(*reduction), before) << codec;
      ASSERT_TRUE(reduction->LoadMemory(0, *counted).ok());
      EXPECT_EQ(MemoryOf(*reduction), after) << codec;
    });
  }
}

// Runs two rounds, in the last of which `quits` leaves before it sends anything. Returns what
// worker 0 remembers then, if the round counts.
Sections MemoryAfterTwoRounds(const char* codec, bool quits) {
  Sections end;
  std::latch made(3);
  RunWorld(WorldOptions(3), [&](Communicator& comm) {
    const auto reduction = MakeThree(&comm, codec);
    for (uint64_t round = 0; round < 2; ++round) {
      FillFragment(*reduction, 0, comm.rank());
      if (round == 1) made.arrive_and_wait();
      if (quits && round == 1 && comm.rank() == 2) return;
      const Sections before = MemoryOf(*reduction);
      ASSERT_TRUE(reduction->Begin(0, round).ok());
      const bool has_come = reduction->Finish(0).ok();
      ASSERT_EQ(has_come, !(quits && round == 1));
      if (comm.rank() != 0 || round == 0) continue;
      const auto counted = reduction->TakeBackMemory(0, has_come);
      ASSERT_TRUE(counted);
      EXPECT_EQ(MemoryOf(*reduction), before);
      end = *counted;
    }
  });
  return end;
}

// What a worker has sent itself is known also if the others' parts never come.
TEST(FragmentReductionTest, AFailedRoundMayHaveBeenAppliedByAnother) {
  const Sections whole = MemoryAfterTwoRounds("topk:ratio=0.05|ef", /*quits=*/false);
  const Sections broken = MemoryAfterTwoRounds("topk:ratio=0.05|ef", /*quits=*/true);
  for (const auto& [name, bytes] : whole) {
    if (name.starts_with("memory/")) {
      EXPECT_EQ(broken.at(name), bytes) << name;
    }
  }
}

TEST(FragmentReductionTest, RefusesFragmentsThatCannotBe) {
  RunWorld(WorldOptions(1), [](Communicator& comm) {
    const auto fail = [&](std::vector<size_t> fragments) {
      FragmentOptions options;
      options.fragments = std::move(fragments);
      return FragmentReduction::Make(&comm, kFragmentShapes, std::move(options))
          .status()
          .message();
    };
    EXPECT_EQ(fail({0, 1}), "fragments are given for 2 of 3 parameters");
    EXPECT_EQ(fail({0, 2, 2}), "a fragment has no parameters");
    EXPECT_EQ(fail({0, 1, 99}), "there can be 64 fragments at most, not 100");
  });
}

}  // namespace
}  // namespace elastiquant
