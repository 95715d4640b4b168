#include "elastiquant/models/model_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace elastiquant {
namespace {

using testing::HasSubstr;

TEST(ModelSpec, HasANameAndParameters) {
  EXPECT_EQ(ParseModelSpec("resnet20")->name, "resnet20");
  EXPECT_TRUE(ParseModelSpec("resnet20")->parameters.empty());
  const ModelSpec spec = ParseModelSpec("gpt:layers=2,width=64").value();
  EXPECT_EQ(spec.name, "gpt");
  EXPECT_EQ(spec.parameters.at("layers"), 2);
  const auto all = WithDefaults(spec, {{"layers", 4}, {"width", 1}, {"heads", 8}}).value();
  EXPECT_EQ(all, (std::map<std::string, int64_t>{{"layers", 2}, {"width", 64}, {"heads", 8}}));
}

TEST(ModelSpec, ErrorsSayWhatIsWrong) {
  for (const char* bad : {"gpt:", "gpt:layers", "gpt:layers=", "gpt:layers=x", "gpt:layers=2,",
                          "gpt:layers=2;width=3", "gpt:=", "gpt:layers=1e3"}) {
    EXPECT_THAT(ParseModelSpec(bad).status().message(), HasSubstr("is not KEY=NUMBER")) << bad;
  }
  EXPECT_THAT(ParseModelSpec("mlp:width=8,width=9").status().message(),
              HasSubstr("\"width\" is given twice"));
  const auto error = [](const char* text) {
    return WithDefaults(ParseModelSpec(text).value(), {{"layers", 4}, {"width", 128}})
        .status()
        .message();
  };
  EXPECT_THAT(error("gpt:depth=2"), HasSubstr("no parameter \"depth\"; it has layers, width"));
  EXPECT_THAT(error("gpt:layers=0"), HasSubstr("layers must be at least 1, not 0"));
  EXPECT_THAT(WithDefaults(ParseModelSpec("mlp:x=1").value(), {}).status().message(),
              HasSubstr("it has none"));
}

}  // namespace
}  // namespace elastiquant
