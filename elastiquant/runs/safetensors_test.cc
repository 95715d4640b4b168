#include "elastiquant/runs/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace elastiquant {
namespace {

using testing::HasSubstr;

std::vector<uint8_t> File(const std::string& header, size_t data = 0) {
  std::vector<uint8_t> bytes(8);
  const uint64_t size = header.size();
  std::memcpy(bytes.data(), &size, sizeof(size));
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.resize(bytes.size() + data, 7);
  return bytes;
}

std::string HeaderOf(const std::vector<uint8_t>& bytes) {
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof(size));
  return {bytes.begin() + 8, bytes.begin() + 8 + static_cast<ptrdiff_t>(size)};
}

std::string ErrorOf(const std::vector<uint8_t>& bytes) {
  const auto file = ParseSafetensors(bytes);
  if (file.ok()) return "none";
  EXPECT_EQ(file.status().code(), StatusCode::kCorruptData);
  return file.status().message();
}

Safetensors Example() {
  Safetensors file;
  file.metadata = {{"format", "pt"}, {"quote \"", "\n\xC3\xA4\""}};
  file.tensors["a"] = {"F32", {1, 2}, {1, 2, 3, 4, 5, 6, 7, 8}};
  file.tensors["b"] = {"U8", {3}, {1, 2, 3}};
  file.tensors["c"] = {"I64", {}, {8, 7, 6, 5, 4, 3, 2, 1}};
  file.tensors["d"] = {"BF16", {2, 0, 3}, {}};
  return file;
}

TEST(Safetensors, RoundTrip) {
  for (const Safetensors& file : {Example(), Safetensors{}}) {
    const auto back = ParseSafetensors(SerializeSafetensors(file));
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(*back, file);
  }
}

TEST(Safetensors, TheLayoutIsThePublishedOne) {
  Safetensors file;
  file.metadata["format"] = "pt";
  file.tensors["bias"] = {"F16", {1}, {1, 2}};
  file.tensors["weight"] = {"F32", {1, 1}, {3, 4, 5, 6}};
  const auto bytes = SerializeSafetensors(file);
  EXPECT_EQ(HeaderOf(bytes), R"({"__metadata__":{"format":"pt"},)"
                             R"("bias":{"data_offsets":[4,6],"dtype":"F16","shape":[1]},)"
                             R"("weight":{"data_offsets":[0,4],"dtype":"F32","shape":[1,1]}})"
                             "    ");
  EXPECT_EQ(std::vector<uint8_t>(bytes.end() - 6, bytes.end()),
            (std::vector<uint8_t>{3, 4, 5, 6, 1, 2}));
}

TEST(Safetensors, EachTensorIsAligned) {
  for (int names = 1; names <= 9; ++names) {  // each one makes the header longer
    Safetensors file = Example();
    file.metadata["padding"] = std::string(static_cast<size_t>(names), 'x');
    const auto bytes = SerializeSafetensors(file);
    const size_t data = 8 + HeaderOf(bytes).size();
    EXPECT_EQ(data % 8, 0u);
    EXPECT_EQ(bytes[data], 8) << "the only one of 8 bytes a value comes first";
    EXPECT_EQ(bytes[data + 8], 1) << "then fp32";
  }
}

TEST(Safetensors, TakesWhatOtherWritersMayWrite) {
  // Space anywhere, keys in any order, one that is not known, an empty tensor in the midst.
  const auto file = ParseSafetensors(File(
      R"({ "x" : {"shape":[2], "new":1, "data_offsets":[0,2], "dtype":"I8"},
           "y":{"dtype":"F64","shape":[0],"data_offsets":[2,2]},
           "z":{"dtype":"BOOL","shape":[],"data_offsets":[2,3]}}   )",
      3));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors.at("x"), (StoredTensor{"I8", {2}, {7, 7}}));
  EXPECT_EQ(file->tensors.at("y"), (StoredTensor{"F64", {0}, {}}));
  EXPECT_EQ(file->tensors.at("z"), (StoredTensor{"BOOL", {}, {7}}));
  EXPECT_TRUE(ParseSafetensors(File("{}")).ok());
}

TEST(Safetensors, WhatIsNoSuchFileIsExplained) {
  EXPECT_EQ(ErrorOf({1, 2, 3}),
            "size check failed: 3 bytes, but a safetensors file has at least 8");
  EXPECT_THAT(ErrorOf({'P', 'K', 3, 4, 0, 0, 8, 8, 0}), HasSubstr("a safetensors file?"));
  std::vector<uint8_t> large = File("{}");
  const uint64_t claimed = 100'000'001;
  std::memcpy(large.data(), &claimed, sizeof(claimed));
  EXPECT_EQ(ErrorOf(large),
            "header check failed: of 100000001 bytes; at most 100000000 are allowed. Is this a "
            "safetensors file?");
  large[0] = 0;
  EXPECT_THAT(ErrorOf(large), HasSubstr("length check failed: a header of 100000000 bytes"));
  EXPECT_THAT(ErrorOf(File("")), HasSubstr("does not begin with {"));
  EXPECT_THAT(ErrorOf(File(" {}")), HasSubstr("does not begin with {"));
  EXPECT_THAT(ErrorOf(File("[]")), HasSubstr("does not begin with {"));
  for (const char* header : {"{", "{}x", "{\"a\":}", "{\"\xFF\":1}", "{} {}"}) {
    EXPECT_THAT(ErrorOf(File(header)), HasSubstr("not a JSON object")) << header;
  }
}

