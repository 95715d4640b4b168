// A language made by a formula, so that language models train without any download.
#pragma once

#include <string>

#include "elastiquant/data/dataset.h"

namespace elastiquant {

// Writes generated_train or generated_test samples of text, of options.context bytes each, in a
// language of its own: some 500 words of one to three syllables, frequent and rare ones as in
// natural text, in sentences with a grammar. What makes it hard to predict is what makes text
// hard: adjectives and verbs agree with their noun's gender and number; each paragraph has a
// topic, which says which words are frequent, a tense, and three people, whom pronouns of their
// gender take up; and some sentences count, so that later ones give the sum. Only integers are
// used: the bytes are the same on every machine. Fails with InvalidArgument if a size is not in
// 1 ... 1,000,000.
Result<std::string> GenerateText(const DatasetOptions& options, Split split);

}  // namespace elastiquant
