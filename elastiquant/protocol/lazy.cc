#include "elastiquant/protocol/lazy.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "elastiquant/base/bytes.h"
#include "elastiquant/base/crc32c.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/stream/codec_stream.h"

namespace elastiquant {
namespace {

constexpr uint16_t kLazyMagic = 0x4C45;       // "EL"
constexpr uint32_t kLazyStateMagic = 0x4C51;  // "QL"
constexpr uint8_t kLazyVersion = 1;
constexpr size_t kCheckedBytes = 20;  // of a header: what its checksum is of

Status CheckLazyOptions(const LazyOptions& o) {
  if (o.world_size < 1 || o.rank < 0 || o.rank >= o.world_size) {
    return InvalidArgument("a worker's rank must be in [0, world size)");
  }
  if (o.elements == 0 || o.elements > kMaxFrameElements) {
    return InvalidArgument("a gradient must have at least one value, and fewer than 2^32");
  }
  if (o.history < 1 || o.most_silent < 0) {
    return InvalidArgument("the history must be at least 1, and silent steps at least 0");
  }
  if (!(o.weight >= 0) || !std::isfinite(o.weight) || !(o.smoothness >= 0) ||
      !std::isfinite(o.smoothness)) {
    return InvalidArgument("the weight and the smoothness must be at least 0");
  }
  return {};
}

Status BadMessage(int from, const std::string& what) {
  return CorruptData("the message of worker " + std::to_string(from) + " " + what);
}

template <typename T>
void Append(std::span<const T> values, std::vector<uint8_t>* bytes) {
  const std::vector<uint8_t> more = BytesOf(values);
  bytes->insert(bytes->end(), more.begin(), more.end());
}
template <typename T>
void Append(const T& value, std::vector<uint8_t>* bytes) {
  Append(std::span<const T>(&value, 1), bytes);
}

template <typename T>
bool ReadValues(size_t count, ByteReader* reader, std::vector<T>* values) {
  std::span<const uint8_t> bytes;
  if (count > reader->remaining() / sizeof(T) || !reader->ReadSpan(count * sizeof(T), &bytes)) {
    return false;
  }
  values->resize(count);
  if (count > 0) std::memcpy(values->data(), bytes.data(), bytes.size());
  return true;
}

}  // namespace

Result<Lazy> Lazy::Make(const LazyOptions& options) {
  EQ_RETURN_IF_ERROR(CheckLazyOptions(options));
  EQ_ASSIGN_OR_RETURN(auto codec, MakeCodec(options.codec));
  // What is lost of an innovation is in the next one: feedback would send it twice.
  EQ_RETURN_IF_ERROR(CheckRemembersNothing(
      *codec, "An innovation has in it what the last one lost: take the codec without it"));
  return Lazy(options, std::move(codec));
}

Lazy::Lazy(const LazyOptions& options, std::shared_ptr<const Codec> codec)
    : options_(options),
      codec_(std::move(codec)),
      work_(std::make_unique<Workspace>(options.threads)),
      smoothness_(options.smoothness),
      sum_(options.elements),
      sent_(options.elements),
      last_weights_(needs_weights() ? options.elements : 0),
      decoded_(options.elements),
      own_(options.elements),
      mean_(options.elements) {
  for (auto& inbox : inbox_) inbox.resize(static_cast<size_t>(options.world_size));
}

size_t Lazy::MaxMessageBytes() const {
  return kHeaderBytes + codec_->MaxFrameBytes(options_.elements);
}

StreamKey Lazy::KeyOf(uint64_t step, int worker) const {
  return DeriveKey(options_.seed, step, static_cast<uint64_t>(worker), 0);
}

Status Lazy::CheckStep(const LazyStep& step) const {
  const auto fits = [this](std::span<const float> values, bool needed) {
    return values.size() == options_.elements || (!needed && values.empty());
  };
  if (has_gradient_) return InvalidArgument("the step has been given its gradient already");
  if (fits(step.gradient, true) && fits(step.weights, needs_weights()) &&
      fits(step.reference, wants_reference())) {
    return {};
  }
  return InvalidArgument("gradients and weights must have " +
                         std::to_string(options_.elements) + " values");
}

// Returns false if the codec found that it cannot, which all workers must know of.
Result<bool> Lazy::Encode(std::span<const float> gradient) {
  for (size_t i = 0; i < gradient.size(); ++i) {
    decoded_[i] = static_cast<float>(static_cast<double>(gradient[i]) - sent_[i]);
  }
  message_.resize(MaxMessageBytes());
  const std::span<uint8_t> room = std::span(message_).subspan(kHeaderBytes);
  const auto size = codec_->Encode(decoded_, KeyOf(step_, options_.rank), *work_, room);
  if (!size.ok()) {
    const StatusCode code = size.status().code();
    if (code == StatusCode::kNonFinite || code == StatusCode::kOutOfRange) return false;
    return size.status();
  }
  frame_bytes_ = *size;
  EQ_RETURN_IF_ERROR(DecodeFrame(room.first(frame_bytes_), *work_, own_));
  pending_error_ = pending_change_ = 0;
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double change = own_[i];
    const double error = static_cast<double>(gradient[i]) - (sent_[i] + change);
    pending_change_ += change * change;
    pending_error_ += error * error;
  }
  return true;
}

