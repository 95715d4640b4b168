"""Trains on data as it lies on the workers.

usage: train_partition_test.py PROGRAM [unittest arguments]
"""

import json
import unittest

import numpy as np
from train_reference import ReferenceTest, metrics, train
from train_testing import summary, weights


class TrainPartitionTest(ReferenceTest):
    def test_data_that_lies_on_workers_is_told(self):
        for spec in ("dirichlet:alpha=.3", "classes:k=2"):
            with self.subTest(partition=spec):
                same = {"partition": spec, "workers": 3, "batch": 4}
                done = train(self.out(), "--overwrite", **same)
                self.assertEqual(done.returncode, 0, done.stderr)
                told = summary(self.out())
                self.assertEqual(told["partition"]["spec"], spec)
                volumes, classes = (told["partition"][key] for key in ("volumes", "classes"))
                # The first six classes, which three workers have, have 232 of the 384 images.
                self.assertEqual(sum(volumes), 232 if "classes" in spec else 384)
                self.assertEqual([sum(counts) for counts in classes], volumes)
                self.assertEqual(told["steps_per_epoch"], sum(volumes) // 12)
                self.assertIs(told["replicas_identical"], True)
                self.assertIn(f"{sum(volumes)} training samples lie on 3 workers", done.stderr)
                self.assertRegex(done.stderr, rf"\n     2 +{volumes[2]} ")
        self.assertEqual(summary(self.reference)["partition"], {"spec": "iid"})
        self.assertNotIn("--partition", summary(self.reference)["options"])

    def test_data_that_lies_on_workers_resumes_exactly(self):
        whole, broken = self.out() / "whole", self.out() / "broken"
        same = {"partition": "volumes:skew=100", "workers": 3, "batch": 4}
        done = train(whole, "--quiet", **same)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("lie on", done.stderr)
        self.kill_and_resume(broken, **same)
        self.assertEqual(metrics(broken), metrics(whole))
        # The loss is of running statistics, too, which each worker has of its own data.
        for key in ("partition", "weights_hash", "test_loss"):
            self.assertEqual(summary(broken)[key], summary(whole)[key])
        other = train(broken, "--resume", **(same | {"partition": "iid"}))
        self.assertEqual(other.returncode, 2, other.stderr)
        self.assertIn('--partition was "volumes:alpha=1,skew=100"', other.stderr)

    def test_workers_count_by_what_lies_on_them(self):
        done = train(
            self.out(),
            codec="fp32",
            partition="volumes:skew=1000000",
            schedule="constant",
            momentum=0,
            weight_decay=0,
            steps=2,
            checkpoint_every=1,
            dump_gradients="2",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        _, small = summary(self.out())["partition"]["volumes"]
        self.assertLess(small, 5)
        before = weights(self.out() / "checkpoint-1.safetensors")
        after = weights(self.out() / "checkpoint-2.safetensors")
        gradient = np.load(self.out() / "gradients/gradient-000002.npy")
        layers = json.loads((self.out() / "gradients/layers.json").read_text())
        moved = np.concatenate(
            [(before[x["name"]].astype(float) - after[x["name"]]) / 0.05 for x in layers]
        )
        # What moves the weights is worker 0's gradient but for one part in a hundred or less.
        self.assertLess(np.linalg.norm(moved - gradient), 0.1 * np.linalg.norm(gradient))


if __name__ == "__main__":
    unittest.main()
