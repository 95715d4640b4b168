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

std::vector<uint8_t> ReadGolden(const std::string& name) {
  std::ifstream file(std::string(ELASTIQUANT_GOLDEN_DIR) + "/" + name, std::ios::binary);
  EXPECT_TRUE(file) << name << " is missing; golden_write makes it";
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
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

}  // namespace
}  // namespace elastiquant
