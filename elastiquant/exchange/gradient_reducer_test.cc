#include "elastiquant/exchange/gradient_reducer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/codec/bucket/shared_scale.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/exchange/chunk.h"
#include "elastiquant/exchange/reducer_testing.h"

namespace elastiquant {
namespace {

using Bytes = std::vector<uint8_t>;
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
INSTANTIATE_TEST_SUITE_P(All, WorldSizes, testing::Values(1, 2, 3, 4, 8, 16, 32), WorldName);

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

// Passes everything on, but may spoil what is sent.
class SpoilingCommunicator final : public Communicator {
 public:
  SpoilingCommunicator(Communicator* comm, std::function<void(uint32_t, Bytes&)> spoil)
      : comm_(comm), spoil_(std::move(spoil)) {}
  int rank() const override { return comm_->rank(); }
  int world_size() const override { return comm_->world_size(); }
  std::unique_ptr<Transfer> Send(int to, uint32_t tag, std::span<const uint8_t> bytes,
                                 uint16_t metric) override {
    const std::lock_guard lock(mutex_);
    Bytes sent(bytes.begin(), bytes.end());
    spoil_(tag, sent);
    return comm_->Send(to, tag, sent, metric);
  }
  std::unique_ptr<Incoming> Receive(int from, uint32_t tag, size_t room) override {
    return comm_->Receive(from, tag, room);
  }
  Status Barrier() override { return comm_->Barrier(); }
  Result<std::vector<uint64_t>> AllGather(uint64_t value) override {
    return comm_->AllGather(value);
  }
  Status Broadcast(int root, std::span<uint8_t> bytes) override {
    return comm_->Broadcast(root, bytes);
  }
  Result<uint64_t> TakeNumber() override { return comm_->TakeNumber(); }
  Traffic traffic() const override { return comm_->traffic(); }
  size_t peak_buffer_bytes() const override { return comm_->peak_buffer_bytes(); }
  void SetActivity(std::string activity) override { comm_->SetActivity(std::move(activity)); }
  void SetFarewell(std::string why) override { comm_->SetFarewell(std::move(why)); }
  void Abort(const Status& why) override { comm_->Abort(why); }

