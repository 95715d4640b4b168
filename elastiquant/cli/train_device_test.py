"""Trains at the pace of devices that are not there, and replays gradients on them.

usage: train_device_test.py PROGRAM [unittest arguments]
"""

import unittest

import numpy as np
import train_testing
from train_testing import SMALL, lines, summary

COMMON = SMALL | {"workers": "2", "steps": "6", "codec": "dither:bits=2"}


class DeviceTest(train_testing.TrainTest):
    common = COMMON

    def test_pace_changes_nothing_but_time(self):
        free = summary(self.trained("free"))
        paced = summary(self.trained("paced", compute="30ms,60ms"))
        self.assertEqual(paced["weights_hash"], free["weights_hash"])
        self.assertEqual(paced["test_accuracy"], free["test_accuracy"])
        # All wait for the slower one.
        self.assertGreaterEqual(paced["seconds_per_step"], 0.055)

    def test_devices_are_those_of_workers_by_name(self):
        # Once worker 0 is lost, the device of worker 1 is no other one.
        out = self.trained(
            "lost",
            algorithm="local-sgd",
            every=2,
            on_loss="go-on",
            compute="150ms,1ms,1ms",
            workers=3,
            inject="stop@step=2,rank=0",
            timeout=3,
            steps=12,
        )
        self.assertEqual([loss["worker"] for loss in summary(out)["losses"]], [0])
        last = [line["seconds"]["total"] for line in lines(out)[-2:]]
        self.assertLess(min(last), 0.1)

    def test_a_paced_run_resumes_exactly(self):
        pace = {"compute": "20ms", "checkpoint_every": 4}
        whole = summary(self.trained("whole", **pace))
        self.failed("part", inject="kill@step=5,rank=1", **pace)
        part = summary(self.trained("part", "--resume", **pace))
        self.assertEqual(part["weights_hash"], whole["weights_hash"])

    def test_gradients_are_replayed_and_nothing_is_learnt(self):
        recorded = self.trained("recorded", dump_gradients="1,2")
        out = self.trained(
            "replayed", compute="20ms", replay=recorded / "gradients", workers=3, steps=4
        )
        told = summary(out)
        self.assertIsNone(told["test_accuracy"])
        self.assertGreater(told["bytes_up"], 0)
        self.assertEqual([line["loss"] for line in lines(out)], [None] * 4)
        for line in lines(out):
            self.assertGreaterEqual(line["seconds"]["total"], 0.02)

    def test_what_workers_tell_each_other_decides_in_a_replay_too(self):
        recorded = self.trained("recorded", dump_gradients="1,2,3,4,5,6")
        replay = {"compute": "1ms", "replay": recorded / "gradients", "steps": 8}
        for name, options, expected in (
            (
                "feddq",
                {"codec": "dither", "bits_policy": "feddq:resolution=1e-4"},
                ["bits"] * 8,
            ),
            # Workers agree on a threshold once they have told each other two steps.
            (
                "dagc-a",
                {"codec": None, "algorithm": "dagc-a"},
                ["ratios"] * 2 + ["thresholds"] * 6,
            ),
        ):
            with self.subTest(name):
                out = self.trained(name, **replay, **options)
                decisions = [line["decisions"] for line in lines(out)]
                self.assertEqual([next(iter(decision)) for decision in decisions], expected)
                values = [np.ravel(next(iter(decision.values()))) for decision in decisions]
                self.assertGreater(np.min([v.min() for v in values]), 0)
                self.assertGreater(len({tuple(v) for v in values[2:]}), 1)
        broken = self.train("loss", codec="dither", bits_policy="dadaquant", **replay)
        self.assertEqual(broken.returncode, 2, broken.stderr)
        self.assertIn("follows the loss", broken.stderr)

    def test_a_worker_that_cannot_keep_up_says_so(self):
        said = self.train("late", compute="1us,200ms", steps=50).stderr
        self.assertIn("warning: worker 0 needs", said)
        self.assertIn("for a step that its device would make in 1e-06", said)
        self.assertNotIn("worker 1 needs", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
