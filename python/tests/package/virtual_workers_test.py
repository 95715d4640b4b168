"""elastiquant.VirtualWorkers: that its means are those of workers of their own."""

from __future__ import annotations

import math
import unittest
from pathlib import Path

import torch
from launching import forked_ranks
from torch import nn

import elastiquant


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 10))


def loss_of(model: nn.Module, worker: int, step: int = 0) -> torch.Tensor:
    random = torch.Generator().manual_seed(100 * worker + step)
    x = torch.randn(16, 20, generator=random)
    return nn.functional.cross_entropy(model(x), x[:, :10].argmax(1))


def gradient(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def average(workers: elastiquant.VirtualWorkers, model: nn.Module, step: int = 0):
    for _ in range(workers.workers):
        with workers.turn() as worker:
            loss_of(model, worker, step).backward()
    workers.average()
    return gradient(model)


def true_mean(model: nn.Module, count: int, step: int = 0) -> torch.Tensor:
    model.zero_grad()
    for worker in range(count):
        (loss_of(model, worker, step) / count).backward()
    return gradient(model).clone()


class VirtualWorkersTest(unittest.TestCase):
    def test_the_bits_are_those_that_compress_gives_processes(self):
        """Once DDP has its bucket in the order in which virtual workers have theirs."""
        script = Path(__file__).with_name("virtual_workers_job.py")
        done = forked_ranks(3, script)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertEqual(done.stdout.count("same bits"), 3)

    def test_a_lossless_mean_is_the_mean(self):
        for count in (1, 2, 5):
            model = make_model()
            expected = true_mean(model, count)
            found = average(elastiquant.VirtualWorkers(model, count, "fp32"), model)
            torch.testing.assert_close(found, expected)

    def test_the_mean_is_without_bias_and_within_the_declared_variance(self):
        model, draws = make_model(), 60
        expected = true_mean(model, 4)
        workers = elastiquant.VirtualWorkers(model, 4, "dither:bits=2", exact="none")
        found = torch.stack([average(workers, model) for _ in range(draws)])
        squared = (found - expected).square().sum(1).mean()
        bias = (found.mean(0) - expected).square().sum()
        self.assertGreater(squared, 0)
        self.assertLess(bias, 2.5 * squared / draws)
        self.assertLess(squared, 0.5 * expected.square().sum())

    def test_feedback_sends_in_the_end_what_it_kept_back(self):
        model, steps = make_model(), 40
        workers = elastiquant.VirtualWorkers(model, 2, "topk:ratio=0.05|ef", exact="none")
        expected = true_mean(model, 2)
        total = sum(average(workers, model) for _ in range(steps))
        error = (total / steps - expected).norm() / expected.norm()
        self.assertLess(error, 0.5)
        single = elastiquant.VirtualWorkers(model, 2, "topk:ratio=0.05", exact="none")
        lost = (average(single, model) - expected).norm() / expected.norm()
        self.assertLess(error, 0.7 * lost)

    def test_a_state_goes_on_with_the_same_bits(self):
        model = make_model()
        first = elastiquant.VirtualWorkers(model, 2, "topk:ratio=0.1|ef")
        for step in range(3):
            average(first, model, step)
        second = elastiquant.VirtualWorkers(model, 2, "topk:ratio=0.1|ef")
        second.load_state_dict(first.state_dict())
        self.assertTrue(torch.equal(average(first, model, 3), average(second, model, 3)))
        with self.assertRaisesRegex(elastiquant.CorruptFrameError, "codec|dither"):
            other = elastiquant.VirtualWorkers(model, 2, "dither:bits=2")
            other.load_state_dict(first.state_dict())

    def test_rows_may_be_of_any_type_and_are_all_the_mean(self):
        model = make_model()
        workers = elastiquant.VirtualWorkers(model, 3, "fp32")
        rows = torch.randn(3, workers.elements, dtype=torch.float64)
        expected = rows.mean(0)
        workers.all_reduce(rows)
        for row in rows:
            torch.testing.assert_close(row, expected, rtol=1e-5, atol=1e-6)
        parts = workers.views(rows[0])
        self.assertEqual([p.shape for p in parts], [p.shape for p in model.parameters()])
        self.assertEqual(sum(p.numel() for p in parts), workers.elements)

    def test_a_nan_of_one_is_a_nan_of_all(self):
        model = make_model()
        workers = elastiquant.VirtualWorkers(model, 2, "dither:bits=2")
        rows = workers.zeros()
        rows[1, 7] = math.inf
        workers.all_reduce(rows)
        self.assertTrue(rows.isnan().any(1).all())
        self.assertEqual(workers.stats().skipped, 1)

    def test_bytes_are_those_of_the_exchange(self):
        model = make_model()
        for count in (2, 4):
            workers = elastiquant.VirtualWorkers(model, count, "fp32")
            average(workers, model)
            stats = workers.stats()
            self.assertEqual(stats.steps, 1)
            self.assertLess(abs(stats.bytes_up / stats.fp32_bytes_up - 1), 0.05)

    def test_tensors_whose_means_would_be_wrong_are_refused(self):
        for dtype in (torch.float64, torch.complex64):
            model = nn.Linear(3, 2, dtype=dtype)
            words = f"parameter 'weight' must be dense, of float32, .*, not dense, of {dtype}"
            with self.assertRaisesRegex(TypeError, words):
                elastiquant.VirtualWorkers(model, 2)
        model = nn.Embedding(10, 4, sparse=True)
        workers = elastiquant.VirtualWorkers(model, 2, "fp32")
        words = "gradient of 'weight' must be dense, .*, not sparse, of torch.float32"
        with self.assertRaisesRegex(TypeError, words), workers.turn():
            model(torch.tensor([1, 2])).sum().backward()
        rows = workers.zeros()
        for bad in (rows.long(), rows.to(torch.complex64), rows.bool(), rows.to_sparse()):
            with self.assertRaisesRegex(TypeError, "gradients must be dense, of float32"):
                workers.all_reduce(bad)
        workers.all_reduce(rows)  # nothing has changed by what was refused
        self.assertEqual(workers.stats().steps, 1)

    def test_wrong_uses_are_refused(self):
        model = make_model()
        with self.assertRaisesRegex(ValueError, "1 to 64"):
            elastiquant.VirtualWorkers(model, 0)
        with self.assertRaisesRegex(ValueError, "optimizer"):
            elastiquant.VirtualWorkers(model, 2, "efsign|ef")
        with self.assertRaisesRegex(ValueError, "threads"):
            elastiquant.VirtualWorkers(model, 2, threads=0)
        with self.assertRaisesRegex(ValueError, "down is 'alq', which fits its levels"):
            elastiquant.VirtualWorkers(model, 2, down="alq")
        for options, words in (
            ({"workers": 2.0}, "workers is 2.0; it must be a whole number"),
            ({"codec": 3}, "codec is 3; it must be a string"),
            ({"exact": None}, "exact is None; it must be a string"),
            ({"policy": 3}, "policy is 3; it must be of patterns and specs"),
            ({"model": 3}, "model is a int; it must be a torch.nn.Module"),
        ):
            with self.assertRaisesRegex(TypeError, words):
                elastiquant.VirtualWorkers(**{"model": model, "workers": 2} | options)
        workers = elastiquant.VirtualWorkers(model, 2)
        with self.assertRaisesRegex(RuntimeError, "0 of 2"):
            workers.average()
        with self.assertRaisesRegex(ValueError, "shape"):
            workers.all_reduce(torch.zeros(3, workers.elements))
        for _ in range(2):
            with workers.turn() as worker:
                loss_of(model, worker).backward()
        with self.assertRaisesRegex(RuntimeError, "average"), workers.turn():
            pass
        workers.average()
        with self.assertRaises(ZeroDivisionError), workers.turn():
            _ = 1 / 0
        with workers.turn() as worker:
            self.assertEqual(worker, 0)  # a turn that failed is to be had again


if __name__ == "__main__":
    unittest.main()
