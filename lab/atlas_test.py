"""What the atlas runs in a cell, and what it makes of it."""

import argparse
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import atlas
import atlas_plan
import atlas_show
import namespaces
from atlas_plan import Cell, Plan

SETTINGS = {
    "model": "resnet20",
    "data": "generated",
    "workers": 4,
    "batch": 16,
    "delay": "0ms",
    "network": "tc",
    "algorithms": ["allreduce", "local-sgd"],
    "options": [],
}
REFERENCE = {"computing_seconds": 0.1, "coordinates": 269722, "cores": 2}


def step(total: float, compute: float = 0.1, sent: int = 0) -> dict:
    return {"seconds": {"total": total, "compute": compute}, "bytes_up": sent}


def found(codec: str, every: int, link: str, utilisation: float) -> dict:
    steps = [step(0.1 / utilisation, sent=1000)] * every
    return atlas_plan.result(Cell(codec, every, link), Plan(0, 1, 0), steps, 0.1)


class PlanTest(unittest.TestCase):
    def test_a_quick_cell_is_measured_often_enough_and_no_more(self):
        for every, rounds in ((1, 40), (8, 5), (32, 2), (128, 2)):
            plan = atlas_plan.plan(every, computing=0.001, exchange=0.001, budget=60, start=0)
            self.assertEqual((plan.unmeasured, plan.measured), (1, rounds), every)

    def test_a_slow_cell_is_one_whole_round(self):
        plan = atlas_plan.plan(128, computing=0.1, exchange=500, budget=60, start=9)
        self.assertEqual((plan.unmeasured, plan.measured), (0, 1))
        self.assertAlmostEqual(plan.seconds, atlas_plan.START_SECONDS + 9 + 512.8)

    def test_the_first_of_two_rounds_that_fit_is_not_measured(self):
        plan = atlas_plan.plan(8, computing=1, exchange=12, budget=45, start=0)
        self.assertEqual((plan.unmeasured, plan.measured), (1, 1))

    def test_a_first_step_over_fast_links_counts_only_as_part_of_a_round(self):
        slow = atlas_plan.plan(1, computing=1, exchange=100, budget=45)
        self.assertEqual((slow.unmeasured, slow.measured), (1, 1))
        some = atlas_plan.plan(1, computing=1, exchange=8, budget=45)
        self.assertEqual((some.unmeasured, some.measured), (2, 4))
        rounds = atlas_plan.plan(8, computing=1, exchange=100, budget=45)
        self.assertEqual((rounds.unmeasured, rounds.measured), (0, 1))

    def test_links_are_slow_late_if_weights_take_long_and_steps_do(self):
        def late(link: str, coordinates: int, computing: float) -> bool:
            return atlas_plan.starts_fast(Cell("fp32", 1, link), coordinates, 4, computing)

        self.assertTrue(late("5mbit", 11_000_000, 0.5))
        self.assertFalse(late("5mbit", 11_000_000, 0.05))
        self.assertFalse(late("1gbit", 11_000_000, 0.5))
        self.assertFalse(late("5mbit", 10_000, 0.5))

    def test_an_exchange_is_estimated_from_bits_and_rate(self):
        # 3/4 of the mean goes out twice: 1.5 MB of fp32 for each million of coordinates.
        fp32 = atlas_plan.exchange_seconds(Cell("fp32", 1, "10mbit"), 1_000_000, 4, 0.05)
        self.assertAlmostEqual(fp32, 1.5e6 * 32 * atlas_plan.ON_THE_WIRE / 10e6 + 0.1)
        one = atlas_plan.exchange_seconds(Cell("dither:bits=1", 1, "10mbit"), 1_000_000, 4, 0)
        self.assertAlmostEqual(one, (fp32 - 0.1) / 32)

    def test_the_reference_fills_its_time_without_its_ends(self):
        first = [step(9, 9)] * 3 + [step(0.5, 0.5)] * 8 + [step(9, 9)]
        self.assertEqual(atlas_plan.computing_seconds(first), 0.5)
        self.assertEqual(atlas_plan.steps_of_reference(first, budget=40), 80)
        self.assertEqual(atlas_plan.steps_of_reference(first, budget=1), 12)


class ResultTest(unittest.TestCase):
    def test_utilisation_is_over_whole_rounds_without_the_first(self):
        steps = [step(7), step(7), step(0.1), step(0.3, 0.2, sent=50), step(0.1), step(1.5)]
        cell = atlas_plan.result(Cell("fp32", 2, "1mbit"), Plan(1, 2, 0), steps, computing=0.1)
        self.assertAlmostEqual(cell["seconds_per_step"], 0.5)
        self.assertAlmostEqual(cell["utilisation"], 0.2)
        self.assertAlmostEqual(cell["compute_seconds_per_step"], 0.125)
        self.assertEqual((cell["bytes_per_round"], cell["rounds"]), (25, 2))

    def test_a_run_that_ended_early_is_refused(self):
        with self.assertRaisesRegex(ValueError, "3 steps instead of 4"):
            atlas_plan.result(Cell("fp32", 2, "1mbit"), Plan(0, 2, 0), [step(1)] * 3, 0.1)


