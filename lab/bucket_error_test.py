"""What bucket_error.py makes of gradients."""

import unittest

import bucket_error
import torch


class Frame:
    def __init__(self, values):
        self.values = values

    def decode(self):
        return self.values


class ToTheMean:
    """A codec that sends the mean of a frame alone."""

    def encode(self, values):
        return Frame(torch.full_like(values, float(values.mean())))


class BucketErrorTest(unittest.TestCase):
    def test_each_bucket_is_a_frame(self):
        gradient = torch.tensor([1.0, 1.0, 3.0, 3.0, 5.0])
        self.assertAlmostEqual(bucket_error.error(ToTheMean(), gradient, 2), 0)
        whole = float((gradient - gradient.mean()).square().sum() / gradient.square().sum())
        self.assertAlmostEqual(bucket_error.error(ToTheMean(), gradient, 5), whole)

    def test_the_table_has_means_and_the_range_of_ratios(self):
        errors = {"a|b": [[0.1, 0.2], [0.3, 0.9]], "c": [[0.5, 0.5], [0.5, 0.5]]}
        *_, first, second = bucket_error.table(errors, [512]).splitlines()
        self.assertEqual(first, "| `a\\|b` | 0.2 | 0.55 | 2.00 to 3.00 |")
        self.assertEqual(second, "| `c` | 0.5 | 0.5 | 1.00 to 1.00 |")
        alone = bucket_error.table({"c": [[0.5, 1.0]]}, [512]).splitlines()[-1]
        self.assertTrue(alone.endswith("| 2.00 |"))


if __name__ == "__main__":
    unittest.main()
