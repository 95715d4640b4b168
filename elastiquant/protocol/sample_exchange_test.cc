#include "elastiquant/protocol/sample_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/base/random.h"

namespace elastiquant {
namespace {

using Message = std::vector<uint8_t>;

constexpr ImageShape kSmall{.side = 4, .channels = 3};
constexpr int64_t kSampleCount = 100;
constexpr int64_t kClassCount = 10;

// The pixels of a sample are a function of its number, and its label is the last digit.
Result<int64_t> ReadNumbered(int64_t id, std::span<uint8_t> pixels) {
  const LaneKeys keys = MakeLaneKeys(DeriveKey(1, static_cast<uint64_t>(id), 0, 0));
  for (size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<uint8_t>(RandomBits(keys, static_cast<uint32_t>(i)) >> 24);
  }
  return id % kClassCount;
}

SampleExchange MakeExchange(int rank, int world, bool cached = true, int bits = 8) {
  SampleExchangeOptions options{.rank = rank,
                                .world_size = world,
                                .codec = MakePixelCodec({.bits = bits}, kSmall, 7),
                                .samples = kSampleCount,
                                .classes = kClassCount,
                                .batch = 16,
                                .cached = cached};
  return SampleExchange::Make(options).value();
}

std::vector<SampleToSend> Batch(std::initializer_list<int64_t> ids) {
  std::vector<SampleToSend> batch;
  for (const int64_t id : ids) batch.push_back({.id = id});
  return batch;
}

Message Send(SampleExchange* exchange, uint64_t step, const std::vector<SampleToSend>& batch) {
  const auto message = exchange->OnBatch(step, batch, ReadNumbered);
  EXPECT_TRUE(message.ok()) << message.status().ToString();
  return {message->begin(), message->end()};
}

std::vector<uint8_t> PixelsOf(int64_t id) {
  std::vector<uint8_t> pixels(kSmall.bytes());
  EXPECT_TRUE(ReadNumbered(id, pixels).ok());
  return pixels;
}

void ExpectSample(const ReceivedSample& sample, int64_t id) {
  EXPECT_EQ(sample.id, id);
  EXPECT_EQ(sample.label, id % kClassCount);
  EXPECT_THAT(sample.pixels, testing::ElementsAreArray(PixelsOf(id)));
}

TEST(SampleExchangeTest, ASampleTravelsOnce) {
  SampleExchange sender = MakeExchange(0, 2), receiver = MakeExchange(1, 2);
  const Message first = Send(&sender, 0, Batch({3, 99, 3, 0}));
  const auto samples = receiver.OnMessage(0, 0, first).value();
  ASSERT_EQ(samples.size(), 4u);
  ExpectSample(samples[0], 3);
  ExpectSample(samples[1], 99);
  ExpectSample(samples[2], 3);
  ExpectSample(samples[3], 0);
  EXPECT_EQ(sender.traffic().sent, 3u);
  EXPECT_EQ(sender.traffic().pixel_bytes, 3 * kSmall.bytes());

  // 4 names of 7 bits, and 2 bits each.
  const Message second = Send(&sender, 1, Batch({0, 3, 99, 99}));
  EXPECT_EQ(second.size(), SampleExchange::kHeaderBytes + (4 * 9 + 7) / 8);
  const auto again = receiver.OnMessage(0, 1, second).value();
  ExpectSample(again[0], 0);
  ExpectSample(again[3], 99);
  EXPECT_EQ(sender.traffic().sent, 3u);
  EXPECT_EQ(sender.traffic().named, 8u);
}

TEST(SampleExchangeTest, EveryBitIsCounted) {
  SampleExchange sender = MakeExchange(0, 1);
  size_t bytes = 0;
  for (uint64_t step = 0; step < 5; ++step) {
    std::vector<SampleToSend> batch = Batch({1, 50, static_cast<int64_t>(step)});
    if (step > 2) batch[1].chance = .25;
    bytes += Send(&sender, step, batch).size();
  }
  const SampleTraffic& traffic = sender.traffic();
  EXPECT_EQ(8 * bytes, 8 * traffic.pixel_bytes + traffic.label_bits + traffic.number_bits);
  EXPECT_EQ(traffic.label_bits, 4 * traffic.sent);
}

TEST(SampleExchangeTest, WithoutACacheSamplesTravelEachTime) {
  SampleExchange sender = MakeExchange(0, 2, false), receiver = MakeExchange(1, 2, false);
  for (uint64_t step = 0; step < 3; ++step) {
    const Message message = Send(&sender, step, Batch({5, 5}));
    const auto samples = receiver.OnMessage(0, step, message).value();
    ExpectSample(samples[0], 5);
    ExpectSample(samples[1], 5);
  }
  EXPECT_EQ(sender.traffic().sent, 6u);
}

TEST(SampleExchangeTest, PassesAndChancesTravel) {
  SampleExchange sender = MakeExchange(0, 1);
  std::vector<SampleToSend> batch = Batch({1, 2, 3, 4});
  batch[0].pass = 4;
  batch[1].pass = 4;
  batch[2].pass = 5;
  batch[3].pass = 20;
  batch[1].chance = .5;
  batch[3].chance = SampleExchange::ChanceThatTravels(.001);
  const auto samples = sender.OnMessage(0, 9, Send(&sender, 9, batch)).value();
  for (size_t i = 0; i < batch.size(); ++i) {
    EXPECT_EQ(samples[i].pass, batch[i].pass);
    EXPECT_DOUBLE_EQ(samples[i].weight, 1 / batch[i].chance);
  }
  EXPECT_EQ(SampleExchange::ChanceThatTravels(1), 1);
  EXPECT_EQ(SampleExchange::ChanceThatTravels(.001), 1.0 / 256);
  EXPECT_GE(SampleExchange::ChanceThatTravels(.3), .3);
}

TEST(SampleExchangeTest, ABatchMayBeEmpty) {
  SampleExchange sender = MakeExchange(0, 1);
  const Message message = Send(&sender, 0, {});
  EXPECT_EQ(message.size(), SampleExchange::kHeaderBytes);
  EXPECT_TRUE(sender.OnMessage(0, 0, message).value().empty());
}

// All workers end with the same samples, whatever is drawn and in which order messages come.
TEST(SampleExchangeTest, AllReceiveTheSameInRandomRuns) {
  constexpr int kWorld = 3;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<SampleExchange> workers;
    for (int w = 0; w < kWorld; ++w) workers.push_back(MakeExchange(w, kWorld, seed % 2, 3));
    const LaneKeys keys = MakeLaneKeys(DeriveKey(seed, 5, 0, 0));
    uint32_t next = 0;
    const auto draw = [&](uint32_t below) { return RandomBits(keys, next++) % below; };
    std::vector<int64_t> passes(kWorld);
    for (uint64_t step = 0; step < 20; ++step) {
      for (int from = 0; from < kWorld; ++from) {
        std::vector<SampleToSend> batch(draw(17));
        for (SampleToSend& sample : batch) {
          sample.id = draw(kSampleCount);
          if (draw(12) == 0) ++passes[static_cast<size_t>(from)];
          sample.pass = passes[static_cast<size_t>(from)];
          if (seed % 3 == 0)
            sample.chance = SampleExchange::ChanceThatTravels((draw(100) + 1) / 100.0);
        }
        const Message message = Send(&workers[static_cast<size_t>(from)], step, batch);
        ASSERT_LE(message.size(), workers[0].MaxMessageBytes());
        const auto reference = workers[0].OnMessage(from, step, message).value();
        ASSERT_EQ(reference.size(), batch.size());
        for (size_t i = 0; i < batch.size(); ++i) {
          EXPECT_EQ(reference[i].id, batch[i].id);
          EXPECT_EQ(reference[i].pass, batch[i].pass);
          EXPECT_DOUBLE_EQ(reference[i].weight, 1 / batch[i].chance);
        }
        for (size_t w = 1; w < kWorld; ++w) {
          const auto got = workers[w].OnMessage(from, step, message).value();
          ASSERT_EQ(got.size(), reference.size());
          for (size_t i = 0; i < got.size(); ++i) {
            ASSERT_EQ(got[i].label, reference[i].label);
            ASSERT_TRUE(std::ranges::equal(got[i].pixels, reference[i].pixels));
          }
        }
      }
    }
  }
}

TEST(SampleExchangeTest, DamagedMessagesAreRefused) {
  SampleExchange sender = MakeExchange(0, 2), receiver = MakeExchange(1, 2);
  const Message good = Send(&sender, 3, Batch({1, 2, 3}));
  for (size_t size = 0; size < good.size(); ++size) {
    const auto cut = receiver.OnMessage(0, 3, std::span(good).first(size));
    EXPECT_EQ(cut.status().code(), StatusCode::kCorruptData) << size;
  }
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Message bad = good;
    bad[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_FALSE(receiver.OnMessage(0, 3, bad).ok()) << bit;
  }
  EXPECT_FALSE(receiver.OnMessage(0, 4, good).ok());
  EXPECT_FALSE(receiver.OnMessage(2, 3, good).ok());
  EXPECT_TRUE(receiver.OnMessage(0, 3, good).ok());
}

TEST(SampleExchangeTest, ASampleThatNeverCameIsAnError) {
  SampleExchange sender = MakeExchange(0, 2), receiver = MakeExchange(1, 2);
  Send(&sender, 0, Batch({7}));  // lost
  const auto samples = receiver.OnMessage(0, 1, Send(&sender, 1, Batch({7})));
  ASSERT_FALSE(samples.ok());
  EXPECT_THAT(samples.status().message(), testing::HasSubstr("sample 7, which never came"));
}

TEST(SampleExchangeTest, WithoutACacheAPassBeforeIsNotKnown) {
  SampleExchange sender = MakeExchange(0, 2, /*cached=*/true);
  SampleExchange receiver = MakeExchange(1, 2, /*cached=*/false);
  const auto samples = receiver.OnMessage(0, 0, Send(&sender, 0, Batch({3, 3})));
  EXPECT_EQ(samples.status().code(), StatusCode::kCorruptData);
  EXPECT_THAT(samples.status().message(), testing::HasSubstr("sample 3, which never came"));
}

TEST(SampleExchangeTest, BadBatchesAreRefused) {
  SampleExchange sender = MakeExchange(0, 1);
  EXPECT_FALSE(sender.OnBatch(0, Batch({kSampleCount}), ReadNumbered).ok());
  EXPECT_FALSE(sender.OnBatch(0, std::vector<SampleToSend>(17), ReadNumbered).ok());
  std::vector<SampleToSend> falling = {{.id = 1, .pass = 2}, {.id = 2, .pass = 1}};
  EXPECT_FALSE(sender.OnBatch(0, falling, ReadNumbered).ok());
  EXPECT_FALSE(sender.OnBatch(0, {{{.id = 1, .chance = 0}}}, ReadNumbered).ok());
  const auto bad_label = [](int64_t, std::span<uint8_t>) -> Result<int64_t> {
    return kClassCount;
  };
  EXPECT_FALSE(sender.OnBatch(0, Batch({1}), bad_label).ok());
}

}  // namespace
}  // namespace elastiquant
