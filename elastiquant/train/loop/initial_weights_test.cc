#include "elastiquant/train/loop/initial_weights.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "elastiquant/runs/checkpoint.h"
#include "elastiquant/runs/file.h"
#include "elastiquant/train/stored_tensor.h"

namespace elastiquant {
namespace {

using testing::HasSubstr;

at::Tensor Quarters() { return at::arange(6, at::kFloat).view({2, 3}).div(4); }

class InitialWeightsTest : public testing::Test {
 protected:
  void SetUp() override {
    file_ = std::filesystem::temp_directory_path() /
            ("eq_initial_weights_" + std::to_string(getpid()));
    Put("weight", Quarters());
    Put("count", at::full({}, 5, at::kLong));
  }
  void TearDown() override { std::filesystem::remove(file_); }

  void Put(const std::string& name, const at::Tensor& value) {
    given_.tensors[name] = ToStored(value);
  }
  Result<std::string> Load(const std::vector<uint8_t>& bytes) {
    EXPECT_TRUE(WriteFileAtomically(file_, bytes).ok());
    return LoadInitialWeights(file_, state_);
  }
  Result<std::string> Load() { return Load(SerializeSafetensors(given_)); }
  // Of a file that is refused: nothing has changed.
  std::string ErrorOf(const Result<std::string>& loaded) {
    EXPECT_EQ(state_[0].tensor.abs().sum().item<float>(), 0);
    EXPECT_THAT(loaded.status().message(), HasSubstr("--init " + file_.string() + ": "));
    return loaded.status().message();
  }

  std::filesystem::path file_;
  Safetensors given_;
  const std::vector<NamedTensor> state_ = {{"weight", at::zeros({2, 3})},
                                           {"count", at::zeros({}, at::kLong)}};
};

TEST_F(InitialWeightsTest, ComeByName) {
  given_.metadata["format"] = "pt";
  Put("optimizer.momentum.weight", at::zeros({2, 3}));
  const auto content = Load();
  ASSERT_TRUE(content.ok()) << content.status().message();
  EXPECT_TRUE(state_[0].tensor.equal(Quarters()));
  EXPECT_EQ(state_[1].tensor.item<int64_t>(), 5);
  EXPECT_EQ(*Load(), *content);
  given_.metadata["format"] = "np";
  EXPECT_NE(*Load(), *content);
}

TEST_F(InitialWeightsTest, HalvesAreConverted) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    state_[0].tensor.zero_();
    Put("weight", Quarters().to(type));
    ASSERT_TRUE(Load().ok());
    EXPECT_TRUE(state_[0].tensor.equal(Quarters()));
  }
}

TEST_F(InitialWeightsTest, NamesThatDifferAreGiven) {
  given_.tensors.erase("weight");
  EXPECT_THAT(ErrorOf(Load()), HasSubstr("not the model's: it lacks 'weight'"));
  Put("module.weight", at::zeros({2, 3}));
  EXPECT_THAT(ErrorOf(Load()),
              HasSubstr("it lacks 'weight', and has 'module.weight', which the model has not"));
  EXPECT_EQ(Load().status().code(), StatusCode::kInvalidArgument);
  for (int i = 0; i < 5; ++i) Put("more" + std::to_string(i), at::zeros({1}));
  EXPECT_THAT(ErrorOf(Load()),
              HasSubstr("'module.weight', 'more0', 'more1' and 3 more, which"));
}

TEST_F(InitialWeightsTest, OtherShapesAndDtypesAreGiven) {
  Put("weight", at::zeros({3, 2}));
  EXPECT_THAT(ErrorOf(Load()),
              HasSubstr("'weight' is F32 [3, 2], and the model's is F32 [2, 3]"));
  given_.tensors["weight"] = {"F64", {2, 3}, std::vector<uint8_t>(48)};
  EXPECT_THAT(ErrorOf(Load()), HasSubstr("'weight' is F64 [2, 3]"));
  Put("weight", at::full({2, 3}, 1, at::kFloat));
  Put("count", at::zeros({}));
  EXPECT_THAT(ErrorOf(Load()), HasSubstr("'count' is F32 [], and the model's is I64 []"));
  EXPECT_EQ(Load().status().code(), StatusCode::kInvalidArgument);
}

TEST_F(InitialWeightsTest, DamageIsNamed) {
  auto bytes = SerializeCheckpoint(given_);
  ASSERT_TRUE(Load(bytes).ok());
  state_[0].tensor.zero_();
  bytes.back() ^= 1;
  EXPECT_THAT(ErrorOf(Load(bytes)), HasSubstr("checksum check failed"));
  bytes.pop_back();
  EXPECT_THAT(ErrorOf(Load(bytes)), HasSubstr("length check failed"));
  EXPECT_EQ(Load(bytes).status().code(), StatusCode::kCorruptData);
  EXPECT_EQ(LoadInitialWeights("/nowhere", state_).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace elastiquant
