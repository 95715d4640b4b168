// Loaders of workers on which the data lies, who read nothing but their own share.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "elastiquant/data/loader.h"
#include "elastiquant/data/own_share.h"

namespace elastiquant {
namespace {

// Samples of one pixel, which tells the index. It records which of them are read.
class RecordingDataset final : public Dataset {
 public:
  explicit RecordingDataset(int64_t train)
      : Dataset({"recording", "fake", 5, 1, 1, train, 10}) {}

  std::set<int64_t> TakeRead() const {
    const std::lock_guard lock(mutex_);
    return std::exchange(read_, {});
  }

 protected:
  Result<int64_t> ReadImage(Split split, int64_t index, const StreamKey*,
                            std::span<float> out) const override {
    const std::lock_guard lock(mutex_);
    if (split == Split::kTrain) read_.insert(index);
    out[0] = static_cast<float>(index);
    return index % 5;
  }
  Result<int64_t> ReadLabel(Split, int64_t index) const override { return index % 5; }

 private:
  mutable std::mutex mutex_;
  mutable std::set<int64_t> read_;
};

// The share of every third sample, from `rank` on, cut to `size`.
std::vector<int64_t> EveryThird(int64_t rank, size_t size) {
  std::vector<int64_t> share(size);
  for (size_t i = 0; i < size; ++i) share[i] = rank + 3 * static_cast<int64_t>(i);
  return share;
}

LoaderOptions OptionsOf(int rank, size_t size, int64_t dealt) {
  return {.batch = 4,
          .rank = rank,
          .world_size = 3,
          .seed = 7,
          .threads = 2,
          .share = EveryThird(rank, size),
          .dealt = dealt};
}

std::unique_ptr<TrainLoader> MakeLoader(std::shared_ptr<const Dataset> dataset,
                                        const LoaderOptions& options,
                                        LoaderPosition start = {}) {
  auto loader = TrainLoader::Make(std::move(dataset), options, start);
  EXPECT_TRUE(loader.ok()) << loader.status().ToString();
  return loader.ok() ? std::move(loader).value() : nullptr;
}

// The indices of the next batches' samples.
std::vector<int64_t> NextIndices(TrainLoader& loader, int batches) {
  std::vector<int64_t> indices;
  for (int b = 0; b < batches; ++b) {
    const auto batch = loader.Next();
    EXPECT_TRUE(batch.ok()) << batch.status().ToString();
    if (!batch.ok()) break;
    for (int64_t i = 0; i < batch->labels.numel(); ++i) {
      indices.push_back(static_cast<int64_t>(batch->inputs[i].item<float>()));
    }
  }
  return indices;
}

TEST(ShareLoaderTest, AWorkerReadsItsOwnShareOnlyAndAllOfIt) {
  const auto dataset = std::make_shared<RecordingDataset>(300);
  for (const size_t size : {1, 3, 4, 17, 100}) {
    for (int rank = 0; rank < 3; ++rank) {
      const auto options = OptionsOf(rank, size, 120);
      {
        auto loader = MakeLoader(dataset, options);
        EXPECT_EQ(loader->steps_per_epoch(), 10) << "whatever the share";
        NextIndices(*loader, static_cast<int>(size / 4 + 3));
      }
      const std::set<int64_t> share(options.share.begin(), options.share.end());
      EXPECT_EQ(dataset->TakeRead(), share) << size;
    }
  }
}

TEST(ShareLoaderTest, EachPassIsAPermutationOfTheShare) {
  for (const size_t size : {1, 3, 5, 50, 90}) {
    const auto options = OptionsOf(1, size, 120);
    auto loader = MakeLoader(std::make_shared<RecordingDataset>(300), options);
    const std::vector<int64_t> read = NextIndices(*loader, 100);
    const auto length = static_cast<std::ptrdiff_t>(size);
    std::set<std::vector<int64_t>> orders;
    for (auto pass = read.begin(); read.end() - pass >= length; pass += length) {
      std::vector<int64_t> sorted(pass, pass + length);
      orders.insert(sorted);
      std::ranges::sort(sorted);
      ASSERT_EQ(sorted, options.share) << size;
    }
    if (size == 3) {
      EXPECT_EQ(orders.size(), 6u) << "all that there are";
    } else if (size >= 50) {
      EXPECT_EQ(orders.size(), read.size() / size) << "none comes twice";
    }
  }
}

TEST(ShareLoaderTest, ResumesAtAnyStepExactly) {
  const auto dataset = std::make_shared<RecordingDataset>(300);
  for (const size_t size : {3, 17, 100}) {
    const auto options = OptionsOf(2, size, 120);
    const std::vector<int64_t> whole = NextIndices(*MakeLoader(dataset, options), 35);
    for (int64_t done = 0; done < 30; ++done) {
      auto resumed = MakeLoader(dataset, options, {.epoch = done / 10, .step = done % 10});
      const std::vector<int64_t> rest(whole.begin() + 4 * done, whole.begin() + 4 * (done + 5));
      ASSERT_EQ(NextIndices(*resumed, 5), rest) << done;
    }
  }
}

TEST(ShareLoaderTest, WorkersWithEqualSharesHaveOrdersOfTheirOwn) {
  const auto dataset = std::make_shared<RecordingDataset>(300);
  LoaderOptions options = OptionsOf(0, 20, 120);
  const std::vector<int64_t> first = NextIndices(*MakeLoader(dataset, options), 5);
  options.rank = 1;
  EXPECT_NE(NextIndices(*MakeLoader(dataset, options), 5), first);
}

TEST(ShareLoaderTest, BatchesSayWhichSamplesTheyHave) {
  const auto dataset = std::make_shared<RecordingDataset>(300);
  const auto options = OptionsOf(1, 17, 120);
  const std::vector<int64_t> read = NextIndices(*MakeLoader(dataset, options), 10);
  auto loader = MakeLoader(dataset, options);
  std::vector<int64_t> told;
  for (int step = 0; step < 10; ++step) {
    const Batch batch = loader->Next().value();
    for (const PlannedSample& sample : batch.samples) {
      EXPECT_EQ(sample.pass, static_cast<int64_t>(told.size()) / 17);
      EXPECT_EQ(sample.augment.value,
                AugmentKey(options.seed, sample.pass, sample.index).value);
      told.push_back(sample.index);
    }
  }
  EXPECT_EQ(told, read);
}

TEST(ShareLoaderTest, SharesAreChecked) {
  const auto dataset = std::make_shared<RecordingDataset>(30);
  LoaderOptions options = OptionsOf(0, 5, 12);
  EXPECT_TRUE(TrainLoader::Make(dataset, options).ok());
  options.dealt = 11;
  EXPECT_EQ(TrainLoader::Make(dataset, options).status().code(), StatusCode::kInvalidArgument);
  options.dealt = 12;
  options.share.push_back(30);
  EXPECT_EQ(TrainLoader::Make(dataset, options).status().code(), StatusCode::kInvalidArgument);
}

TEST(OwnShareTest, OtherSamplesCannotBeRead) {
  const std::vector<int64_t> samples = {2, 5, 29};
  auto made = OwnShareOf(std::make_shared<RecordingDataset>(30), samples);
  ASSERT_TRUE(made.ok());
  const Dataset& mine = **made;
  float value = 0;
  for (int64_t i = 0; i < 30; ++i) {
    const bool is_mine = i == 2 || i == 5 || i == 29;
    const Status read = mine.Read(Split::kTrain, i, nullptr, {&value, 1}).status();
    EXPECT_EQ(read.code(), is_mine ? StatusCode::kOk : StatusCode::kOutOfRange) << i;
    EXPECT_EQ(mine.Label(Split::kTrain, i).ok(), is_mine) << i;
  }
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_TRUE(mine.Read(Split::kTest, i, nullptr, {&value, 1}).ok()) << "all may test";
  }
  EXPECT_EQ(mine.Read(Split::kTrain, 3, nullptr, {&value, 1}).status().message(),
            "training sample 3 is not in this worker's share");
  EXPECT_EQ(mine.Label(Split::kTrain, 5).value(), 0);
  EXPECT_EQ(mine.Label(Split::kTest, 10).status().code(), StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace elastiquant
