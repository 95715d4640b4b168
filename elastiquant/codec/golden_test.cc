#include "elastiquant/codec/golden.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <set>

#include "elastiquant/codec/codec.h"

namespace elastiquant {

// What GoogleTest calls a case.
static void PrintTo(const GoldenCase& golden, std::ostream* out) { *out << golden.name; }

namespace {

std::vector<uint8_t> ReadBytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path << " is missing; golden_write makes it";
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
std::vector<uint8_t> ReadGolden(const std::string& name) {
  return ReadBytes(std::filesystem::path(ELASTIQUANT_GOLDEN_DIR) / name);
}

class Golden : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(Golden, EncodesToTheSameBytes) {
  const auto frame = EncodeGolden(GetParam());
  ASSERT_TRUE(frame.ok()) << frame.status().ToString();
  EXPECT_TRUE(*frame == ReadGolden(GetParam().name + ".eqf"))
      << "frames made by this build differ from those of the release";
}

TEST_P(Golden, DecodesToTheSameBits) {
  const std::vector<uint8_t> frame = ReadGolden(GetParam().name + ".eqf");
  std::vector<float> values(GetParam().elements);
  Workspace work;
  const Status status = DecodeFrame(frame, work, values);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(NpyFile(values) == ReadGolden(GetParam().name + ".npy"));
}

INSTANTIATE_TEST_SUITE_P(AllFrames, Golden, ::testing::ValuesIn(GoldenCases()),
                         [](const auto& golden) {
                           std::string name = golden.param.name;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST(GoldenFiles, AreThoseOfTheCasesAndNoOthers) {
  std::set<std::string> expected, found;
  for (const GoldenCase& golden : GoldenCases()) {
    EXPECT_TRUE(expected.insert(golden.name + ".eqf").second) << golden.name;
    expected.insert(golden.name + ".npy");
  }
  for (const auto& entry : std::filesystem::directory_iterator(ELASTIQUANT_GOLDEN_DIR)) {
    found.insert(entry.path().filename());
  }
  EXPECT_EQ(found, expected);
}

// What encoders made before they were mended: no encoder makes it now, but it must decode.
TEST(GoldenFiles, OfEarlierEncodersStillDecodeToTheSameBits) {
  int frames = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ELASTIQUANT_EARLIER_DIR)) {
    if (entry.path().extension() != ".eqf") continue;
    const std::vector<uint8_t> frame = ReadBytes(entry.path());
    const auto summary = InspectFrame(frame);
    ASSERT_TRUE(summary.ok()) << entry.path() << summary.status().ToString();
    std::vector<float> values(summary->elements);
    Workspace work;
    const Status status = DecodeFrame(frame, work, values);
    ASSERT_TRUE(status.ok()) << entry.path() << status.ToString();
    std::filesystem::path expected = entry.path();
    EXPECT_TRUE(NpyFile(values) == ReadBytes(expected.replace_extension(".npy")))
        << entry.path();
    ++frames;
  }
  EXPECT_GE(frames, 9);
}

}  // namespace
}  // namespace elastiquant
