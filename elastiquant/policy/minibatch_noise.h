// How far the gradients of single minibatches lie from their expectation, estimated from what
// the workers of one step can tell each other in two numbers.
#pragma once

#include <span>

namespace elastiquant::policy {

// Returns an unbiased estimate of E|g_i - E g_i|^2, the variance of the gradient of one
// worker's minibatch, summed over the coordinates; or NaN if there are not two workers that
// count.
//
// With the weights p_i of the mean, which add up to 1: `mean_of_squares` is sum p_i |g_i|^2,
// and `square_of_mean` is |sum p_i g_i|^2. If all g_i have the same expectation and variance,
// their difference is (1 - sum p_i^2) times the variance in expectation. If workers have
// different data, what their expectations differ by is counted as noise as well.
//
// `mean_error` is the known variance of the mean that was received, if it was compressed: that
// much is in the square of the mean and is taken off. The estimate is 0 where the difference is
// below it.
double MinibatchNoise(std::span<const double> weights, double mean_of_squares,
                      double square_of_mean, double mean_error = 0);

}  // namespace elastiquant::policy