class ShowTest(unittest.TestCase):
    def setUp(self):
        cells = [
            found("fp32", 1, "1gbit", 0.9),
            found("fp32", 1, "5mbit", 0.021),
            found("dither:bits=1", 1, "1gbit", 1.02),
            found("dither:bits=1", 1, "5mbit", 0.4),
            found("fp32", 8, "5mbit", 0.25),
        ]
        self.atlas = atlas_show.Atlas(SETTINGS, REFERENCE, cells)

    def test_table(self):
        lines = atlas_show.table(self.atlas).splitlines()
        self.assertEqual(lines[0], "| codec | H | KB sent a step | 5 Mbit/s | 1 Gbit/s |")
        self.assertEqual(lines[2], "| fp32 | 1 | 1 | 2.1 % (4.76 s) | 90 % (0.111 s) |")
        self.assertEqual(lines[3], "| fp32 | 8 | 1 | 25 % (0.4 s) |  |")
        self.assertIn("100 % (0.098 s)", lines[4])  # noise is not shown as more than all
        self.assertIn("by tc", lines[-1])

    def test_an_emulated_link_is_said_to_be(self):
        emulated = SETTINGS | {"network": "link", "delay": "50ms"}
        text = atlas_show.table(
            atlas_show.Atlas(emulated, REFERENCE, [*self.atlas.cells.values()])
        )
        self.assertIn("links emulated by --link, 50ms of delay", text)

    def test_slowed_computing_is_told(self):
        slow = found("fp32", 1, "20mbit", 0.1) | {"compute_seconds_per_step": 0.2}
        text = atlas_show.table(atlas_show.Atlas(SETTINGS, REFERENCE, [slow]))
        self.assertIn("In 1 of 1 cells a step's own computing took more than 1.3 times", text)

    def test_the_title_names_the_largest_gain(self):
        self.assertEqual(
            atlas_show.point(self.atlas),
            "At 5 Mbit/s, meeting at every step, workers compute 2.1 % of the time in fp32, "
            "and 40 % in 1 bit",
        )

    def test_draws(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "atlas.png"
            atlas_show.draw(self.atlas, path)
            self.assertEqual(path.read_bytes()[:4], b"\x89PNG")

    def test_labels(self):
        for codec, label in (
            ("elastic:bits=4", "4 bits"),
            ("dither:bits=1", "1 bit"),
            ("dither:bits=0.5", "0.5 bit"),
            ("fp32", "fp32"),
            ("topk:ratio=0.01|ef", "topk:ratio=0.01|ef"),
        ):
            self.assertEqual(atlas_plan.label(codec), label)


class CommandTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.out = pathlib.Path(holder.name)

    def arguments(self, *words: str) -> argparse.Namespace:
        command = ["atlas.py", "--out", str(self.out), "--network", "link", *words]
        with mock.patch.object(sys, "argv", command):
            return atlas.parse_arguments()

    def test_other_settings_do_not_mix(self):
        atlas.settings_of(self.arguments())
        atlas.settings_of(self.arguments("--links", "1mbit"))
        with self.assertRaisesRegex(
            namespaces.LabError, "has measurements with batch 16, not 8"
        ):
            atlas.settings_of(self.arguments("--batch", "8"))

    def test_a_cell_that_is_there_is_not_run_again(self):
        args = self.arguments("--every", "1", "8", "--links", "5mbit", "--codecs", "fp32")
        lab = atlas.Lab(args, atlas.settings_of(args))
        (self.out / "reference.json").write_text(json.dumps(REFERENCE))
        ran = []

        def run(command: list[str], link: str | None, late: pathlib.Path | None) -> None:
            self.assertIsNone(late)  # --link holds from the start
            ran.append((link, command[command.index("--algorithm") + 1]))
            folder = pathlib.Path(command[command.index("--out") + 1])
            folder.mkdir(parents=True)
            steps = int(command[command.index("--steps") + 1])
            lines = [json.dumps(step(0.2, sent=10)) for _ in range(steps)]
            (folder / "metrics.jsonl").write_text("\n".join(lines))

        cells = [Cell("fp32", every, "5mbit") for every in (1, 8)]
        with mock.patch.object(lab, "run", run), mock.patch("builtins.print"):
            self.assertEqual(lab.measure_all(cells), 0)
            self.assertEqual(lab.measure_all(cells), 0)
            atlas.write(args, lab, cells)
        self.assertEqual(ran, [("5mbit", "allreduce"), ("5mbit", "local-sgd")])
        written = json.loads((self.out / "atlas.json").read_text())
        self.assertEqual([round(c["utilisation"], 9) for c in written["cells"]], [0.5, 0.5])

    def test_a_run_that_fails_is_told_and_tried_again(self):
        args = self.arguments("--links", "5mbit")
        lab = atlas.Lab(args, atlas.settings_of(args))
        (self.out / "reference.json").write_text(json.dumps(REFERENCE))
        failure = mock.Mock(side_effect=namespaces.LabError("no route"))
        with mock.patch.object(lab, "run", failure), mock.patch("builtins.print") as said:
            self.assertEqual(lab.measure_all([Cell("fp32", 1, "5mbit")]), 1)
        self.assertIn("FAILED: no route", str(said.call_args_list))
        self.assertIsNone(lab.measured(Cell("fp32", 1, "5mbit")))


if __name__ == "__main__":
    unittest.main()
