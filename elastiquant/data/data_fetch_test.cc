#include "elastiquant/data/data_fetch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/data/dataset.h"
#include "elastiquant/data/md5.h"

namespace elastiquant {
namespace {

namespace fs = std::filesystem;

std::string Digest(std::string_view text) {
  return *Md5Of({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

TEST(Md5Test, VectorsOfRfc1321) {
  EXPECT_EQ(Digest(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(Digest("a"), "0cc175b9c0f1b6a831c399e269772661");
  EXPECT_EQ(Digest("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
  EXPECT_EQ(Digest("1234567890123456789012345678901234567890123456789012345678901234567890"
                   "1234567890"),
            "57edf4a22be3c955ac49da2e2107b67a");
}

TEST(FindFetchSourceTest, KnowsThePublishedChecksums) {
  EXPECT_EQ(FindFetchSource("cifar10")->files[0].md5, "c32a1d4ab5d03f1284b67883e8d87530");
  EXPECT_EQ(FindFetchSource("cifar100")->files[0].md5, "03b5dce01913d631647c71ecec9e9cb8");
  EXPECT_EQ(FindFetchSource("mnist")->files.size(), 4u);
  const auto unknown = FindFetchSource("imagenet");
  EXPECT_EQ(unknown.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(unknown.status().message().find("cifar100"), std::string::npos);
}

// A server is played by a folder: curl fetches file:// URLs by the same path.
class FetchTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("curl --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "curl is missing";
    std::string name = (fs::temp_directory_path() / "eq_fetch_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    const fs::path made = root_ / "server/set";
    fs::create_directories(made);
    WriteRecords(made / "train.bin", 30);
    WriteRecords(made / "test.bin", 5);
    const std::string tar =
        "tar -czf '" + Archive().string() + "' -C '" + (root_ / "server").string() + "' set";
    ASSERT_EQ(std::system(tar.c_str()), 0);
    source_ = {"tiny",
               "cifar100",
               FolderUrl((root_ / "server").string()),
               {{"set.tar.gz", *Md5OfFile(Archive()), true}}};
  }
  void TearDown() override {
    if (!root_.empty()) fs::remove_all(root_);
  }

  static void WriteRecords(const fs::path& path, int count) {
    std::ofstream file(path, std::ios::binary);
    for (int i = 0; i < count; ++i) {
      std::string record(3074, static_cast<char>(i));
      for (size_t k = 2; k < record.size(); ++k) {  // hard to compress, so that halves are long
        record[k] = static_cast<char>(Mix64(static_cast<uint64_t>(i) * 4096 + k));
      }
      file << record;
    }
  }
  fs::path Archive() const { return root_ / "server/set.tar.gz"; }
  fs::path Target() const { return root_ / "data/here"; }
  fs::path Part() const { return Target() / "set.tar.gz.part"; }

  void ExpectFetched() {
    const Status status = FetchDataset(source_, Target());
    ASSERT_TRUE(status.ok()) << status.ToString();
    const auto dataset = OpenDataset(Target().string(), {});
    ASSERT_TRUE(dataset.ok()) << dataset.status().ToString();
    EXPECT_EQ((*dataset)->info().train_size, 30);
    EXPECT_EQ((*dataset)->info().test_size, 5);
    EXPECT_FALSE(fs::exists(Part()));
    EXPECT_FALSE(fs::exists(Target() / "set.tar.gz"));
  }
  // Copies the first `size` bytes of the archive where a broken download would leave them.
  void LeavePart(uintmax_t size) {
    fs::create_directories(Target());
    fs::copy_file(Archive(), Part());
    fs::resize_file(Part(), size);
  }

  fs::path root_;
  FetchSource source_;
};

TEST_F(FetchTest, DownloadsVerifiesAndUnpacks) { ExpectFetched(); }

TEST_F(FetchTest, FetchesNothingTwice) {
  ExpectFetched();
  fs::remove(Archive());
  ExpectFetched();
}

TEST_F(FetchTest, ResumesABrokenDownload) {
  LeavePart(fs::file_size(Archive()) / 2);
  // Only the part that is missing may be read: the first half on the server is spoilt.
  std::fstream server(Archive(), std::ios::binary | std::ios::in | std::ios::out);
  server << std::string(1000, '\0');
  server.close();
  ExpectFetched();
}

TEST_F(FetchTest, TakesACompleteDownloadThatWasNotUnpacked) {
  LeavePart(fs::file_size(Archive()));
  fs::remove(Archive());
  ExpectFetched();
}

TEST_F(FetchTest, WrongChecksumIsRefusedAndNothingUnpacked) {
  const std::string right = source_.files[0].md5;
  source_.files[0].md5 = std::string(32, '0');
  const Status status = FetchDataset(source_, Target());
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_NE(status.message().find(right), std::string::npos) << status.message();
  EXPECT_NE(status.message().find(std::string(32, '0')), std::string::npos);
  EXPECT_TRUE(fs::is_empty(Target()));
  source_.files[0].md5 = right;
  ExpectFetched();
}

TEST_F(FetchTest, MissingFileIsExplained) {
  fs::remove(Archive());
  const Status status = FetchDataset(source_, Target());
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_NE(status.message().find("no such local file"), std::string::npos) << status.message();
}

TEST_F(FetchTest, MissingCurlIsExplained) {
  const std::string path = std::getenv("PATH");
  setenv("PATH", root_.c_str(), 1);
  const Status status = FetchDataset(source_, Target());
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("curl is not installed"), std::string::npos);
}

TEST_F(FetchTest, DirectoryWithAnotherDataSetIsRefused) {
  source_.format = "idx";
  EXPECT_EQ(FetchDataset(source_, Target()).code(), StatusCode::kCorruptData);
}

}  // namespace
}  // namespace elastiquant
