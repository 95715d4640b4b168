"""The experiments of elastiquant_testbed that train: their runs, rows and claims."""

import itertools
import json
import os
import tempfile
import unittest
from pathlib import Path

from elastiquant_testbed import (
    curves,
    dagc,
    levels,
    levels_claims,
    levels_show,
    outcomes,
    stored,
    table4,
    training,
)


def outcome(accuracies, sent, per_epoch=20, workers=10, steps=None):
    """Of a run whose workers send so much in each epoch."""
    epochs = [{"test_accuracy": a, "bytes_up": sent, "train_loss": 1 / a} for a in accuracies]
    summary = {"epochs": epochs, "steps_per_epoch": per_epoch, "world_size": workers}
    summary["steps"] = per_epoch * len(accuracies) if steps is None else steps
    return training.Outcome(summary, [])


class DagcTest(unittest.TestCase):
    def test_rounds_are_counted_until_the_accuracy_that_all_reach(self):
        setting = dagc.Setting(100, 0.05)
        of = {scheme: [outcome([10, 20, 30, 50], 100)] for scheme in dagc.SCHEMES}
        of[dagc.UNIFORM] = [outcome([10, 20, 25, 40], 100)]
        of[dagc.DAGC_R] = [outcome([20, 40, 60, 60], 100)]
        rows = {row["scheme"]: row for row in dagc.rows_of(setting, of)}
        # An epoch is two rounds of ten steps.
        self.assertEqual(rows[dagc.UNIFORM]["target"], 40)
        self.assertEqual(rows[dagc.UNIFORM]["rounds"], 8)
        self.assertEqual(rows[dagc.UNIFORM]["bytes"], 4 * 100 * 10)
        self.assertEqual(rows[dagc.DAGC_R]["rounds"], 4)
        self.assertAlmostEqual(rows[dagc.DAGC_A]["rounds"], 7)  # half of the fourth epoch
        self.assertEqual(dagc.sooner(list(rows.values()), dagc.DAGC_R), [50])
        self.assertEqual(dagc.sooner_by_seed(list(rows.values()), dagc.DAGC_R), [[50]])
        whole = [
            {**row, "skew": its.skew, "ratio": its.ratio}
            for its in dagc.SETTINGS
            for row in rows.values()
        ]
        held = {c.claim: c.holds for c in dagc.claims(whole)}
        self.assertIs(held["DAGC-R needs up to 25.43 % fewer rounds than uniform ratios"], True)
        self.assertIs(
            held["DAGC-A needs up to 16.65 % fewer rounds than uniform ratios"], False
        )

    def test_rounds_of_a_last_epoch_that_is_cut_short_are_its_own(self):
        points = dagc.curve(outcome([10, 20, 30], 100, steps=50))
        self.assertEqual([rounds for rounds, _, _ in points], [2, 4, 5])

    def test_an_accuracy_that_is_never_reached_is_an_error(self):
        with self.assertRaises(ValueError):
            dagc.reached([(1, 1, 10)], 20)

    def test_every_scheme_is_run_as_it_was_published(self):
        experiment = dagc.Dagc(None, Path("unused"), training.Choice(True))
        words = experiment.one("uniform", dagc.Setting(10, 0.1), 2).options
        pairs = dict(zip(words[::2], words[1::2], strict=True))
        for name, value in (("every", "10"), ("batch", "64"), ("lr", "0.01"), ("ratio", "0.1")):
            self.assertEqual(pairs["--" + name], value)
        self.assertNotIn("--ratio", experiment.one("none", dagc.Setting(10, 0.1), 2).options)

    def test_what_is_said_of_all_settings_waits_for_them(self):
        rounds = {**dict.fromkeys(dagc.SCHEMES, 90.0), dagc.UNIFORM: 100.0}

        def claims(settings):
            return dagc.claims(
                [
                    {
                        "skew": its.skew,
                        "ratio": its.ratio,
                        "scheme": scheme,
                        "rounds": many,
                        "rounds_by_seed": [many] * (1 + (its == dagc.SETTINGS[0])),
                    }
                    for its in settings
                    for scheme, many in rounds.items()
                ]
            )

        for claim in claims(dagc.SETTINGS[:8]):
            self.assertIsNone(claim.holds)
            self.assertIn("8 of 9 settings", claim.seen)
        self.assertTrue(
            claims(dagc.SETTINGS)[0].seen.endswith("; the best setting has 2 seeds")
        )
        self.assertEqual([c.holds for c in claims(dagc.SETTINGS)], [False, True, False, True])

    def test_what_has_no_ratio_is_run_once_for_all_of_them(self):
        experiment = dagc.Dagc(None, Path("unused"), training.Choice(False, "cifar"))
        runs = {
            scheme: {experiment.one(scheme, its, 1).folder for its in dagc.SETTINGS}
            for scheme in dagc.SCHEMES
        }
        many = {scheme: len(names) for scheme, names in runs.items()}
        once = dict.fromkeys(dagc.WITHOUT_RATIO, 3)  # for each skew
        self.assertEqual(many, {**dict.fromkeys(dagc.SCHEMES, 9), **once})

    def test_runs_that_are_stored_count(self):
        experiment = dagc.Dagc(
            None, Path("unused"), training.Choice(False, "cifar", precision="bf16")
        )
        there = outcomes.read(outcomes.path_of("dagc", stored.FOLDER))
        for its in dagc.SETTINGS:
            wanted = [experiment.one(scheme, its, 1) for scheme in dagc.SCHEMES]
            self.assertEqual([r.name for r in wanted if r.folder not in there], [])

    def test_accordion_has_its_authors_ratios(self):
        experiment = dagc.Dagc(None, Path("unused"), training.Choice(True))
        words = experiment.one(dagc.ACCORDION, dagc.Setting(10, 0.05), 1).options
        self.assertIn("accordion:least=0.01,most=0.1", words)
        self.assertNotIn("--ratio", words)