double Lazy::Threshold() const {
  return options_.weight * std::accumulate(moves_.begin(), moves_.end(), 0.0);
}

// Whether this worker must send, whatever the rule says.
bool Lazy::IsForced() const {
  return !has_sent_ || silent_ >= options_.most_silent ||
         (options_.rule == LazyRule::kLagPs && smoothness_ == 0);
}

// A side that is NaN makes it send.
bool Lazy::IsSilent(const LazyStep& step) const {
  if (IsForced()) return false;
  switch (options_.rule) {
    case LazyRule::kLagWk:
      return innovation_ <= Threshold();
    case LazyRule::kLagPs:
      return smoothness_ * smoothness_ * SquaredDistance(step.weights, last_weights_) <=
             Threshold();
    case LazyRule::kLaq:
      return pending_change_ <= Threshold() + 3 * (pending_error_ + last_error_);
    case LazyRule::kLasg:
      return SquaredDistance(step.gradient, step.reference) <= Threshold();
  }
  return false;
}

Result<std::span<const uint8_t>> Lazy::OnGradient(const LazyStep& step) {
  EQ_RETURN_IF_ERROR(CheckStep(step));
  Header header{
      .kind = Kind::kUpload, .step = step_, .loss = step.loss, .accuracy = step.accuracy};
  innovation_ = 0;
  for (size_t i = 0; i < step.gradient.size(); ++i) {
    const double change = static_cast<double>(step.gradient[i]) - sent_[i];
    innovation_ += change * change;
  }
  bool encodes = std::isfinite(innovation_) && std::isfinite(step.loss);
  // LAQ decides by what it would send.
  const bool is_laq = options_.rule == LazyRule::kLaq;
  if (encodes && is_laq) {
    EQ_ASSIGN_OR_RETURN(encodes, Encode(step.gradient));
  }
  const bool silent = encodes && IsSilent(step);
  if (encodes && !is_laq && !silent) {
    EQ_ASSIGN_OR_RETURN(encodes, Encode(step.gradient));
  }
  if (!encodes) header.kind = Kind::kNoGradient;
  if (silent) header.kind = Kind::kSilent;
  pending_upload_ = header.kind == Kind::kUpload;
  if (pending_upload_) weights_.assign(step.weights.begin(), step.weights.end());
  has_gradient_ = true;
  return Write(header);
}

// Layout: magic, kind, version, step, loss, accuracy, checksum of these; then the frame.
std::span<const uint8_t> Lazy::Write(const Header& header) {
  const size_t size = kHeaderBytes + (header.kind == Kind::kUpload ? frame_bytes_ : 0);
  if (message_.size() < size) message_.resize(size);
  ByteWriter writer(message_);
  writer.Write(kLazyMagic);
  writer.Write(static_cast<uint8_t>(header.kind));
  writer.Write(kLazyVersion);
  writer.Write(header.step);
  writer.Write(header.loss);
  writer.Write(header.accuracy);
  writer.Write(Crc32c(std::span(message_).first(kCheckedBytes)));
  return std::span(message_).first(size);
}

Result<Lazy::Header> Lazy::Read(int from, std::span<const uint8_t> bytes) const {
  if (from < 0 || from >= options_.world_size) return BadMessage(from, "is of no worker");
  ByteReader reader(bytes);
  uint16_t magic = 0;
  uint8_t kind = 0, version = 0;
  uint32_t checksum = 0;
  Header header;
  reader.Read(&magic);
  reader.Read(&kind);
  reader.Read(&version);
  reader.Read(&header.step);
  reader.Read(&header.loss);
  reader.Read(&header.accuracy);
  if (!reader.Read(&checksum)) return BadMessage(from, "is too short");
  if (magic != kLazyMagic || version != kLazyVersion) return BadMessage(from, "is of no step");
  if (checksum != Crc32c(bytes.first(kCheckedBytes))) {
    return BadMessage(from, "has a header whose checksum does not match");
  }
  if (kind > static_cast<uint8_t>(Kind::kNoGradient)) {
    return BadMessage(from, "is of an unknown kind");
  }
  header.kind = static_cast<Kind>(kind);
  if (header.step - step_ > 1) return BadMessage(from, "is of another step");
  const std::span<const uint8_t> frame = bytes.subspan(kHeaderBytes);
  if (header.kind == Kind::kUpload) {
    EQ_RETURN_IF_ERROR(CheckFrame(from, header.step, frame));
  } else if (!frame.empty()) {
    return BadMessage(from, "has more bytes than its kind");
  }
  return header;
}

