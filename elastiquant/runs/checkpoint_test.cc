#include "elastiquant/runs/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace elastiquant {
namespace {

namespace fs = std::filesystem;

Checkpoint Example(uint8_t salt) {
  Checkpoint checkpoint;
  checkpoint.metadata["progress"] = "{\"crc32c\":\"" + std::to_string(salt) + "\"}";
  checkpoint.tensors["fc.weight"] = {"U8", {10, 100}, std::vector<uint8_t>(1000, salt)};
  checkpoint.tensors["optimizer.momentum.fc.weight"] = {"F32", {0}, {}};
  return checkpoint;
}

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    run_ = fs::temp_directory_path() /
           (std::string("eq_") + test->name() + "_" + std::to_string(getpid()));
    fs::create_directories(run_);
  }
  void TearDown() override { fs::remove_all(run_); }

  void Damage(const fs::path& file, std::streamoff at) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at);
    const int byte = stream.get();
    stream.seekp(at);
    stream.put(static_cast<char>(byte ^ 0x40));
  }
  fs::path run_;
};

TEST_F(CheckpointTest, RoundTrip) {
  const auto bytes = SerializeCheckpoint(Example(7));
  const auto back = ParseCheckpoint(bytes);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(*back, Example(7));
  const auto empty = ParseCheckpoint(SerializeCheckpoint({}));
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(*empty, Checkpoint());
}

TEST_F(CheckpointTest, IsSafetensorsWithAChecksum) {
  const auto file = ParseSafetensors(SerializeCheckpoint(Example(7)));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors, Example(7).tensors);
  EXPECT_EQ(file->metadata.at("format"), "pt");
  EXPECT_EQ(file->metadata.at("progress"), Example(7).metadata.at("progress"));
  EXPECT_EQ(file->metadata.at("crc32c").size(), 8u);
  EXPECT_TRUE(IsCheckpoint(*file));
  EXPECT_FALSE(IsCheckpoint(Example(7)));
}

TEST_F(CheckpointTest, FilesOfOtherWritersAndVersionsAreRefused) {
  const std::string none = ParseCheckpoint(SerializeSafetensors(Example(7))).status().message();
  EXPECT_NE(none.find("checksum check failed: the metadata has no crc32c"), std::string::npos)
      << none;
  // Written again by another writer, with the checksum of the first.
  auto again = ParseSafetensors(SerializeCheckpoint(Example(7))).value();
  again.tensors["fc.weight"].bytes[3] = 8;
  EXPECT_EQ(ParseCheckpoint(SerializeSafetensors(again)).status().message(),
            "checksum check failed");
}

TEST_F(CheckpointTest, EveryTruncationAndEveryFlippedBitIsFound) {
  const auto bytes = SerializeCheckpoint(
      {.metadata = {{"k", "text"}}, .tensors = {{"a", {"U8", {3}, {1, 2, 3}}}}});
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto parsed = ParseCheckpoint(std::span(bytes).first(size));
    ASSERT_FALSE(parsed.ok()) << size;
    EXPECT_EQ(parsed.status().code(), StatusCode::kCorruptData);
    EXPECT_NE(parsed.status().message().find("check failed"), std::string::npos);
  }
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto damaged = bytes;
    damaged[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    const auto parsed = ParseCheckpoint(damaged);
    ASSERT_FALSE(parsed.ok()) << bit;
    EXPECT_NE(parsed.status().message().find("check failed"), std::string::npos);
  }
  auto longer = bytes;
  longer.push_back(0);
  EXPECT_FALSE(ParseCheckpoint(longer).ok());
}

TEST_F(CheckpointTest, TheNewestTwoAreKept) {
  for (int64_t step : {5, 10, 100, 20}) {
    ASSERT_TRUE(SaveCheckpoint(run_, step, Example(static_cast<uint8_t>(step))).ok());
  }
  const auto files = ListCheckpoints(run_);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].step, 100);
  EXPECT_EQ(files[1].step, 20);
  for (const auto& entry : fs::directory_iterator(run_)) {
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
  }
}

TEST_F(CheckpointTest, ADamagedNewestFallsBackToTheOneBefore) {
  ASSERT_TRUE(SaveCheckpoint(run_, 1, Example(1)).ok());
  ASSERT_TRUE(SaveCheckpoint(run_, 2, Example(2)).ok());
  Damage(ListCheckpoints(run_)[0].path, 900);
  std::vector<std::string> complaints;
  const auto loaded = LoadNewestCheckpoint(run_, &complaints);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->step, 1);
  EXPECT_EQ(loaded->contents, Example(1));
  ASSERT_EQ(complaints.size(), 1u);
  EXPECT_NE(complaints[0].find("checkpoint-2.safetensors"), std::string::npos) << complaints[0];
  EXPECT_NE(complaints[0].find("checksum check failed"), std::string::npos) << complaints[0];
}

