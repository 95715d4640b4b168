#include "elastiquant/data/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/base/random.h"

namespace elastiquant {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Partition Parsed(const std::string& spec) {
  auto partition = ParsePartition(spec);
  EXPECT_TRUE(partition.ok()) << partition.status().ToString();
  return partition.ok() ? *partition : Partition{};
}

// Labels in a random order, of classes that differ in size by up to 3 : 1.
std::vector<int64_t> UnevenLabels(size_t samples, int64_t classes) {
  std::vector<int64_t> labels(samples);
  const LaneKeys keys = MakeLaneKeys({samples});
  for (size_t i = 0; i < samples; ++i) {
    const float u = UniformFloat(RandomBits(keys, static_cast<uint32_t>(i)));
    labels[i] = static_cast<int64_t>(static_cast<float>(classes) * (u + u * u) / 2);
  }
  return labels;
}

Shares Dealt(const std::vector<int64_t>& labels, int64_t classes, const std::string& spec,
             uint64_t seed, int workers) {
  auto shares = DealShares(labels, classes, Parsed(spec), seed, workers);
  EXPECT_TRUE(shares.ok()) << shares.status().ToString();
  return shares.ok() ? *std::move(shares) : Shares{};
}

TEST(ParsePartition, ReadsNamesKeysAndDefaults) {
  EXPECT_TRUE(Parsed("iid").is_iid());
  EXPECT_EQ(Parsed("dirichlet:alpha=.3").alpha, 0.3);
  EXPECT_EQ(Parsed("classes:k=3").classes, 3);
  const Partition volumes = Parsed("volumes:skew=1000,alpha=0.25");
  EXPECT_EQ(volumes.skew, 1000);
  EXPECT_EQ(volumes.alpha, 0.25);
  EXPECT_EQ(SpecOf(Parsed("iid")), "iid");
  EXPECT_EQ(SpecOf(Parsed("dirichlet")), "dirichlet:alpha=0.5");
  EXPECT_EQ(SpecOf(Parsed("dirichlet:alpha=.30")), "dirichlet:alpha=0.3");
  EXPECT_EQ(SpecOf(Parsed("classes")), "classes:k=2");
  EXPECT_EQ(SpecOf(Parsed("volumes:skew=100")), "volumes:alpha=1,skew=100");
  const std::string exact = "dirichlet:alpha=0.30000000000000004";
  EXPECT_EQ(SpecOf(Parsed(exact)), exact);
}

TEST(ParsePartition, ErrorsListWhatIsValid) {
  const auto error = [](const std::string& text) {
    const Status status = ParsePartition(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    return status.message();
  };
  for (const char* text : {"", "even", "IID", ":alpha=1", "dirichlet|ef"}) {
    EXPECT_THAT(error(text), HasSubstr("valid are: classes, dirichlet, iid, volumes")) << text;
  }
  EXPECT_THAT(error("iid:alpha=1"), HasSubstr("has no parameter 'alpha'; it has none"));
  EXPECT_THAT(error("classes:alpha=1"), HasSubstr("has no parameter 'alpha'; it has k"));
  EXPECT_THAT(error("volumes:k=2"), HasSubstr("it has alpha, skew"));
  EXPECT_THAT(error("dirichlet:"), HasSubstr("it has alpha"));
  EXPECT_THAT(error("dirichlet:alpha=1,"), HasSubstr("it has alpha"));
  EXPECT_THAT(error("dirichlet:alpha"), HasSubstr("takes alpha=VALUE, once"));
  EXPECT_THAT(error("dirichlet:alpha=1,alpha=2"), HasSubstr("takes alpha=VALUE, once"));
  for (const char* value : {"0", "-1", "nan", "inf", "1x", "", "1e7"}) {
    EXPECT_THAT(error(std::string("dirichlet:alpha=") + value),
                HasSubstr("valid are numbers from 0.001 to 1e+06"))
        << value;
  }
  EXPECT_THAT(error("volumes:skew=0.5"), HasSubstr("valid are numbers from 1"));
  for (const char* value : {"0", "1.5", "-2"}) {
    EXPECT_THAT(error(std::string("classes:k=") + value), HasSubstr("whole numbers from 1"));
  }
}

struct Setting {
  size_t samples;
  int64_t classes;
  int workers;
};

// Expects that the shares are what DealShares promises of every partition.
void ExpectSound(const Shares& shares, const std::vector<int64_t>& labels, int64_t classes,
                 int workers) {
  ASSERT_EQ(shares.samples.size(), static_cast<size_t>(workers));
  ASSERT_EQ(shares.classes.size(), static_cast<size_t>(workers));
  std::vector<int> owners(labels.size());
  for (size_t w = 0; w < shares.samples.size(); ++w) {
    EXPECT_FALSE(shares.samples[w].empty()) << w;
    EXPECT_TRUE(std::ranges::is_sorted(shares.samples[w]));
    std::vector<int64_t> counts(static_cast<size_t>(classes));
    for (const int64_t sample : shares.samples[w]) {
      ++owners.at(static_cast<size_t>(sample));
      ++counts[static_cast<size_t>(labels[static_cast<size_t>(sample)])];
    }
    EXPECT_EQ(counts, shares.classes[w]) << w;
  }
  EXPECT_LE(*std::ranges::max_element(owners), 1) << "a sample is in two shares";
  EXPECT_EQ(shares.Total(), std::accumulate(owners.begin(), owners.end(), int64_t{0}));
}

TEST(DealShares, GivesEachSampleToOneWorkerAndSomeToEach) {
  for (const Setting& s : {Setting{100, 10, 1},
                           {100, 10, 2},
                           {1000, 10, 7},
                           {2000, 10, 32},
                           {40, 10, 32},
                           {32, 3, 32},
                           {3000, 100, 16}}) {
    const std::vector<int64_t> labels = UnevenLabels(s.samples, s.classes);
    for (const std::string spec :
         {"dirichlet:alpha=0.001", "dirichlet:alpha=.3", "dirichlet:alpha=1000",
          "volumes:skew=1", "volumes:skew=100", "volumes:skew=1000000,alpha=.01"}) {
      for (const uint64_t seed : {0, 1, 2, 3, 4}) {
        SCOPED_TRACE(spec + ", seed " + std::to_string(seed) + ", workers " +
                     std::to_string(s.workers));
        const Shares shares = Dealt(labels, s.classes, spec, seed, s.workers);
        ExpectSound(shares, labels, s.classes, s.workers);
        EXPECT_EQ(shares.Total(), static_cast<int64_t>(s.samples)) << "not all are dealt";
      }
    }
  }
}

TEST(DealShares, IsAFunctionOfItsArguments) {
  const std::vector<int64_t> labels = UnevenLabels(1000, 10);
  for (const std::string spec : {"dirichlet:alpha=.3", "classes:k=2", "volumes:skew=100"}) {
    const Shares once = Dealt(labels, 10, spec, 5, 8);
    EXPECT_EQ(once.samples, Dealt(labels, 10, spec, 5, 8).samples) << spec;
    EXPECT_NE(once.samples, Dealt(labels, 10, spec, 6, 8).samples) << spec;
  }
}

// Frozen: who has which samples must not change from machine to machine, or a run that is
// resumed would go on with other data.
TEST(DealShares, IsTheSameOnEveryMachine) {
  const std::vector<int64_t> labels = UnevenLabels(5000, 10);
  uint32_t hash = 0;
  for (const std::string spec : {"dirichlet:alpha=.3", "classes:k=2", "volumes:skew=100"}) {
    for (const auto& share : Dealt(labels, 10, spec, 1, 8).samples) {
      hash ^= Crc32c({reinterpret_cast<const uint8_t*>(share.data()), 8 * share.size()});
      hash = hash << 1 | hash >> 31;
    }
  }
  EXPECT_EQ(hash, 1773122018u);
}

// The largest part of a class that one worker has, on average over classes and seeds.
double LargestPart(const std::string& spec) {
  constexpr size_t kClasses = 10;
  const std::vector<int64_t> labels = UnevenLabels(4000, kClasses);
  double mean = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Shares shares = Dealt(labels, kClasses, spec, seed, 4);
    for (size_t c = 0; c < kClasses; ++c) {
      int64_t most = 0, all = 0;
      for (const auto& counts : shares.classes) {
        most = std::max(most, counts[c]);
        all += counts[c];
      }
      mean += static_cast<double>(most) / static_cast<double>(all) / (20 * kClasses);
    }
  }
  return mean;
}

TEST(DealShares, DirichletIsUnevenBySmallAlpha) {
  EXPECT_GT(LargestPart("dirichlet:alpha=0.01"), 0.95);
  const double middle = LargestPart("dirichlet:alpha=.3");
  EXPECT_GT(middle, 0.6);
  EXPECT_LT(middle, 0.8);
  EXPECT_LT(LargestPart("dirichlet:alpha=1e5"), 0.26);
}

TEST(DealShares, ClassesAreKInARowAndSharedEvenly) {
  for (const int64_t k : {1, 2, 3, 10}) {
    for (const int workers : {1, 3, 4, 10, 32}) {
      const std::vector<int64_t> labels = UnevenLabels(3000, 10);
      const Shares shares = Dealt(labels, 10, "classes:k=" + std::to_string(k), 3, workers);
      ExpectSound(shares, labels, 10, workers);
      for (int64_t w = 0; w < workers; ++w) {
        for (int64_t c = 0; c < 10; ++c) {
          const bool has = (c - w * k % 10 + 10) % 10 < k;
          const auto& counts = shares.classes[static_cast<size_t>(w)];
          EXPECT_EQ(counts[static_cast<size_t>(c)] > 0, has) << w << " " << c;
        }
      }
      const int64_t held = std::min<int64_t>(10, k * workers);
      const int64_t dealt = std::ranges::count_if(labels, [&](int64_t l) { return l < held; });
      EXPECT_EQ(shares.Total(), dealt) << "all samples of the classes that somebody has";
    }
  }
  std::vector<int64_t> labels(100);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int64_t>(i % 2);
  EXPECT_THAT(Dealt(labels, 2, "classes:k=1", 0, 4).Volumes(), ElementsAre(25, 25, 25, 25));
}

// With so large an alpha every worker has all classes alike, and volumes are the nominal ones.
TEST(DealShares, IidSpreadsEachClassEvenly) {
  const std::vector<int64_t> labels = UnevenLabels(1000, 10);
  const Shares shares = Dealt(labels, 10, "iid", 1, 4);
  ExpectSound(shares, labels, 10, 4);
  EXPECT_EQ(shares.Total(), 1000);
  for (size_t c = 0; c < 10; ++c) {
    const int64_t of_class = std::ranges::count(labels, static_cast<int64_t>(c));
    for (size_t w = 0; w < 4; ++w) {
      EXPECT_GE(shares.classes[w][c], of_class / 4);
      EXPECT_LE(shares.classes[w][c], of_class / 4 + 1);
    }
  }
  EXPECT_THAT(shares.Volumes(), testing::Each(250));
}

TEST(DealShares, VolumesFallGeometrically) {
  std::vector<int64_t> labels(111100);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int64_t>(i % 4);
  const auto volumes = [&](const std::string& spec, int workers) {
    return Dealt(labels, 4, spec + ",alpha=1e6", 9, workers).Volumes();
  };
  const auto near = [&](const std::vector<int64_t>& found, const std::vector<double>& nominal) {
    ASSERT_EQ(found.size(), nominal.size());
    const double sum = std::accumulate(nominal.begin(), nominal.end(), 0.0);
    for (size_t w = 0; w < nominal.size(); ++w) {
      const double expected = nominal[w] / sum * static_cast<double>(labels.size());
      EXPECT_NEAR(static_cast<double>(found[w]), expected, 4 + 0.005 * expected) << w;
    }
  };
  near(volumes("volumes:skew=1000", 5), {1000, 100, 10, 1, 1});
  near(volumes("volumes:skew=16", 6), {16, 8, 4, 2, 1, 1});
  near(volumes("volumes:skew=9", 3), {9, 1, 1});
  near(volumes("volumes:skew=9", 2), {9, 1});
  near(volumes("volumes:skew=9", 1), {1});
  near(volumes("volumes:skew=1", 4), {1, 1, 1, 1});
}

// Rounding favours nobody: tiny shares are tiny wherever they stand.
TEST(DealShares, PartsOfSamplesEvenOut) {
  constexpr int kWorkers = 32, kSeeds = 200;
  std::vector<int64_t> labels(640);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int64_t>(i % 10);
  std::vector<double> mean(kWorkers);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto volumes = Dealt(labels, 10, "volumes:skew=100,alpha=1e6", seed, kWorkers);
    for (size_t w = 0; w < kWorkers; ++w) {
      mean[w] += static_cast<double>(volumes.Volumes()[w]) / kSeeds;
    }
  }
  // Nominally the last two have .92 samples of 640; none is left with 0 of them.
  EXPECT_NEAR(mean[kWorkers - 1], mean[kWorkers - 2], 0.4);
  EXPECT_NEAR(mean[kWorkers - 1], 1.3, 0.4);
  EXPECT_NEAR(mean[0] / mean[15], std::pow(100, 15.0 / 30), 0.7);
}

TEST(DealShares, SaysWhatCannotBeDealt) {
  const std::vector<int64_t> labels = {0, 1, 2, 0};
  const auto error = [&](const std::string& spec, int64_t classes, int workers) {
    const Status status = DealShares(labels, classes, Parsed(spec), 0, workers).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << spec;
    return status.message();
  };
  EXPECT_THAT(error("dirichlet", 3, 5), HasSubstr("4 samples cannot be dealt to 5 workers"));
  EXPECT_THAT(error("dirichlet", 2, 2), HasSubstr("sample 2 has the label 2"));
  EXPECT_THAT(error("classes:k=4", 3, 2), HasSubstr("there are 3: give a smaller k"));
  EXPECT_THAT(error("classes:k=1", 4, 4), HasSubstr("leaves worker 3 without a sample"));
}

}  // namespace
}  // namespace elastiquant
