#include "elastiquant/exchange/strategy.h"

#include <algorithm>
#include <string>
#include <utility>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/exchange/all_gather.h"
#include "elastiquant/exchange/integer_sum.h"
#include "elastiquant/exchange/sparse_choice.h"
#include "elastiquant/exchange/sparse_scatter.h"
#include "elastiquant/exchange/two_phase.h"

namespace elastiquant {

BucketState::BucketState(size_t bucket_index, GradientBucket gradient_bucket, int world_size)
    : index(bucket_index),
      bucket(std::move(gradient_bucket)),
      stream(bucket.codec, bucket.gradient.size()),
      receives(static_cast<size_t>(world_size)) {
  const auto found = std::ranges::find(stream.names(), "residual");
  if (found != stream.names().end()) {
    residual = static_cast<size_t>(found - stream.names().begin());
  }
  // What this worker has left, others may still send.
  if (!bucket.ladder.empty()) bucket.ladder.push_back(bucket.codec);
}

Strategy::Strategy(ReduceShared& shared, BucketState& state)
    : shared_(shared), state_(state), room_(static_cast<size_t>(shared.world_size)) {}

size_t Strategy::FrameRoom(size_t n, Phase phase) const {
  size_t most = codec(phase).MaxFrameBytes(n);
  for (const auto& other : bucket().ladder) most = std::max(most, other->MaxFrameBytes(n));
  return RoomFor(most);
}

StreamKey Strategy::KeyOf(Phase phase, int chunk) const {
  const auto n = static_cast<uint64_t>(shared_.world_size);
  const uint64_t message =
      (2 * state_.index + static_cast<uint64_t>(phase)) * n + static_cast<uint64_t>(chunk);
  return DeriveKey(shared_.options.seed, shared_.step, static_cast<uint64_t>(shared_.rank),
                   message);
}

Result<size_t> Strategy::EncodeOrNotice(Workspace& work, std::span<const float> values,
                                        Chunk part, Phase phase, int chunk,
                                        std::span<uint8_t> frame) {
  const Stopwatch watch;
  Result<size_t> size = state_.stream.EncodePart(codec(phase), part.begin, values,
                                                 KeyOf(phase, chunk), work, frame);
  shared_.tally.AddSeconds(&ReducerStats::encode_seconds, watch);
  if (size.ok()) return size;
  return NoticeOf(size.status(), values, part.begin, frame);
}

Result<Strategy::Frame> Strategy::EncodeWhole() {
  ReduceShared::Stage& stage = shared_.encode;
  const auto room = stage.frame.AtLeast(WholeRoom());
  EQ_ASSIGN_OR_RETURN(
      const size_t size,
      EncodeOrNotice(stage.work, gradient(), Whole(), Phase::kContribute, shared_.rank, room));
  const Frame frame = room.first(size);
  if (measuring()) {
    EQ_RETURN_IF_ERROR(Measure(Whole(), Phase::kContribute, gradient(), frame, stage));
  }
  return frame;
}

Result<size_t> Strategy::NoticeOf(const Status& why, std::span<const float> values,
                                  size_t begin, std::span<uint8_t> frame) const {
  if (why.code() != StatusCode::kNonFinite && why.code() != StatusCode::kOutOfRange) return why;
  const auto b = static_cast<uint32_t>(state_.index);
  const SkipNotice too_large{b, own_number(), 0, SkipNotice::Cause::kOutOfRange};
  return WriteSkipNotice(FindNonFinite(values, begin, b, own_number()).value_or(too_large),
                         frame);
}

Status Strategy::Measure(Chunk part, Phase phase, std::span<const float> values, Frame frame,
                         ReduceShared::Stage& stage) {
  EQ_ASSIGN_OR_RETURN(const auto notice, ReadSkipNotice(frame));
  if (notice) return {};
  auto& [input, errors] = stage.measured;
  input.resize(part.size);
  errors.resize(part.size);
  EQ_RETURN_IF_ERROR(DecodeFrame(frame, stage.work, errors));
  std::span<const float> residual;  // what was encoded, less what it decodes to
  if (state_.residual) {
    residual = state_.stream.PartOf(part.begin, part.size).after()[*state_.residual];
  }
  double error = 0, norm = 0;
  for (size_t i = 0; i < part.size; ++i) {
    const double sent = errors[i];
    const double lost = residual.empty() ? values[i] - sent : static_cast<double>(residual[i]);
    error += lost * lost;
    norm += (sent + lost) * (sent + lost);
    input[i] = static_cast<float>(sent + lost);
    errors[i] = static_cast<float>(lost);
  }
  if (phase == Phase::kContribute) shared_.tally.AddError(error, norm, state_.metric);
  if (shared_.options.on_measured) {
    shared_.options.on_measured({state_.index, part, bounded(phase), input, errors, frame});
  }
  return {};
}

Result<Strategy::Frame> Strategy::Take(int rank, Mail mail) {
  Incoming& receive = *state_.receives[static_cast<size_t>(rank)][static_cast<size_t>(mail)];
  const Status status = receive.Wait().status();
  if (status.ok() && receive.metric() != state_.metric) {
    return FrameError(
        rank, InvalidArgument("it is in another metric than " + shared_.names(shared_.rank) +
                              "'s: the state of their optimisers differs"));
  }
  if (status.ok()) return receive.bytes();
  return status.code() == StatusCode::kUnavailable ? status : FrameError(rank, status);
}

Status Strategy::Send(SendQueue& sends, int to, Mail mail, Frame frame) {
  return sends.Send(to, TagOf(shared_.options.channel, state_.index, mail), frame,
                    state_.metric);
}

Status Strategy::SendToAll(SendQueue& sends, Mail mail, Frame frame) {
  for (int n = 1; n < shared_.world_size; ++n) {
    EQ_RETURN_IF_ERROR(Send(sends, NthPeer(n), mail, frame));
  }
  return {};
}

void Strategy::Keep(Frame frame) {
  state_.kept = shared_.kept_frames->Take(frame.size());
  std::ranges::copy(frame, state_.kept.span().begin());
  shared_.kept_bytes += frame.size();
}

Status Strategy::AddFrame(int rank, Frame frame, std::span<float> sum, Notice* notice) {
  EQ_ASSIGN_OR_RETURN(const bool skips, IsNotice(rank, frame, notice));
  if (skips) return {};
  const Stopwatch watch;
  const Status status = DecodeAddFrame(frame, weight(rank), shared_.reduce.work, sum);
  shared_.tally.AddSeconds(&ReducerStats::decode_seconds, watch);
  return status.ok() ? status : FrameError(rank, status);
}

Result<bool> Strategy::IsNotice(int rank, Frame frame, Notice* notice) const {
  const Result<Notice> theirs = ReadSkipNotice(frame);
  if (!theirs.ok()) return FrameError(rank, theirs.status());
  if (!*theirs) return false;
  if (!*notice || **theirs < **notice) *notice = *theirs;
  return true;
}

Strategy::Notice Strategy::FindInSum(std::span<const float> sum, size_t begin) const {
  return FindNonFinite(sum, begin, static_cast<uint32_t>(state_.index), kSumOfAll);
}

void Strategy::Divide(std::span<const float> sum, std::span<float> mean) const {
  const bool weighted = !shared_.options.weights.empty();
  const float n = weighted ? 1.0f : static_cast<float>(shared_.world_size);
  std::ranges::transform(sum, mean.begin(), [n](float v) { return v / n; });
}

float Strategy::weight(int rank) const {
  const auto& weights = shared_.options.weights;
  return weights.empty() ? 1.0f : static_cast<float>(weights[static_cast<size_t>(rank)]);
}

Status Strategy::GatherChunks(const std::function<void(std::span<float>)>& finish) {
  for (int n = 1; n < shared_.world_size; ++n) {
    const int r = NthPeer(n);
    const Chunk chunk = ChunkOfRank(r);
    if (chunk.size == 0) continue;
    EQ_ASSIGN_OR_RETURN(const Frame frame, Take(r, Mail::kMeans));
    const Result<Notice> notice = ReadSkipNotice(frame);
    if (!notice.ok()) return FrameError(r, notice.status());
    if (*notice) {
      Skip(**notice);
      continue;
    }
    const Stopwatch watch;
    const Status status = DecodeFrame(frame, shared_.gather_work, Part(chunk));
    if (status.ok() && finish) finish(Part(chunk));
    shared_.tally.AddSeconds(&ReducerStats::decode_seconds, watch);
    if (!status.ok()) return FrameError(r, status);
  }
  return {};
}

// Two stages may find something at once.
void Strategy::Skip(const SkipNotice& notice) {
  state_.reduced = false;
  shared_.tally.Skip(notice);
}

Status Strategy::FrameError(int rank, const Status& status) const {
  return {status.code(), "the frame of bucket " + std::to_string(state_.index) + " (" +
                             bucket().name + ") from " + shared_.names(rank) + ": " +
                             status.message()};
}

// A lone worker keeps what its own frame decodes to, where an exchange loses nothing on the way
// back.
std::unique_ptr<Strategy> MakeStrategy(Exchange exchange, ReduceShared& shared,
                                       BucketState& state) {
  if (exchange == Exchange::kTwoPhase) return std::make_unique<TwoPhase>(shared, state);
  if (exchange == Exchange::kAllGather || shared.world_size == 1) {
    return std::make_unique<AllGather>(shared, state);
  }
  if (exchange == Exchange::kIntegerSum) return std::make_unique<IntegerSum>(shared, state);
  if (exchange == Exchange::kSparseScatter) {
    return std::make_unique<SparseScatter>(shared, state);
  }
  return std::make_unique<SparseChoice>(shared, state);
}

}  // namespace elastiquant
