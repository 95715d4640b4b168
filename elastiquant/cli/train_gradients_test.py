"""Gradients that `elastiquant train` dumps for analysis.

usage: train_gradients_test.py PROGRAM [unittest arguments]
"""

import json
import unittest

import numpy as np
from train_reference import ReferenceTest, train
from train_testing import PROGRAM, run, weights


class TrainGradientsTest(ReferenceTest):
    def test_a_dumped_gradient_is_what_moves_the_weights(self):
        done = train(
            self.out(),
            codec="fp32",
            workers=1,
            steps=3,
            schedule="constant",
            momentum=0,
            weight_decay=0,
            checkpoint_every=1,
            dump_gradients="3",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        before = weights(self.out() / "checkpoint-2.safetensors")
        after = weights(self.out() / "checkpoint-3.safetensors")
        gradient = np.load(self.out() / "gradients/gradient-000003.npy")
        self.assertEqual((gradient.dtype, gradient.ndim), (np.float32, 1))
        layers = json.loads((self.out() / "gradients/layers.json").read_text())
        self.assertEqual({layer["name"] for layer in layers}, set(before))
        self.assertEqual(sum(layer["elements"] for layer in layers), gradient.size)
        for layer in layers:
            name, begin = layer["name"], layer["offset"]
            self.assertEqual(layer["elements"], np.prod(layer["shape"]))
            part = gradient[begin : begin + layer["elements"]]
            self.assertGreater(np.abs(part).max(), 0, name)
            moved = (before[name].astype(float) - after[name]) / 0.05
            np.testing.assert_allclose(part, moved, rtol=1e-3, atol=1e-5, err_msg=name)

    def test_gradients_are_dumped_before_compression_and_change_nothing(self):
        done = train(self.out(), dump_gradients="0%,5,100%")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expect_same_as_reference(self.out())
        files = sorted(file.name for file in (self.out() / "gradients").iterdir())
        steps = ["gradient-000001.npy", "gradient-000005.npy", "gradient-000012.npy"]
        self.assertEqual(files, [*steps, "layers.json"])
        # The first step's own gradient knows nothing of the codec.
        exact = self.out() / "exact"
        self.assertEqual(train(exact, codec="fp32", steps=1, dump_gradients="1").returncode, 0)
        first, other = (
            np.load(run / "gradients/gradient-000001.npy") for run in (self.out(), exact)
        )
        np.testing.assert_array_equal(first, other)
        # A new run takes away what an old one left.
        again = train(exact, "--overwrite", steps=1)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertFalse((exact / "gradients").exists())

    def test_a_dumped_gradient_can_be_given_to_bench_and_encode(self):
        self.assertEqual(train(self.out(), steps=1, dump_gradients="1").returncode, 0)
        file = self.out() / "gradients/gradient-000001.npy"
        bench = run([PROGRAM, "bench", "--input", file, "--codec", "elastic:bits=4", "--json"])
        self.assertEqual(bench.returncode, 0, bench.stderr)
        told = json.loads(bench.stdout)
        self.assertEqual(told["elements"], np.load(file).size)
        self.assertTrue(0 < told["results"][0]["nmse"] < 1)
        frame = self.out() / "gradient.eqf"
        encode = run([PROGRAM, "encode", "--codec", "fp32", "--seed", "1", file, frame])
        self.assertEqual(encode.returncode, 0, encode.stderr)
        self.assertEqual(run([PROGRAM, "decode", frame, self.out() / "back.npy"]).returncode, 0)
        np.testing.assert_array_equal(np.load(self.out() / "back.npy"), np.load(file))


if __name__ == "__main__":
    unittest.main()