TEST(Safetensors, MetadataAreTexts) {
  EXPECT_THAT(ErrorOf(File(R"({"__metadata__":{"a":1}})")), HasSubstr("'a' is not a string"));
  EXPECT_THAT(ErrorOf(File(R"({"__metadata__":["a"]})")), HasSubstr("not an object"));
}

TEST(Safetensors, NamesOccurOnce) {
  const std::string x = R"("x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_EQ(ErrorOf(File("{" + x + "," + x + "}")), "header check failed: 'x' is there twice");
  EXPECT_THAT(ErrorOf(File(R"({"__metadata__":{"k":"1","k":"2"}})")), HasSubstr("'k'"));
  EXPECT_EQ(ErrorOf(File(R"({"__metadata__":{"x":"1"},)" + x + "}")), "none");
}

TEST(Safetensors, EachTensorHasDtypeShapeAndOffsets) {
  for (const char* entry :
       {"1", "[]", "{}", R"({"dtype":"U8","shape":[1]})",
        R"({"dtype":1,"shape":[1],"data_offsets":[0,1]})",
        R"({"dtype":"U8","shape":1,"data_offsets":[0,1]})",
        R"({"dtype":"U8","shape":[-1],"data_offsets":[0,1]})",
        R"({"dtype":"U8","shape":[1.0],"data_offsets":[0,1]})",
        R"({"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,1]})",
        R"({"dtype":"U8","shape":[1],"data_offsets":[1]})",
        R"({"dtype":"U8","shape":[1],"data_offsets":[0,1,1]})",
        R"({"dtype":"U8","shape":[1],"data_offsets":["0","1"]})"}) {
    EXPECT_EQ(ErrorOf(File(std::string("{\"x\":") + entry + "}", 1)),
              "tensor check failed: 'x' needs a dtype, a shape and two data_offsets")
        << entry;
  }
  EXPECT_THAT(ErrorOf(File(R"({"x":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", 1)),
              HasSubstr("'x' has the unknown dtype F4"));
}

TEST(Safetensors, SizesAreCheckedWithoutOverflow) {
  const auto error = [](const std::string& shape, const std::string& offsets) {
    return ErrorOf(File(
        R"({"x":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}", 8));
  };
  EXPECT_EQ(error("[2]", "[0,8]"), "none");
  EXPECT_EQ(error("[3]", "[0,8]"),
            "tensor check failed: 'x' F32 [3] has 12 bytes, but its data_offsets are 0 and 8");
  EXPECT_THAT(error("[2]", "[8,0]"), HasSubstr("data_offsets are 8 and 0"));
  // 2^62 values of 4 bytes are 2^64, which is 0 in 64 bits.
  EXPECT_THAT(error("[4611686018427387904]", "[0,0]"), HasSubstr("than can be counted"));
  EXPECT_THAT(error("[4294967296,4294967296]", "[0,0]"), HasSubstr("than can be counted"));
  EXPECT_THAT(error("[0,18446744073709551615]", "[0,0]"), HasSubstr("than can be counted"));
  EXPECT_THAT(error("[2]", "[18446744073709551608,18446744073709551615]"),
              HasSubstr("has 8 bytes"));
  EXPECT_THAT(error("[2]", "[8,16]"), HasSubstr("a gap"));
}

TEST(Safetensors, DataHaveNoGapAndNoOverlap) {
  const auto error = [](const std::string& x, const std::string& y, size_t data) {
    return ErrorOf(File(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":)" + x +
                            R"(},"y":{"dtype":"U8","shape":[3],"data_offsets":)" + y + "}}",
                        data));
  };
  EXPECT_EQ(error("[0,2]", "[2,5]", 5), "none");
  EXPECT_EQ(error("[3,5]", "[0,3]", 5), "none");
  EXPECT_EQ(
      error("[0,2]", "[3,6]", 6),
      "tensor check failed: 'y' begins at byte 3 of the data, where it should be 2: there "
      "is a gap");
  EXPECT_THAT(error("[0,2]", "[1,4]", 4), HasSubstr("should be 2: there is an overlap"));
  EXPECT_THAT(error("[0,2]", "[0,3]", 3), HasSubstr("an overlap"));
  EXPECT_EQ(error("[0,2]", "[2,5]", 4),
            "length check failed: the header says 5 bytes of data, there are 4");
  EXPECT_THAT(error("[0,2]", "[2,5]", 6), HasSubstr("there are 6"));
}

TEST(Safetensors, EveryTruncationIsFound) {
  const auto bytes = SerializeSafetensors(Example());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto parsed = ParseSafetensors(std::span(bytes).first(size));
    ASSERT_FALSE(parsed.ok()) << size;
    EXPECT_THAT(parsed.status().message(), HasSubstr("check failed"));
  }
}

}  // namespace
}  // namespace elastiquant
