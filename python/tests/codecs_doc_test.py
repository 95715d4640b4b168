"""docs/codecs.md's script: the ideal coder, and what is written where."""

import json
import math
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import numpy as np

    from elastiquant_rates import document, ideal
except ImportError as error:
    raise unittest.SkipTest(f"needs numpy and matplotlib: {error}") from error

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "codecs_doc.py"


class IdealCoderTest(unittest.TestCase):
    def test_fine_steps_cost_the_differential_entropy(self):
        generator = np.random.default_rng(3)
        step = 0.01
        laplace = generator.laplace(size=128 * 400)  # h = log2(2 e b)
        coder = ideal.IdealCoder(laplace)
        self.assertAlmostEqual(coder.bits(step), math.log2(2 * math.e / step), delta=0.06)
        gauss = generator.normal(size=128 * 400)  # h = log2(2 pi e) / 2
        coder = ideal.IdealCoder(gauss)
        entropy = math.log2(2 * math.pi * math.e) / 2 - math.log2(step)
        self.assertAlmostEqual(coder.bits(step), entropy, delta=0.06)

    def test_the_step_for_a_rate_has_that_rate(self):
        coder = ideal.IdealCoder(np.random.default_rng(4).normal(size=20000))
        for bits in (0.5, 2, 6):
            self.assertAlmostEqual(coder.bits(coder.step_at(bits)), bits, delta=0.01)
        # 1.53 dB above the limit of any code at high rates, and the cost of the classes.
        above = coder.nmse_at(6) * 4**6
        self.assertAlmostEqual(10 * math.log10(above), 1.6, delta=0.2)

    def test_quiet_blocks_cost_next_to_nothing(self):
        values = np.random.default_rng(5).normal(size=12800)
        values[: 12800 // 2] *= 1e-4
        coder = ideal.IdealCoder(values)
        full = ideal.IdealCoder(values[12800 // 2 :])
        self.assertAlmostEqual(2 * coder.bits(0.1), full.bits(0.1), delta=0.05)
        values[: 12800 // 2] = 0
        self.assertLess(ideal.IdealCoder(values).bits(0.1), coder.bits(0.1) + 1e-9)

    def test_probabilities_add_up_to_one(self):
        edges = np.linspace(-60, 60, 2001)
        for density in (ideal._laplace, ideal._gauss):
            self.assertAlmostEqual(density(edges[:-1], edges[1:]).sum(), 1, places=12)
            far = density(np.array([20.0, -21.0]), np.array([21.0, -20.0]))
            self.assertGreater(far[0], 0)
            self.assertEqual(far[0], far[1])


class WordsTest(unittest.TestCase):
    def test_numbers_have_three_digits_that_matter(self):
        for value, text in (
            (0, "0"),
            (0.0457, "0.0457"),
            (1.4236, "1.42"),
            (32.001, "32.0"),
            (3.1e-7, "3.10e-07"),
            (172303.0, "1.72e+05"),
            (None, "–"),
        ):
            self.assertEqual(document.number(value), text)

    def test_the_block_is_replaced_and_nothing_else(self):
        before = f"a\n{document.BEGIN}\nold\n{document.END}\nb\n"
        after = document.insert(before, "new")
        self.assertEqual(after, f"a\n{document.BEGIN}\n\nnew\n\n{document.END}\nb\n")
        self.assertEqual(document.insert(after, "new"), after)
        with self.assertRaises(document.DocumentError):
            document.insert("no place", "new")


@unittest.skipUnless("ELASTIQUANT_PROGRAM" in os.environ, "needs the program")
class ScriptTest(unittest.TestCase):
    def run_script(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess:
        program = os.environ["ELASTIQUANT_PROGRAM"]
        command = [sys.executable, str(SCRIPT), "--program", program, "--draws", "2"]
        command += ["--gaussian", "3000", "--out", str(folder / "codecs.md"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_fills_in_tables_and_plots(self):
        generator = np.random.default_rng(1)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "run" / "gradients").mkdir(parents=True)
            files = [folder / f"run/gradients/gradient-00000{step}.npy" for step in (1, 2)]
            command = "/somewhere/elastiquant train --data /elsewhere/cifar --out there/run"
            (folder / "run" / "summary.json").write_text(json.dumps({"command": command}))
            for file in files:
                np.save(file, generator.laplace(size=4000).astype(np.float32))
            (folder / "codecs.md").write_text(f"# C\n{document.BEGIN}\n{document.END}\n")
            bench = folder / "bench.json"
            speed = {"ratio_to_memcpy": 0.25}
            bench.write_text(
                json.dumps(
                    {"results": [{"codec": "fp32", "encode": speed, "decode_add": speed}]}
                )
            )
            run = self.run_script(folder, *map(str, files), "--bench", f"AVX9={bench}")
            self.assertEqual(run.returncode, 0, run.stderr)
            text = (folder / "codecs.md").read_text()
            for words in (
                "| `fp32` | 32",
                "0.25×",
                "| encode AVX9 |",
                "NMSE, step 2",
                "step-2.png",
                "dB |",
            ):
                self.assertIn(words, text)
            self.assertIn("elastiquant train --data cifar --out run", text)
            for picture in ("gaussian.png", "step-1.svg", "step-2.png"):
                self.assertTrue((folder / "codecs" / picture).exists(), picture)
            self.assertIn("`dither:bits=8`", (folder / "codecs" / "tables.md").read_text())

    def test_a_document_without_a_place_stays_as_it_is(self):
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "codecs.md").write_text("# C\n")
            run = self.run_script(Path(name), "none.npy")
            self.assertEqual(run.returncode, 2)
            self.assertIn("begin of what", run.stderr)
            self.assertEqual((Path(name) / "codecs.md").read_text(), "# C\n")


if __name__ == "__main__":
    unittest.main()
