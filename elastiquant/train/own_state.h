// What runners save of one worker alone, as sections of its checkpoint.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/layers/fragment_reduction.h"
#include "elastiquant/runs/checkpoint.h"
#include "elastiquant/train/replica.h"

namespace elastiquant {

// Returns where the parameters' values lie.
std::vector<std::span<float>> SpansOf(const Replica& replica);

// Returns the values of spans, one behind the other.
std::vector<float> ValuesOf(std::span<const std::span<float>> spans);
// Writes values that ValuesOf returned to where they lie.
void SetValues(std::span<const float> values, std::span<const std::span<float>> spans);

// Returns how the run's options have fragments averaged, all but which there are.
FragmentOptions FragmentOptionsOf(const TrainOptions& options,
                                  const std::vector<double>& weights);

void SaveFloats(const std::string& name, std::span<const float> values, Checkpoint* checkpoint);
// Fails with CorruptData, which names the section, if it is missing or has another size.
Status LoadFloats(const Checkpoint& checkpoint, const std::string& name,
                  std::span<float> values);

void SaveDoubles(const std::string& name, std::span<const double> values,
                 Checkpoint* checkpoint);
// Fails with CorruptData, which names the section, if it is missing or damaged.
Result<std::vector<double>> LoadDoubles(const Checkpoint& checkpoint, const std::string& name);

// Fails with CorruptData if the entry of the metadata is missing or no count.
Result<int64_t> LoadCount(const Checkpoint& checkpoint, const std::string& name);

// Adds sections under their names behind `prefix`, with the types that such names stand for in
// the package's states, too (python/elastiquant/_state.py).
void SaveSections(Sections sections, const std::string& prefix, Checkpoint* checkpoint);
// Returns the sections whose names begin with `prefix`, without it.
Sections SectionsBehind(const std::string& prefix, const Checkpoint& checkpoint);

// What the codecs of a reduction remember, in sections whose names begin with `prefix`.
void SaveMemoryOf(const FragmentReduction& reduction, const std::string& prefix,
                  Checkpoint* checkpoint);
Status LoadMemoryOf(const Checkpoint& checkpoint, const std::string& prefix,
                    FragmentReduction* reduction);

}  // namespace elastiquant
