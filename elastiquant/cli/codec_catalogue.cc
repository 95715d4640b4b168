#include "elastiquant/cli/codec_catalogue.h"

#include <algorithm>
#include <set>

#include "elastiquant/base/random.h"
#include "elastiquant/base/workspace.h"
#include "elastiquant/codec/remembering.h"

namespace elastiquant::cli {
namespace {

// Parameters that set a codec's rate, and values at which the field quotes it.
struct Rate {
  const char* parameter;
  std::vector<std::string> values;
};
const std::vector<Rate>& Rates() {
  static const std::vector<Rate> rates = {
      {"bits", {"0.5", "1", "1.5", "2", "3", "4", "5", "6", "8"}},
      {"value", {"0.001", "0.003", "0.01", "0.03"}},
      {"ratio", {"0.001", "0.003", "0.01", "0.03", "0.1"}},
      {"rank", {"1", "2", "4", "8"}},
      {"levels", {"3", "5", "9", "16", "32"}},
  };
  return rates;
}

const Rate* RateOf(const CodecInfo& info) {
  for (const CodecParameter& parameter : info.parameters) {
    for (const Rate& rate : Rates()) {
      if (parameter.name == rate.parameter) return &rate;
    }
  }
  return nullptr;
}

std::string DefaultRate(const CodecInfo& info, const Rate& rate) {
  const auto same = [&](const CodecParameter& p) { return p.name == rate.parameter; };
  return std::ranges::find_if(info.parameters, same)->default_value;
}

std::string WithRate(const CodecInfo& info, const Rate& rate, const std::string& value) {
  return info.name + ":" + rate.parameter + "=" + value;
}

// The shortest way to say the codec that info.spec names.
std::string ShortSpec(const CodecInfo& info) {
  const auto same = [&](const std::string& spec) {
    const auto codec = MakeCodec(spec);
    const auto whole = MakeCodec(info.spec);
    return codec.ok() && whole.ok() && (*codec)->spec() == (*whole)->spec();
  };
  if (const Rate* rate = RateOf(info)) {
    std::string spec = WithRate(info, *rate, DefaultRate(info, *rate));
    if (same(spec)) return spec;
  }
  return same(info.name) ? info.name : info.spec;
}

// Specs of codecs that differ, in the order in which they were added.
class SpecList {
 public:
  void Add(const std::string& spec) {
    const auto codec = MakeCodec(spec);
    if (codec.ok() && seen_.insert((*codec)->spec()).second) specs_.push_back(spec);
  }
  std::vector<std::string> Take() { return std::move(specs_); }

 private:
  std::set<std::string> seen_;
  std::vector<std::string> specs_;
};

void AddWithModifiers(const CodecInfo& info, const std::string& spec, SpecList* list) {
  list->Add(spec);
  for (const std::string& modifier : info.modifiers) {
    list->Add(std::string(spec).append("|").append(modifier));
  }
}

// The elastic codec at its most exact.
std::string Dithered(const std::string& bits) {
  return "elastic:bits=" + bits + ",levels=uniform,rounding=dither,bucket=4096|rans";
}

// Settings by keys that set no rate, and what goes with any codec if it changes the values.
void AddNotable(SpecList* list) {
  for (const char* spec :
       {"bf16:rounding=stochastic", "elastic:bits=4,levels=exp",
        "elastic:bits=4,levels=fit|rans", "elastiquant:bits=8", "terngrad:bucket=tensor",
        "terngrad:bucket=tensor|rans", "atomo-svd:rank=3,convolutions=pairs"}) {
    list->Add(spec);
  }
  list->Add(Dithered("4"));
  for (const CodecModifierInfo& modifier : ListCodecModifiers()) {
    const std::string spec = "qsgdv:bits=4|" + modifier.name;
    const auto codec = MakeCodec(spec);
    // One that only remembers leaves a first message as it is.
    if (codec.ok() && (*codec)->StateFields().empty()) list->Add(spec);
  }
}

}  // namespace

std::vector<std::string> DefaultSpecs() {
  SpecList list;
  for (const CodecInfo& info : ListCodecs()) AddWithModifiers(info, ShortSpec(info), &list);
  AddNotable(&list);
  return list.Take();
}

std::vector<std::string> RateSpecs() {
  SpecList list;
  for (const CodecInfo& info : ListCodecs()) {
    AddWithModifiers(info, ShortSpec(info), &list);
    const Rate* rate = RateOf(info);
    if (rate == nullptr) continue;
    // A value that this codec does not take is left out.
    for (const std::string& value : rate->values) {
      AddWithModifiers(info, WithRate(info, *rate, value), &list);
    }
  }
  AddNotable(&list);
  for (const std::string bits : {"2", "3", "5", "6", "8"}) {
    list.Add(Dithered(bits));
    list.Add("elastic:bits=" + bits + ",levels=fit|rans");
  }
  return list.Take();
}

CodecFacts FactsOf(const Codec& codec, std::span<const float> gaussian) {
  CodecFacts facts;
  for (const size_t n : {size_t{1}, size_t{1024}, kFactsElements}) {
    if (const auto bound = codec.NmseBound(n)) facts.nmse_bounds.emplace_back(n, *bound);
  }
  facts.exchange = codec.exchange();
  facts.state = codec.StateFields();
  facts.has_momentum = MomentumOf(codec).has_value();
  const double bits_per_byte = 8.0 / static_cast<double>(gaussian.size());
  const size_t most = codec.MaxFrameBytes(gaussian.size());
  facts.worst_case_bits = bits_per_byte * static_cast<double>(most);
  std::vector<uint8_t> frame(most);
  Workspace work;
  const auto size = codec.Encode(gaussian, DeriveKey(1, 0, 0, 0), work, frame);
  if (size.ok()) facts.nominal_bits = bits_per_byte * static_cast<double>(*size);
  return facts;
}

}  // namespace elastiquant::cli
