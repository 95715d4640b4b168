"""The examples run as their docstrings say, in small."""

from __future__ import annotations

import re
import tempfile
import unittest
from pathlib import Path

import torch
from launching import forked_ranks, torchrun

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


class ExamplesTest(unittest.TestCase):
    def run_example(self, name: str, *arguments: str, launch=forked_ranks) -> str:
        done = launch(2, EXAMPLES / name, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_are_short_and_say_how_to_run_them(self):
        scripts = sorted(EXAMPLES.glob("*.py"))
        self.assertEqual(len(scripts), 5)
        for script in scripts:
            text = script.read_text()
            self.assertLess(text.count("\n"), 100, script)
            self.assertIn(
                f"torchrun --standalone --nproc-per-node=2 examples/{script.name}", text
            )

    def test_cifar10_learns(self):
        output = self.run_example("cifar10_ddp.py", "--steps=60", "--batch=16", launch=torchrun)
        accuracy = float(re.search(r"test accuracy ([\d.]+)%", output)[1])
        self.assertGreater(accuracy, 30, output)  # of made images; by chance, 10
        self.assertIn("x fewer", output)

    def test_cifar10_reads_its_files(self):
        rows = torch.randint(256, (40, 3073), dtype=torch.uint8)
        rows[:, 0] %= 10
        with tempfile.TemporaryDirectory() as folder:
            for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
                Path(folder, f"{name}.bin").write_bytes(rows.numpy().tobytes())
            output = self.run_example(
                "cifar10_ddp.py", "--steps=10", "--batch=4", f"--data={folder}"
            )
        self.assertRegex(output, r"step 10: .*\ntest accuracy")

    def test_digits_are_learnt_from_neighbours(self):
        output = self.run_example("digits_gossip.py", "--steps=150", "--graph=ring")
        accuracy = float(re.search(r"accuracy ([\d.]+)% of the mean", output)[1])
        self.assertGreater(accuracy, 60, output)  # who learnt alone would know half of them

    def test_gpt_learns_and_resumes(self):
        for name in ("gpt_ddp.py", "gpt_diloco.py"):
            with self.subTest(name):
                self.check_gpt(name)

    def check_gpt(self, name: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder, "text")
            text.write_bytes(b"the same words again and again; " * 100)
            tiny = ("--width=32", f"--text={text}", f"--save={folder}/run")
            first = self.run_example(name, "--steps=20", *tiny)
            then = self.run_example(name, "--steps=40", *tiny)
        bits = re.findall(r"step (\d+): ([\d.]+) bits a byte", first + then)
        self.assertEqual([step for step, _ in bits], ["10", "20", "30", "40"])
        self.assertEqual(bits, sorted(bits, key=lambda found: -float(found[1])))
        self.assertLess(float(bits[-1][1]), 6)

    def test_accumulation_learns(self):
        output = self.run_example("accumulate_bf16_ddp.py", "--steps=60")
        right = [int(found) for found in re.findall(r"(\d+)% right", output)]
        self.assertGreater(right[-1], 50, output)
        self.assertRegex(output, r"\n2\.weight, [\d.]+, 0\.\d+\n")


if __name__ == "__main__":
    unittest.main()
