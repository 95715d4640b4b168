"""Trains with workers that choose their codecs for themselves.

usage: train_policy_test.py PROGRAM [unittest arguments]
"""

import json
import unittest

import train_testing
from train_testing import PROGRAM, RESNET, lines, summary

STEPS = 8
WORKERS = 3
COMMON = RESNET | {
    "workers": str(WORKERS),
    "partition": "volumes:skew=10",
    "steps": str(STEPS),
    "measure_every": "3",
    "check_replicas": "every",
    # Biases in fp32 would count in bits_per_coordinate.
    "exact": "none",
}

# For tests that make many runs and are not about layers.
ONE_LAYER = {"model": "linear"}


def decisions(out):
    return [line.get("decisions") for line in lines(out)]


def ratios(*arguments):
    words = [PROGRAM, "ratios", "--json", *arguments]
    return json.loads(train_testing.run(words).stdout)["ratios"]


class PolicyTest(train_testing.TrainTest):
    common = COMMON

    def assert_close(self, values, expected):
        self.assertEqual(len(values), len(expected))
        for value, wanted in zip(values, expected, strict=True):
            self.assertAlmostEqual(value / wanted, 1, places=5)

    def test_ratios_are_those_that_the_volumes_give(self):
        for algorithm, rule in (
            ("uniform", "uniform"),
            ("dagc-r", "monotone"),
            ("dagc-r:rule=published", "published"),
        ):
            with self.subTest(algorithm):
                name = algorithm.replace(":", "-")
                out = self.trained(name, algorithm=algorithm, ratio=0.05)
                told = summary(out)
                self.assertEqual(told["algorithm"], algorithm)
                self.assertEqual(told["policy"]["ratio"], 0.05)
                self.assertTrue(told["replicas_identical"])
                volumes = ",".join(map(str, told["partition"]["volumes"]))
                expected = ratios("--rule", rule, "--ratio", "0.05", "--volumes", volumes)
                for decision in decisions(out):
                    self.assert_close(decision["ratios"], expected)

    def test_fewer_coordinates_are_fewer_bytes(self):
        few = self.trained("few", algorithm="dagc-r", ratio=0.01)
        many = self.trained("many", algorithm="dagc-r", ratio=0.1)
        self.assertLess(5 * summary(few)["bytes_up"], summary(many)["bytes_up"])

    def test_thresholds_are_common_but_for_the_volumes(self):
        out = self.trained("a", algorithm="dagc-a", ratio=0.05)
        volumes = ",".join(map(str, summary(out)["partition"]["volumes"]))
        relative = ratios("--rule", "absolute", "--volumes", volumes)
        told = decisions(out)
        # Top-k until the workers know each other's first step.
        self.assertEqual([next(iter(d)) for d in told], 2 * ["ratios"] + 6 * ["thresholds"])
        for decision in told[2:]:
            first = decision["thresholds"][0]
            self.assert_close(
                [t / first * relative[0] for t in decision["thresholds"]], relative
            )

    def test_accordion_has_two_ratios(self):
        out = self.trained("accordion", algorithm="accordion:change=0.1", ratio=0.1)
        told = decisions(out)
        self.assert_close(told[0]["ratios"], WORKERS * [0.1])
        seen = {round(ratio, 6) for decision in told for ratio in decision["ratios"]}
        self.assertEqual(seen, {0.01, 0.1})

    def test_accordion_knows_the_update_of_a_round(self):
        # All-reduce would send much twice: first it knows nothing, then it looks one step back.
        quiet = {"algorithm": "accordion:change=0.9", "every": 2}
        told = decisions(self.trained("quiet", **quiet, schedule="constant"))
        seen = [d["ratios"] for d in told if d is not None]
        self.assert_close(seen[0], WORKERS * [0.1])
        self.assert_close(seen[1], WORKERS * [0.01])

    def test_every_policy_of_bits_trains(self):
        for policy in (
            "fixed:bits=3",
            "noise",
            "adaquantfl",
            "dadaquant",
            "feddq:resolution=0.0001",
            "dq-sgd",
            "aqg",
        ):
            with self.subTest(policy):
                out = self.trained(policy.split(":")[0], bits_policy=policy)
                told = summary(out)
                self.assertEqual(told["policy"]["bits"], policy)
                self.assertTrue(told["replicas_identical"])
                for decision in decisions(out):
                    self.assertEqual(len(decision["bits"]), WORKERS)
                    for bits in decision["bits"]:
                        self.assertEqual(len(bits), len(told["policy"]["groups"]))
                        self.assertTrue(all(0.5 <= b <= 8 and b % 0.25 == 0 for b in bits))
        fixed = summary(self.folder / "fixed")
        self.assertAlmostEqual(fixed["bits_per_coordinate"], 3, delta=0.1)

    def test_a_run_does_not_go_on_with_other_buckets_than_its_policy_has(self):
        out = self.trained("whole", bits_policy="noise", checkpoint_every=4)
        broken = self.train("whole", "--resume", bits_policy="noise", bucket_kib=1)
        self.assertEqual(broken.returncode, 2, broken.stderr)
        self.assertIn("--bits-policy remembers its buckets", broken.stderr)
        self.assertTrue((out / "summary.json").exists())

    def test_less_noise_is_allowed_for_more_bits(self):
        fine = summary(self.trained("fine", bits_policy="noise:kappa=0.01"))
        coarse = summary(self.trained("coarse", bits_policy="noise:kappa=1"))
        self.assertGreater(fine["bits_per_coordinate"], coarse["bits_per_coordinate"] + 1)

    def test_a_killed_run_goes_on_alike(self):
        for name, options in (
            ("noise", {"bits_policy": "noise"}),
            ("uniform", {"algorithm": "uniform"}),
            ("dagc-r", {"algorithm": "dagc-r"}),
            ("dagc-a", {"algorithm": "dagc-a"}),
            ("accordion", {"algorithm": "accordion:change=0.1"}),
        ):
            with self.subTest(name):
                always = {**options, **ONE_LAYER, "checkpoint_every": 5}
                whole = self.trained(name, **always)
                self.failed(name + "-half", inject="kill@step=7,rank=1", **always)
                half = self.trained(name + "-half", "--resume", **always)
                self.assertEqual(decisions(half), decisions(whole))
                self.assertEqual(summary(half)["weights_hash"], summary(whole)["weights_hash"])

    def test_workers_may_choose_once_a_round(self):
        codec = "topk:ratio=0.1,bits=16|ef"
        for name, chosen, plain in (
            ("parts", {"algorithm": "uniform"}, {"algorithm": "local-sgd", "codec": codec}),
            (
                "bits",
                {"algorithm": "local-sgd", "bits_policy": "fixed:bits=2"},
                {"algorithm": "local-sgd", "codec": "dither:bits=2"},
            ),
        ):
            with self.subTest(name):
                told = summary(self.trained(name, every=4, **chosen))
                same = summary(self.trained(name + "-plain", every=4, **plain))
                self.assertEqual(told["weights_hash"], same["weights_hash"])
                self.assertEqual(told["rounds"], 2)

    def test_decisions_of_rounds_resume_exactly(self):
        for name, options in (
            ("dagc-r", {"algorithm": "dagc-r"}),
            ("dagc-a", {"algorithm": "dagc-a"}),
            ("feddq", {"algorithm": "diloco", "bits_policy": "feddq:resolution=0.001"}),
            ("adaquantfl", {"algorithm": "local-sgd", "bits_policy": "adaquantfl"}),
        ):
            with self.subTest(name):
                always = {**options, **ONE_LAYER, "every": 2, "checkpoint_every": 3}
                whole = self.trained(name, **always)
                self.assertEqual(
                    [i for i, d in enumerate(decisions(whole)) if d is not None], [1, 3, 5, 7]
                )
                self.failed(name + "-half", inject="kill@step=5,rank=1", **always)
                half = self.trained(name + "-half", "--resume", **always)
                self.assertEqual(decisions(half), decisions(whole))
                self.assertEqual(summary(half)["weights_hash"], summary(whole)["weights_hash"])

    def test_skipped_steps_teach_nothing(self):
        out = self.trained("nan", bits_policy="noise", inject="nan@step=3,rank=1")
        told = decisions(out)
        self.assertEqual([i for i, d in enumerate(told) if d is None], [3])

    def test_wrong_options_say_what_is_right(self):
        for options, words in (
            ({"algorithm": "dagc-r:rule=fair"}, "uniform, published, monotone"),
            ({"algorithm": "dagc-r", "codec": "fp32"}, "leave out --codec"),
            ({"algorithm": "dagc-r", "ratio": 3}, "at most 1"),
            ({"ratio": 0.5}, "--ratio is for --algorithm uniform"),
            ({"bits_policy": "greedy"}, "valid are: adaquantfl"),
            ({"bits_policy": "noise", "codec": "elastic:bits=4"}, "--codec dither"),
            ({"bits_policy": "noise", "algorithm": "sparseloco"}, "local-sgd or diloco"),
            ({"algorithm": "dagc-r", "every": 4, "fragments": 2}, "leave out --fragments"),
            ({"algorithm": "dagc-r", "every_growth": 2}, "with --every"),
        ):
            with self.subTest(options):
                done = self.train("wrong", **options)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