UNPRINTED = {"4-bit": 92.0}  # of ResNet-18 on 2 devices, where it is not to be worse than on 6


class Table4Test(unittest.TestCase):
    def cells(self, **accuracies):
        both = table4.RESNET_20 + table4.RESNET_18 + table4.RESNET_110
        return [
            {
                "network": table4.NAMES[c.network],
                "scheme": c.scheme,
                "devices": c.devices,
                "accuracy": accuracy,
                "accuracy_by_seed": [accuracy],
                "epochs": table4.AT_LENGTH,
            }
            for c in both
            for accuracy in (
                accuracies.get(
                    c.scheme.replace("-", "_"), c.printed or UNPRINTED.get(c.scheme, 10.0)
                ),
            )
        ]

    def test_the_printed_cells_are_as_their_claims_say(self):
        for claim in table4.claims(self.cells()):
            self.assertTrue(claim.holds, claim)

    def test_a_scheme_that_converges_breaks_the_claim_that_it_does_not(self):
        wrong = [c.claim for c in table4.claims(self.cells(TernGrad=85)) if not c.holds]
        self.assertIn("ResNet-20: TernGrad does not converge", wrong)

    def test_cells_of_other_epochs_are_not_compared(self):
        cells = self.cells()
        claims = len(table4.claims(cells))
        cells[0]["epochs"] = 6  # of FP-SGD, in an order and in a difference
        self.assertEqual(len(table4.claims(cells)), claims - 2)

    def test_cells_of_a_gpu_and_of_cpus_are_shown_and_not_judged(self):
        cells = [{**cell, "trained_on": "cpu"} for cell in self.cells()]
        cells[0]["trained_on"] = "cuda"  # of FP-SGD, in an order and in a difference
        unjudged = [c for c in table4.claims(cells) if c.holds is None]
        self.assertEqual(len(unjudged), 2)
        self.assertIn("1 seed, on a GPU and on CPUs)", unjudged[0].seen)

    def test_an_order_that_the_seeds_contradict_is_not_judged(self):
        cells = self.cells()
        for cell in cells:
            cell["accuracy_by_seed"] = [cell["accuracy"], cell["accuracy"]]
        cells[1]["accuracy_by_seed"] = [60.0, 95.0]  # of 4-bit, the last of its order
        (order,) = (c for c in table4.claims(cells) if "ResNet-20: FP-SGD on 2 >" in c.claim)
        self.assertIsNone(order.holds)
        self.assertIn("the seeds disagree (", order.seen)

    def test_cells_are_compared_over_the_seeds_that_all_have(self):
        cells = self.cells()
        more = [{**c, "accuracy_by_seed": [c["accuracy"], 0.0]} for c in cells[1:]]
        more = [{**c, "accuracy": c["accuracy"] / 2} for c in more]
        # FP-SGD on 2 devices is the first, and the only one of one seed.
        alone, beside = (
            [claim for claim in table4.claims(some) if "FP-SGD on 2" in claim.claim]
            for some in (cells, [cells[0], *more])
        )
        self.assertEqual(len(alone), 2)
        self.assertEqual(alone, beside)

    def test_after_few_epochs_nothing_is_judged_and_all_is_told(self):
        short = [{**cell, "epochs": table4.AT_LENGTH - 1} for cell in self.cells()]
        for claim, whole in zip(table4.claims(short), table4.claims(self.cells()), strict=True):
            self.assertIsNone(claim.holds)
            self.assertEqual(claim.claim, whole.claim)
            self.assertIn(f"{table4.AT_LENGTH - 1} epochs, 1 seed", claim.seen)

    def test_dgc_alone_may_lose_accuracy_from_2_devices_to_6(self):
        def unlike(cells):
            (found,) = (c for c in table4.claims(cells) if "unlike 4-bit" in c.claim)
            return found.holds

        cells = self.cells()
        self.assertIs(unlike(cells), True)
        fallen = {"accuracy": 89.0, "accuracy_by_seed": [89.0]}
        lesser = [
            {**c, **fallen} if (c["scheme"], c["devices"]) == ("4-bit", 6) else c for c in cells
        ]
        self.assertIs(unlike(lesser), False)

    def test_runs_have_one_global_batch(self):
        experiment = table4.Table4(None, Path("unused"), training.Choice(False, "cifar"))
        for cell in experiment.cells:
            words = experiment.one(cell, "cpu", 1).options
            pairs = dict(zip(words[::2], words[1::2], strict=True))
            self.assertLessEqual(int(pairs["--batch"]) * cell.devices, table4.GLOBAL_BATCH)
            self.assertGreater((int(pairs["--batch"]) + 1) * cell.devices, table4.GLOBAL_BATCH)