TEST_F(CheckpointTest, WithNoneLeftTheErrorIsTheNewestOnes) {
  std::vector<std::string> complaints;
  EXPECT_EQ(LoadNewestCheckpoint(run_, &complaints).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(SaveCheckpoint(run_, 1, Example(1)).ok());
  ASSERT_TRUE(SaveCheckpoint(run_, 2, Example(2)).ok());
  for (const auto& file : ListCheckpoints(run_)) fs::resize_file(file.path, 100);
  const Status status = LoadNewestCheckpoint(run_, &complaints).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_NE(status.message().find("checkpoint-2.safetensors"), std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("length check failed"), std::string::npos);
  EXPECT_EQ(complaints.size(), 2u);
  // Whoever starts the run again and again must not lose it to a new one in silence.
  const Status again = LoadNewestCheckpoint(run_, &complaints).status();
  EXPECT_EQ(again.code(), StatusCode::kCorruptData);
  EXPECT_NE(again.message().find("set aside as *.corrupt"), std::string::npos);
  EXPECT_EQ(ListSetAside(run_).size(), 2u);
}

TEST_F(CheckpointTest, OneThatCannotBeReadStaysWhereItIs) {
  ASSERT_TRUE(SaveCheckpoint(run_, 1, Example(1)).ok());
  fs::create_directory(run_ / "checkpoint-2.safetensors");  // which even root cannot read
  std::vector<std::string> complaints;
  const Status status = LoadNewestCheckpoint(run_, &complaints).status();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.code(), StatusCode::kCorruptData) << status.ToString();
  EXPECT_TRUE(ListSetAside(run_).empty());
  EXPECT_EQ(ListCheckpoints(run_).size(), 2u);
}

// As where a disk is not mounted. A run that took it for none would begin again from step 0.
TEST_F(CheckpointTest, ALinkToOneThatIsNotThereIsNoMissingCheckpoint) {
  ASSERT_TRUE(SaveCheckpoint(run_, 1, Example(1)).ok());
  fs::create_symlink(run_ / "unmounted", run_ / "checkpoint-2.safetensors");
  std::vector<std::string> complaints;
  const Status status = LoadNewestCheckpoint(run_, &complaints).status();
  EXPECT_EQ(status.code(), StatusCode::kIo) << status.ToString();
  EXPECT_NE(status.message().find("checkpoint-2.safetensors"), std::string::npos);
}

TEST_F(CheckpointTest, AFolderThatCannotBeListedIsNoEmptyOne) {
  std::ofstream(run_ / "file") << "text";
  std::vector<std::string> complaints;
  EXPECT_EQ(LoadNewestCheckpoint(run_ / "file", &complaints).status().code(), StatusCode::kIo);
  EXPECT_EQ(LoadNewestCheckpoint(run_ / "none", &complaints).status().code(),
            StatusCode::kNotFound);
}

TEST_F(CheckpointTest, WhatCannotBeWrittenLeavesNoPartOfIt) {
  fs::create_directory(run_ / "checkpoint-1.safetensors");
  std::ofstream(run_ / "checkpoint-1.safetensors" / "file") << "text";
  EXPECT_EQ(SaveCheckpoint(run_, 1, Example(1)).code(), StatusCode::kIo);
  EXPECT_FALSE(fs::exists(run_ / "checkpoint-1.safetensors.tmp"));
}

TEST_F(CheckpointTest, AWorkersOwnOfLaterStepsMakeWay) {
  for (const int64_t step : {10, 20, 30}) {
    ASSERT_TRUE(SaveWorkerCheckpoint(run_, step, 1, Example(1)).ok());
    ASSERT_TRUE(SaveWorkerCheckpoint(run_, step, 2, Example(2)).ok());
  }
  // The run's of steps 20 and 30 proved damaged, and it goes on from step 10.
  ASSERT_TRUE(SaveWorkerCheckpoint(run_, 15, 1, Example(3)).ok());
  EXPECT_EQ(ReadWorkerCheckpoint(run_, 15, 1).value(), Example(3));
  EXPECT_TRUE(ReadWorkerCheckpoint(run_, 10, 1).ok());
  EXPECT_FALSE(ReadWorkerCheckpoint(run_, 20, 1).ok());
  EXPECT_FALSE(ReadWorkerCheckpoint(run_, 30, 1).ok());
  EXPECT_TRUE(ReadWorkerCheckpoint(run_, 30, 2).ok());
}

TEST_F(CheckpointTest, AllAreRemovedWithWhatBelongsToThem) {
  ASSERT_TRUE(SaveCheckpoint(run_, 1, Example(1)).ok());
  ASSERT_TRUE(SaveWorkerCheckpoint(run_, 1, 3, Example(1)).ok());
  for (const char* name : {"checkpoint-2.safetensors.corrupt", "checkpoint-3.safetensors.tmp",
                           "checkpoint-8.eqc", "mine"}) {
    std::ofstream(run_ / name) << "text";
  }
  RemoveCheckpoints(run_);
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(run_))
    left.push_back(entry.path().filename());
  EXPECT_EQ(left, std::vector<std::string>{"mine"});
}

TEST_F(CheckpointTest, OlderOnesAreNamed) {
  for (const char* name : {"checkpoint-8.eqc", "checkpoint-8.worker-1.eqc", "notes.eqc"}) {
    std::ofstream(run_ / name) << "EQCK";
  }
  EXPECT_EQ(ListOlderCheckpoints(run_).size(), 2u);
  std::vector<std::string> complaints;
  const Status status = LoadNewestCheckpoint(run_, &complaints).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("come from an older version"), std::string::npos);
  EXPECT_NE(status.message().find("--overwrite"), std::string::npos);
  ASSERT_TRUE(SaveCheckpoint(run_, 1, Example(1)).ok());
  EXPECT_TRUE(LoadNewestCheckpoint(run_, &complaints).ok());
}

TEST_F(CheckpointTest, AnUnwritableFolderIsNamed) {
  const Status status = SaveCheckpoint(run_ / "missing", 1, Example(1));
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_NE(status.message().find("missing"), std::string::npos);
}

}  // namespace
}  // namespace elastiquant
