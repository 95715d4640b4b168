#include "elastiquant/layers/state_identity.h"

#include <gmock/gmock.h>

namespace elastiquant {
namespace {

using testing::HasSubstr;

StateIdentity Mine() {
  return {.rank = 1,
          .world_size = 4,
          .layers = {{"fc.weight", 5001, "topk:ratio=0.01,bits=16,method=exact|ef", "0 1"},
                     {"fc.bias", 3, "fp32"}}};
}

// What Mine() says to the state of another.
std::string Said(const StateIdentity& other) {
  const Status status = CheckIdentity(IdentitySection(other), Mine());
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  return status.message();
}

TEST(StateIdentity, KnowsItsOwn) {
  EXPECT_TRUE(CheckIdentity(IdentitySection(Mine()), Mine()).ok());
  StateIdentity turned = Mine();
  std::swap(turned.layers[0], turned.layers[1]);
  EXPECT_TRUE(CheckIdentity(IdentitySection(turned), Mine()).ok()) << "in any order";
}

TEST(StateIdentity, NamesWhatDiffers) {
  StateIdentity other = Mine();
  other.rank = 0;
  EXPECT_THAT(Said(other), HasSubstr("saved by worker 0, and this is worker 1. Load what"));
  other = Mine();
  other.world_size = 2;
  EXPECT_THAT(Said(other), HasSubstr("saved by one of 2 workers, and there are 4"));
  other = Mine();
  other.layers[0].codec = "fp16";
  EXPECT_THAT(Said(other), HasSubstr("the codec of 'fc.weight' was 'fp16' and is 'topk:"));
  other = Mine();
  other.layers[0].elements = 5000;
  EXPECT_THAT(Said(other), HasSubstr("'fc.weight' had 5000 values and has 5001"));
  other = Mine();
  other.layers.pop_back();
  EXPECT_THAT(Said(other), HasSubstr("it has no parameter 'fc.bias'"));
  other = Mine();
  other.layers.push_back({"head.bias", 3, "fp32"});
  EXPECT_THAT(Said(other),
              HasSubstr("it has a parameter 'head.bias', which the model has not"));
}

TEST(StateIdentity, NamesAnotherOrderInMemoryUnlessOneOfTheTwoIsUnknown) {
  StateIdentity other = Mine();
  other.layers[0].order = "1 0";
  EXPECT_THAT(Said(other),
              HasSubstr("of 'fc.weight' lay in memory in the order 1 0, and lie in "
                        "the order 0 1: bring the model into the memory format"));
  other.layers[0].order = "";
  other.layers[1].order = "0";
  EXPECT_TRUE(CheckIdentity(IdentitySection(other), Mine()).ok());
}

TEST(StateIdentity, RefusesWhatIsNone) {
  for (const std::string text :
       {"", "{", "3", "{}", "[]", R"({"parameters": 3})", R"({"parameters": {}})",
        R"({"rank": [], "world_size": {}, "parameters": {"fc.weight": 1, "fc.bias": null}})",
        R"({"rank": 1, "world_size": 4, "parameters": {"fc.weight": 1, "fc.bias": null}})"}) {
    const std::vector<uint8_t> section(text.begin(), text.end());
    EXPECT_EQ(CheckIdentity(section, Mine()).code(), StatusCode::kCorruptData) << text;
  }
}

TEST(StateIdentity, IsTakenOutOfTheOtherSections) {
  Sections sections{{"step", {1}}};
  EXPECT_THAT(TakeIdentity(Mine(), &sections).message(), HasSubstr("identity is missing"));
  sections[kIdentitySection] = IdentitySection(Mine());
  EXPECT_TRUE(TakeIdentity(Mine(), &sections).ok());
  EXPECT_EQ(sections, (Sections{{"step", {1}}}));
}

}  // namespace
}  // namespace elastiquant
