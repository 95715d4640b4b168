#include "elastiquant/theory/omega_hull.h"

#include <algorithm>
#include <limits>

#include "elastiquant/coding/elias_omega.h"

namespace elastiquant::theory {
namespace {

struct Point {
  double k, length;
};

// Lengths grow at powers of two only, so these points have all others below them.
std::vector<Point> Corners() {
  std::vector<Point> corners;
  for (uint64_t k = 1; k <= kMaxOmegaValue; k *= 2) {
    corners.push_back({static_cast<double>(k), static_cast<double>(EncodeOmega(k).length)});
  }
  return corners;
}

double Slope(const Point& a, const Point& b) { return (b.length - a.length) / (b.k - a.k); }

std::vector<OmegaLine> MakeHull() {
  std::vector<Point> hull;
  for (const Point& next : Corners()) {
    while (hull.size() >= 2 && Slope(hull.back(), next) >= Slope(hull.end()[-2], hull.back())) {
      hull.pop_back();
    }
    hull.push_back(next);
  }
  std::vector<OmegaLine> lines;
  for (size_t i = 0; i + 1 < hull.size(); ++i) {
    const double beta = Slope(hull[i], hull[i + 1]);
    lines.push_back({hull[i].length - beta * hull[i].k, beta});
  }
  lines.push_back({hull.back().length, 0});
  return lines;
}

}  // namespace

const std::vector<OmegaLine>& OmegaHull() {
  static const std::vector<OmegaLine> hull = MakeHull();
  return hull;
}

double OmegaHullAt(double k) {
  double least = std::numeric_limits<double>::infinity();
  for (const OmegaLine& line : OmegaHull()) least = std::min(least, line.alpha + line.beta * k);
  return least;
}

}  // namespace elastiquant::theory