Status Lazy::CheckFrame(int from, uint64_t step, std::span<const uint8_t> frame) const {
  const auto view = ParseFrame(frame);
  if (!view.ok()) return BadMessage(from, "has a bad frame: " + view.status().message());
  if (view->elements != options_.elements) {
    return BadMessage(from, "has a frame of another length");
  }
  if (view->key.value == KeyOf(step, from).value) return {};
  return BadMessage(from, "has a frame of another step or worker");
}

Result<std::optional<LazyApply>> Lazy::OnMessage(int from, std::span<const uint8_t> bytes) {
  EQ_ASSIGN_OR_RETURN(const Header header, Read(from, bytes));
  const uint64_t ahead = header.step - step_;
  if (from == options_.rank && (ahead > 0 || !has_gradient_)) {
    return BadMessage(from, "is this worker's own, of a step whose gradient it has not had");
  }
  std::vector<uint8_t>& slot = inbox_[ahead][static_cast<size_t>(from)];
  if (!slot.empty()) return BadMessage(from, "is its second one of the step");
  slot.assign(bytes.begin(), bytes.end());
  if (!IsComplete()) return std::optional<LazyApply>();
  EQ_ASSIGN_OR_RETURN(LazyApply apply, Finish());
  return std::optional<LazyApply>(std::move(apply));
}

bool Lazy::IsComplete() const {
  return std::ranges::none_of(inbox_[0], [](const auto& m) { return m.empty(); });
}

// In the order of ranks, so that all workers have the same sum.
Status Lazy::AddUploads() {
  next_sum_ = sum_;
  for (size_t w = 0; w < inbox_[0].size(); ++w) {
    const std::span<const uint8_t> frame = std::span(inbox_[0][w]).subspan(kHeaderBytes);
    if (frame.empty()) continue;
    const Status status = DecodeFrame(frame, *work_, decoded_);
    if (!status.ok()) {
      inbox_[0][w].clear();
      return BadMessage(static_cast<int>(w), "has a bad frame: " + status.message());
    }
    for (size_t i = 0; i < decoded_.size(); ++i) {
      next_sum_[i] += static_cast<double>(decoded_[i]);
    }
  }
  std::swap(sum_, next_sum_);
  return {};
}

void Lazy::CommitOwn() {
  if (!pending_upload_) {
    ++silent_;
    return;
  }
  if (options_.rule == LazyRule::kLagPs && options_.smoothness == 0 && has_sent_) {
    const double squares = SquaredDistance(weights_, last_weights_);
    if (squares > 0) smoothness_ = std::max(smoothness_, std::sqrt(innovation_ / squares));
  }
  for (size_t i = 0; i < own_.size(); ++i) sent_[i] += static_cast<double>(own_[i]);
  if (needs_weights()) last_weights_ = weights_;
  last_error_ = pending_error_;
  silent_ = 0;
  has_sent_ = true;
  ++uploads_;
}

Result<LazyApply> Lazy::Finish() {
  LazyApply apply;
  const auto workers = static_cast<float>(options_.world_size);
  for (int w = 0; w < options_.world_size; ++w) {
    EQ_ASSIGN_OR_RETURN(const Header header, Read(w, inbox_[0][static_cast<size_t>(w)]));
    apply.loss += header.loss / workers;
    apply.accuracy += header.accuracy / workers;
    if (header.kind != Kind::kNoGradient || apply.skipped) continue;
    apply.skipped = true;
    apply.reason =
        "worker " + std::to_string(w) + " could not encode its gradient: NaN or infinity";
  }
  if (!apply.skipped) {
    EQ_RETURN_IF_ERROR(AddUploads());
    CommitOwn();
  }
  for (size_t i = 0; i < mean_.size(); ++i) {
    mean_[i] = static_cast<float>(sum_[i] / options_.world_size);
  }
  apply.mean = mean_;
  for (auto& message : inbox_[0]) message.clear();
  std::swap(inbox_[0], inbox_[1]);
  has_gradient_ = pending_upload_ = false;
  ++step_;
  return apply;
}

