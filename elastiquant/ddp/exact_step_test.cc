#include "elastiquant/ddp/exact_step.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <utility>
#include <vector>

namespace elastiquant {
namespace {

using std::chrono_literals::operator""ms;

// A process group whose sums end when a test says so.
class Sums {
 public:
  AllReduce Begin() {
    return [this](const at::Tensor& values) {
      futures_.push_back(MakeFuture(values));
      values_.push_back(values);
      return futures_.back();
    };
  }
  void End(size_t index) { futures_.at(index)->markCompleted(values_.at(index)); }
  void Fail(size_t index, const std::string& why) {
    futures_.at(index)->setError(std::make_exception_ptr(std::runtime_error(why)));
  }

 private:
  std::vector<Future> futures_;
  std::vector<at::Tensor> values_;
};

class ExactStepTest : public testing::Test {
 protected:
  void Average(size_t index, bool last) {
    step_.Average(index, last, at::full({3}, 8.0F), /*world_size=*/4);
  }
  Status Roll(const Status& barrier = {}) {
    return step_.CallTheRoll([&] { return barrier; }, /*patience=*/10ms);
  }

  Sums sums_;
  std::shared_ptr<EngineTies> ties_ = std::make_shared<EngineTies>();
  bool finite_ = true;
  std::vector<size_t> averaged_;
  bool is_over_ = false;
  ExactStep step_{sums_.Begin(), ties_, [this](size_t index, const at::Tensor& mean) {
                    EXPECT_EQ(mean.sum().item<float>(), 3 * 8 / 4);
                    averaged_.push_back(index);
                    is_over_ = step_.CountMean(finite_);
                  }};
};

TEST_F(ExactStepTest, EndsWithTheLastSumInAnyOrder) {
  EXPECT_FALSE(step_.is_under_way());
  step_.Begin();
  EXPECT_TRUE(step_.is_under_way());
  Average(0, /*last=*/false);
  sums_.End(0);
  EXPECT_FALSE(is_over_) << "more are to come";
  Average(1, false);
  Average(2, true);
  sums_.End(2);
  EXPECT_FALSE(is_over_);
  EXPECT_TRUE(step_.is_under_way());
  sums_.End(1);
  EXPECT_TRUE(is_over_);
  EXPECT_FALSE(step_.is_under_way());
  EXPECT_TRUE(step_.all_finite());
  EXPECT_EQ(averaged_, (std::vector<size_t>{0, 2, 1}));
  EXPECT_TRUE(Roll().ok());
}

TEST_F(ExactStepTest, TellsItsFirstFailureWhereNobodyIsLost) {
  step_.Begin();
  for (const size_t i : {0, 1, 2}) Average(i, /*last=*/i == 2);
  sums_.Fail(1, "first");
  sums_.Fail(0, "second");
  finite_ = false;
  sums_.End(2);
  EXPECT_FALSE(is_over_);
  EXPECT_TRUE(step_.is_under_way());
  EXPECT_FALSE(step_.all_finite());
  const Status status = Roll();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_TRUE(status.message().ends_with("failed: first")) << status.message();
}

TEST_F(ExactStepTest, TellsWhoIsLostRatherThanHowTheSumFailed) {
  step_.Begin();
  Average(0, true);
  sums_.Fail(0, "connection reset");
  ties_->SetVerdict(Unavailable("lost worker 3"));
  EXPECT_EQ(Roll().message(), "lost worker 3");
}

TEST_F(ExactStepTest, AnAllReduceThatThrowsFailsTheStep) {
  ExactStep step([](const at::Tensor&) -> Future { throw std::runtime_error("no group"); },
                 ties_, nullptr);
  step.Begin();
  step.Average(0, true, at::full({1}, 1.0F), 2);
  const Status status = step.CallTheRoll([] { return Status(); }, 1ms);
  EXPECT_TRUE(status.message().ends_with("failed: no group")) << status.message();
}

TEST_F(ExactStepTest, TheNextStepWaitsForTheRoll) {
  step_.AwaitRoll();  // none has been: it returns at once
  step_.Begin();
  Average(0, true);
  sums_.End(0);
  EXPECT_TRUE(is_over_);
  auto next = std::async(std::launch::async, [&] { step_.AwaitRoll(); });
  EXPECT_EQ(next.wait_for(20ms), std::future_status::timeout);
  EXPECT_TRUE(Roll().ok());
  next.get();
  step_.Begin();
  EXPECT_TRUE(step_.all_finite());
}

TEST_F(ExactStepTest, AFailedBarrierIsToldAsItIs) {
  step_.Begin();
  Average(0, true);
  EXPECT_EQ(Roll(Unavailable("lost worker 1")).message(), "lost worker 1");
}

TEST_F(ExactStepTest, CancellingEndsAllWaiting) {
  step_.Begin();
  Average(0, true);
  auto roll = std::async(std::launch::async, [&] { return Roll(); });
  auto next = std::async(std::launch::async, [&] { step_.AwaitRoll(); });
  EXPECT_EQ(next.wait_for(20ms), std::future_status::timeout);
  step_.Cancel();
  next.get();
  EXPECT_TRUE(roll.get().ok());
  EXPECT_FALSE(step_.is_under_way());
}

TEST_F(ExactStepTest, ASumThatEndsAfterTheEngineReachesNobody) {
  step_.Begin();
  Average(0, true);
  ties_->Cut();
  sums_.End(0);
  EXPECT_TRUE(averaged_.empty());
}

}  // namespace
}  // namespace elastiquant
