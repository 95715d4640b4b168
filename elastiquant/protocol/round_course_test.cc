#include "elastiquant/protocol/round_course.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/base/contains.h"
#include "elastiquant/base/random.h"
#include "elastiquant/base/schedules_testing.h"
#include "elastiquant/protocol/local_steps.h"
#include "elastiquant/stream/accounted_stream_testing.h"

namespace elastiquant {
namespace {

using TaskKind = RoundTask::Kind;
using Values = std::vector<float>;

RoundCourse CourseOf(const RoundScheduleOptions& options) {
  return RoundCourse(RoundSchedule::Make(options).value());
}

std::vector<RoundTask> DoAll(RoundCourse* course) {
  std::vector<RoundTask> tasks;
  while (const auto task = course->Next()) {
    tasks.push_back(*task);
    course->Done();
  }
  return tasks;
}

TEST(RoundCourseTest, WithoutALossItIsTheSchedule) {
  RoundCourse course = CourseOf({.every = 2});
  course.Enter(1, false);
  EXPECT_FALSE(course.Next());
  EXPECT_FALSE(course.ends_round());
  course.Enter(2, false);
  EXPECT_EQ(DoAll(&course), (std::vector<RoundTask>{{TaskKind::kSend}, {TaskKind::kApply}}));
  EXPECT_TRUE(course.ends_round());
  course.Enter(3, true);
  EXPECT_EQ(DoAll(&course),
            (std::vector<RoundTask>{{TaskKind::kSend, 0, 1}, {TaskKind::kApply, 0, 1}}));
}

TEST(RoundCourseTest, ARoundThatNobodyHasAppliedIsMadeAgain) {
  RoundCourse course = CourseOf({.every = 2});
  course.Enter(2, false);
  course.Done();  // sent
  course.Regroup(course.reached());
  EXPECT_EQ(DoAll(&course), (std::vector<RoundTask>{{TaskKind::kSend, 0, 0, /*again=*/true},
                                                    {TaskKind::kApply}}));
}

TEST(RoundCourseTest, OneThatAnotherHasAppliedIsTakenUp) {
  RoundCourse behind = CourseOf({.every = 2}), ahead = behind;
  behind.Enter(2, false);
  behind.Done();
  ahead.Enter(2, false);
  DoAll(&ahead);
  ahead.Enter(3, false);
  behind.Regroup(ahead.reached());
  EXPECT_EQ(DoAll(&behind), (std::vector<RoundTask>{{TaskKind::kTakeUp}}));
  behind.Enter(3, false);
  behind.Enter(4, false);
  EXPECT_EQ(DoAll(&behind),
            (std::vector<RoundTask>{{TaskKind::kSend, 0, 1}, {TaskKind::kApply, 0, 1}}));
}

TEST(RoundCourseTest, WhatWasToBeAppliedLaterIsPassedOver) {
  RoundCourse sent = CourseOf({.every = 4, .delay = 2}), not_yet = sent;
  sent.Enter(4, false);
  DoAll(&sent);
  not_yet.Enter(3, false);
  sent.Regroup(sent.reached());
  not_yet.Regroup(sent.reached());
  not_yet.Enter(4, false);
  EXPECT_EQ(DoAll(&not_yet), (std::vector<RoundTask>{{TaskKind::kPass}}));
  for (RoundCourse* course : {&sent, &not_yet}) {
    course->Enter(6, false);
    EXPECT_EQ(DoAll(course), (std::vector<RoundTask>{{TaskKind::kPass}}));
    course->Enter(8, false);
    EXPECT_EQ(DoAll(course), (std::vector<RoundTask>{{TaskKind::kSend, 0, 1}}));
  }
}

// A worker that was behind in both groups has its work still, as all others have.
TEST(RoundCourseTest, WhatOthersHavePassedOverIsNotTakenUp) {
  RoundCourse behind = CourseOf({.every = 4, .delay = 2}), ahead = behind;
  for (RoundCourse* course : {&behind, &ahead}) {
    course->Enter(4, false);
    DoAll(course);
  }
  behind.Regroup(ahead.reached());
  ahead.Regroup(ahead.reached());
  ahead.Enter(6, false);
  EXPECT_EQ(DoAll(&ahead), (std::vector<RoundTask>{{TaskKind::kPass}}));
  behind.Regroup(ahead.reached());
  behind.Enter(6, false);
  EXPECT_EQ(DoAll(&behind), (std::vector<RoundTask>{{TaskKind::kPass}}));
}

// Workers that train at their own pace, of which any may be lost at any moment, and those that
// are left form a new group when they can. Which thing happens next is the seed's.
//
// What a codec remembers of a message counts from when the worker applies its mean, or takes up
// the model of another worker that has. A round that is passed over or made again has sent
// nothing.
class LossyWorld {
 public:
  enum class Moment : uint8_t {
    kAny,
    kLastRound,  // once all have made their last local step, and only the last round is to come
  };

