#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/registry.h"

namespace elastiquant {
namespace {

using ::testing::HasSubstr;

TEST(Registry, ListsEachCodecOnceWithASpecThatWorks) {
  std::set<std::string> names;
  for (const CodecInfo& info : ListCodecs()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    const auto codec = MakeCodec(info.spec);
    ASSERT_TRUE(codec.ok()) << codec.status().ToString();
    EXPECT_EQ((*codec)->codec_class(), info.codec_class) << info.name;
    EXPECT_FALSE(info.summary.empty());
  }
  EXPECT_TRUE(names.contains("fp32"));
}

TEST(Registry, EveryDeclaredDefaultIsTheDefault) {
  for (const CodecInfo& info : ListCodecs()) {
    const std::string bare = (*MakeCodec(info.name))->spec();
    for (const CodecParameter& parameter : info.parameters) {
      if (parameter.default_value.empty()) continue;
      const auto codec =
          MakeCodec(info.name + ":" + parameter.name + "=" + parameter.default_value);
      ASSERT_TRUE(codec.ok()) << info.name << " " << codec.status().ToString();
      EXPECT_EQ((*codec)->spec(), bare) << parameter.name;
    }
  }
}

TEST(Registry, UnknownThingsListTheValidOnes) {
  const Status codec = MakeCodec("fp23").status();
  EXPECT_EQ(codec.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(codec.message(), HasSubstr("'fp23'"));
  for (const CodecInfo& info : ListCodecs()) EXPECT_THAT(codec.message(), HasSubstr(info.name));

  for (const CodecInfo& info : ListCodecs()) {
    const Status key = MakeCodec(info.name + ":nosuch=1").status();
    EXPECT_EQ(key.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(key.message(), HasSubstr("'nosuch'"));
    for (const CodecParameter& p : info.parameters)
      EXPECT_THAT(key.message(), HasSubstr(p.name));

    const Status modifier = MakeCodec(info.name + "|nosuch").status();
    EXPECT_EQ(modifier.code(), StatusCode::kInvalidArgument);
    for (const std::string& m : info.modifiers) EXPECT_THAT(modifier.message(), HasSubstr(m));
  }
  EXPECT_THAT(MakeCodec("bf16:rounding=up").status().message(),
              HasSubstr("nearest, stochastic"));
}

TEST(Registry, AFrameOfAnUnknownCodecIsRefused) {
  std::vector<uint8_t> bytes(kFrameHeaderBytes);
  FrameView view;
  view.codec = static_cast<CodecId>(200);
  SealFrame(view, bytes);
  const Status status = InspectFrame(bytes).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("number 200"));
}

}  // namespace
}  // namespace elastiquant
