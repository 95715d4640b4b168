#include "elastiquant/protocol/sample_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/base/schedules_testing.h"

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

// Workers that send batches at their own pace. The messages of a worker come in their order,
// but those of different workers in any, and receivers may be steps apart.
class SampleWorld {
 public:
  SampleWorld(uint64_t seed, int world, bool cached, int bits)
      : chance_(seed),
        cached_(cached),
        has_chances_(chance_.Of(.3)),
        told_(MakeExchange(0, world, cached, bits)) {
    for (int w = 0; w < world; ++w) workers_.emplace_back(MakeExchange(w, world, cached, bits));
    for (Worker& worker : workers_) worker.heard.resize(workers_.size());
  }

  void Run(size_t steps) {
    while (!testing::Test::HasFailure()) {
      const size_t w = chance_.Below(workers_.size()), from = chance_.Below(workers_.size());
      if (workers_[w].sent.size() < steps) SendBatch(w);
      Hear(w, from);
      if (std::ranges::all_of(workers_, [&](const Worker& worker) {
            return std::ranges::all_of(worker.heard, [&](size_t n) { return n == steps; });
          })) {
        return;
      }
    }
  }

  // All that batches named has been sent or is remembered by those who have got it before, and
  // every bit of it was counted.
  void Check() const {
    for (const Worker& worker : workers_) {
      const SampleTraffic& traffic = worker.exchange.traffic();
      EXPECT_EQ(traffic.named, worker.named);
      EXPECT_EQ(traffic.sent, cached_ ? worker.ids.size() : worker.named);
      size_t bytes = 0;
      for (const Sent& sent : worker.sent) bytes += sent.message.size();
      EXPECT_EQ(8 * bytes, 8 * traffic.pixel_bytes + traffic.label_bits + traffic.number_bits);
    }
  }

 private:
  struct Sent {
    Message message;
    std::vector<SampleToSend> batch;
    std::vector<std::vector<uint8_t>> pixels;  // as they decode
  };
  struct Worker {
    explicit Worker(SampleExchange made) : exchange(std::move(made)) {}
    SampleExchange exchange;
    std::vector<Sent> sent;     // by step
    std::vector<size_t> heard;  // by sender: steps whose message it has got
    int64_t pass = 0;
    uint64_t named = 0;
    std::set<int64_t> ids;  // that its batches had
  };

  void SendBatch(size_t w) {
    Worker& worker = workers_[w];
    Sent sent;
    sent.batch.resize(chance_.Below(17));
    for (SampleToSend& sample : sent.batch) {
      sample.id = static_cast<int64_t>(chance_.Below(kSampleCount));
      if (chance_.Of(.08)) ++worker.pass;
      sample.pass = worker.pass;
      if (has_chances_) {
        sample.chance = SampleExchange::ChanceThatTravels(
            static_cast<double>(chance_.Below(100) + 1) / 100.0);
      }
      worker.ids.insert(sample.id);
    }
    worker.named += sent.batch.size();
    const uint64_t step = worker.sent.size();
    sent.message = Send(&worker.exchange, step, sent.batch);
    EXPECT_LE(sent.message.size(), worker.exchange.MaxMessageBytes());
    const auto told = told_.OnMessage(static_cast<int>(w), step, sent.message);
    ASSERT_TRUE(told.ok()) << told.status().ToString();
    for (const ReceivedSample& sample : *told) {
      sent.pixels.emplace_back(sample.pixels.begin(), sample.pixels.end());
    }
    worker.sent.push_back(std::move(sent));
  }

  // The worker gets the next message of `from`, if there is one.
  void Hear(size_t w, size_t from) {
    size_t& step = workers_[w].heard[from];
    if (step == workers_[from].sent.size()) return;
    const Sent& sent = workers_[from].sent[step];
    const auto got = workers_[w].exchange.OnMessage(static_cast<int>(from), step, sent.message);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    ASSERT_EQ(got->size(), sent.batch.size());
    for (size_t i = 0; i < got->size(); ++i) {
      const ReceivedSample& sample = (*got)[i];
      EXPECT_EQ(sample.id, sent.batch[i].id);
      EXPECT_EQ(sample.pass, sent.batch[i].pass);
      EXPECT_EQ(sample.label, sent.batch[i].id % kClassCount);
      EXPECT_DOUBLE_EQ(sample.weight, 1 / sent.batch[i].chance);
      ASSERT_TRUE(std::ranges::equal(sample.pixels, sent.pixels[i]));
    }
    ++step;
  }

  Chance chance_;
  const bool cached_, has_chances_;
  SampleExchange told_;  // which gets every message at once
  std::vector<Worker> workers_;
};

// A seed that fails is run alone with SAMPLE_EXCHANGE_SEED=N protocol_test.
TEST(SampleExchangeTest, AllReceiveTheSameInAnyOrder) {
  ForEachSchedule("SAMPLE_EXCHANGE_SEED", 1000, [](uint64_t seed) {
    Chance chance(Mix64(seed) + 1);
    const auto world = static_cast<int>(1 + chance.Below(5));
    SampleWorld samples(seed, world, chance.Of(.6), static_cast<int>(2 + chance.Below(7)));
    samples.Run(1 + chance.Below(12));
    samples.Check();
  });
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

// Whoever has two copies of a sample could not say which of them others may name later.
TEST(SampleExchangeTest, ASampleThatIsFreshTwiceIsRefused) {
  SampleExchange sender = MakeExchange(0, 2, /*cached=*/false);
  SampleExchange receiver = MakeExchange(1, 2, /*cached=*/true);
  const auto samples = receiver.OnMessage(0, 0, Send(&sender, 0, Batch({3, 3})));
  EXPECT_EQ(samples.status().code(), StatusCode::kCorruptData);
  EXPECT_THAT(samples.status().message(), testing::HasSubstr("sample 3 twice"));
}

TEST(SampleExchangeTest, PixelsOutliveWhatReplacesThem) {
  SampleExchange a = MakeExchange(0, 3), b = MakeExchange(1, 3), receiver = MakeExchange(2, 3);
  const auto first = receiver.OnMessage(0, 0, Send(&a, 0, Batch({3}))).value();
  const auto second = receiver.OnMessage(1, 0, Send(&b, 0, Batch({3}))).value();
  EXPECT_THAT(first[0].pixels, testing::ElementsAreArray(PixelsOf(3)));
  EXPECT_THAT(second[0].pixels, testing::ElementsAreArray(PixelsOf(3)));
}

TEST(SampleExchangeTest, WhatCouldNotBeReadTravelsTheNextTime) {
  SampleExchange sender = MakeExchange(0, 2), receiver = MakeExchange(1, 2);
  const auto fails = [](int64_t, std::span<uint8_t>) -> Result<int64_t> {
    return NotFound("the disk is gone");
  };
  EXPECT_FALSE(sender.OnBatch(0, Batch({3}), fails).ok());
  const auto samples = receiver.OnMessage(0, 1, Send(&sender, 1, Batch({3})));
  ASSERT_TRUE(samples.ok()) << samples.status().ToString();
  EXPECT_THAT((*samples)[0].pixels, testing::ElementsAreArray(PixelsOf(3)));
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
