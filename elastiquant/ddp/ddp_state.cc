#include "elastiquant/ddp/ddp_state.h"

#include <string>
#include <utility>

#include "elastiquant/base/bytes.h"
#include "elastiquant/ddp/layout_section.h"

namespace elastiquant {
namespace {

constexpr char kStepSection[] = "step";
constexpr char kUnitsSection[] = "units";
constexpr char kLayoutSection[] = "layout";
constexpr char kCodecSection[] = "codec/";  // then the spec that parameters name

std::vector<std::string> FieldsOf(const DdpParameter& parameter, const DdpStateOwner& owner) {
  return owner.codecs.asked().at(parameter.codec)->StateFields();
}

// `fitted` has the specs whose levels are fitted.
Status ReadFitted(Sections* sections, std::map<std::string, std::string>* fitted) {
  for (auto& [spec, text] : *fitted) {
    const auto section = sections->extract(kCodecSection + spec);
    if (section.empty()) {
      return CorruptData("section " + (kCodecSection + spec) +
                         " is missing: the state is of another codec");
    }
    text.assign(section.mapped().begin(), section.mapped().end());
  }
  return {};
}

}  // namespace

StateIdentity DdpStateOwner::Identity() const {
  StateIdentity identity{.rank = rank, .world_size = world_size, .layers = {}};
  for (const DdpParameter& p : parameters) {
    identity.layers.push_back({.name = p.shape.name,
                               .elements = p.shape.elements,
                               .codec = p.codec,
                               .order = FieldsOf(p, *this).empty() ? std::string() : p.order});
  }
  return identity;
}

Sections SaveDdpState(DdpState state, const DdpStateOwner& owner) {
  Sections sections = std::move(state.memory);
  if (sections.empty()) {
    for (const DdpParameter& p : owner.parameters) {
      CodecMemory::SaveEmpty(p.shape, FieldsOf(p, owner), &sections);
    }
  }
  sections[kIdentitySection] = IdentitySection(owner.Identity());
  sections[kLayoutSection] = LayoutSection(state.layout, owner.parameters);
  for (const auto& [spec, fitted] : state.fitted) {
    sections[kCodecSection + spec].assign(fitted.begin(), fitted.end());
  }
  sections[kStepSection] = SectionOf(state.step);
  sections[kUnitsSection] = BytesOf(std::span<const double>(state.units));
  return sections;
}

Result<DdpState> ReadDdpState(Sections sections, const DdpStateOwner& owner) {
  EQ_RETURN_IF_ERROR(TakeIdentity(owner.Identity(), &sections));
  DdpState state;
  EQ_ASSIGN_OR_RETURN(state.step, ValueIn<uint64_t>(sections, kStepSection));
  EQ_ASSIGN_OR_RETURN(state.units, ValuesIn<double>(sections, kUnitsSection));
  if (state.units.size() != owner.parameters.size()) {
    return CorruptData("section units is of " + std::to_string(state.units.size()) +
                       " parameters, and there are " + std::to_string(owner.parameters.size()));
  }
  state.fitted = owner.codecs.Fitted();
  EQ_RETURN_IF_ERROR(ReadFitted(&sections, &state.fitted));
  const auto layout = sections.extract(kLayoutSection);
  if (layout.empty()) return CorruptData("section layout is missing");
  EQ_ASSIGN_OR_RETURN(state.layout, ReadLayoutSection(layout.mapped(), owner.parameters));
  for (const DdpParameter& p : owner.parameters) {
    EQ_RETURN_IF_ERROR(CodecMemory::Check(p.shape, FieldsOf(p, owner), sections));
  }
  // What is left is the codecs' memory.
  sections.erase(kStepSection);
  sections.erase(kUnitsSection);
  state.memory = std::move(sections);
  return state;
}

}  // namespace elastiquant
