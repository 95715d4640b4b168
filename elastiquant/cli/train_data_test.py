"""Trains with workers that send each other samples in place of gradients.

usage: train_data_test.py PROGRAM [unittest arguments]
"""

import unittest

import numpy as np
import train_testing
from train_testing import summary

STEPS = 9
BATCH = 8
WORKERS = 3
IMAGES = 144
STEP_HEADER = 16  # bytes before each message
COMMON = {
    "model": "resnet8",
    "generated_train": str(IMAGES),
    "generated_test": "64",
    "batch": str(BATCH),
    "seed": "3",
    "lr": "0.05",
    "workers": str(WORKERS),
    "algorithm": "quantised-data",
    "samples": "pixels:bits=4",
    "steps": str(STEPS),
    "checkpoint_every": "4",
    "check_replicas": "every",
}


def losses(out):
    return [line["loss"] for line in train_testing.lines(out)]


def weights(out):
    """All parameters of the last checkpoint, one after the other."""
    by_name = train_testing.weights(out / f"checkpoint-{STEPS}.safetensors")
    return np.concatenate([by_name[name] for name in sorted(by_name)])


class DataTest(train_testing.TrainTest):
    common = COMMON

    def assert_same_training(self, one, other):
        """The weights agree up to the rounding of sums in another order."""
        np.testing.assert_allclose(losses(one)[:4], losses(other)[:4], rtol=1e-3)
        moved, difference = weights(one), weights(one) - weights(other)
        self.assertLess(np.linalg.norm(difference), 2e-3 * np.linalg.norm(moved))

    def test_samples_without_loss_are_as_good_as_exact_gradients(self):
        # Either way workers have shares of their own under this partition.
        partition = "dirichlet:alpha=1"
        exact = self.trained(
            "exact", algorithm=None, samples=None, codec="fp32", partition=partition
        )
        data = self.trained("data", samples="pixels:bits=8", partition=partition)
        self.assert_same_training(data, exact)
        self.assertEqual(summary(data)["partition"], summary(exact)["partition"])

    def test_an_exact_refinement_makes_up_for_any_samples(self):
        partition = "dirichlet:alpha=1"
        exact = self.trained(
            "exact", algorithm=None, samples=None, codec="fp32", partition=partition
        )
        refined = self.trained(
            "refined",
            algorithm="quantised-data:refine=1",
            samples="pixels:bits=2",
            partition=partition,
            codec="fp32",
        )
        rough = self.trained("rough", samples="pixels:bits=2", partition=partition)
        distance = np.linalg.norm(weights(refined) - weights(exact))
        self.assertLess(distance, 2e-3 * np.linalg.norm(weights(exact)))
        self.assertGreater(np.linalg.norm(weights(rough) - weights(exact)), 10 * distance)

    def test_worker_0_alone_computes_the_same(self):
        everywhere = summary(self.trained("everywhere"))
        central = summary(
            self.trained("central", algorithm="quantised-data:central=1", check_replicas=None)
        )
        self.assertEqual(central["weights_hash"], everywhere["weights_hash"])
        self.assertEqual(central["test_accuracy"], everywhere["test_accuracy"])
        self.assertEqual(central["codec"], COMMON["samples"])  # --codec has nothing to do
        # Worker 0 keeps its own samples.
        self.assertEqual(central["uploads"], [0] + [STEPS] * (WORKERS - 1))
        self.assertEqual(central["samples"]["sent"], IMAGES // WORKERS * (WORKERS - 1))
        self.assertIs(everywhere["replicas_identical"], True)

    def test_a_sample_travels_once_and_every_bit_is_told(self):
        for cache in (1, 0):
            with self.subTest(cache=cache):
                said = summary(
                    self.trained(f"cache{cache}", algorithm=f"quantised-data:cache={cache}")
                )
                samples = said["samples"]
                self.assertEqual(said["uploads"], [STEPS] * WORKERS)
                self.assertEqual(samples["named"], WORKERS * STEPS * BATCH)
                # A worker's share is 48 images, of which it reads 72.
                self.assertEqual(said["partition"]["volumes"], [IMAGES // WORKERS] * WORKERS)
                self.assertEqual(samples["sent"], IMAGES if cache else WORKERS * STEPS * BATCH)
                self.assertEqual(samples["pixel_bytes"], samples["sent"] * 3 * 32 * 32 // 2)
                bits = samples["label_bits"] + samples["number_bits"]
                bytes_of_all = samples["pixel_bytes"] + bits / 8 + WORKERS * STEPS * STEP_HEADER
                # The mean over the workers.
                self.assertAlmostEqual(
                    said["bytes_up"] * WORKERS,
                    (WORKERS - 1) * bytes_of_all,
                    delta=WORKERS * WORKERS * STEPS,
                )

    def test_unimportant_samples_are_skipped(self):
        for unbiased in (0, 1):
            with self.subTest(unbiased=unbiased):
                algorithm = f"quantised-data:skip=0.5,unbiased={unbiased}"
                said = summary(self.trained(f"skip{unbiased}", algorithm=algorithm))
                named = said["samples"]["named"]
                self.assertTrue(0.25 < named / (WORKERS * STEPS * BATCH) < 0.75, named)
                self.assertIs(said["replicas_identical"], True)

    def test_a_killed_run_resumes_exactly(self):
        for algorithm, options in (
            ("quantised-data", {"samples": "jpeg:quality=30"}),
            ("quantised-data:refine=1,skip=0.3,unbiased=1", {"codec": "elastic:bits=2|ef"}),
            ("quantised-data:central=1", {"check_replicas": None}),
        ):
            with self.subTest(algorithm=algorithm):
                name = "".join(c if c.isalnum() else "-" for c in algorithm)
                whole = self.trained("whole" + name, algorithm=algorithm, **options)
                killed = {"algorithm": algorithm, "inject": "kill@step=6,rank=1"} | options
                self.assertEqual(self.train("broken" + name, **killed).returncode, 3)
                broken = self.trained(
                    "broken" + name, "--resume", algorithm=algorithm, **options
                )
                self.assertEqual(losses(broken), losses(whole))
                self.assertEqual(
                    summary(broken)["weights_hash"], summary(whole)["weights_hash"]
                )

    def test_what_cannot_be_is_explained(self):
        for options, words in (
            ({"model": "gpt"}, "reads text"),
            ({"samples": "png"}, "valid are: jpeg:quality=Q"),
            ({"codec": "fp32"}, "sends no gradients"),
            ({"algorithm": "quantised-data:central=1,refine=1"}, "have no model"),
            ({"algorithm": "quantised-data:unbiased=1"}, "it needs skip"),
            ({"algorithm": "quantised-data:cache=2"}, "cache=2 is not valid"),
        ):
            with self.subTest(options=options):
                done = self.train("bad", **options)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
