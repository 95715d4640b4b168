"""What `elastiquant train` trains goes into PyTorch, and weights of PyTorch into it, by the
package safetensors; lab/models.py has the same network in Python.

usage: train_weights_test.py PROGRAM [unittest arguments]
"""

import json
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F
from train_reference import train
from train_testing import summary

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lab"))
from models import resnet18, resnet20

try:
    import safetensors
    from safetensors.torch import load_file, save_file
except ImportError:
    print("skipped: the package safetensors is missing; scripts/setup.sh installs it")
    sys.exit(77)

PREFIX = "optimizer.momentum."
STEPS = 4


def write_images(folder):
    """Random images in CIFAR-10's records. Returns the test set, normalised as `train` does."""
    folder.mkdir()
    random = np.random.default_rng(1)
    rows = {split: random.integers(256, size=(64, 3073), dtype=np.uint8) for split in "ab"}
    for split, name in (("a", "train.bin"), ("b", "test.bin")):
        rows[split][:, 0] %= 10
        (folder / name).write_bytes(rows[split].tobytes())
    images = {key: value[:, 1:].reshape(-1, 3, 32, 32) / 255 for key, value in rows.items()}
    mean = images["a"].mean((0, 2, 3), keepdims=True)
    deviation = images["a"].std((0, 2, 3), keepdims=True)
    normalised = torch.from_numpy((images["b"] - mean) / deviation).float()
    return normalised, torch.from_numpy(rows["b"][:, 0].astype(np.int64))


class TrainWeightsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="eq_weights_")
        cls.root = Path(cls.folder.name)
        cls.images, cls.labels = write_images(cls.root / "images")
        cls.trained = cls.root / "trained"
        cls.train(cls.trained)
        cls.checkpoint = cls.trained / f"checkpoint-{STEPS}.safetensors"

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def train(cls, out, **options):
        options = {"model": "resnet20", "data": cls.root / "images", "steps": STEPS} | options
        done = train(out, **options)
        assert done.returncode == 0, done.stderr

    def train_one_step_that_moves_nothing(self, name, init, **options):
        out = self.root / name
        still = {"steps": 1, "lr": 1e-30, "momentum": 0, "weight_decay": 0, "codec": "fp32"}
        self.train(out, init=init, checkpoint_every=1, **still, **options)
        return load_file(out / "checkpoint-1.safetensors")

    def expect_weights(self, given, expected):
        """A step at 1e-30 moves only what was 0."""
        for name, value in expected.items():
            if "running_" in name or "num_batches" in name:
                continue
            torch.testing.assert_close(given[name], value.float(), rtol=0, atol=1e-25)

    def test_pytorch_loads_what_the_program_trained(self):
        model = resnet20()
        stored = load_file(self.checkpoint)
        missing, unexpected = model.load_state_dict(stored, strict=False)
        self.assertEqual(missing, [])
        parameters = dict(model.named_parameters())
        self.assertEqual(set(unexpected), {PREFIX + name for name in parameters})
        for name, parameter in parameters.items():
            momentum = stored[PREFIX + name]
            self.assertEqual(momentum.shape, parameter.shape)
            self.assertGreater(momentum.abs().max().item(), 0, name)
        for name, value in model.state_dict().items():
            self.assertEqual(stored[name].shape, value.shape, name)
            self.assertEqual(stored[name].dtype, value.dtype, name)
        self.assertEqual(model.bn1.num_batches_tracked.item(), STEPS)

        model.eval()
        with torch.no_grad():
            scores = model(self.images)
        told = summary(self.trained)
        loss = F.cross_entropy(scores, self.labels).item()
        self.assertAlmostEqual(loss, told["test_loss"], delta=1e-4 * loss)
        right = (scores.argmax(1) == self.labels).float().mean().item()
        self.assertAlmostEqual(100 * right, told["test_accuracy"], places=3)

    def test_metadata_tell_of_the_run(self):
        with safetensors.safe_open(self.checkpoint, "pt") as file:
            metadata = file.metadata()
        self.assertEqual(metadata["format"], "pt")
        self.assertRegex(metadata["crc32c"], "^[0-9a-f]{8}$")
        progress = json.loads(metadata["progress"])
        self.assertEqual(progress["step"], STEPS)
        self.assertEqual(progress["fingerprint"]["--model"], "resnet20")

    def test_a_workers_own_file_is_read_too(self):
        out = self.root / "memory"
        self.train(out, codec="elastic:bits=2|ef")
        for rank in range(2):
            stored = load_file(out / f"checkpoint-{STEPS}.worker-{rank}.safetensors")
            residual = stored["memory/residual/fc.weight"]
            self.assertEqual((residual.dtype, residual.shape), (torch.float32, (640,)))
            self.assertGreater(residual.abs().max().item(), 0)
            self.assertEqual(stored["learning-rate"].dtype, torch.float64)

    def test_the_program_begins_with_what_pytorch_saved(self):
        torch.manual_seed(7)
        model = resnet20()
        for _ in range(3):
            model(torch.randn(8, 3, 32, 32))  # running statistics of its own
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            with self.subTest(dtype):
                state = {
                    name: value.to(dtype) if value.is_floating_point() else value
                    for name, value in model.state_dict().items()
                }
                file = self.root / f"{dtype}.safetensors"
                save_file(state, file)
                begun = self.train_one_step_that_moves_nothing(f"from {dtype}", file)
                self.expect_weights(begun, state)
                self.assertEqual(begun["bn1.num_batches_tracked"].item(), 4)
                # .9 of the file's and .1 of the step's: another start would show.
                apart = begun["bn1.running_mean"] - 0.9 * state["bn1.running_mean"].float()
                self.assertLess(apart.abs().max().item(), 0.2)

    def test_weights_that_went_through_pytorch_are_the_same(self):
        model = resnet20()
        stored = load_file(self.checkpoint)
        model.load_state_dict(stored, strict=False)
        through = self.root / "through.safetensors"
        save_file(model.state_dict(), through)
        runs = [self.root / "direct", self.root / "through"]
        for out, file in zip(runs, (self.checkpoint, through), strict=True):
            self.train(out, init=file, check_replicas="every")
        direct, other = map(summary, runs)
        self.assertEqual(direct["weights_hash"], other["weights_hash"])
        self.assertEqual(direct["test_loss"], other["test_loss"])
        self.assertNotEqual(direct["weights_hash"], summary(self.trained)["weights_hash"])

    def test_projections_have_torchvisions_names(self):
        # One step makes every tensor of the checkpoint; all must have a place in PyTorch.
        model = resnet18()
        file = self.root / "resnet18.safetensors"
        save_file(model.state_dict(), file)
        begun = self.train_one_step_that_moves_nothing("r18", file, model="resnet18", batch=2)
        self.assertIn("layer2.0.downsample.0.weight", begun)
        self.assertIn("layer2.0.downsample.1.running_mean", begun)
        self.expect_weights(begun, model.state_dict())


if __name__ == "__main__":
    unittest.main()
