#include "elastiquant/ddp/step_futures.h"

#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "elastiquant/ddp/step_finisher.h"

namespace elastiquant {
namespace {

Future NewFuture() { return MakeFuture(at::full({1}, 0.0F)); }

TEST(StepFutures, CountsThePartsOfABucket) {
  StepFutures futures;
  ASSERT_TRUE(futures.Begin().ok());
  EXPECT_TRUE(futures.in_step());
  const Future first = NewFuture(), second = NewFuture();
  ASSERT_TRUE(futures.Add(0, first).ok());
  // Parts of both buckets are averaged before DDP's buckets have arrived.
  EXPECT_FALSE(futures.HasArrived(0, {5, true}));
  EXPECT_FALSE(futures.HasArrived(1, {7, false}));
  const auto ahead = futures.Arrive(0, 2);
  ASSERT_TRUE(ahead.ok());
  ASSERT_EQ(ahead->size(), 1u);
  EXPECT_EQ(ahead->front().bucket, 5u);
  EXPECT_TRUE(ahead->front().is_mean);
  EXPECT_FALSE(futures.CountReturned(0)) << "one of two";
  EXPECT_TRUE(futures.HasArrived(0, {6, true}));
  EXPECT_TRUE(futures.CountReturned(0));
  EXPECT_EQ(futures.Release(0), first);

  ASSERT_TRUE(futures.Add(1, second).ok());
  EXPECT_FALSE(futures.Arrive(1, 1)->front().is_mean);
  EXPECT_TRUE(futures.CountReturned(1));
  const auto last = futures.End(1);
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(last->at(0), second);
  EXPECT_FALSE(futures.in_step());
}

TEST(StepFutures, RefusesWhatIsOutOfOrder) {
  StepFutures futures;
  EXPECT_EQ(futures.Add(0, NewFuture()).code(), StatusCode::kInternal) << "before a step";
  ASSERT_TRUE(futures.Begin().ok());
  EXPECT_EQ(futures.Begin().message(), "a backward began before the last one had ended");
  EXPECT_EQ(futures.Add(1, NewFuture()).message(), "DDP filled bucket 1 after 0 others");
}

TEST(StepFutures, AnErrorEndsThisStepAndAllThatCome) {
  StepFutures futures;
  ASSERT_TRUE(futures.Begin().ok());
  const Future released = NewFuture(), waiting = NewFuture();
  ASSERT_TRUE(futures.Add(0, released).ok());
  ASSERT_TRUE(futures.Add(1, waiting).ok());
  EXPECT_EQ(futures.Release(0), released);
  std::vector<Future> left = futures.Fail(Unavailable("lost worker 2"));
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0], nullptr) << "its holder completes it";
  for (const Future& future : left) SetError(future, futures.error());
  EXPECT_FALSE(released->completed());
  EXPECT_TRUE(waiting->hasError());
  EXPECT_THROW(waiting->value(), c10::DistBackendError);

  EXPECT_TRUE(futures.Fail(Internal("a later error")).empty());
  EXPECT_EQ(futures.error().message(), "lost worker 2") << "the first counts";
  EXPECT_EQ(futures.Begin().message(), "lost worker 2");
  EXPECT_EQ(futures.Add(0, NewFuture()).message(), "lost worker 2");
  EXPECT_EQ(futures.Arrive(0, 1).status().message(), "lost worker 2");
  EXPECT_EQ(futures.Release(0), nullptr);
  EXPECT_FALSE(futures.CountReturned(0));
  EXPECT_EQ(futures.End(0).status().message(), "lost worker 2");
  EXPECT_FALSE(futures.in_step());
}

TEST(StepFinisher, CallsOncePerStartAndFinishesBeforeItStops) {
  std::atomic<int> calls = 0;
  StepFinisher finisher([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ++calls;
  });
  finisher.Start();
  while (calls < 1) std::this_thread::yield();
  finisher.Start();
  finisher.Stop();
  EXPECT_EQ(calls, 2);
  finisher.Stop();  // again: nothing to do
}

}  // namespace
}  // namespace elastiquant