class CurvesTest(unittest.TestCase):
    def series(self, loss, accuracy, variance, seconds=1.0):
        """Of two epochs, in the first of which nothing is learnt."""
        told = {"loss": [2.0, loss], "accuracy": [10.0, accuracy]}
        told |= {"variance": [variance], "variance_steps": [500]}
        return told | {"seconds": [seconds, 2 * seconds]}

    def test_claims_are_about_4_bits_and_qsgd(self):
        series = {
            "FP-SGD": self.series(1.0, 90.0, 1.0, seconds=5),
            "QSGD": self.series(1.1, 87.0, 1.2) | {"loss": [2.01, 1.1]},
            "QSGD-V": self.series(1.05, 89.0, 1.1),
            "4-bit": self.series(1.05, 89.5, 1.1),
        }
        self.assertEqual([c.claim for c in curves.claims(series) if not c.holds], [])
        series["QSGD"] = self.series(1.0, 90.0, 1.0)
        # What is left is of the other three.
        self.assertEqual(
            [c.claim for c in curves.claims(series) if c.holds],
            [
                "QSGD-V ends within 0.5 points of 4-bit",
                "4-bit reaches an accuracy a point below FP-SGD's last one sooner than FP-SGD",
            ],
        )

    def test_variances_are_compared_at_the_steps_that_all_have(self):
        series = {
            "FP-SGD": self.series(1.0, 90.0, 1.0),
            "QSGD": self.series(1.1, 87.0, 2.0),
            "QSGD-V": self.series(1.05, 89.0, 1.5),
            "4-bit": self.series(1.05, 89.5, 1.8),
        }
        # Of a later step, when variances are larger, QSGD has no estimate that is finite.
        for scheme in ("QSGD-V", "4-bit"):
            series[scheme] |= {"variance": [1.8, 9.0], "variance_steps": [500, 1000]}
        claims = {c.claim: c for c in curves.claims(series)}
        claim = claims["4-bit has 4 to 22 % less variance than QSGD"]
        self.assertEqual((claim.holds, claim.seen), (True, "-10.0 %; against QSGD-V +0.0 %"))

    def test_a_scheme_whose_loss_is_not_finite_is_shown_and_not_judged(self):
        series = {s: self.series(1.0, 90.0, 1.0) for s in ("FP-SGD", "QSGD", "QSGD-V", "4-bit")}
        for of in series.values():
            of |= {"steps": [10, 20], "bytes": [400, 800]}
            of |= {"variance_exact": [1.0]}
        series["QSGD"]["loss"] = [2.0, None]
        self.assertEqual(curves.claims(series), [])
        result = {"series": series, "data": "generated", "quick": True, "left_out": []}
        self.assertIn("| QSGD |  | 90.00 |", curves.text(result | {"checks": []}))
        with tempfile.TemporaryDirectory() as folder:
            curves.draw(result, Path(folder) / "curves")
            points = (Path(folder) / "curves.csv").read_text()
        self.assertIn("QSGD,loss,10,", points)
        self.assertNotIn("QSGD,loss,20,", points)

    def test_seconds_are_told_until_an_accuracy_is_there(self):
        of = {"seconds": [10, 20, 30], "accuracy": [50, 70, 60]}
        self.assertEqual(curves.seconds_to(of, 60), 20)
        self.assertIsNone(curves.seconds_to(of, 71))
        slow = {"FP-SGD": self.series(1, 90, 1), "4-bit": self.series(1, 88.9, 1)}
        slow |= {"QSGD": self.series(1, 80, 1), "QSGD-V": self.series(1, 80, 1)}
        self.assertEqual(curves.targets(slow), [80, 89])
        sooner = curves.claims(slow)[-1]
        self.assertFalse(sooner.holds)
        self.assertIn("never and 2 s to 89.00 %", sooner.seen)

    def test_a_scheme_whose_variance_was_never_finite_is_shown_without(self):
        summary = {"steps_per_epoch": 10, "epochs": [{"train_loss": 1, "test_accuracy": 50}]}
        lines = [{"step": 5, "variance": {"compressed": 2.0, "exact": 1.0}}]
        series = {
            scheme: curves.series_of(
                training.Outcome(summary, lines if scheme != "QSGD" else [])
            )
            | {"seconds": [1.0], "bytes": [400]}
            for scheme in curves.SCHEMES
        }
        found = curves.claims(series)
        of_variance = [claim for claim in found if "variance" in claim.claim]
        self.assertEqual({claim.holds for claim in of_variance}, {None})
        self.assertEqual((len(found), len(of_variance)), (13, 3))
        result = {"series": series, "data": "generated", "quick": True, "left_out": []}
        result["checks"] = [claim._asdict() for claim in found]
        self.assertIn("| QSGD | 1.0000 | 50.00 |  |  | 1 |", curves.text(result))
        with tempfile.TemporaryDirectory() as folder:
            curves.draw(result, Path(folder) / "curves")
            self.assertGreater(os.path.getsize(Path(folder) / "curves.png"), 10000)
            points = (Path(folder) / "curves.csv").read_text().splitlines()
        self.assertEqual(points[0], "scheme,what,step,seconds,bytes,value")
        # Until step 5 of 10 half of the seconds and bytes of an epoch are over.
        self.assertIn("FP-SGD,variance,5,0.5,200,2", points)
        self.assertIn("QSGD,accuracy,10,1.0,400,50", points)
        self.assertFalse(any(line.startswith("QSGD,variance") for line in points))


