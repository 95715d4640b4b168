#include "elastiquant/cli/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "elastiquant/cli/file.h"

namespace elastiquant::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Python writes headers like these: with the length in front, but not necessarily padded.
std::string NpyBytes(const std::string& header, size_t data_bytes, uint8_t version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(version);
  bytes += '\0';
  const uint32_t length = static_cast<uint32_t>(header.size());
  bytes.append(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4);
  return bytes + header + std::string(data_bytes, '\0');
}

constexpr char kThree[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n";

class NpyTest : public ::testing::Test {
 protected:
  std::string Path() const {
    return ::testing::TempDir() + "npy_test_" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name() + "_" +
           std::to_string(getpid()) + ".npy";
  }
  Result<NpyArray> Read(const std::string& bytes) {
    EXPECT_TRUE(WriteFile(Path(), {AsBytes(std::span<const char>(bytes))}).ok());
    return ReadNpy(Path());
  }
  void ExpectError(const std::string& bytes, StatusCode code, const std::string& words) {
    const auto array = Read(bytes);
    ASSERT_FALSE(array.ok()) << words;
    EXPECT_EQ(array.status().code(), code) << array.status().ToString();
    EXPECT_THAT(array.status().message(), HasSubstr(words));
    EXPECT_THAT(array.status().message(), HasSubstr(Path()));
  }
  void TearDown() override { std::remove(Path().c_str()); }
};

TEST_F(NpyTest, ReadsBackWhatItWroteBitForBit) {
  std::vector<float> values = {0.0f,
                               -0.0f,
                               1.5f,
                               std::numeric_limits<float>::denorm_min(),
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::infinity(),
                               std::bit_cast<float>(0x7FC12345u)};
  for (const size_t n : {0, 1, 2, 7, 1000, 99999, 100000}) {
    values.resize(n, 0.25f);
    ASSERT_TRUE(WriteNpy(Path(), values).ok());
    const auto array = ReadNpy(Path());
    ASSERT_TRUE(array.ok()) << array.status().ToString();
    EXPECT_THAT(array->shape, ElementsAre(n));
    ASSERT_EQ(array->values.size(), n);
    if (n > 0) {
      EXPECT_EQ(std::memcmp(array->values.data(), values.data(), 4 * n), 0);
    }
  }
}

TEST_F(NpyTest, AlignsTheElementsAsNumpyDoes) {
  for (const size_t n : {0, 9, 10, 123456}) {
    ASSERT_TRUE(WriteNpy(Path(), std::vector<float>(n)).ok());
    const auto bytes = ReadFile(Path());
    ASSERT_TRUE(bytes.ok());
    const auto header = ParseNpyHeader(*bytes);
    ASSERT_TRUE(header.ok());
    EXPECT_EQ(header->data_offset % 64, 0u);
    EXPECT_EQ((*bytes)[header->data_offset - 1], '\n');
  }
}

TEST_F(NpyTest, ReadsEveryFormatVersionAndSpelling) {
  for (const uint8_t version : std::vector<uint8_t>{1, 2, 3}) {
    EXPECT_EQ(Read(NpyBytes(kThree, 12, version))->values.size(), 3u) << int{version};
  }
  EXPECT_EQ(Read(NpyBytes("{\"shape\":(2,3),\"descr\":\"<f4\",\"fortran_order\":False}", 24))
                ->values.size(),
            6u);
  // NumPy marks a 1-D array as C order, but others may not, and the bytes are the same.
  EXPECT_TRUE(
      Read(NpyBytes("{'descr': '<f4', 'fortran_order': True, 'shape': (3,)}", 12)).ok());
}

TEST_F(NpyTest, TellsTheShape) {
  const auto matrix =
      Read(NpyBytes("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", 24));
  EXPECT_THAT(matrix->shape, ElementsAre(2, 3));
  const auto scalar =
      Read(NpyBytes("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4));
  EXPECT_THAT(scalar->shape, IsEmpty());
  EXPECT_EQ(scalar->values.size(), 1u);
  const auto none =
      Read(NpyBytes("{'descr': '<f4', 'fortran_order': False, 'shape': (5, 0)}", 0));
  EXPECT_TRUE(none->values.empty());
}

TEST_F(NpyTest, SaysHowToConvertWhatItDoesNotTake) {
  const auto with = [](const std::string& descr, const std::string& order) {
    return NpyBytes("{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': (2, 2)}",
                    16);
  };
  ExpectError(with("'<f8'", "False"), StatusCode::kUnsupported, "astype('float32')");
  ExpectError(with("'<i4'", "False"), StatusCode::kUnsupported, "'<i4'");
  ExpectError(with("'>f4'", "False"), StatusCode::kUnsupported, "big-endian");
  ExpectError(with("[('x', '<f4')]", "False"), StatusCode::kUnsupported, "structured");
  ExpectError(with("'<f4'", "True"), StatusCode::kUnsupported, "ascontiguousarray");
  ExpectError(NpyBytes(kThree, 12, 4), StatusCode::kUnsupported, "version 4");
}

TEST_F(NpyTest, RefusesDamagedFiles) {
  ExpectError("", StatusCode::kCorruptData, "does not begin");
  ExpectError("PK\x03\x04 a zip file", StatusCode::kCorruptData, "does not begin");
  ExpectError(NpyBytes(kThree, 11), StatusCode::kCorruptData, "truncated");
  ExpectError(NpyBytes(kThree, 13), StatusCode::kCorruptData, "too long");
  for (const char* header : {
           "",
           "{",
           "{}",
           "{'descr': '<f4'}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} x",
           "{'descr': '<f4', 'fortran_order': maybe, 'shape': (3,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': 3}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (3 3)}",
           "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'more': 1}",
           "{'descr: <f4}",
       }) {
    ExpectError(NpyBytes(header, 12), StatusCode::kCorruptData, "not a .npy file");
  }
}

TEST_F(NpyTest, RefusesShapesThatNoFileCanHold) {
  for (const char* shape :
       {"(4000000000, 4000000000)", "(9223372036854775807,)", "(18446744073709551615, 2)",
        "(99999999999999999999,)", "(1000000000000,)"}) {
    ExpectError(NpyBytes(std::string("{'descr': '<f4', 'fortran_order': False, 'shape': ") +
                             shape + "}",
                         12),
                StatusCode::kCorruptData, "");
  }
}

TEST_F(NpyTest, EveryPrefixOfAFileIsAnError) {
  const std::string whole = NpyBytes(kThree, 12);
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto array = Read(whole.substr(0, size));
    ASSERT_FALSE(array.ok()) << size;
    EXPECT_EQ(array.status().code(), StatusCode::kCorruptData) << size;
  }
}

TEST_F(NpyTest, AFlippedByteNeverGivesAnArrayOfAnotherSize) {
  const std::string whole = NpyBytes(kThree, 12);
  for (size_t at = 0; at < whole.size() - 12; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      const auto array = Read(damaged);
      if (array.ok()) {
        EXPECT_EQ(array->values.size(), 3u) << at << " " << bit;
      }
    }
  }
}

TEST_F(NpyTest, NamesTheFileItCannotOpen) {
  const auto missing = ReadNpy("/nowhere/at/all.npy");
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("/nowhere/at/all.npy"));
  EXPECT_EQ(ReadNpy("/").status().code(), StatusCode::kInvalidArgument);
  const Status write = WriteNpy("/nowhere/at/all.npy", {});
  EXPECT_EQ(write.code(), StatusCode::kIo);
  EXPECT_THAT(write.message(), HasSubstr("/nowhere/at/all.npy"));
}

TEST_F(NpyTest, SaysThatTheDiskIsFull) {
  const Status status = WriteNpy("/dev/full", std::vector<float>(10));
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("No space left"));
}

}  // namespace
}  // namespace elastiquant::cli