  LossyWorld(uint64_t seed, const LocalStepsOptions& options, size_t workers, int64_t steps,
             const std::string& codec, Moment kills_at = Moment::kAny)
      : keys_(MakeLaneKeys(DeriveKey(seed, 0, 0, 7))),
        options_(options),
        codec_(MakeCodec(codec).value()),
        steps_(steps),
        kills_at_(kills_at) {
    for (size_t w = 0; w < workers; ++w) {
      group_.push_back(w);
      workers_.push_back(std::make_unique<Member>(options, codec_));
    }
  }

  void Run() {
    for (int i = 0; i < 200000 && !IsDone(); ++i) {
      // Not for ever: those that wait in vain shall not be saved by the next loss.
      if (kills_ < 6 && MayKill()) Kill();
      if (Draw(10) == 0) MayTakeBack();
      if (broken_ && Draw(6) == 0) FormGroup({});
      const size_t w = group_[Draw(static_cast<uint32_t>(group_.size()))];
      if (!workers_[w]->lives) continue;
      if (workers_[w]->course.Next()) {
        Act(w);
      } else if (workers_[w]->at < steps_) {
        Train(w);
      }
    }
    ASSERT_TRUE(IsDone()) << "they wait for each other";
  }

  void Check() {
    for (const size_t w : group_) workers_[w]->machine.ShowShared();
    const Member& first = *workers_[group_[0]];
    for (const size_t w : group_) ASSERT_EQ(workers_[w]->local, first.local) << "worker " << w;
    for (const size_t w : group_) CheckAccount(w);
  }

  int kills() const { return kills_; }

 private:
  static constexpr size_t kLength = 5;

  // What each worker has contributed to a shared model, by worker and fragment.
  using Parts = std::map<std::pair<size_t, size_t>, std::vector<double>>;

  struct Member {
    Member(const LocalStepsOptions& options, const std::shared_ptr<const Codec>& codec)
        : local(options.schedule.fragments, Values(kLength)),
          machine(Machine(options)),
          course(machine.schedule()),
          streams(local.size(), AccountedStream(codec, kLength)) {}
    LocalSteps Machine(const LocalStepsOptions& options) {
      std::vector<size_t> fragments;
      for (size_t f = 0; f < local.size(); ++f) fragments.push_back(f);
      return LocalSteps::Make(options, {local.begin(), local.end()}, fragments).value();
    }
    std::vector<Values> local;
    LocalSteps machine;
    RoundCourse course;
    int64_t at = 0;  // local steps made
    bool lives = true;
    bool came_back = false;
    std::vector<AccountedStream> streams;       // by fragment
    std::set<std::pair<size_t, int64_t>> sent;  // fragments and rounds
    Parts parts;
  };

  // By how much a worker moves in a step.
  static float MoveOf(size_t worker, size_t coordinate) {
    return static_cast<float>(worker + 1) - .25f * static_cast<float>(coordinate);
  }

  void CheckAccount(size_t w) const {
    const Member& member = *workers_[w];
    for (size_t f = 0; f < member.streams.size(); ++f) {
      member.streams[f].Check(2e-3);
      const auto found = member.parts.find({w, f});
      const std::vector<double> applied =
          found == member.parts.end() ? std::vector<double>(kLength) : found->second;
      for (size_t i = 0; i < kLength; ++i) {
        ASSERT_NEAR(applied[i], member.streams[f].sent()[i], 2e-3) << "worker " << w;
        // If no round that was applied later than it was sent can have been lost, all that a
        // worker has learnt that was always there was given to its codec once, neither lost nor
        // counted twice.
        if (options_.schedule.delay > 0 && kills_at_ == Moment::kAny) continue;
        if (member.came_back) continue;
        ASSERT_NEAR(member.streams[f].given()[i], MoveOf(w, i) * static_cast<float>(steps_),
                    1e-2)
            << "worker " << w;
      }
    }
  }

  uint32_t Draw(uint32_t below) { return RandomBits(keys_, draws_++) % below; }

