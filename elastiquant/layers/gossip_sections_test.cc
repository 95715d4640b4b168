#include "elastiquant/layers/gossip_sections.h"

#include <gmock/gmock.h>

namespace elastiquant {
namespace {

using testing::HasSubstr;

GossipState Saved() {
  return {.round = 7,
          .weight = 0.5,
          .vectors = {{"weights", {1.5f, -0.0f, 3e-39f}}, {"replica/2", {}}},
          .counts = {{"taken/2", uint64_t{1} << 63}}};
}

// What reading says when `name` holds these bytes.
std::string Said(const std::string& name, std::vector<uint8_t> bytes) {
  Sections sections = SectionsOfGossip(Saved());
  sections[name] = std::move(bytes);
  const auto read = ReadGossip(sections);
  EXPECT_EQ(read.status().code(), StatusCode::kCorruptData);
  return read.status().message();
}

TEST(GossipSections, ReadWhatWasSaved) {
  const Sections sections = SectionsOfGossip(Saved());
  EXPECT_EQ(sections.size(), 5u);
  const auto read = ReadGossip(sections);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->round, 7u);
  EXPECT_EQ(read->weight, 0.5);
  EXPECT_EQ(read->vectors, Saved().vectors);
  EXPECT_EQ(read->counts, Saved().counts);
  EXPECT_EQ(SectionsOfGossip(*read), sections) << "the same bits";
}

TEST(GossipSections, NameWhatIsWrong) {
  EXPECT_THAT(Said("memory/gossip/weights", {1, 2, 3}),
              HasSubstr("memory/gossip/weights is cut"));
  EXPECT_THAT(Said("step/round", std::vector<uint8_t>(16)),
              HasSubstr("step/round has 2 numbers and should have one"));
  EXPECT_THAT(Said("step/gossip/taken/2", {}), HasSubstr("has 0 numbers"));
  EXPECT_THAT(Said("memory/weights", {}), HasSubstr("memory/weights is unknown"));
  for (const char* name : {"step/round", "units/push-sum"}) {
    Sections sections = SectionsOfGossip(Saved());
    sections.erase(name);
    const auto read = ReadGossip(sections);
    EXPECT_THAT(read.status().message(), HasSubstr(std::string(name) + " is missing"));
  }
}

}  // namespace
}  // namespace elastiquant
