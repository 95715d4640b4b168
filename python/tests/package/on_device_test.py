"""elastiquant_testbed.on_device: that it trains as `elastiquant train` does."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import torch
from safetensors.torch import load_file

sys.path.append(str(Path(__file__).resolve().parents[2]))

from elastiquant_testbed.on_device.__main__ import main
from elastiquant_testbed.on_device.allreduce import AllReduce
from elastiquant_testbed.on_device.images import DEVIATION, MEAN, RECORD, SHIFT, Images
from elastiquant_testbed.on_device.networks import NETWORKS
from elastiquant_testbed.on_device.options import parse
from elastiquant_testbed.on_device.rounds import LocalRounds

TRAIN, TEST = 320, 100  # images


def records(count: int) -> bytes:
    """Each class has a colour of its own, so that there is something to be learnt."""
    drawn, found = random.Random(1), bytearray()
    for i in range(count):
        noise = drawn.randbytes(RECORD - 1)
        found += bytes([i % 10]) + bytes((20 * (i % 10) + value // 4) % 256 for value in noise)
    return bytes(found)


def write_images(folder: Path) -> None:
    (folder / "train.bin").write_bytes(records(TRAIN))
    (folder / "test.bin").write_bytes(records(TEST))


def write_cifar(folder: Path) -> None:
    """As long as CIFAR-10 is, which `train` wants: six names of one file."""
    folder.mkdir()
    (folder / "test_batch.bin").write_bytes(100 * records(100))
    for number in range(1, 6):
        os.link(folder / "test_batch.bin", folder / f"data_batch_{number}.bin")


class OnDeviceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.holder.cleanup)
        cls.folder = Path(cls.holder.name)
        write_images(cls.folder)

    def options(self, **named) -> list[str]:
        named = {"data": self.folder, "model": "resnet8", "workers": 2, "batch": 16} | named
        return [w for name, value in named.items() for w in (f"--{name}", str(value))]

    def train(self, **named) -> dict:
        out = self.folder / "run"
        words = self.options(device="cpu", out=out, **named)
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(main([*words, "--quiet"]), 0)
        return json.loads((out / "summary.json").read_text())

    def summary_of_train(self, **named) -> dict:
        """What the program's own training has come to under the same options."""
        with tempfile.TemporaryDirectory() as out:
            words = [*self.options(**named, out=out), "--overwrite", "--quiet"]
            command = [os.environ["ELASTIQUANT_PROGRAM"], "train", *words]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            return json.loads((Path(out) / "summary.json").read_text())

    def test_networks_have_the_layers_of_train(self):
        for model in NETWORKS:
            command = [os.environ["ELASTIQUANT_PROGRAM"], "train", "--steps", "1", "--quiet"]
            out = self.folder / f"layers_{model}"
            words = self.options(model=model, batch=4, workers=1, out=out, codec="fp32")
            words += ["--eval-every", "0", "--checkpoint-every", "1"]
            subprocess.run([*command, *words], check=True, stdout=subprocess.DEVNULL)
            stored = load_file(out / "checkpoint-1.safetensors")
            state = NETWORKS[model]().state_dict()
            self.assertEqual(
                {name: t.shape for name, t in state.items()},
                {name: t.shape for name, t in stored.items() if not name.startswith("optim")},
            )

    def test_evaluations_are_those_of_train(self):
        folder, out = self.folder / "cifar", self.folder / "evaluated"
        write_cifar(folder)
        named = {"data": folder, "steps": 2, "lr": 0.01, "codec": "fp32", "out": out}
        command = [os.environ["ELASTIQUANT_PROGRAM"], "train", *self.options(**named)]
        subprocess.run(
            [*command, "--quiet", "--checkpoint-every", "2"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        training = AllReduce(parse(self.options(**named, device="cpu")))
        stored = load_file(out / "checkpoint-2.safetensors")
        kept = {name: stored[name] for name in training.network.state_dict()}
        training.network.load_state_dict(kept)
        accuracy, loss = training.evaluate()
        summary = json.loads((out / "summary.json").read_text())
        self.assertAlmostEqual(accuracy, summary["test_accuracy"], 4)
        self.assertLess(abs(loss / summary["test_loss"] - 1), 1e-4)

    def test_it_learns_and_counts_as_train_does(self):
        named = {"lr": 0.05, "codec": "dither:bits=2", "epochs": 3, "measure-every": 1}
        ours = self.train(**named)
        theirs = self.summary_of_train(**named)
        for key in ("steps", "steps_per_epoch", "world_size", "skipped_steps"):
            self.assertEqual(ours[key], theirs[key], key)
        # `train` also averages its loss, which travels with the gradient.
        for key in ("bytes_up", "bits_per_coordinate"):
            self.assertLess(abs(ours[key] / theirs[key] - 1), 0.03, key)
        self.assertGreater(ours["nmse"], 0)
        losses = [epoch["train_loss"] for epoch in ours["epochs"]]
        self.assertLess(losses[-1], 0.9 * losses[0])

    def test_runs_of_a_seed_are_alike_and_others_are_not(self):
        first, again = (self.train(steps=4, codec="qsgd:bits=4") for _ in range(2))
        other = self.train(steps=4, codec="qsgd:bits=4", seed=2)
        self.assertEqual(first["test_loss"], again["test_loss"])
        self.assertNotEqual(first["test_loss"], other["test_loss"])

    def test_only_worker_0_moves_the_running_statistics(self):
        named = parse(self.options(device="cpu", out=self.folder, codec="fp32"))
        training = AllReduce(named)
        norm = training.network.bn1
        images, labels = training.images.batch(torch.arange(32))
        images = images.clone()
        training.turns(images, labels)
        after = norm.running_mean.clone()
        norm.running_mean.zero_()
        images[16:] = 0  # worker 1's
        training.turns(images, labels)
        torch.testing.assert_close(norm.running_mean, after)

    def test_images_are_shifted_mirrored_and_normalised(self):
        images = Images(self.folder, torch.device("cpu"), seed=1)
        plain, label = next(images.test_batches(1))
        record = (self.folder / "test.bin").read_bytes()[:RECORD]
        self.assertEqual(int(label), record[0])
        for channel in range(3):
            value = record[1 + 1024 * channel + 32 * 3 + 5] / 255
            wanted = (value - MEAN[channel]) / DEVIATION[channel]
            self.assertAlmostEqual(float(plain[0, channel, 3, 5]), wanted, 5)
        batch, _ = images.batch(torch.zeros(400, dtype=torch.long))
        beyond = (batch[:, :, :SHIFT] == 0).all((1, 3)).sum(1)  # rows above the image
        self.assertEqual(set(beyond.tolist()), set(range(SHIFT + 1)))
        # The first images of both sets are the same.
        first = plain
        batch, _ = images.batch(torch.zeros(4000, dtype=torch.long))
        as_it_is = (batch == first).all((1, 2, 3)).sum()
        mirrored = (batch == first.flip(3)).all((1, 2, 3)).sum()
        for count in (as_it_is, mirrored):  # 1 in 162 each
            self.assertLess(abs(int(count) - 4000 / 162), 5 * (4000 / 162) ** 0.5)

    def test_the_rate_rises_and_then_falls_to_nothing(self):
        named = self.options(device="cpu", out=self.folder, steps=20, warmup=5)
        training = AllReduce(parse(named))
        rates = [training.rate(step) for step in range(20)]
        self.assertAlmostEqual(rates[0], 0.02)
        self.assertAlmostEqual(rates[5], 0.1)
        self.assertAlmostEqual(rates[-1], 0.05 * (1 + math.cos(math.pi * 14 / 15)))

    def test_a_codec_with_momentum_leaves_it_to_the_optimiser_for_what_is_exact(self):
        named = self.options(device="cpu", out=self.folder, codec="dgc:ratio=0.02", momentum=0)
        training = AllReduce(parse(named))
        by = {group["momentum"]: group["params"] for group in training.optimizer.param_groups}
        self.assertEqual(len(by), 2)
        self.assertAlmostEqual(max(by), 0.9, 6)
        self.assertTrue(all(p.dim() == 1 for p in by[max(by)]))
        self.assertTrue(all(p.dim() > 1 for p in by[0]))

    def test_a_round_of_one_step_is_an_all_reduce(self):
        named = {"device": "cpu", "out": self.folder, "codec": "fp32", "momentum": 0}
        named |= {"steps": 2, "warmup": 2}  # soon, roundings would grow to a difference
        both = []
        for algorithm, make in (("allreduce", AllReduce), ("local-sgd", LocalRounds)):
            options = parse(self.options(**named, algorithm=algorithm, every=1))
            both.append(make(options))
            with contextlib.redirect_stdout(io.StringIO()):
                both[-1].run()
        alone = dict(both[1].evaluated().named_parameters())
        for name, wanted in both[0].network.named_parameters():
            torch.testing.assert_close(alone[name], wanted, rtol=1e-4, atol=1e-6)

    def test_the_anchor_moves_as_sgd_with_nesterovs_momentum_moves_it(self):
        named = {"device": "cpu", "out": self.folder, "codec": "fp32", "exact": "none"}
        options = self.options(**named, algorithm="diloco:lr=0.9,momentum=0.5")
        training = LocalRounds(parse(options))
        wanted = torch.nn.Parameter(training.anchor.clone())
        outer = torch.optim.SGD([wanted], lr=0.9, momentum=0.5, nesterov=True)
        for _ in range(3):
            moved = torch.randn_like(training.weights)
            training.weights -= moved
            training._end_round()
            wanted.grad = moved.mean(0)
            outer.step()
            torch.testing.assert_close(training.anchor, wanted.detach())
            self.assertTrue((training.weights == training.anchor).all())

    def test_rounds_learn_and_count_as_those_of_train_do(self):
        named = {"lr": 0.05, "codec": "dither:bits=2", "epochs": 3, "every": 4}
        named |= {"algorithm": "diloco:lr=0.9,momentum=0.5"}
        ours = self.train(**named)
        theirs = self.summary_of_train(**named)
        for key in ("algorithm", "steps", "rounds"):
            self.assertEqual(ours[key], theirs[key], key)
        # `train` also averages its running statistics after each epoch, with its loss.
        for key in ("bytes_up", "bits_per_coordinate"):
            self.assertLess(abs(ours[key] / theirs[key] - 1), 0.1, key)
        losses = [epoch["train_loss"] for epoch in ours["epochs"]]
        self.assertLess(losses[-1], 0.9 * losses[0])

    def test_gossip_learns_and_counts_as_that_of_train_does(self):
        named = {"lr": 0.05, "codec": "dither:bits=2", "epochs": 3, "workers": 3}
        named |= {"batch": 8, "algorithm": "choco", "graph": "ring", "gossip-step": 0.7}
        ours = self.train(**named)
        theirs = self.summary_of_train(**named)
        for key in ("algorithm", "steps", "world_size"):
            self.assertEqual(ours[key], theirs[key], key)
        self.assertLess(abs(ours["bytes_up"] / theirs["bytes_up"] - 1), 0.1)
        self.assertEqual(ours["gossip_step"], 0.7)
        self.assertGreater(ours["consensus_distance"], 0)
        losses = [epoch["train_loss"] for epoch in ours["epochs"]]
        self.assertLess(losses[-1], 0.9 * losses[0])

    def test_a_signal_ends_the_workers_of_gossip_too(self):
        words = [sys.executable, "-B", Path(main.__code__.co_filename).parent]
        words += self.options(device="cpu", out=self.folder / "ended", algorithm="dpsgd")
        trainer = subprocess.Popen(
            [*words, "--epochs", "1000", "--quiet"], stderr=subprocess.PIPE, text=True
        )
        self.addCleanup(trainer.kill)
        children = Path(f"/proc/{trainer.pid}/task/{trainer.pid}/children")
        while trainer.poll() is None and len(children.read_text().split()) < 3:
            time.sleep(0.05)
        started = children.read_text().split()  # one of them is multiprocessing's own
        trainer.terminate()
        _, said = trainer.communicate(timeout=60)
        self.assertEqual((trainer.returncode, said.strip().splitlines()[-1]), (1, "stopped"))
        until = time.monotonic() + 10
        while any(Path(f"/proc/{child}").exists() for child in started):
            self.assertLess(time.monotonic(), until, "a process was left behind")
            time.sleep(0.05)

    def test_what_is_wrong_is_told(self):
        out = io.StringIO()
        for named, said in (
            ({"batch": 200}, "320 images are less"),
            ({"codec": "qsdg"}, "qsdg"),
            ({"data": "/nowhere"}, "/nowhere"),
            ({"lr": 1e30, "codec": "dither:bits=2"}, "gave up"),
            ({"algorithm": "local-sgd", "every": 0}, "--every 0"),
            ({"algorithm": "choco", "graph": "rnig"}, "rnig"),
            ({"algorithm": "dpsgd", "lr": 1e38, "codec": "fp32"}, "gave up"),
        ):
            words = self.options(device="cpu", out=self.folder / "bad", epochs=2, **named)
            with contextlib.redirect_stderr(out), self.subTest(said):
                self.assertEqual(main([*words, "--quiet"]), 1)
            self.assertIn(said, out.getvalue())


if __name__ == "__main__":
    unittest.main()
