#include "elastiquant/train/loop/share_table.h"

#include <gtest/gtest.h>

namespace elastiquant {
namespace {

TEST(ShareTable, HasALineForEachWorker) {
  const Shares shares = {.samples = {{0, 3, 4}, {1}}, .classes = {{2, 1, 0}, {0, 0, 1}}};
  EXPECT_EQ(ShareTable(shares, "dirichlet:alpha=.3", 4),
            "4 training samples lie on 2 workers, by dirichlet:alpha=.3\n"
            "worker  samples   per cent  class 0      1      2\n"
            "     0        3      75.00        2      1      -\n"
            "     1        1      25.00        -      -      1");
}

TEST(ShareTable, CountsManyClassesAndNamesWhatIsLeftOut) {
  Shares shares = {.samples = {{0}, {1}}, .classes = {{}, {}}};
  shares.classes[0].resize(100);
  shares.classes[1].resize(100);
  shares.classes[0][3] = shares.classes[1][99] = 1;
  EXPECT_EQ(ShareTable(shares, "classes:k=1", 50),
            "2 training samples lie on 2 workers, by classes:k=1; 48 lie on none and are not "
            "trained on, because no worker has their classes\n"
            "worker  samples   per cent  classes\n"
            "     0        1      50.00    1/100\n"
            "     1        1      50.00    1/100");
}

}  // namespace
}  // namespace elastiquant
