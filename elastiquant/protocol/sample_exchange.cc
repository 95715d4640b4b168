#include "elastiquant/protocol/sample_exchange.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "elastiquant/base/bytes.h"
#include "elastiquant/base/crc32c.h"
#include "elastiquant/coding/bit_stream.h"

namespace elastiquant {
namespace {

constexpr uint16_t kSamplesMagic = 0x5345;  // "ES"
constexpr uint8_t kSamplesVersion = 1;
constexpr uint8_t kHasChances = 1;    // a flag of the header
constexpr size_t kCheckedFront = 20;  // of the header: all but the checksum
constexpr size_t kWordBytes = 8;      // that BitWriter needs beyond the bits
constexpr int kChanceCodes = 1 << SampleExchange::kChanceBits;
constexpr int64_t kMostBatch = 1 << 20;
constexpr int64_t kMostPass = std::numeric_limits<uint32_t>::max();

int BitsFor(int64_t values) {
  return std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(values - 1))));
}

Status CheckSampleOptions(const SampleExchangeOptions& o) {
  if (o.world_size < 1 || o.rank < 0 || o.rank >= o.world_size) {
    return InvalidArgument("a worker's rank must be in [0, world size)");
  }
  if (o.codec == nullptr) return InvalidArgument("samples need a codec");
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  if (o.samples < 1 || o.samples > kMost || o.classes < 1 || o.classes > kMost) {
    return InvalidArgument("there must be at least one sample and class, and fewer than 2^32");
  }
  if (o.batch >= 1 && o.batch <= kMostBatch) return {};
  return InvalidArgument("a batch must have 1 to " + std::to_string(kMostBatch) + " samples");
}

Status BadSamples(int from, const std::string& what) {
  return CorruptData("the samples of worker " + std::to_string(from) + " " + what);
}

// The chance of code c is (c + 1) / kChanceCodes.
int CodeOfChance(double chance) {
  return std::clamp(static_cast<int>(std::ceil(chance * kChanceCodes)), 1, kChanceCodes) - 1;
}
double ChanceOfCode(uint64_t code) { return static_cast<double>(code + 1) / kChanceCodes; }

struct Header {
  uint8_t flags = 0;
  uint32_t count = 0;
  uint64_t step = 0;
  uint32_t first_pass = 0;
};

// Layout: magic, version, flags, count, step, pass of the first sample, checksum of all of this
// and of what follows.
void WriteHeader(const Header& header, std::span<uint8_t> message) {
  ByteWriter writer(message);
  writer.Write(kSamplesMagic);
  writer.Write(kSamplesVersion);
  writer.Write(header.flags);
  writer.Write(header.count);
  writer.Write(header.step);
  writer.Write(header.first_pass);
  const uint32_t front = Crc32c(message.first(kCheckedFront));
  writer.Write(front ^ Crc32c(message.subspan(SampleExchange::kHeaderBytes)));
}

Result<Header> ReadHeader(int from, std::span<const uint8_t> message) {
  ByteReader reader(message);
  uint16_t magic = 0;
  uint8_t version = 0;
  uint32_t checksum = 0;
  Header header;
  reader.Read(&magic);
  reader.Read(&version);
  reader.Read(&header.flags);
  reader.Read(&header.count);
  reader.Read(&header.step);
  reader.Read(&header.first_pass);
  if (!reader.Read(&checksum)) return BadSamples(from, "are too short");
  if (magic != kSamplesMagic || version != kSamplesVersion) {
    return BadSamples(from, "are no message of samples");
  }
  const uint32_t front = Crc32c(message.first(kCheckedFront));
  if (checksum != (front ^ Crc32c(message.subspan(SampleExchange::kHeaderBytes)))) {
    return BadSamples(from, "have a checksum that does not match");
  }
  if ((header.flags & ~kHasChances) != 0) return BadSamples(from, "have unknown flags");
  return header;
}

}  // namespace

Result<SampleExchange> SampleExchange::Make(const SampleExchangeOptions& options) {
  EQ_RETURN_IF_ERROR(CheckSampleOptions(options));
  return SampleExchange(options);
}

SampleExchange::SampleExchange(const SampleExchangeOptions& options)
    : options_(options),
      id_bits_(BitsFor(options.samples)),
      label_bits_(BitsFor(options.classes)),
      sent_(options.cached ? static_cast<size_t>(options.samples) : 0),
      kept_(options.cached ? static_cast<size_t>(options.samples) : 0) {}

double SampleExchange::ChanceThatTravels(double chance) {
  return ChanceOfCode(static_cast<uint64_t>(CodeOfChance(chance)));
}

// A batch has no more passes that begin in it than samples.
size_t SampleExchange::MaxMessageBytes() const {
  const auto batch = static_cast<size_t>(options_.batch);
  const size_t bits = bits_of_name() + 4;
  return kHeaderBytes + batch * (bits + 1) / 8 + kWordBytes + options_.codec->MaxBytes(batch);
}