void Lazy::OnMoved(double squared_difference, double learning_rate) {
  const double rate = learning_rate * learning_rate;
  // At a rate of 0 nothing moved: no change of a gradient is small against that.
  moves_.insert(moves_.begin(), rate > 0 ? squared_difference / rate : 0.0);
  if (moves_.size() > static_cast<size_t>(options_.history)) moves_.pop_back();
}

std::vector<uint8_t> Lazy::Save() const {
  std::vector<uint8_t> bytes;
  const std::string spec = codec_->spec();
  Append(kLazyStateMagic, &bytes);
  Append(static_cast<uint32_t>(options_.rule), &bytes);
  Append(static_cast<uint32_t>(options_.rank), &bytes);
  Append(static_cast<uint32_t>(options_.world_size), &bytes);
  Append(static_cast<uint64_t>(options_.elements), &bytes);
  Append(static_cast<uint64_t>(spec.size()), &bytes);
  Append(std::span<const char>(spec), &bytes);
  Append(step_, &bytes);
  Append(static_cast<uint64_t>(has_sent_), &bytes);
  Append(silent_, &bytes);
  Append(last_error_, &bytes);
  Append(smoothness_, &bytes);
  Append(static_cast<uint64_t>(moves_.size()), &bytes);
  Append(std::span<const double>(moves_), &bytes);
  Append(std::span<const double>(sum_), &bytes);
  Append(std::span<const double>(sent_), &bytes);
  Append(std::span<const float>(last_weights_), &bytes);
  for (const std::vector<uint8_t>& message : inbox_[0]) {  // those that came early
    Append(static_cast<uint64_t>(message.size()), &bytes);
    Append(std::span<const uint8_t>(message), &bytes);
  }
  Append(Crc32c(bytes), &bytes);
  return bytes;
}

Status Lazy::Load(std::span<const uint8_t> bytes) {
  Status damaged = CorruptData("this is no state of a lazy worker, or a damaged one");
  if (bytes.size() < sizeof(uint32_t)) return damaged;
  const std::span<const uint8_t> body = bytes.first(bytes.size() - sizeof(uint32_t));
  uint32_t checksum = 0;
  ByteReader(bytes.subspan(body.size())).Read(&checksum);
  if (checksum != Crc32c(body)) return damaged;
  Lazy loaded(options_, codec_);
  EQ_RETURN_IF_ERROR(loaded.LoadFields(body));
  loaded.uploads_ = uploads_;
  *this = std::move(loaded);
  return {};
}

Status Lazy::LoadFields(std::span<const uint8_t> bytes) {
  Status damaged = CorruptData("the state of a lazy worker is damaged");
  ByteReader reader(bytes);
  uint32_t magic = 0, rule = 0, rank = 0, world_size = 0;
  uint64_t elements = 0, count = 0, has_sent = 0;
  std::vector<char> spec;
  reader.Read(&magic);
  reader.Read(&rule);
  reader.Read(&rank);
  reader.Read(&world_size);
  reader.Read(&elements);
  if (!reader.Read(&count) || magic != kLazyStateMagic) return damaged;
  if (!ReadValues(count, &reader, &spec)) return damaged;
  if (rule != static_cast<uint32_t>(options_.rule) ||
      rank != static_cast<uint32_t>(options_.rank) ||
      world_size != static_cast<uint32_t>(options_.world_size) ||
      elements != options_.elements ||
      std::string(spec.begin(), spec.end()) != codec_->spec()) {
    return InvalidArgument("the state is of another worker, rule, codec or model");
  }
  reader.Read(&step_);
  reader.Read(&has_sent);
  reader.Read(&silent_);
  reader.Read(&last_error_);
  reader.Read(&smoothness_);
  has_sent_ = has_sent != 0;
  if (!reader.Read(&count) || !ReadValues(count, &reader, &moves_)) return damaged;
  if (!ReadValues(elements, &reader, &sum_) || !ReadValues(elements, &reader, &sent_) ||
      !ReadValues(last_weights_.size(), &reader, &last_weights_)) {
    return damaged;
  }
  for (int w = 0; w < options_.world_size; ++w) {
    std::vector<uint8_t>& message = inbox_[0][static_cast<size_t>(w)];
    if (!reader.Read(&count) || !ReadValues(count, &reader, &message)) return damaged;
    if (!message.empty()) EQ_RETURN_IF_ERROR(Read(w, message).status());
  }
  return reader.remaining() == 0 ? Status() : damaged;
}

}  // namespace elastiquant
