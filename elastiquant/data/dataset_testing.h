// What the tests of data sets share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "elastiquant/data/dataset.h"

namespace elastiquant {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

// Gives each test a folder of its own, and does what tests do with data sets in it.
class DatasetTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "eq_dataset_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }

  void Write(const fs::path& name, const Bytes& bytes) {
    fs::create_directories((directory_ / name).parent_path());
    std::ofstream file(directory_ / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  Bytes ReadBack(const fs::path& name) {
    std::ifstream file(directory_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  Result<std::shared_ptr<const Dataset>> Open(const DatasetOptions& options = {}) {
    return OpenDataset(directory_.string(), options);
  }
  std::shared_ptr<const Dataset> MustOpen(const DatasetOptions& options = {}) {
    auto dataset = Open(options);
    EXPECT_TRUE(dataset.ok()) << dataset.status().ToString();
    return dataset.ok() ? *dataset : nullptr;
  }
  // Expects that opening fails with this code and a message that holds every one of `words`.
  void ExpectError(StatusCode code, const std::vector<std::string>& words,
                   const DatasetOptions& options = {}) {
    const auto dataset = Open(options);
    ASSERT_FALSE(dataset.ok());
    EXPECT_EQ(dataset.status().code(), code) << dataset.status().ToString();
    for (const std::string& word : words) {
      EXPECT_NE(dataset.status().message().find(word), std::string::npos)
          << dataset.status().message() << "\nlacks " << word;
    }
  }

  fs::path directory_;
};

struct Sample {
  int64_t label = -1;
  std::vector<float> values;
};

inline Sample ReadSample(const Dataset& dataset, Split split, int64_t index,
                         const StreamKey* key = nullptr) {
  Sample sample;
  sample.values.assign(static_cast<size_t>(dataset.info().floats_per_sample()), NAN);
  const auto label = dataset.Read(split, index, key, sample.values);
  EXPECT_TRUE(label.ok()) << label.status().ToString();
  if (label.ok()) sample.label = *label;
  EXPECT_EQ(dataset.Label(split, index).value(), sample.label) << "as told without the image";
  return sample;
}

}  // namespace elastiquant