Status SampleExchange::CheckBatch(std::span<const SampleToSend> samples) const {
  if (samples.size() > static_cast<size_t>(options_.batch)) {
    return InvalidArgument("a batch has at most " + std::to_string(options_.batch) +
                           " samples, not " + std::to_string(samples.size()));
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    const SampleToSend& s = samples[i];
    const int64_t before = i == 0 ? 0 : samples[i - 1].pass;
    if (s.id < 0 || s.id >= options_.samples) {
      return InvalidArgument("there is no sample " + std::to_string(s.id));
    }
    if (s.pass < before || s.pass > kMostPass ||
        s.pass - samples.front().pass > options_.batch) {
      return InvalidArgument("passes must not fall, nor rise by more than a batch");
    }
    if (!(s.chance > 0) || s.chance > 1) {
      return InvalidArgument("a sample's chance must be in (0, 1]");
    }
  }
  return {};
}

// A sample that comes twice in a batch is fresh the first time only, if receivers keep it.
std::vector<bool> SampleExchange::FreshOnes(std::span<const SampleToSend> samples) const {
  std::vector<bool> fresh;
  std::set<int64_t> here;
  for (const SampleToSend& s : samples) {
    const bool is_known =
        options_.cached && (sent_[static_cast<size_t>(s.id)] || !here.insert(s.id).second);
    fresh.push_back(!is_known);
  }
  return fresh;
}

// For each sample: a one for each pass that begins before it, and a zero; its number; its
// chance, if the header says so; whether it is fresh, and if so its label.
Status SampleExchange::WriteNames(std::span<const SampleToSend> samples,
                                  const std::vector<bool>& fresh,
                                  std::span<const int64_t> labels, const NamesFormat& format,
                                  std::vector<uint8_t>* out) {
  const int64_t passes = samples.empty() ? 0 : samples.back().pass - format.first_pass;
  const size_t bits = bits_of_name() + 2;
  std::vector<uint8_t> room((samples.size() * bits + static_cast<size_t>(passes)) / 8 +
                            2 * kWordBytes);
  BitWriter writer(room);
  int64_t pass = format.first_pass;
  size_t label = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    for (; pass < samples[i].pass; ++pass) {
      writer.Add(1, 1);
      writer.Flush();
    }
    writer.Add(0, 1);
    writer.Add(static_cast<uint64_t>(samples[i].id), id_bits_);
    if (format.has_chances) {
      writer.Add(static_cast<uint64_t>(CodeOfChance(samples[i].chance)), kChanceBits);
    }
    writer.Add(fresh[i] ? 1 : 0, 1);
    writer.Flush();
    if (!fresh[i]) continue;
    writer.Add(static_cast<uint64_t>(labels[label++]), label_bits_);
    writer.Flush();
  }
  size_t used = 0;
  if (!writer.Finish(&used)) return Internal("names of samples need more bytes than reckoned");
  out->insert(out->end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(used));
  const uint64_t label_bits = label * static_cast<uint64_t>(label_bits_);
  traffic_.label_bits += label_bits;
  traffic_.number_bits += 8 * (kHeaderBytes + used) - label_bits;
  return {};
}

Result<std::span<const uint8_t>> SampleExchange::OnBatch(uint64_t step,
                                                         std::span<const SampleToSend> samples,
                                                         const ReadSample& read) {
  EQ_RETURN_IF_ERROR(CheckBatch(samples));
  const std::vector<bool> fresh = FreshOnes(samples);
  std::vector<uint64_t> ids;
  std::vector<int64_t> labels;
  std::vector<uint8_t> pixels;
  const size_t size = options_.codec->shape().bytes();
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!fresh[i]) continue;
    ids.push_back(static_cast<uint64_t>(samples[i].id));
    pixels.resize(pixels.size() + size);
    EQ_ASSIGN_OR_RETURN(const int64_t label, read(samples[i].id, std::span(pixels).last(size)));
    if (label < 0 || label >= options_.classes) {
      return InvalidArgument("sample " + std::to_string(samples[i].id) + " has label " +
                             std::to_string(label) + ", and there are " +
                             std::to_string(options_.classes) + " classes");
    }
    labels.push_back(label);
  }
  const NamesFormat format{
      .count = static_cast<uint32_t>(samples.size()),
      .first_pass = samples.empty() ? 0 : samples.front().pass,
      .has_chances = std::ranges::any_of(samples, [](const auto& s) { return s.chance < 1; })};
  message_.assign(kHeaderBytes, 0);
  EQ_RETURN_IF_ERROR(WriteNames(samples, fresh, labels, format, &message_));
  if (!ids.empty()) {
    EQ_ASSIGN_OR_RETURN(const auto coded, options_.codec->Encode(ids, pixels));
    message_.insert(message_.end(), coded.begin(), coded.end());
    traffic_.pixel_bytes += coded.size();
  }
  traffic_.named += samples.size();
  traffic_.sent += ids.size();
  if (message_.size() > MaxMessageBytes()) {
    return Internal("a message of samples has more bytes than MaxMessageBytes says");
  }
  WriteHeader({.flags = format.has_chances ? kHasChances : uint8_t{0},
               .count = format.count,
               .step = step,
               .first_pass = static_cast<uint32_t>(format.first_pass)},
              message_);
  if (options_.cached) {
    for (const SampleToSend& s : samples) sent_[static_cast<size_t>(s.id)] = true;
  }
  return std::span<const uint8_t>(message_);
}

