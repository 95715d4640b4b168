#include "elastiquant/layers/codec_memory.h"

#include <gtest/gtest.h>

#include "elastiquant/net/testing.h"

namespace elastiquant {
namespace {

const std::vector<ParameterShape> kRestoredShapes{
    {"conv.weight", 3000, 4, 30}, {"bn.bias", 10, 1, 10}, {"fc.weight", 5001, 2, 3}};

// A worker's gradients in buckets of some size, all under error feedback.
struct Worker {
  Worker(Communicator* comm, size_t bucket_elements)
      : plan(PlanBuckets(kRestoredShapes, {.bucket_elements = bucket_elements}).value()) {
    const auto codec = MakeCodec("elastic:bits=2|ef").value();
    std::vector<GradientBucket> buckets;
    for (const PlannedBucket& b : plan.buckets) gradients.emplace_back(b.elements, 0.5f);
    for (size_t b = 0; b < plan.buckets.size(); ++b) {
      const bool exact = plan.buckets[b].exact;
      buckets.push_back({gradients[b], exact ? MakeCodec("fp32").value() : codec, "b"});
    }
    reducer = GradientReducer::Create(comm, std::move(buckets), {}).value();
    std::vector<std::vector<std::string>> fields;
    for (const PlannedBucket& b : plan.buckets) {
      fields.push_back(b.exact ? std::vector<std::string>{} : codec->StateFields());
    }
    memory.emplace(plan, kRestoredShapes, fields, comm->world_size(), reducer.get());
  }
  void Step() {
    EXPECT_TRUE(reducer->BeginStep(0).ok());
    for (size_t b = 0; b < gradients.size(); ++b) {
      for (size_t i = 0; i < gradients[b].size(); ++i) {
        gradients[b][i] = static_cast<float>((i * 7919) % 101) / 64 - 0.7f;
      }
      EXPECT_TRUE(reducer->MarkReady(b).ok());
    }
    EXPECT_TRUE(reducer->Finish().ok());
  }
  Sections Saved() const {
    Sections sections;
    memory->Save(&sections);
    return sections;
  }
  // By parameter: what this worker holds back from the sum of all gradients.
  std::vector<std::vector<float>> HeldBack(int world) const {
    std::vector<std::vector<float>> all(kRestoredShapes.size());
    for (size_t b = 0; b < plan.buckets.size(); ++b) {
      const auto fields = reducer->Memory(b);
      if (fields.empty()) continue;
      const Chunk owned = reducer->OwnedChunk(b);
      for (const BucketSlot& slot : plan.buckets[b].slots) {
        for (size_t i = 0; i < kRestoredShapes[slot.parameter].elements; ++i) {
          const size_t at = slot.offset + i;
          const bool own = at >= owned.begin && at < owned.begin + owned.size;
          all[slot.parameter].push_back(fields[0][at] * (own ? static_cast<float>(world) : 1));
        }
      }
    }
    return all;
  }

  BucketPlan plan;
  std::vector<std::vector<float>> gradients;
  std::unique_ptr<GradientReducer> reducer;
  std::optional<CodecMemory> memory;
};

TEST(CodecMemory, ComesBackBitForBitInTheSameLayout) {
  for (const int world : {2, 3}) {
    RunWorld(WorldOptions(world), [](Communicator& comm) {
      Worker before(&comm, 4000), after(&comm, 4000);
      before.Step();
      ASSERT_TRUE(after.memory->Load(before.Saved()).ok());
      for (size_t b = 0; b < before.gradients.size(); ++b) {
        const auto x = before.reducer->Memory(b), y = after.reducer->Memory(b);
        ASSERT_EQ(x.size(), y.size());
        for (size_t f = 0; f < x.size(); ++f) EXPECT_TRUE(std::ranges::equal(x[f], y[f]));
      }
      EXPECT_EQ(after.Saved(), before.Saved());
    });
  }
}

TEST(CodecMemory, HoldsBackTheSameInAnotherLayout) {
  for (const int world : {2, 4}) {  // multiplying by them is exact
    RunWorld(WorldOptions(world), [world](Communicator& comm) {
      Worker before(&comm, 1000), after(&comm, 100000);
      ASSERT_NE(before.plan.buckets.size(), after.plan.buckets.size());
      before.Step();
      ASSERT_TRUE(after.memory->Load(before.Saved()).ok());
      EXPECT_EQ(after.HeldBack(world), before.HeldBack(world));
      EXPECT_NE(before.HeldBack(world)[0], std::vector<float>(3000)) << "nothing was lost";
    });
  }
}

TEST(CodecMemory, ADamagedSectionIsNamed) {
  auto comm = Communicator::Connect({}).value();
  Worker worker(comm.get(), 4000);
  Sections sections = worker.Saved();
  sections["memory/residual/fc.weight"].pop_back();
  Status status = worker.memory->Load(sections);
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_NE(status.message().find("memory/residual/fc.weight should have 20004 bytes"),
            std::string::npos)
      << status.message();
  sections.erase("memory/residual/fc.weight");
  status = worker.memory->Load(sections);
  EXPECT_NE(status.message().find("fc.weight is missing"), std::string::npos);
}

TEST(CodecMemory, ADamagedStateChangesNothing) {
  auto comm = Communicator::Connect({}).value();
  Worker worker(comm.get(), 4000);
  const Sections before = worker.Saved();
  for (const auto& [name, section] : before) {
    Sections damaged = before;
    for (auto& [other, bytes] : damaged) std::ranges::fill(bytes, 1);
    damaged.erase(name);
    EXPECT_EQ(worker.memory->Load(damaged).code(), StatusCode::kCorruptData);
    EXPECT_EQ(worker.Saved(), before);
  }
}

TEST(CodecMemory, IsRescaledAndPutBackByParameter) {
  RunWorld(WorldOptions(2), [](Communicator& comm) {
    Worker worker(&comm, 4000);
    worker.Step();
    const auto before = worker.HeldBack(2);
    const std::vector<float> copy = worker.memory->Copy(2);
    worker.memory->Rescale(2, .5);
    auto expected = before;
    for (float& v : expected[2]) v /= 2;
    EXPECT_EQ(worker.HeldBack(2), expected);
    worker.memory->PutBack(2, copy);
    EXPECT_EQ(worker.HeldBack(2), before);
  });
}

}  // namespace
}  // namespace elastiquant
