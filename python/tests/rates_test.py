"""The plot of `elastiquant analyze`: what is drawn, and what the title says of it."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from elastiquant_rates import kinds, plots, series

PACKAGE = Path(__file__).resolve().parent.parent / "elastiquant_rates"


def row(codec: str, bits: float, nmse: float, kind: str = "unbiased") -> dict:
    return {"codec": codec, "class": kind, "bits_per_coordinate": bits, "nmse": nmse}


ROWS = [
    row("fp32", 32, 0, "lossless"),
    row("dither:bits=4", 4, 4**-4),
    row("dither:bits=1", 1, 4**-1),
    row("qsgd:bits=4", 4.06, 8 * 4**-4.06),
    row("qsgd:bits=4|elias", 3.5, 8 * 4**-4.06),
    row("qsgd:bits=4|rans", 3, 8 * 4**-4.06),
    row("qsgd:bits=2", 2, 2 * 4**-2),
    row("bf16:rounding=stochastic", 16, 1e-6),
    {"codec": "lowrank", "class": "contractive", "error": "needs a matrix"},
    row("topk:ratio=0.01", 0.3, 0.4, "contractive"),
    row("sign", 1, 0.9, "biased"),
]


class SeriesTest(unittest.TestCase):
    def test_what_cannot_be_drawn_is_left_out(self):
        analysis = {"results": ROWS}
        drawn = {r["codec"] for r in series.measured(analysis, series.UNBIASED)}
        self.assertNotIn("fp32", drawn)
        self.assertNotIn("bf16:rounding=stochastic", drawn)
        drawn = {r["codec"] for r in series.measured(analysis, series.OTHERS)}
        self.assertEqual(drawn, {"topk:ratio=0.01", "sign"})

    def test_rates_of_a_codec_are_one_line_and_coded_ones_another(self):
        found = series.collect(series.measured({"results": ROWS}, series.UNBIASED))
        names = [(s.name, s.coded) for s in found]
        self.assertEqual(names, [("dither", False), ("qsgd", False), ("qsgd", True)])
        self.assertEqual([x for x, _ in found[0].points], [1, 4])
        self.assertEqual([x for x, _ in found[2].points], [3], "the shorter code only")

    def test_names_leave_out_the_rate_and_the_coder(self):
        for spec, name in (
            ("qsgd:bits=4|elias", ("qsgd", True)),
            ("qsgdv:bits=4|rotate", ("qsgdv rotate", False)),
            ("bf16:rounding=stochastic", ("bf16 stochastic", False)),
            ("orq:levels=9", ("orq", False)),
            ("elastic:bits=4,levels=exp", ("elastic exp", False)),
            ("terngrad:bucket=tensor|rans", ("terngrad tensor", True)),
            ("topk:ratio=0.01|ef", ("topk ef", False)),
            (
                "elastic:bits=4,levels=uniform,rounding=dither,bucket=4096|rans",
                ("elastic dithered", True),
            ),
        ):
            self.assertEqual(series.name_of(spec), name)

    def test_every_kind_has_a_colour_of_its_own(self):
        colours = [kind.colour for kind in (*kinds.KINDS, kinds.OTHER)]
        self.assertEqual(len(colours), len(set(colours)))
        self.assertEqual(kinds.kind_of("dither").name, "one step for all")
        self.assertEqual(kinds.kind_of("qsgdv rotate").name, "rotation")
        self.assertIs(kinds.kind_of("unheard-of"), kinds.OTHER)

    def test_advantage_is_taken_at_equal_bits(self):
        dither, qsgd, coded = series.collect(series.measured({"results": ROWS}, ("unbiased",)))
        self.assertAlmostEqual(series.at(dither, 2), 4**-2)
        self.assertIsNone(series.at(dither, 4.06))
        self.assertAlmostEqual(series.advantages(dither, [qsgd])[0], 2)
        self.assertAlmostEqual(series.advantages(dither, [coded])[0], 8 * 4**-1.06)

    def test_the_headline_claims_no_more_than_was_measured(self):
        found = series.collect(series.measured({"results": ROWS}, series.UNBIASED))
        self.assertIn("dither has 1.8 times less", plots.headline(found))
        better = series.Series("other", False, [(2, 4**-3)])
        self.assertEqual(plots.headline([*found, better]), "Error against size")
        self.assertEqual(plots.headline(found[1:]), "Error against size")

    def test_the_limit_is_that_of_unbiased_codes(self):
        self.assertAlmostEqual(series.gaussian_limit(1), 1 / 3)
        self.assertAlmostEqual(series.gaussian_limit(2), 1 / 15)


class ProgramTest(unittest.TestCase):
    def draw(
        self, inputs: list[dict], folder: str, stem: str = "rates"
    ) -> subprocess.CompletedProcess:
        file = Path(folder) / "in.json"
        file.write_text(json.dumps({"draws": 4, "inputs": inputs}))
        command = [sys.executable, str(PACKAGE), str(file), "--out", f"{folder}/{stem}"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_pictures_of_each_input(self):
        one = {"name": "g.npy", "elements": 1000, "results": ROWS}
        two = {"name": "Gaussian", "elements": 10, "results": ROWS[:3]}  # one panel
        with tempfile.TemporaryDirectory() as folder:
            run = self.draw([one], folder)
            self.assertEqual(run.returncode, 0, run.stderr)
            for suffix in ("png", "svg"):
                self.assertGreater((Path(folder) / f"rates.{suffix}").stat().st_size, 5000)
            run = self.draw([one, two], folder)
            self.assertEqual(run.returncode, 0, run.stderr)
            for name in ("rates-1.png", "rates-2.png", "rates-2.svg"):
                self.assertTrue((Path(folder) / name).exists(), name)

    def test_a_name_may_have_a_dot(self):
        one = {"name": "g.npy", "elements": 1000, "results": ROWS[:3]}
        with tempfile.TemporaryDirectory() as folder:
            run = self.draw([one, one], folder, "lr0.5")
            self.assertEqual(run.returncode, 0, run.stderr)
            drawn = sorted(path.name for path in Path(folder).glob("lr*.png"))
            self.assertEqual(drawn, ["lr0.5-1.png", "lr0.5-2.png"])

    def test_a_missing_file_is_an_error_in_words(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(PACKAGE), f"{folder}/none.json", "--out", "x"]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn("none.json", run.stderr)
        self.assertNotIn("Traceback", run.stderr)


if __name__ == "__main__":
    unittest.main()