 private:
  Communicator* const comm_;
  const std::function<void(uint32_t, Bytes&)> spoil_;
  std::mutex mutex_;
};

// The outcome on all ranks when `spoil` has put something into a rank's gradients. The step
// after it must be as if nothing had been.
std::vector<StepOutcome> RunSpoilt(int world, const std::string& codec,
                                   const std::function<void(int, Vectors&)>& spoil) {
  std::vector<StepOutcome> outcomes(static_cast<size_t>(world));
  RunWorld(WorldOptions(world), [&](Communicator& comm) {
    Vectors gradients{std::vector<float>(9), std::vector<float>(1000)};
    auto reducer = GradientReducer::Create(&comm, Buckets(gradients, codec), {});
    ASSERT_TRUE(reducer.ok()) << reducer.status().ToString();
    Fill(gradients, comm.rank(), 0);
    spoil(comm.rank(), gradients);
    const auto outcome = Step(**reducer, 0, gradients.size(), comm.rank());
    ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
    outcomes[static_cast<size_t>(comm.rank())] = *outcome;
    Fill(gradients, comm.rank(), 1);
    const auto next = Step(**reducer, 1, gradients.size(), comm.rank());
    ASSERT_TRUE(next.ok()) << next.status().ToString();
    EXPECT_FALSE(next->skipped) << next->reason;
    const auto hashes = comm.AllGather(Hash(gradients));
    ASSERT_TRUE(hashes.ok());
    for (const uint64_t hash : *hashes) EXPECT_EQ(hash, Hash(gradients));
  });
  return outcomes;
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(GradientReducer, ANanAnywhereSkipsTheStepOnAllForTheSameReason) {
  // In chunks of its own and of each other worker; also for the worker alone.
  for (const int world : {1, 3}) {
    for (const size_t at : {0, 400, 999}) {
      const auto outcomes = RunSpoilt(world, "fp32", [&](int rank, Vectors& gradients) {
        if (rank == world - 1) gradients[1][at] = kNan;
      });
      for (const StepOutcome& outcome : outcomes) {
        EXPECT_TRUE(outcome.skipped);
        EXPECT_EQ(outcome.reason, "worker " + std::to_string(world - 1) +
                                      ": NaN in bucket 1 (layer1.weight) at " +
                                      std::to_string(at));
      }
    }
  }
}

TEST(GradientReducer, OfSeveralReasonsAllNameTheFirst) {
  const auto outcomes = RunSpoilt(4, "fp32", [](int rank, Vectors& gradients) {
    if (rank == 1) gradients[1][3] = kNan;
    if (rank == 2) gradients[0][8] = -kInf;
    if (rank == 3) gradients[0][2] = gradients[1][3] = kNan;
  });
  for (const StepOutcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.skipped);
    EXPECT_EQ(outcome.reason, "worker 2: infinity in bucket 0 (layer0.weight) at 8");
  }
}

TEST(GradientReducer, SumsBeyondFloatSkipTheStep) {
  const auto outcomes = RunSpoilt(3, "fp32", [](int, Vectors& gradients) {
    gradients[1][500] = std::numeric_limits<float>::max();
  });
  for (const StepOutcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.skipped);
    EXPECT_EQ(outcome.reason, outcomes[0].reason);
    EXPECT_NE(outcome.reason.find("bucket 1 (layer1.weight) at 500"), std::string::npos)
        << outcome.reason;
  }
}

TEST(GradientReducer, ACorruptFrameIsAnErrorThatNamesItsSenderAndStopsAll) {
  std::vector<std::string> said(3);
  RunWorld(WorldOptions(3), [&](Communicator& comm) {
    SpoilingCommunicator spoiling(&comm, [&](uint32_t tag, Bytes& frame) {
      // Bucket 1's contributions, from worker 2.
      if (comm.rank() == 2 && tag == 3) frame.back() ^= 1;
    });
    Vectors gradients{std::vector<float>(9), std::vector<float>(1000)};
    auto reducer = GradientReducer::Create(&spoiling, Buckets(gradients, "fp32"), {});
    ASSERT_TRUE(reducer.ok()) << reducer.status().ToString();
    Fill(gradients, comm.rank(), 0);
    const auto outcome = Step(**reducer, 0, gradients.size(), comm.rank());
    ASSERT_FALSE(outcome.ok());
    said[static_cast<size_t>(comm.rank())] = outcome.status().message();
    EXPECT_FALSE((*reducer)->BeginStep(1).ok()) << "a failed reducer stays so";
  });
  // Workers 0 and 1 both get a spoilt frame; whoever is first may tell the others.
  for (const std::string& words : said) {
    EXPECT_NE(words.find("frame of bucket 1 (layer1.weight) from worker 2"), std::string::npos)
        << words;
    EXPECT_NE(words.find("checksum"), std::string::npos) << words;
  }
}

TEST(GradientReducer, WorkersWithOtherCodecsAreRefused) {
  RunWorld(WorldOptions(3), [](Communicator& comm) {
    Vectors gradients{std::vector<float>(1000)};
    const auto reducer = GradientReducer::Create(
        &comm, Buckets(gradients, comm.rank() == 2 ? "fp16" : "fp32"), {});
    ASSERT_FALSE(reducer.ok());
    EXPECT_NE(reducer.status().message().find("worker 2"), std::string::npos);
  });
}

TEST(GradientReducer, CallsOutOfOrderAreRefused) {
  auto comm = Communicator::Connect({}).value();
  Vectors gradients{std::vector<float>(10), std::vector<float>(10)};
  auto reducer = GradientReducer::Create(comm.get(), Buckets(gradients, "fp32"), {}).value();
  EXPECT_FALSE(reducer->MarkReady(0).ok());
  EXPECT_FALSE(reducer->Finish().ok());
  ASSERT_TRUE(reducer->BeginStep(0).ok());
  EXPECT_FALSE(reducer->BeginStep(1).ok());
  EXPECT_FALSE(reducer->MarkReady(2).ok());
  ASSERT_TRUE(reducer->MarkReady(1).ok());
  EXPECT_FALSE(reducer->MarkReady(1).ok());
  EXPECT_FALSE(reducer->Finish().ok()) << "bucket 0 was never ready";
}

TEST(GradientReducer, SendsNoMoreThanItsExchangeNeeds) {
  constexpr size_t kCoordinates = 100003;
  for (const int world : {2, 5}) {
    for (const CodecInfo& info : ListCodecs()) {
      const auto codec = MakeCodec(info.spec).value();
      if (codec->exchange() == Exchange::kFactors) continue;  // sends no frames of its own
      RunWorld(WorldOptions(world), [&](Communicator& comm) {
        Vectors gradients{std::vector<float>(kCoordinates)};
        auto reducer =
            GradientReducer::Create(&comm, Buckets(gradients, info.spec), {}).value();
        Fill(gradients, comm.rank(), 0);
        const Traffic before = comm.traffic();
        ASSERT_TRUE(Step(*reducer, 0, 1, comm.rank()).ok());
        const Traffic after = comm.traffic();
        // Each of 2(N-1) messages has its header, and its frame its own, in place of one
        // frame's. Chunks differ by up to 512 coordinates. An all-gather has N-1 whole ones.
        const size_t whole = codec->MaxFrameBytes(kCoordinates);
        const size_t per_message = kMessageHeaderBytes + codec->MaxFrameBytes(512);
        const auto peers = static_cast<size_t>(world - 1);
        size_t limit = codec->exchange() != Exchange::kTwoPhase
                           ? peers * (whole + kMessageHeaderBytes)
                           : 2 * peers * (whole / (peers + 1) + 1 + per_message);
        if (codec->exchange() == Exchange::kIntegerSum) {
          // Scales, parts and sums.
          const SharedScale& codes = *codec->shared_scale();
          const size_t part = kCoordinates / (peers + 1) + 512;
          limit = peers * (4 * codes.ScaleCount(kCoordinates) + codec->MaxFrameBytes(part) +
                           codes.MaxMeanBytes(part, world) + 3 * per_message);
        }
        EXPECT_LE(after.bytes_up - before.bytes_up, limit) << info.spec << " x " << world;
        EXPECT_LE(after.bytes_down - before.bytes_down, limit) << info.spec << " x " << world;
        EXPECT_GT(after.bytes_up - before.bytes_up, 0u);
      });
    }
  }
}

TEST(GradientReducer, Fp32BytesAreExactlyTheFormula) {
  constexpr size_t kCoordinates = 4 * 16 * 512 * 2;  // four equal chunks
  RunWorld(WorldOptions(4), [&](Communicator& comm) {
    Vectors gradients{std::vector<float>(kCoordinates)};
    auto reducer = GradientReducer::Create(&comm, Buckets(gradients, "fp32"), {}).value();
    ASSERT_TRUE(Step(*reducer, 0, 1, comm.rank()).ok());
    ASSERT_TRUE(comm.Barrier().ok());
    const size_t overhead = kMessageHeaderBytes + kFrameHeaderBytes;
    EXPECT_EQ(comm.traffic().bytes_up, 6 * (kCoordinates / 4 * sizeof(float) + overhead));
    EXPECT_EQ(comm.traffic().bytes_down, comm.traffic().bytes_up);
  });
}

TEST(GradientReducer, MeasuresTheErrorOfItsFramesOnTheStepsAskedFor) {
  RunWorld(WorldOptions(2), [](Communicator& comm) {
    Vectors gradients{std::vector<float>(1000)};
    ReducerOptions options;
    options.measure_every = 2;
    auto reducer = GradientReducer::Create(&comm, Buckets(gradients, "bf16"), options).value();
    for (uint64_t step = 0; step < 3; ++step) {
      Fill(gradients, comm.rank(), step);
      const Chunk peers = ChunkOf(1000, 2, 1 - comm.rank());
      double norm = 0;
      for (size_t i = peers.begin; i < peers.begin + peers.size; ++i) {
        norm += static_cast<double>(gradients[0][i]) * gradients[0][i];
      }
      ASSERT_TRUE(Step(*reducer, step, 1, comm.rank()).ok());
      const ReducerStats stats = reducer->TakeStats();
      EXPECT_EQ(stats.coordinates, 1000u);
      EXPECT_GT(stats.encode_seconds, 0);
      EXPECT_GT(stats.decode_seconds, 0);
      if (step == 1) {
        EXPECT_EQ(stats.squared_norm, 0);
        continue;
      }
      EXPECT_DOUBLE_EQ(stats.squared_norm, norm);
      EXPECT_GT(stats.squared_error, 0);
      EXPECT_LE(stats.squared_error, norm * 0x1p-16);  // bf16 rounds to 8 bits
    }
  });
}

TEST(GradientReducer, WorksOverAnEmulatedLink) {
  CommunicatorOptions options = WorldOptions(4);
  options.link = LinkSpec{20e6, 0.005};
  RunWorld(options, [](Communicator& comm) {
    Vectors gradients{std::vector<float>(3000), std::vector<float>(5000)};
    auto reducer = GradientReducer::Create(&comm, Buckets(gradients, "fp32"), {}).value();
    for (uint64_t step = 0; step < 3; ++step) {
      for (size_t b = 0; b < 2; ++b) {
        for (size_t i = 0; i < gradients[b].size(); ++i) {
          gradients[b][i] = Whole(comm.rank(), b, i);
        }
      }
      ASSERT_TRUE(Step(*reducer, step, 2, comm.rank()).ok());
      for (size_t b = 0; b < 2; ++b) {
        for (size_t i = 0; i < gradients[b].size(); ++i) {
          ASSERT_EQ(gradients[b][i], WholeMean(4, b, i));
        }
      }
    }
    // A worker of the smallest chunks (512 and 1024 values) sends and receives 44 kB a step:
    // 18.5 ms with headers, and nothing arrives before the first delay has passed.
    EXPECT_GT(reducer->TakeStats().wait_seconds, 3 * (0.005 + 0.018));
    EXPECT_GT(comm.traffic().transmit_seconds, 3 * 0.018);
  });
}

}  // namespace
}  // namespace elastiquant