  bool IsDone() const {
    return !broken_ && std::ranges::all_of(group_, [&](size_t w) {
      return workers_[w]->at == steps_ && !workers_[w]->course.Next();
    });
  }

  bool MayKill() {
    return kills_at_ == Moment::kAny ? Draw(40) == 0 : Draw(4) == 0 && AllHaveTrained();
  }
  // Returns whether all have made their last local step and applied all rounds but the last.
  bool AllHaveTrained() const {
    return std::ranges::all_of(group_, [&](size_t w) {
      const std::optional<RoundTask> task = workers_[w]->course.Next();
      return workers_[w]->at == steps_ && (!task || task->round == LastRound());
    });
  }
  int64_t LastRound() const {
    const RoundSchedule& schedule = workers_[0]->machine.schedule();
    const std::vector<FragmentAction> end = schedule.AtEnd(steps_);
    return end.empty() ? schedule.After(steps_).back().round : end.back().round;
  }

  void Train(size_t w) {
    Member& member = *workers_[w];
    for (Values& values : member.local) {
      for (size_t i = 0; i < kLength; ++i) values[i] -= MoveOf(w, i);
    }
    ++member.at;
    member.course.Enter(member.at, member.at == steps_);
  }

  void Act(size_t w) {
    Member& member = *workers_[w];
    const RoundTask task = *member.course.Next();
    if (task.kind == TaskKind::kSend) {
      Send(w, task);
    } else if (task.kind == TaskKind::kApply) {
      if (!Apply(w, task)) return;  // it waits
    } else if (task.kind == TaskKind::kTakeUp) {
      member.machine.TakeUp(task.fragment);
      // Its part of it was sent in the group that broke, unless it was not there yet.
      if (member.sent.contains({task.fragment, task.round})) {
        member.streams[task.fragment].Commit();
      }
    }
    member.course.Done();
  }

  void Send(size_t w, const RoundTask& task) {
    Member& member = *workers_[w];
    Values values(kLength);
    const auto place = [&](size_t) { return std::span<float>(values); };
    task.again ? member.machine.SendAgain(task.fragment, place)
               : member.machine.Send(task.fragment, place);
    const auto frame = member.streams[task.fragment].Encode(
        values, DeriveKey(1, static_cast<uint64_t>(task.round), w, task.fragment), work_);
    ASSERT_TRUE(DecodeFrame(frame, work_, values).ok());
    sent_[{task.fragment, task.round}][w] = values;
    member.sent.insert({task.fragment, task.round});
  }

  bool Apply(size_t w, const RoundTask& task) {
    const auto& sent = sent_[{task.fragment, task.round}];
    if (sent.size() < group_.size()) return false;
    Values mean(kLength);
    for (const auto& [sender, theirs] : sent) {
      std::vector<double>& part = workers_[w]->parts[{sender, task.fragment}];
      part.resize(kLength);
      for (size_t i = 0; i < kLength; ++i) {
        part[i] += static_cast<double>(theirs[i]);
        mean[i] += theirs[i];
      }
    }
    for (float& v : mean) v /= static_cast<float>(group_.size());
    workers_[w]->machine.Apply(task.fragment, [&](size_t) { return std::span<float>(mean); });
    workers_[w]->streams[task.fragment].Commit();
    return true;
  }

  void Kill() {
    size_t living = 0;
    for (const size_t w : group_) living += workers_[w]->lives ? 1 : 0;
    if (living < 2) return;
    workers_[group_[Draw(static_cast<uint32_t>(group_.size()))]]->lives = false;
    broken_ = true;
    ++kills_;
  }

  // Between two rounds, which all have ended.
  void MayTakeBack() {
    if (broken_ || workers_[group_[0]]->at == steps_) return;
    const auto at_boundary = [&](size_t w) {
      const Member& member = *workers_[w];
      return member.at == workers_[group_[0]]->at && !member.course.Next() &&
             member.course.ends_round();
    };
    if (!std::ranges::all_of(group_, at_boundary)) return;
    std::vector<size_t> back;
    for (size_t w = 0; w < workers_.size(); ++w) {
      if (!Contains(group_, w)) back.push_back(w);
    }
    if (!back.empty()) FormGroup(back);
  }

