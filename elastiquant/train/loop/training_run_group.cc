#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>

#include "elastiquant/base/contains.h"
#include "elastiquant/graph/parts.h"
#include "elastiquant/train/fingerprint.h"
#include "elastiquant/train/loop/training_run.h"

namespace elastiquant {

// Collective. If any worker has heard of newcomers, the group makes way for one that has them,
// which calls its roll again.
Status TrainingRun::RollCall() {
  while (!is_over_) {
    EQ_ASSIGN_OR_RETURN(const auto heard, comm_.AllGather(crew_->newcomers_wait() ? 1 : 0));
    if (std::ranges::all_of(heard, [](uint64_t h) { return h == 0; })) break;
    EQ_RETURN_IF_ERROR(Regroup(/*at_boundary=*/true));
  }
  return Status::Ok();
}

// Collective. With too few workers the run ends here, where it can go on later.
Status TrainingRun::CheckGroup() {
  const int there = comm_.world_size();
  if (there >= options_.least_workers) return Status::Ok();
  EQ_RETURN_IF_ERROR(SaveAll());
  return agreement_.Known(Unavailable(fmt::format(
      "of {} workers {} {} left, fewer than --least-workers {}: the run was saved after step "
      "{}, from which --resume goes on",
      workers_, there, there == 1 ? "is" : "are", options_.least_workers, state_.step)));
}

// Goes on in the next group, at the same place. Newcomers begin with the roll call.
Status TrainingRun::Regroup(bool at_boundary) {
  for (;;) {
    if (runner_) runner_->rounds()->LeaveGroup();
    EQ_ASSIGN_OR_RETURN(const bool goes_on, crew_->Regroup(at_boundary));
    is_over_ = !goes_on;
    if (is_over_) return Status::Ok();
    comm_.SetActivity("going on in another group of workers");
    const Status status = Rejoin();
    if (status.ok() || !crew_->is_broken()) return status;
    at_boundary = false;  // one more was lost meanwhile
  }
}

Status TrainingRun::Rejoin() {
  const bool afresh = is_newcomer();
  EQ_RETURN_IF_ERROR(runner_ ? runner_->rounds()->JoinGroup(Weights(), afresh)
                             : MakeTheRunner());
  RoundRunner& rounds = *runner_->rounds();
  const Status left = rounds.CheckThoseLeft(crew_->group());
  if (!left.ok()) return agreement_.Known(left);
  // What follows the last step is done if the next one may begin.
  const Station next = station_ == Station::kStep ? Station::kEnd : station_;
  const uint64_t reached =
      std::max({rounds.reached(), furthest_, MilestoneAt(state_.step, next)});
  EQ_ASSIGN_OR_RETURN(const Reunion reunion, Reunite(comm_, reached, afresh, News()));
  if (afresh) EQ_RETURN_IF_ERROR(CheckAlike(worker_, reunion.news.at("alike"), Alike()));
  EQ_RETURN_IF_ERROR(HandOn(comm_, reunion, afresh, *replica_, rounds));
  EQ_RETURN_IF_ERROR(rounds.Admit(NamesOf(reunion.newcomers)));
  furthest_ = reunion.furthest;
  rounds.Regroup(furthest_);
  TakeIn(reunion.news);
  if (afresh) EQ_RETURN_IF_ERROR(StartAnew(reunion));
  TellChanges(reunion.news);
  crew_->Settle();
  EQ_RETURN_IF_ERROR(OpenTestData());
  if (is_first() && !log_) {
    // Whoever was first may be frozen and hold it still, but has no part in the run any more.
    auto lock = FolderLock::Take(options_.out, std::chrono::milliseconds(0));
    if (lock.ok()) folder_lock_.emplace(std::move(*lock));
    return OpenLogs();
  }
  if (!is_first()) {
    folder_lock_.reset();
    log_.reset();
    certificate_log_.reset();
  }
  return Status::Ok();
}

// What others have to know of the run to go on with it.
nlohmann::json TrainingRun::News() const {
  return {{"group", group_},
          {"losses", state_.losses},
          {"accuracy", std::bit_cast<uint64_t>(evaluation_.accuracy)},
          {"loss", std::bit_cast<uint64_t>(evaluation_.loss)},
          {"step", state_.step},
          {"skipped", state_.skipped_in_a_row},
          {"rounds", state_.rounds},
          {"uploads", state_.uploads},
          {"record", state_.record.SaveState()},
          {"init", state_.init},
          {"alike", Alike()}};
}

void TrainingRun::TakeIn(const nlohmann::json& news) {
  state_.losses = news.at("losses");
  evaluation_ = {std::bit_cast<double>(news.at("accuracy").get<uint64_t>()),
                 std::bit_cast<double>(news.at("loss").get<uint64_t>())};
}

// This worker may be the one that tells of the whole run some day.
void TrainingRun::TakeOver(const nlohmann::json& news) {
  TakeIn(news);
  state_.step = news.at("step");
  state_.skipped_in_a_row = news.at("skipped");
  state_.rounds = news.at("rounds");
  state_.uploads = news.at("uploads").get<std::vector<uint64_t>>();
  state_.init = news.at("init");
  state_.record = {};
  state_.record.LoadState(news.at("record"));
}

// This worker begins where the others are, as one that has done nothing yet.
Status TrainingRun::StartAnew(const Reunion& reunion) {
  TakeOver(reunion.news);
  station_ = Station::kRollCall;
  between_rounds_ = true;
  counted_ = runner_->counts();
  runner_->rounds()->StartFromShared(state_.step);
  const LoaderPosition start{state_.step / steps_per_epoch_, state_.step % steps_per_epoch_};
  EQ_ASSIGN_OR_RETURN(loader_, TrainLoader::Make(dataset_, loading_, start));
  return Status::Ok();
}

// Notes who was lost since the group of the source, and who is back.
void TrainingRun::TellChanges(const nlohmann::json& news) {
  const auto before = news.at("group").get<std::vector<int>>();
  const int64_t step = news.at("step");
  group_ = crew_->group();
  const auto note = [this](const std::string& text) {
    if (is_first()) progress_->Note(text);
  };
  const RoundRunner& rounds = *runner_->rounds();
  const auto parts = rounds.PartsOf(group_);
  const bool is_whole = parts.size() == 1, was_whole = rounds.PartsOf(before).size() == 1;
  for (const int worker : before) {
    if (Contains(group_, worker)) continue;
    const int64_t round = rounds.RoundAfter(step);
    state_.losses.push_back({{"worker", worker},
                             {"step", step},
                             {"round", round},
                             {"parts", is_whole ? nlohmann::json() : nlohmann::json(parts)},
                             {"rejoined", nullptr}});
    note(fmt::format("worker {} was lost in round {}: going on with {}", worker, round,
                     group_.size()));
  }
  for (const int worker : group_) {
    for (nlohmann::json& loss : state_.losses) {
      if (loss["worker"] != worker || !loss["rejoined"].is_null()) continue;
      loss["rejoined"] = step;
      note(fmt::format("worker {} is back after step {}: going on with {}", worker, step,
                       group_.size()));
    }
  }
  if (!is_whole) {
    note(
        fmt::format("warning: the graph has fallen into {} parts, {}: models of different "
                    "parts do not come together until lost workers are back",
                    parts.size(), Describe(parts)));
  } else if (!was_whole) {
    note("the graph has no separate parts any more");
  }
}

// Collective. Those that were not there when the run was saved begin as one does that comes
// back.
Status TrainingRun::ReplaceAbsent() {
  if (state_.absent.empty()) return Status::Ok();
  if (RoundRunner* const rounds = runner_->rounds(); rounds && !options_.forget_memory) {
    const bool mine = Contains(state_.absent, worker_);
    EQ_ASSIGN_OR_RETURN(const Reunion reunion, Reunite(comm_, 0, mine, News()));
    EQ_RETURN_IF_ERROR(HandOn(comm_, reunion, mine, *replica_, *rounds));
    EQ_RETURN_IF_ERROR(rounds->Admit(NamesOf(reunion.newcomers)));
    rounds->Regroup(0);
    if (mine) rounds->StartFromShared(state_.step);
  }
  for (nlohmann::json& loss : state_.losses) {
    if (loss["rejoined"].is_null()) loss["rejoined"] = state_.step;
  }
  state_.absent.clear();
  return Status::Ok();
}

int TrainingRun::NameOf(int rank) const {
  return crew_ ? crew_->group()[static_cast<size_t>(rank)] : rank;
}

std::vector<int> TrainingRun::NamesOf(const std::vector<int>& ranks) const {
  std::vector<int> names;
  for (const int rank : ranks) names.push_back(NameOf(rank));
  return names;
}

std::vector<int> TrainingRun::Absent() const {
  std::vector<int> absent;
  for (int w = 0; crew_ != nullptr && w < workers_; ++w) {
    if (!Contains(group_, w)) absent.push_back(w);
  }
  return absent;
}

}  // namespace elastiquant
