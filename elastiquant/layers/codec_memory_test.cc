#include "elastiquant/layers/codec_memory.h"

#include <gtest/gtest.h>

#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

const std::vector<ParameterShape> kRestoredShapes{
    {"conv.weight", 3000, 4, 30}, {"bn.bias", 10, 1, 10}, {"fc.weight", 5001, 2, 3}};

// A worker's gradients in buckets of some size, all under error feedback. `weights` has what
// each worker counts in the mean; without any all count the same.
struct Worker {
  Worker(Communicator* comm, size_t bucket_elements, const std::vector<double>& weights = {})
      : plan(PlanBuckets(kRestoredShapes, {.bucket_elements = bucket_elements}).value()) {
    const auto codec = MakeCodec("elastic:bits=2|ef").value();
    std::vector<GradientBucket> buckets;
    for (const PlannedBucket& b : plan.buckets) gradients.emplace_back(b.elements, 0.5f);
    for (size_t b = 0; b < plan.buckets.size(); ++b) {
      const bool exact = plan.buckets[b].exact;
      buckets.push_back({gradients[b], exact ? MakeCodec("fp32").value() : codec, "b"});
    }
    reducer = GradientReducer::Create(comm, std::move(buckets), {.weights = weights}).value();
    weight =
        weights.empty() ? 1.0 / comm->world_size() : weights[static_cast<size_t>(comm->rank())];
    std::vector<std::vector<std::string>> fields;
    for (const PlannedBucket& b : plan.buckets) {
      fields.push_back(b.exact ? std::vector<std::string>{} : codec->StateFields());
    }
    memory.emplace(plan, kRestoredShapes, fields, weight, reducer.get());
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
  // By parameter: what this worker holds back from the mean, in units of its own gradient.
  std::vector<std::vector<float>> HeldBack() const {
    std::vector<std::vector<float>> all(kRestoredShapes.size());
    for (size_t b = 0; b < plan.buckets.size(); ++b) {
      const auto fields = reducer->Memory(b);
      if (fields.empty()) continue;
      const Chunk owned = reducer->OwnedChunk(b);
      for (const BucketSlot& slot : plan.buckets[b].slots) {
        for (size_t i = 0; i < kRestoredShapes[slot.parameter].elements; ++i) {
          const size_t at = slot.offset + i;
          const bool own = at >= owned.begin && at < owned.begin + owned.size;
          const double factor = own ? 1 / weight : 1;
          all[slot.parameter].push_back(fields[0][at] * static_cast<float>(factor));
        }
      }
    }
    return all;
  }

  BucketPlan plan;
  double weight = 1;
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
  // Multiplying by what they have is exact.
  const std::vector<double> alike2{.5, .5}, alike4{.25, .25, .25, .25};
  for (const auto& weights : {alike2, alike4, {.5, .25, .125, .125}}) {
    RunWorld(WorldOptions(static_cast<int>(weights.size())), [&](Communicator& comm) {
      Worker before(&comm, 1000, weights), after(&comm, 100000, weights);
      ASSERT_NE(before.plan.buckets.size(), after.plan.buckets.size());
      before.Step();
      ASSERT_TRUE(after.memory->Load(before.Saved()).ok());
      EXPECT_EQ(after.HeldBack(), before.HeldBack());
      EXPECT_NE(before.HeldBack()[0], std::vector<float>(3000)) << "nothing was lost";
    });
  }
}

TEST(CodecMemory, OfAWorkerThatCountsForNothingIsFinite) {
  const std::vector<double> weights{1, 0};
  RunWorld(WorldOptions(2), [&](Communicator& comm) {
    Worker before(&comm, 1000, weights), after(&comm, 100000, weights);
    before.Step();
    ASSERT_TRUE(after.memory->Load(before.Saved()).ok());
    for (size_t b = 0; b < after.gradients.size(); ++b) {
      for (const std::span<const float> field : after.reducer->Memory(b)) {
        EXPECT_TRUE(std::ranges::all_of(field, [](float v) { return std::isfinite(v); }));
      }
    }
  });
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
    const auto before = worker.HeldBack();
    const std::vector<float> copy = worker.memory->Copy(2);
    worker.memory->Rescale(2, .5);
    auto expected = before;
    for (float& v : expected[2]) v /= 2;
    EXPECT_EQ(worker.HeldBack(), expected);
    worker.memory->PutBack(2, copy);
    EXPECT_EQ(worker.HeldBack(), before);
  });
}

}  // namespace
}  // namespace elastiquant
