#include "elastiquant/layers/run_codecs.h"

#include <algorithm>
#include <utility>

#include "elastiquant/codec/elastic/adapt.h"

namespace elastiquant {

RunCodecs::RunCodecs(CodecsBySpec asked, Communicator* comm, int64_t adapt_every)
    : asked_(std::move(asked)), fitted_(asked_) {
  for (const auto& [name, codec] : asked_) {
    if (IsAdaptive(*codec)) adapters_.emplace(name, LevelAdapter(comm, adapt_every));
  }
}

CodecsBySpec RunCodecs::Now() const {
  CodecsBySpec codecs = fitted_;
  for (auto& [name, codec] : codecs) codec = CodecForEpoch(codec, epoch_);
  return codecs;
}

bool RunCodecs::SetEpoch(int epoch) {
  const int before = std::exchange(epoch_, epoch);
  return std::ranges::any_of(fitted_, [&](const auto& entry) {
    return CodecForEpoch(entry.second, before)->spec() !=
           CodecForEpoch(entry.second, epoch)->spec();
  });
}

bool RunCodecs::AdaptsAfter(int64_t step) const {
  return std::ranges::any_of(adapters_,
                             [&](const auto& entry) { return entry.second.Due(step); });
}

void RunCodecs::Capture(const std::string& name, int64_t step, std::span<const float> bucket) {
  const auto adapter = adapters_.find(name);
  if (adapter == adapters_.end() || !adapter->second.Due(step)) return;
  adapter->second.Capture(bucket);
}

Result<bool> RunCodecs::Adapt(int64_t step) {
  bool any = false;
  for (auto& [name, adapter] : adapters_) {
    if (!adapter.Due(step)) continue;
    EQ_ASSIGN_OR_RETURN(fitted_[name], adapter.Adapt(*fitted_[name]));
    any = true;
  }
  return any;
}

void RunCodecs::Forget() {
  for (auto& [name, adapter] : adapters_) adapter.Forget();
}

std::map<std::string, std::string> RunCodecs::Fitted() const {
  std::map<std::string, std::string> specs;
  for (const auto& [name, adapter] : adapters_) specs[name] = fitted_.at(name)->spec();
  return specs;
}

Status RunCodecs::UseFitted(const std::map<std::string, std::string>& specs) {
  CodecsBySpec codecs = fitted_;
  for (const auto& [name, adapter] : adapters_) {
    const auto spec = specs.find(name);
    if (spec == specs.end()) {
      return CorruptData("the fitted levels of codec '" + name +
                         "' are missing: the state is of another codec");
    }
    Result<std::shared_ptr<const Codec>> codec = MakeCodec(spec->second);
    if (!codec.ok()) {
      return CorruptData("the fitted levels of codec '" + name +
                         "' are not valid: " + codec.status().message());
    }
    codecs[name] = *std::move(codec);
  }
  fitted_ = std::move(codecs);
  return {};
}

}  // namespace elastiquant
