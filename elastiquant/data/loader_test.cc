#include "elastiquant/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <thread>
#include <vector>

namespace elastiquant {
namespace {

// Images of 1 x 2 x 2 whose pixels tell the sample's index, split and augmentation key; one
// sample may be broken.
class FakeDataset : public Dataset {
 public:
  FakeDataset(int64_t train, int64_t test, int64_t broken = -1)
      : Dataset({"fake", "fake", 5, 1, 2, train, test}), broken_(broken) {}

 protected:
  Result<int64_t> ReadImage(Split split, int64_t index, const StreamKey* augment,
                            std::span<float> out) const override {
    if (index == broken_) return CorruptData("sample is broken");
    out[0] = static_cast<float>(index);
    out[1] = split == Split::kTrain ? 0.0f : 1.0f;
    out[2] = augment ? static_cast<float>(augment->value >> 44) : -1.0f;
    out[3] = 0;
    return index % 5;
  }
  Result<int64_t> ReadLabel(Split, int64_t index) const override { return index % 5; }

 private:
  int64_t broken_;
};

using Image = std::array<float, 4>;

std::vector<Image> Images(const Batch& batch) {
  std::vector<Image> images(static_cast<size_t>(batch.inputs.size(0)));
  const float* values = batch.inputs.data_ptr<float>();
  for (size_t i = 0; i < images.size(); ++i) {
    std::copy_n(values + 4 * i, 4, images[i].begin());
    EXPECT_EQ(batch.labels[static_cast<int64_t>(i)].item<int64_t>(),
              static_cast<int64_t>(images[i][0]) % 5);
  }
  return images;
}

std::unique_ptr<TrainLoader> MakeTrain(std::shared_ptr<const Dataset> dataset,
                                       const LoaderOptions& options,
                                       LoaderPosition start = {}) {
  auto loader = TrainLoader::Make(std::move(dataset), options, start);
  EXPECT_TRUE(loader.ok()) << loader.status().ToString();
  return loader.ok() ? std::move(loader).value() : nullptr;
}

std::vector<Image> NextImages(TrainLoader* loader) {
  const auto batch = loader->Next();
  EXPECT_TRUE(batch.ok());
  return batch.ok() ? Images(*batch) : std::vector<Image>{};
}

TEST(TrainLoaderTest, RanksTogetherSeeEachSampleAtMostOnceAnEpoch) {
  const auto dataset = std::make_shared<FakeDataset>(103, 1);
  constexpr int kWorld = 3;
  std::vector<std::vector<float>> orders;
  std::vector<std::unique_ptr<TrainLoader>> loaders;
  for (int rank = 0; rank < kWorld; ++rank) {
    loaders.push_back(
        MakeTrain(dataset, {.batch = 8, .rank = rank, .world_size = kWorld, .seed = 3}));
    EXPECT_EQ(loaders.back()->steps_per_epoch(), 4);
  }
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::map<float, int> seen;
    std::vector<float> order;
    for (int64_t step = 0; step < 4; ++step) {
      for (auto& loader : loaders) {
        for (const Image& image : NextImages(loader.get())) {
          ++seen[image[0]];
          order.push_back(image[0]);
          EXPECT_EQ(image[1], 0.0f);
        }
      }
    }
    EXPECT_EQ(seen.size(), 96u);
    for (const auto& [index, count] : seen) EXPECT_EQ(count, 1) << index;
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(TrainLoaderTest, GlobalOrderDoesNotDependOnTheNumberOfWorkers) {
  const auto dataset = std::make_shared<FakeDataset>(64, 1);
  auto whole = MakeTrain(dataset, {.batch = 16, .seed = 9});
  std::vector<std::unique_ptr<TrainLoader>> parts;
  for (int rank = 0; rank < 4; ++rank) {
    parts.push_back(MakeTrain(dataset, {.batch = 4, .rank = rank, .world_size = 4, .seed = 9}));
  }
  for (int step = 0; step < 6; ++step) {
    std::vector<Image> joined;
    for (auto& part : parts) {
      for (const Image& image : NextImages(part.get())) joined.push_back(image);
    }
    EXPECT_EQ(NextImages(whole.get()), joined);
  }
}

// Frozen: the weights of every run depend on it.
TEST(TrainLoaderTest, TheOrderStaysWhatItWas) {
  auto loader = MakeTrain(std::make_shared<FakeDataset>(40, 1),
                          {.batch = 5, .rank = 1, .world_size = 2, .seed = 3}, {1, 2});
  std::vector<float> order;
  for (int step = 0; step < 2; ++step) {
    for (const Image& image : NextImages(loader.get())) order.push_back(image[0]);
  }
  EXPECT_EQ(order, (std::vector<float>{22, 19, 36, 38, 37, 30, 1, 20, 12, 31}));
}

TEST(TrainLoaderTest, ThreadsAndPrefetchDoNotShow) {
  const auto dataset = std::make_shared<FakeDataset>(50, 1);
  auto one = MakeTrain(dataset, {.batch = 4, .seed = 1, .threads = 1, .prefetch = 1});
  auto many = MakeTrain(dataset, {.batch = 4, .seed = 1, .threads = 4, .prefetch = 7});
  for (int step = 0; step < 40; ++step) {
    ASSERT_EQ(NextImages(one.get()), NextImages(many.get())) << step;
  }
}

TEST(TrainLoaderTest, ResumesExactlyWhereItStopped) {
  const auto dataset = std::make_shared<FakeDataset>(50, 1);
  const LoaderOptions options{.batch = 4, .rank = 1, .world_size = 2, .seed = 1};
  auto whole = MakeTrain(dataset, options);
  for (int step = 0; step < 17; ++step) NextImages(whole.get());
  auto resumed = MakeTrain(dataset, options, LoaderPosition{2, 5});
  for (int step = 0; step < 20; ++step) {
    ASSERT_EQ(NextImages(whole.get()), NextImages(resumed.get()));
  }
}

TEST(TrainLoaderTest, AugmentationFollowsSeedEpochAndSample) {
  const auto dataset = std::make_shared<FakeDataset>(16, 1);
  auto keys = [&](uint64_t seed, bool augment) {
    auto loader = MakeTrain(dataset, {.batch = 16, .seed = seed, .augment = augment});
    std::map<float, std::vector<float>> keys_of;
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (const Image& image : NextImages(loader.get())) keys_of[image[0]].push_back(image[2]);
    }
    return keys_of;
  };
  EXPECT_EQ(keys(1, true), keys(1, true));
  EXPECT_NE(keys(1, true), keys(2, true));
  for (const auto& [index, values] : keys(1, true)) {
    EXPECT_NE(values[0], values[1]) << index;
    EXPECT_NE(values[1], values[2]) << index;
  }
  for (const auto& [index, values] : keys(1, false)) {
    EXPECT_EQ(values, std::vector<float>(3, -1.0f)) << index;
  }
}

TEST(TrainLoaderTest, BatchStaysWhileTheNextArePrepared) {
  auto loader = MakeTrain(std::make_shared<FakeDataset>(1000, 1),
                          {.batch = 10, .threads = 3, .prefetch = 2});
  for (int step = 0; step < 50; ++step) {
    const auto batch = loader->Next();
    ASSERT_TRUE(batch.ok());
    EXPECT_TRUE(batch->inputs.is_contiguous(at::MemoryFormat::ChannelsLast));
    const auto before = Images(*batch);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    EXPECT_EQ(Images(*batch), before);
  }
}

TEST(TrainLoaderTest, ReadErrorsReachTheCaller) {
  auto loader = MakeTrain(std::make_shared<FakeDataset>(20, 1, 13), {.batch = 5});
  Status status;
  for (int step = 0; step < 4 && status.ok(); ++step) status = loader->Next().status();
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
}

TEST(TrainLoaderTest, BadOptionsAreRefused) {
  const auto dataset = std::make_shared<FakeDataset>(20, 1);
  auto refused = [&](const LoaderOptions& options, LoaderPosition start = {}) {
    return TrainLoader::Make(dataset, options, start).status().code() ==
           StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({.batch = 0}));
  EXPECT_TRUE(refused({.rank = 2, .world_size = 2}));
  EXPECT_TRUE(refused({.rank = -1}));
  EXPECT_TRUE(refused({.batch = 4, .threads = 0}));
  EXPECT_TRUE(refused({.batch = 4, .prefetch = 0}));
  EXPECT_TRUE(refused({.batch = 11, .world_size = 2}));
  EXPECT_TRUE(refused({.batch = 4}, {.epoch = 0, .step = 5}));
  EXPECT_TRUE(refused({.batch = 4}, {.epoch = -1, .step = 0}));
}

TEST(TestLoaderTest, RanksTogetherSeeEachSampleOnceOnEveryPass) {
  for (const int64_t samples : {0, 1, 5, 16, 37}) {
    const auto dataset = std::make_shared<FakeDataset>(1, samples);
    for (const int world : {1, 3, 4}) {
      std::map<float, int> seen;
      for (int rank = 0; rank < world; ++rank) {
        auto made = TestLoader::Make(
            dataset, {.batch = 4, .rank = rank, .world_size = world, .threads = 2});
        ASSERT_TRUE(made.ok());
        const auto loader = std::move(made).value();
        for (int pass = 0; pass < 2; ++pass, loader->Rewind()) {
          int64_t count = 0;
          while (true) {
            const auto batch = loader->Next();
            ASSERT_TRUE(batch.ok());
            if (!batch->has_value()) break;
            for (const Image& image : Images(**batch)) {
              ++seen[image[0]];
              ++count;
              EXPECT_EQ(image[1], 1.0f);
              EXPECT_EQ(image[2], -1.0f);
            }
          }
          EXPECT_EQ(count, samples * (rank + 1) / world - samples * rank / world);
        }
      }
      EXPECT_EQ(seen.size(), static_cast<size_t>(samples));
      for (const auto& [index, count] : seen) EXPECT_EQ(count, 2) << index;
    }
  }
}

}  // namespace
}  // namespace elastiquant