class LevelsTest(unittest.TestCase):
    def rows(self, **better):
        """Of all schemes; those that are named have a tenth of the error and 9 points more."""
        rows = []
        for network in levels.NETWORKS:
            for scheme in levels.SCHEMES:
                good = better.get(scheme.name.replace("-", "_"), 0)
                told = {"test_accuracy": 50 + 9 * good, "nmse": 0.5, "steps": 9}
                told |= {"skipped_steps": 0, "epochs": [{"train_loss": 2}, {"train_loss": 1}]}
                outcomes = [training.Outcome(told, [])] * 2
                full = training.Outcome({"errors": {scheme.spec: 0.1**good}}, [])
                rows.append(levels.row_of(network, scheme, outcomes, [full]))
        return rows

    def test_claims_hold_where_the_published_schemes_are_better(self):
        published_order = self.rows(ORQ=1, BinGrad_b=2, BinGrad_pb=1)
        for claim in levels_claims.claims(published_order):
            self.assertTrue(claim.holds, claim)
        self.assertFalse(any(claim.holds for claim in levels_claims.claims(self.rows())))

    def test_one_better_rival_breaks_a_claim(self):
        rows = self.rows(ORQ=1, BinGrad_b=2, BinGrad_pb=1, QSGD=2)
        wrong = [c for c in levels_claims.claims(rows) if not c.holds]
        self.assertEqual(len(wrong), 2 * 2 * len(levels_claims.LEVELS))
        self.assertIn("ORQ-3 59.00 ± 0.00 %; Linear-3 50.00", wrong[1].seen)

    def test_claims_are_about_the_seeds_that_all_schemes_have(self):
        rows = self.rows(ORQ=1, BinGrad_b=2, BinGrad_pb=1)
        for row in rows:
            if row["scheme"] == "QSGD":  # whose second seed is better than any
                row |= {"accuracy_by_seed": [50.0, 99.0], "accuracy": 74.5}
            else:
                row["accuracy_by_seed"] = row["accuracy_by_seed"][:1]
        for claim in levels_claims.claims(rows):
            self.assertTrue(claim.holds, claim)

    def test_an_order_of_means_that_the_seeds_contradict_is_not_judged(self):
        rows = self.rows(ORQ=1, BinGrad_b=2, BinGrad_pb=1)
        for row in rows:
            if row["scheme"] == "ORQ":
                row |= {"accuracy_by_seed": [70.0, 49.0], "accuracy": 59.5}
        claims = [c for c in levels_claims.claims(rows) if "more accurate" in c.claim]
        of_orq = [c for c in claims if "ORQ" in c.claim]
        self.assertEqual({c.holds for c in of_orq}, {None})
        self.assertTrue(of_orq[0].seen.endswith(": the seeds disagree"))
        self.assertEqual({c.holds for c in claims if c not in of_orq}, {True})

    def test_a_scheme_that_diverges_has_no_error(self):
        told = {"test_accuracy": 10, "nmse": 1e-9, "steps": 9, "skipped_steps": 0}
        good = training.Outcome(told | {"epochs": [{"train_loss": 2}, {"train_loss": 1}]}, [])
        rising = training.Outcome(
            told | {"epochs": [{"train_loss": 2}, {"train_loss": 5e9}]}, []
        )
        infinite = training.Outcome(
            told | {"skipped_steps": 3, "epochs": [{"train_loss": None}]}, []
        )
        scheme = levels.SCHEMES[1]
        full = training.Outcome({"errors": {scheme.spec: 0.25}}, [])
        for bad, loss in ((rising, 2.5e9), (infinite, None)):
            row = levels.row_of(levels.NETWORKS[0], scheme, [good, bad], [full])
            self.assertIsNone(row["nmse"])
            self.assertEqual(levels_claims.own_error_of(row), "diverged")
            self.assertEqual(levels_claims.error_of(row), "0.25")
            self.assertEqual(row["train_loss"], loss and (loss * 2 + 1) / 2)

    def test_marks_tell_each_way_of_a_scheme_apart(self):
        ways = [(clipped, memory) for clipped in (False, True) for memory in (False, True)]
        marks = [{**levels_show._way(*way), "linestyle": ""} for way in ways]
        self.assertEqual(len({str(mark) for mark in marks}), len(ways))

    def test_ticks_of_accuracies_are_round_and_spread_out_at_the_top(self):
        self.assertEqual(levels_show.ticks(9.4, 75.6), [75, 73, 70, 66, 60, 50, 30])
        self.assertEqual(levels_show.ticks(50.0, 50.0), [50])
        for least, most in ((10.0, 10.4), (0.0, 99.9), (60.2, 61.9)):
            found = levels_show.ticks(least, most)
            self.assertLessEqual(len(found), levels_show.MOST_TICKS + 1)
            self.assertTrue(all(least <= tick <= most for tick in found))
            steps = [a - b for a, b in itertools.pairwise(found)]
            self.assertEqual(steps, sorted(steps))

    def test_without_full_precision_there_are_no_errors_and_all_else_is_shown(self):
        rows = [row | {"error": None} for row in self.rows(ORQ=1) if row["levels"]]
        found = levels_claims.claims(rows)
        self.assertGreater(len(found), 5)
        self.assertFalse(any("error" in claim.claim for claim in found))
        with tempfile.TemporaryDirectory() as folder:
            levels_show.draw({"rows": rows}, Path(folder) / "levels")
            self.assertGreater(os.path.getsize(Path(folder) / "levels.png"), 10000)

    def test_evenly_spaced_levels_are_as_many_as_asked_for(self):
        for scheme in levels.SCHEMES:
            if scheme.name in ("Linear", "QSGD"):
                spec = dict(part.split("=") for part in scheme.codec.split(":")[1].split(","))
                above = spec["levels"].split("/")
                self.assertEqual(2 * len(above) + 1, scheme.levels)
                self.assertEqual(above[-1], "1")

    def test_full_runs_have_every_way_of_every_scheme_and_quick_ones_no_memory(self):
        full = levels.Levels(None, Path("unused"), training.Choice(False, "cifar"))
        ways = {(s.clipped, s.memory) for s in full.schemes if s.name == "ORQ"}
        self.assertEqual(len(ways), 4)
        quick = levels.Levels(None, Path("unused"), training.Choice(True))
        self.assertFalse(any(s.memory for s in quick.schemes))
        words = quick.one(quick.networks[0], quick.schemes[1], 1).options
        pairs = dict(zip(words[::2], words[1::2], strict=True))
        self.assertEqual((pairs["--exchange"], pairs["--exact"]), ("all-gather", "none"))

    def test_one_run_is_made_for_schemes_that_decode_to_the_same_values(self):
        full = levels.Levels(None, Path("unused"), training.Choice(False, "cifar"))
        runs = {s: full.one(full.networks[0], s, 1) for s in full.schemes}
        self.assertEqual(len(set(runs.values())), len(runs) - 2)
        for scheme in full.schemes:
            same = levels.trained(scheme)
            self.assertIn(same, full.schemes)
            self.assertEqual(runs[same], runs[scheme])
            self.assertEqual((same.levels, same.memory), (scheme.levels, scheme.memory))

    def test_the_table_and_the_plot_show_all_of_it(self):
        rows = self.rows(ORQ=1)
        result = {"rows": rows, "data": "generated", "quick": True, "left_out": []}
        result["checks"] = [claim._asdict() for claim in levels_claims.claims(rows)]
        text = levels_show.text(json.loads(json.dumps(result)))
        self.assertIn("| VGG-11 | ORQ-9 | 9 | yes |  | 0.1 | 0.5 | 1 | 59.00 ± 0.00 |", text)
        self.assertIn("| VGG-11 | ORQ-9 | 9 | yes | yes |  | 0.5 | 1 | 59.00 ± 0.00 |", text)
        with tempfile.TemporaryDirectory() as folder:
            levels_show.draw(result, Path(folder) / "levels")
            self.assertGreater(os.path.getsize(Path(folder) / "levels.png"), 10000)
