// What frames wait for before they are on their way: a cable, or air that stations share.
#pragma once

#include <cmath>
#include <cstddef>
#include <deque>
#include <optional>
#include <random>
#include <vector>

#include "lab/rate_trace.h"

namespace lab {

struct MediumOptions {
  RateTrace rate = RateTrace(1e9);
  // What each frame of an Ethernet's size takes beside its bytes: on the air preamble, spaces
  // and acknowledgement.
  Time overhead{0};
  // Slots of the contention window in which stations that want to send draw theirs, as 16 of
  // 802.11; the same slot is a collision, which takes as long as the frame and doubles the
  // window for the next try. 0: nobody collides.
  int window = 0;
  // How long a station's frames may queue, at the rate of the moment, before more are lost.
  Time queue = std::chrono::milliseconds(100);
};

// One frame at a time is sent, of any station. If several have frames queued, each is as likely
// to be next. It knows no clock: the caller says what time it is.
template <typename Frame>
class Medium {
 public:
  Medium(MediumOptions options, size_t stations)
      : options_(std::move(options)), queues_(stations) {}

  // Queues a frame of so many bytes, which TCP may have left to the card to cut into frames of
  // an Ethernet's size. Returns false if the queue is full: the frame is lost.
  bool Push(size_t station, Frame frame, size_t bytes, Time now);
  // Returns when the frame that is being sent is there, or nothing if none is.
  std::optional<Time> next() const {
    return sent_ ? std::optional<Time>(sent_->end) : std::nullopt;
  }
  // Returns the frame of next(), and begins with another one. Nothing if it was lost, because
  // it has collided too often.
  std::optional<Frame> Pop();

 private:
  static constexpr size_t kFrameBytes = 1514;
  static constexpr int kTries = 8;

  struct Queued {
    Frame frame;
    size_t bytes;
  };
  struct Sent {
    Queued queued;
    Time end;
    bool lost;
  };

  Time EndOf(size_t bytes, Time start) const {
    const size_t frames = (bytes + kFrameBytes - 1) / kFrameBytes;
    return options_.rate.EndOf(start + options_.overhead * static_cast<int64_t>(frames),
                               8.0 * static_cast<double>(bytes));
  }
  void Begin(Time now);

  const MediumOptions options_;
  std::vector<std::deque<Queued>> queues_;  // by station
  std::vector<size_t> queued_bytes_ = std::vector<size_t>(queues_.size());
  std::optional<Sent> sent_;
  std::mt19937 random_;  // with its default seed
};

template <typename Frame>
bool Medium<Frame>::Push(size_t station, Frame frame, size_t bytes, Time now) {
  // An empty queue takes any frame.
  if (queued_bytes_[station] > 0 &&
      EndOf(queued_bytes_[station] + bytes, now) - now > options_.queue) {
    return false;
  }
  queued_bytes_[station] += bytes;
  queues_[station].push_back({std::move(frame), bytes});
  if (!sent_) Begin(now);
  return true;
}

template <typename Frame>
std::optional<Frame> Medium<Frame>::Pop() {
  Sent sent = std::move(*sent_);
  sent_.reset();
  Begin(sent.end);
  if (sent.lost) return std::nullopt;
  return std::move(sent.queued.frame);
}

template <typename Frame>
void Medium<Frame>::Begin(Time now) {
  std::vector<size_t> waiting;
  for (size_t s = 0; s < queues_.size(); ++s) {
    if (!queues_[s].empty()) waiting.push_back(s);
  }
  if (waiting.empty()) return;
  const size_t station =
      waiting[std::uniform_int_distribution<size_t>(0, waiting.size() - 1)(random_)];
  Queued queued = std::move(queues_[station].front());
  queues_[station].pop_front();
  queued_bytes_[station] -= queued.bytes;
  Time end = EndOf(queued.bytes, now);
  int tries = 1;
  for (double window = options_.window; window > 0 && tries <= kTries; window *= 2, ++tries) {
    // The chance that nobody else draws the same slot.
    const double alone = std::pow(1 - 1 / window, static_cast<double>(waiting.size() - 1));
    if (std::bernoulli_distribution(alone)(random_)) break;
    end = EndOf(queued.bytes, end);
  }
  sent_ = Sent{std::move(queued), end, tries > kTries};
}

}  // namespace lab
