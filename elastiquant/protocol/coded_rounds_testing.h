// Rounds in which workers average vectors, over a network in memory that delivers messages one
// by one in any order. A worker may have several streams of rounds. What is sent in the rounds
// of a stream is encoded by one codec with one memory, as a reduction does it, and its account
// is kept. For tests of algorithms.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/stream/accounted_stream_testing.h"

namespace elastiquant {

// Codecs that promise to send all they are given sooner or later, and one that is unbiased.
inline const std::vector<std::string>& CodecsOfRounds() {
  static const std::vector<std::string> codecs = {"fp32",
                                                  "topk:ratio=0.2|ef",
                                                  "dither:bits=2",
                                                  "dither:bits=3|ef",
                                                  "signsgd|ef",
                                                  "chunktopk:chunk=16,k=3,bits=2|ef:decay=0.95",
                                                  "chunktopk:chunk=8,k=2|ef:decay=0.5"};
  return codecs;
}

class CodedRounds {
 public:
  using Vector = std::vector<float>;
  struct Arrived {
    bool is_lost = false;  // a worker could not encode: the round has no mean
    Vector mean = {};
  };

  CodedRounds(const std::string& codec, size_t workers, size_t streams, size_t elements)
      : workers_(workers), elements_(elements), means_(streams) {
    const std::shared_ptr<const Codec> made = MakeCodec(codec).value();
    for (size_t i = 0; i < workers * streams; ++i) streams_.emplace_back(made, elements);
  }

  // Encodes what a worker sends in a round, and puts it under way to all. The stream's round
  // before must have been taken.
  void Send(size_t worker, size_t stream, int64_t round, std::span<const float> values) {
    const StreamKey key = DeriveKey(stream, static_cast<uint64_t>(round), worker, 3);
    const std::vector<uint8_t> frame = StreamOf(worker, stream).Encode(values, key, work_);
    ++under_way_of_[worker];
    for (size_t to = 0; to < workers_; ++to) {
      under_way_.push_back({worker, {to, stream, round}, frame});
    }
  }

  bool is_quiet() const { return under_way_.empty(); }
  // Delivers one of the messages under way.
  void Deliver(size_t random) {
    const auto at = under_way_.begin() + static_cast<ptrdiff_t>(random % under_way_.size());
    arrived_[at->at][at->from] = std::move(at->frame);
    under_way_.erase(at);
  }

  // Returns what came of a round, once `worker` has the messages of all; before, nothing.
  std::optional<Arrived> Take(size_t worker, size_t stream, int64_t round) {
    const auto found = arrived_.find({worker, stream, round});
    if (found == arrived_.end() || found->second.size() < workers_) return {};
    const Arrived arrived = MeanOf(found->second);
    arrived_.erase(found);
    --under_way_of_[worker];
    if (arrived.is_lost) return arrived;
    StreamOf(worker, stream).Commit();
    const auto [first, is_first] = means_[stream].emplace(round, arrived.mean);
    EXPECT_EQ(first->second, arrived.mean) << "worker " << worker << ", round " << round;
    return arrived;
  }

  // Replaces a worker's streams by ones that have loaded their state, unless it has sent what
  // it has not taken: it would wait for that before it saves.
  void Restart(size_t worker) {
    if (under_way_of_[worker] > 0) return;
    for (size_t s = 0; s < means_.size(); ++s) StreamOf(worker, s).Restart();
  }

  // The means of a stream's rounds, but of those that are lost.
  const std::map<int64_t, Vector>& means(size_t stream) const { return means_[stream]; }

  // All that moves the shared model is what was sent, and what was sent and is remembered is
  // all that was given to the streams. Must be called when all rounds have been taken.
  void Check() const {
    constexpr double kTolerance = 2e-4;
    for (size_t s = 0; s < means_.size(); ++s) {
      std::vector<double> applied(elements_), sent(elements_);
      for (const auto& [round, mean] : means_[s]) {
        for (size_t i = 0; i < elements_; ++i) applied[i] += static_cast<double>(mean[i]);
      }
      for (size_t w = 0; w < workers_; ++w) {
        const AccountedStream& stream = streams_[w * means_.size() + s];
        stream.Check(kTolerance);
        for (size_t i = 0; i < elements_; ++i) sent[i] += stream.sent()[i];
      }
      for (size_t i = 0; i < elements_; ++i) {
        ASSERT_NEAR(applied[i] * static_cast<double>(workers_), sent[i], kTolerance);
      }
    }
  }

 private:
  struct Place {
    size_t to, stream;
    int64_t round;
    auto operator<=>(const Place&) const = default;
  };
  struct Letter {
    size_t from;
    Place at;
    std::vector<uint8_t> frame;
  };

  AccountedStream& StreamOf(size_t worker, size_t stream) {
    return streams_[worker * means_.size() + stream];
  }

  Arrived MeanOf(const std::map<size_t, std::vector<uint8_t>>& frames) {
    Arrived arrived{.mean = Vector(elements_)};
    Vector decoded(elements_);
    for (const auto& [from, frame] : frames) {
      if (frame.empty()) return {.is_lost = true};
      EXPECT_TRUE(DecodeFrame(frame, work_, decoded).ok());
      for (size_t i = 0; i < elements_; ++i) arrived.mean[i] += decoded[i];
    }
    for (float& v : arrived.mean) v /= static_cast<float>(workers_);
    return arrived;
  }

  const size_t workers_, elements_;
  Workspace work_;
  std::vector<AccountedStream> streams_;          // by worker and stream
  std::vector<std::map<int64_t, Vector>> means_;  // by stream and round
  std::map<size_t, size_t> under_way_of_;         // by worker: rounds it has yet to take
  std::vector<Letter> under_way_;
  std::map<Place, std::map<size_t, std::vector<uint8_t>>> arrived_;  // by sender
};

}  // namespace elastiquant
