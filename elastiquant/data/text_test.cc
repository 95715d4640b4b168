#include "elastiquant/data/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "elastiquant/data/generated_text.h"
#include "elastiquant/data/loader.h"

namespace elastiquant {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class TextTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void Put(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  static std::string Sample(const Dataset& text, Split split, int64_t index,
                            const StreamKey* augment = nullptr) {
    std::vector<float> values(static_cast<size_t>(text.info().floats_per_sample()));
    EXPECT_TRUE(text.Read(split, index, augment, values).ok());
    std::string sample;
    for (const float v : values) sample += static_cast<char>(static_cast<uint8_t>(v));
    return sample;
  }

  fs::path folder_;
};

TEST_F(TextTest, SamplesFollowEachOther) {
  std::string all;
  for (int i = 0; i < 100; ++i) all += static_cast<char>(128 + i);
  Put("book", all);
  const auto text = OpenDataset((folder_ / "book").string(), {.context = 4}).value();
  EXPECT_EQ(text->info().format, "text");
  EXPECT_EQ(text->info().classes, 256);
  EXPECT_EQ(text->info().train_size, 22);  // of 90 bytes
  EXPECT_EQ(text->info().test_size, 2);    // of the last 10
  EXPECT_EQ(Sample(*text, Split::kTrain, 0), all.substr(0, 5));
  EXPECT_EQ(Sample(*text, Split::kTrain, 21), all.substr(84, 5));
  EXPECT_EQ(Sample(*text, Split::kTest, 0), all.substr(90, 5));
  EXPECT_EQ(Sample(*text, Split::kTest, 1), all.substr(94, 5));
}

TEST_F(TextTest, AugmentationMovesSamplesWithinTheText) {
  std::string all;
  for (int i = 0; i < 200; ++i) all += static_cast<char>(i);
  Put("book", all);
  const auto text = OpenText((folder_ / "book").string(), {.context = 16}).value();
  for (int64_t index = 0; index < text->info().train_size; ++index) {
    std::set<size_t> begins;
    for (uint64_t k = 0; k < 200; ++k) {
      const StreamKey key = DeriveKey(k, 0, 0, 0);
      const std::string sample = Sample(*text, Split::kTrain, index, &key);
      const size_t begin = all.substr(0, 180).find(sample);
      ASSERT_NE(begin, std::string::npos) << "beyond the training split";
      EXPECT_GE(begin, 16 * static_cast<size_t>(index));
      EXPECT_LT(begin, 16 * static_cast<size_t>(index) + 16);
      begins.insert(begin);
    }
    if (index + 1 == text->info().train_size) continue;  // whose room ends with the split
    EXPECT_EQ(begins.size(), 16u);
  }
}

TEST_F(TextTest, ThereAreNoLabels) {
  Put("book", std::string(100, 'a'));
  const auto text = OpenDataset((folder_ / "book").string(), {.context = 8}).value();
  EXPECT_EQ(text->Label(Split::kTrain, 0).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(text->Labels(Split::kTrain).status().code(), StatusCode::kUnsupported);
}

TEST_F(TextTest, AFolderIsItsFilesInOrder) {
  Put("b/second", "bbbbbbbbbb");
  Put("a", "aaaaaaaaaa");
  Put(".hidden", "xxxxxxxxxx");
  Put(".git/file", "yyyyyyyyyy");
  const auto text = OpenText(folder_.string(), {.context = 1}).value();
  EXPECT_EQ(text->info().train_size, 17);
  EXPECT_EQ(Sample(*text, Split::kTrain, 9), "ab");
}

TEST_F(TextTest, WhatCannotBeReadIsNamed) {
  const auto error = [&](const std::string& source, int64_t context) {
    return OpenDataset(source, {.context = context}).status().message();
  };
  EXPECT_THAT(error((folder_ / "none").string(), 8), HasSubstr("there is no text in"));
  EXPECT_THAT(error(folder_.string(), 8), HasSubstr("\"generated-text\""));
  Put("short", "nine text");
  EXPECT_THAT(error((folder_ / "short").string(), 8), HasSubstr("one sample needs 9"));
  Put("large", "");
  std::filesystem::resize_file(folder_ / "large", (uintmax_t{1} << 30) + 1);  // takes no room
  EXPECT_THAT(error((folder_ / "large").string(), 8), HasSubstr("more than a GiB of text"));
  std::filesystem::remove(folder_ / "large");
  EXPECT_THAT(error("generated", 8), HasSubstr("cannot be trained on the images"));
  EXPECT_THAT(error("generated-text", 0), HasSubstr("for language models"));
}

TEST_F(TextTest, LoadersGiveBatchesOfIt) {
  Put("book", std::string(1000, 'x'));
  const std::shared_ptr<const Dataset> text =
      OpenText((folder_ / "book").string(), {.context = 9}).value();
  const auto loader = TrainLoader::Make(text, {.batch = 4}).value();
  const Batch batch = loader->Next().value();
  EXPECT_EQ(batch.inputs.sizes(), (std::vector<int64_t>{4, 10}));
  EXPECT_TRUE(batch.inputs.eq('x').all().item<bool>());
}

TEST(GeneratedText, IsTheSameEachTimeAndDiffersBySplitAndSeed) {
  const DatasetOptions options{
      .seed = 3, .generated_train = 50, .generated_test = 50, .context = 64};
  const std::string train = GenerateText(options, Split::kTrain).value();
  EXPECT_EQ(train.size(), 50u * 64 + 1);
  EXPECT_EQ(train, GenerateText(options, Split::kTrain).value());
  EXPECT_NE(train, GenerateText(options, Split::kTest).value());
  DatasetOptions other = options;
  other.seed = 4;
  EXPECT_NE(train, GenerateText(other, Split::kTrain).value());
  DatasetOptions longer = options;
  longer.generated_train = 60;
  EXPECT_EQ(GenerateText(longer, Split::kTrain)->substr(0, 3200), train.substr(0, 3200));
  other.generated_train = 0;
  EXPECT_EQ(GenerateText(other, Split::kTrain).status().code(), StatusCode::kInvalidArgument);
}

// There are many words, none of them made up on the spot, and sentences that add numbers up.
TEST(GeneratedText, HasTheSpreadOfALanguage) {
  const std::string text =
      GenerateText({.generated_train = 2000, .context = 128}, Split::kTrain).value();
  std::set<std::string> words;
  std::string word;
  size_t count = 0;
  for (const char c : text) {
    if (c >= 'a' && c <= 'z') {
      word += c;
    } else if (!word.empty()) {
      words.insert(word);
      word.clear();
      ++count;
    }
  }
  EXPECT_GT(count, 30000u);
  EXPECT_GT(words.size(), 800u) << "with their endings";
  EXPECT_LT(words.size(), 3000u);
  EXPECT_NE(text.find(": 1"), std::string::npos) << "a sum";
}

}  // namespace
}  // namespace elastiquant