// Reads what WriteNames has written, and sets *used to its bytes.
Result<std::vector<SampleExchange::Named>> SampleExchange::ReadNames(
    int from, std::span<const uint8_t> bytes, const NamesFormat& format, size_t* used) const {
  std::vector<Named> named;
  BitReader reader(bytes);
  const auto take = [&reader](int bits) {
    const uint64_t value = reader.Peek(bits);
    reader.Skip(bits);
    return static_cast<int64_t>(value);
  };
  int64_t pass = format.first_pass;
  while (named.size() < format.count && !reader.Overrun()) {
    reader.Reload();
    if (take(1) != 0) {
      if (++pass - format.first_pass > options_.batch) break;
      continue;
    }
    Named next;
    next.sample.pass = pass;
    next.sample.id = take(id_bits_);
    if (format.has_chances) {
      next.sample.weight = 1 / ChanceOfCode(static_cast<uint64_t>(take(kChanceBits)));
    }
    next.is_fresh = take(1) != 0;
    reader.Reload();
    if (next.is_fresh) next.sample.label = take(label_bits_);
    if (next.sample.id >= options_.samples || next.sample.label >= options_.classes) {
      return BadSamples(from, "have a sample or a label that does not exist");
    }
    named.push_back(next);
  }
  if (named.size() < format.count || reader.Overrun() || !reader.SkipToByte()) {
    return BadSamples(from, "have names that end early or are damaged");
  }
  *used = reader.position() / 8;
  return named;
}

// Decodes the samples that came with the message, and finds all that it names.
Status SampleExchange::TakePixels(int from, std::span<const uint8_t> bytes,
                                  std::vector<Named>* named) {
  const size_t size = options_.codec->shape().bytes();
  std::vector<uint64_t> ids;
  for (const Named& n : *named) {
    if (n.is_fresh) ids.push_back(static_cast<uint64_t>(n.sample.id));
  }
  std::vector<uint8_t> pixels(ids.size() * size);
  if (ids.empty() && !bytes.empty()) return BadSamples(from, "have more bytes than samples");
  if (!ids.empty()) {
    const Status status = options_.codec->Decode(ids, bytes, pixels);
    if (!status.ok()) return BadSamples(from, "do not decode: " + status.message());
  }
  std::span<const uint8_t> next(pixels);
  for (Named& n : *named) {
    if (!n.is_fresh) continue;
    const auto copy = std::make_shared<uint8_t[]>(size);
    std::ranges::copy(next.first(size), copy.get());
    next = next.subspan(size);
    n.sample.pixels = {copy.get(), size};
    n.sample.memory = copy;
    if (options_.cached) kept_[static_cast<size_t>(n.sample.id)] = {copy, n.sample.label};
  }
  return {};
}

Result<std::vector<ReceivedSample>> SampleExchange::OnMessage(
    int from, uint64_t step, std::span<const uint8_t> message) {
  if (from < 0 || from >= options_.world_size) return BadSamples(from, "are of no worker");
  EQ_ASSIGN_OR_RETURN(const Header header, ReadHeader(from, message));
  if (header.step != step) return BadSamples(from, "are of another step");
  if (header.count > static_cast<uint64_t>(options_.batch)) {
    return BadSamples(from, "are more than a batch");
  }
  const NamesFormat format{.count = header.count,
                           .first_pass = header.first_pass,
                           .has_chances = (header.flags & kHasChances) != 0};
  const std::span<const uint8_t> body = message.subspan(kHeaderBytes);
  size_t used = 0;
  EQ_ASSIGN_OR_RETURN(std::vector<Named> named, ReadNames(from, body, format, &used));
  std::set<int64_t> coming;
  for (const Named& n : named) {
    if (n.is_fresh && !coming.insert(n.sample.id).second && options_.cached) {
      return BadSamples(from, "have sample " + std::to_string(n.sample.id) + " twice");
    }
    // Without a cache no pass after the first can be named by number alone.
    const bool is_known = options_.cached && (coming.contains(n.sample.id) ||
                                              kept_[static_cast<size_t>(n.sample.id)].pixels);
    if (n.is_fresh || is_known) continue;
    return BadSamples(from,
                      "have sample " + std::to_string(n.sample.id) + ", which never came");
  }
  EQ_RETURN_IF_ERROR(TakePixels(from, body.subspan(used), &named));
  std::vector<ReceivedSample> samples;
  for (Named& n : named) {
    if (!n.is_fresh) {
      const Kept& kept = kept_[static_cast<size_t>(n.sample.id)];
      n.sample.label = kept.label;
      n.sample.pixels = {kept.pixels.get(), options_.codec->shape().bytes()};
      n.sample.memory = kept.pixels;
    }
    samples.push_back(n.sample);
  }
  return samples;
}

}  // namespace elastiquant
