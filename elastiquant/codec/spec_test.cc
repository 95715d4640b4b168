#include "elastiquant/codec/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elastiquant {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(Spec, TakesAllPartsApart) {
  const auto spec = ParseSpec("elastic:bits=4,levels=list:0/.5/1,p=.5|rans|ef:decay=a=b");
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->codec.name, "elastic");
  EXPECT_THAT(spec->codec.pairs,
              ElementsAre(Pair("bits", "4"), Pair("levels", "list:0/.5/1"), Pair("p", ".5")));
  ASSERT_EQ(spec->modifiers.size(), 2u);
  EXPECT_EQ(spec->modifiers[0].name, "rans");
  EXPECT_TRUE(spec->modifiers[0].pairs.empty());
  EXPECT_THAT(spec->modifiers[1].pairs, ElementsAre(Pair("decay", "a=b")));
}

TEST(Spec, FindsValuesOrFallsBack) {
  const auto spec = ParseSpec("fp32:a=1");
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(SpecValue(spec->codec, "a", "2"), "1");
  EXPECT_EQ(SpecValue(spec->codec, "b", "2"), "2");
}

TEST(Spec, RefusesWhatIsNotOne) {
  for (const char* text : {"",           ":",         "|",         "=",         ",",
                           "fp32:",      "fp32|",     "|fp32",     "fp32||ef",  "fp32:a",
                           "fp32:a=",    "fp32:=1",   "fp32:a=1,", "fp32:,a=1", "fp32:a=1,,b=2",
                           "Fp32",       "fp32:A=1",  " fp32",     "fp32 ",     "fp32:a=1 2",
                           "fp32\n",     "fp32:a=\t", "f\x7f",     "\xc3\xa9",  "fp32:a=1,a=2",
                           "fp32|ef|ef", "a:b|c:d",   "fp32:a b=1"}) {
    const auto spec = ParseSpec(text);
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_EQ(spec.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(spec.status().message(), HasSubstr("codec spec")) << text;
  }
  EXPECT_FALSE(ParseSpec({}).ok());
  EXPECT_FALSE(ParseSpec(std::string_view("fp32\0", 5)).ok());
}

}  // namespace
}  // namespace elastiquant