  void FormGroup(const std::vector<size_t>& newcomers) {
    std::erase_if(group_, [&](size_t w) { return !workers_[w]->lives; });
    const size_t source = *std::ranges::max_element(
        group_, {}, [&](size_t w) { return workers_[w]->course.reached(); });
    const uint64_t furthest = workers_[source]->course.reached();
    const int64_t at = workers_[source]->at;
    for (const size_t w : newcomers) {
      workers_[w] = std::make_unique<Member>(options_, codec_);
      group_.push_back(w);
    }
    for (const size_t w : group_) {
      HandOn(*workers_[source], workers_[w].get());
      workers_[w]->machine.SetShare(1 / static_cast<double>(group_.size()));
      workers_[w]->course.Regroup(furthest);
    }
    for (const size_t w : newcomers) {
      // It counts what it sends from now on.
      for (const size_t other : group_) {
        std::erase_if(workers_[other]->parts,
                      [&](const auto& p) { return p.first.first == w; });
      }
      workers_[w]->at = at;
      workers_[w]->came_back = true;
      workers_[w]->machine.StartFromShared();
      workers_[w]->course.StartAt(at);
    }
    sent_.clear();
    broken_ = false;
  }

  static void HandOn(Member& from, Member* to) {
    to->parts = from.parts;
    const auto source = from.machine.SharedState(), mine = to->machine.SharedState();
    for (size_t i = 0; i < mine.size(); ++i) std::ranges::copy(source[i], mine[i].begin());
  }

  const LaneKeys keys_;
  uint32_t draws_ = 0;
  const LocalStepsOptions options_;
  const std::shared_ptr<const Codec> codec_;
  Workspace work_;
  const int64_t steps_;
  const Moment kills_at_;
  std::vector<std::unique_ptr<Member>> workers_;
  std::vector<size_t> group_;
  bool broken_ = false;  // one of the group was lost
  int kills_ = 0;
  std::map<std::pair<size_t, int64_t>, std::map<size_t, Values>> sent_;  // in this group
};

const char* LossyCodec(uint64_t draw) {
  constexpr const char* kCodecs[] = {"fp32", "topk:k=2|ef", "signsgd|ef", "dither:bits=4|ef",
                                     "chunktopk:chunk=4,k=1|ef:decay=0.95"};
  return kCodecs[draw % std::size(kCodecs)];
}

void RunLossySeed(uint64_t seed) {
  const LaneKeys keys = MakeLaneKeys(DeriveKey(seed, 0, 0, 2));
  const auto draw = [&](uint32_t i, uint32_t below) { return RandomBits(keys, i) % below; };
  LocalStepsOptions options;
  options.schedule.every = 1 + draw(0, 5);
  options.schedule.fragments = 1 + draw(1, static_cast<uint32_t>(options.schedule.every));
  if (draw(2, 2) == 0) {
    options.schedule.delay = draw(3, static_cast<uint32_t>(options.schedule.every) + 1);
    options.mix = draw(4, 2) == 0 ? 0 : .5;
    options.outer.momentum = draw(5, 2) == 0 ? 0 : .5;
  }
  if (options.schedule.delay == 0) options.mix = options.outer.momentum = 0;
  if (draw(6, 5) == 0) {
    options.schedule.fragments = 1;
    options.schedule.delay = options.schedule.every;
    options.mix = 0;
    options.eager = true;
  }
  const uint32_t workers = 1 + draw(7, 5);
  options.share = 1.0 / workers;
  LossyWorld world(seed, options, workers, 1 + draw(8, 30), LossyCodec(draw(9, 1 << 20)));
  world.Run();
  if (!testing::Test::HasFatalFailure()) world.Check();
}

TEST(RoundCourseTest, TheLastRoundOfEagerUpdatesOutlivesALoss) {
  int with_a_loss = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    const auto every = static_cast<int64_t>(1 + seed % 4);
    LocalStepsOptions options{.schedule = {.every = every, .delay = every}, .eager = true};
    options.share = 1.0 / 3;
    LossyWorld world(seed, options, 3, static_cast<int64_t>(1 + seed % 11), LossyCodec(seed),
                     LossyWorld::Moment::kLastRound);
    world.Run();
    world.Check();
    if (testing::Test::HasFatalFailure()) return;
    with_a_loss += world.kills() > 0 ? 1 : 0;
  }
  EXPECT_GT(with_a_loss, 200);
}

// A seed that fails is run alone with ROUND_COURSE_SEED=N protocol_test.
TEST(RoundCourseTest, ThoseThatAreLeftHaveOneModelWhoeverIsLostAndReturns) {
  ForEachSchedule("ROUND_COURSE_SEED", 2000, RunLossySeed);
}

}  // namespace
}  // namespace elastiquant
