#include "elastiquant/data/generated_text.h"

#include <array>
#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "elastiquant/base/random.h"

namespace elastiquant {
namespace {

constexpr uint64_t kWordStream = 2;  // beside the splits' 0 and 1
constexpr size_t kTopics = 16;
constexpr size_t kPeople = 3;  // in a paragraph

class WordDraws {
 public:
  explicit WordDraws(StreamKey key) : keys_(MakeLaneKeys(key)) {}
  // Returns a number below n.
  size_t Below(size_t n) {
    return static_cast<size_t>(uint64_t{RandomBits(keys_, counter_++)} * n >> 32);
  }
  // Likewise, but small ones are much more frequent: the product of three uniforms.
  size_t Rank(size_t n) { return Below(Below(Below(n) + 1) + 1); }
  bool OneIn(size_t n) { return Below(n) == 0; }

 private:
  LaneKeys keys_;
  uint32_t counter_ = 0;
};

// The words of the language, which are the same in both splits. The gender of a noun, and of a
// person, is that of its index: even or odd.
struct Words {
  explicit Words(uint64_t seed) {
    WordDraws draws(DeriveKey(seed, kWordStream, 0, 0));
    std::set<std::string> used;
    const auto fill = [&](std::vector<std::string>* words, size_t count, size_t most) {
      while (words->size() < count) {
        std::string word = Word(draws, 1 + draws.Below(most));
        if (used.insert(word).second) words->push_back(std::move(word));
      }
    };
    fill(&nouns, 220, 3);
    fill(&verbs, 100, 2);
    fill(&adjectives, 90, 3);
    fill(&people, 40, 2);
    fill(&places, 12, 1);
    for (std::string& name : people) name[0] = static_cast<char>(name[0] - 'a' + 'A');
  }

  std::vector<std::string> nouns, verbs, adjectives, people, places;

 private:
  static std::string Word(WordDraws& draws, size_t syllables) {
    static constexpr std::string_view kOnsets[] = {"b",  "d",  "f",  "g",  "k",  "l", "m",
                                                   "n",  "p",  "r",  "s",  "t",  "v", "z",
                                                   "st", "tr", "br", "kl", "sh", "th"};
    static constexpr std::string_view kVowels[] = {"a", "e", "i", "o", "u", "ai", "ou"};
    static constexpr std::string_view kCodas[] = {"", "", "", "n", "r", "s", "l", "nd"};
    std::string word;
    for (size_t s = 0; s < syllables; ++s) {
      word += kOnsets[draws.Rank(std::size(kOnsets))];
      word += kVowels[draws.Rank(std::size(kVowels))];
      word += kCodas[draws.Below(std::size(kCodas))];
    }
    return word;
  }
};

// Writes one paragraph.
class Paragraph {
 public:
  Paragraph(const Words& words, WordDraws& draws, std::string* text)
      : words_(words),
        draws_(draws),
        text_(*text),
        topic_(draws.Below(kTopics)),
        past_(draws.OneIn(2)) {
    for (size_t& person : people_) person = draws.Below(words.people.size());
  }

  void Write() {
    const size_t sentences = 3 + draws_.Below(6);
    for (size_t s = 0; s < sentences; ++s) {
      if (draws_.OneIn(8)) {
        Count();
      } else {
        Tell();
      }
    }
    text_.back() = '\n';
  }

 private:
  // Another topic has other words in front.
  const std::string& Choose(const std::vector<std::string>& words, size_t* index = nullptr) {
    const size_t chosen = (draws_.Rank(words.size()) + topic_ * 29) % words.size();
    if (index != nullptr) *index = chosen;
    return words[chosen];
  }

  // Words that agree end in a vowel for the gender, and in an "s" for more than one.
  std::string Agreeing(std::string word, bool feminine, bool plural) const {
    word += feminine ? 'a' : 'o';
    return plural ? word + 's' : word;
  }

  // Writes a noun with its article and adjectives. Returns whether it is plural.
  bool Noun() {
    size_t index = 0;
    const std::string& noun = Choose(words_.nouns, &index);
    const bool feminine = index % 2 == 1, plural = draws_.OneIn(3);
    text_ += Agreeing("l", feminine, plural) + ' ';
    if (draws_.OneIn(3)) text_ += Agreeing(Choose(words_.adjectives), feminine, plural) + ' ';
    text_ += noun + (plural ? "s " : " ");
    return plural;
  }

  // Writes a person's name, or its pronoun if it was the last one to be named.
  void Person() {
    const size_t person = people_[draws_.Below(kPeople)];
    if (person == last_ && !draws_.OneIn(4)) {
      text_ += person % 2 == 1 ? "sha " : "sho ";
    } else {
      text_ += words_.people[person] + ' ';
    }
    last_ = person;
  }

  void Tell() {
    bool plural = false;
    if (draws_.OneIn(2)) {
      Person();
    } else {
      plural = Noun();
    }
    text_ += Choose(words_.verbs) + (past_ ? "ev" : "et") + (plural ? "en " : " ");
    Noun();
    if (draws_.OneIn(2)) {
      text_ += Choose(words_.places) + ' ';
      Noun();
    }
    text_.back() = '.';
    text_ += ' ';
  }

  // "Ana ken 4 bous. Ana ken 3 bous: 7." The second sentence gives the sum of both.
  void Count() {
    const size_t person = people_[draws_.Below(kPeople)];
    const std::string& noun = Choose(words_.nouns);
    size_t sum = 0;
    for (int sentence = 0; sentence < 2; ++sentence) {
      const size_t number = 2 + draws_.Below(8);
      sum += number;
      text_ += words_.people[person] + (past_ ? " kev " : " ken ") + std::to_string(number) +
               ' ' + noun + 's';
      if (sentence == 1) text_ += ": " + std::to_string(sum);
      text_ += ". ";
    }
    last_ = person;
  }

  const Words& words_;
  WordDraws& draws_;
  std::string& text_;
  const size_t topic_;
  const bool past_;
  std::array<size_t, kPeople> people_{};
  size_t last_ = ~size_t{0};  // the last person who was named
};

}  // namespace

Result<std::string> GenerateText(const DatasetOptions& options, Split split) {
  constexpr int64_t kMost = 1000000;
  const bool train = split == Split::kTrain;
  const int64_t samples = train ? options.generated_train : options.generated_test;
  if (samples < 1 || samples > kMost) {
    return InvalidArgument("generated text has 1 to " + std::to_string(kMost) +
                           " samples a split, not " + std::to_string(samples));
  }
  const Words words(options.seed);
  const auto size = static_cast<size_t>(samples * options.context + 1);
  std::string text;
  text.reserve(size + 4096);
  for (uint64_t paragraph = 0; text.size() < size; ++paragraph) {
    WordDraws draws(DeriveKey(options.seed, train ? 0 : 1, paragraph, 0));
    Paragraph(words, draws, &text).Write();
  }
  text.resize(size);
  return text;
}

}  // namespace elastiquant
