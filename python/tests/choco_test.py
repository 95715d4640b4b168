"""elastiquant_testbed.choco: CHOCO-SGD's table, and runs that may diverge."""

import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path

from elastiquant_testbed import choco, choco_show, training
from elastiquant_testbed.testbed import TestbedError


def outcome(accuracy: float | None) -> training.Outcome:
    """Of a run that has reached so much, or has diverged."""
    if not accuracy:
        return training.Outcome({"diverged": "gave up at step 9"}, [])
    summary = {"test_accuracy": accuracy, "bytes_up": 1000, "gossip_step": 0.5}
    return training.Outcome(summary | {"consensus_distance": 0.1}, [])


def printed_rows(**changed: float) -> list[dict]:
    """The rows of the printed table; `changed` has accuracies by algorithm."""
    return [
        choco.row_of(scheme, [outcome(changed.get(scheme.algorithm, scheme.printed))])
        for scheme in choco.SCHEMES
        if scheme.printed is not None
    ]


class ClaimsTest(unittest.TestCase):
    def test_the_printed_table_is_as_its_claims_say(self):
        claims = choco.claims(printed_rows())
        self.assertEqual(len(claims), 12)
        for claim in claims:
            self.assertTrue(claim.holds, claim)

    def test_a_claim_fails_where_its_numbers_do(self):
        rows = printed_rows(ecd=92)
        wrong = {c.claim for c in choco.claims(rows) if not c.holds}
        self.assertEqual(
            {claim.partition(" diverges")[0] for claim in wrong},
            {f"ECD, QSGD, {bits} bits" for bits in (8, 4, 2)},
        )

    def test_a_claim_is_about_the_seeds_that_both_have(self):
        rows = printed_rows()
        eight = next(r for r in rows if (r["algorithm"], r["codec"]) == choco.EIGHT_BITS)
        again = eight["accuracy"] + 10
        eight |= {"accuracy_by_seed": [eight["accuracy"], again], "accuracy": again - 5}
        self.assertEqual(choco.claims(rows), choco.claims(printed_rows()))

    def test_a_claim_waits_for_what_it_compares(self):
        rows = [r for r in printed_rows() if r["codec"] != "QSGD, 8 bits"]
        claims = [c.claim for c in choco.claims(rows)]
        self.assertEqual(len(claims), 4)
        self.assertFalse(any("8 bits" in claim for claim in claims))

    def test_where_what_it_is_compared_with_diverges_nothing_is_judged(self):
        claims = choco.claims(printed_rows(choco=0.0))
        (against_all_reduce,) = (c for c in claims if "of all-reduce" in c.claim)
        self.assertIs(against_all_reduce.holds, False)
        others = [c for c in claims if c is not against_all_reduce]
        self.assertEqual({c.holds for c in others}, {None})
        self.assertIn("what it is compared with diverges", others[0].seen)

    def test_a_seed_that_the_other_lacks_says_nothing(self):
        rows = printed_rows()
        by = {(r["algorithm"], r["codec"]): r for r in rows}
        eight, four = by[choco.EIGHT_BITS], by["choco", "QSGD, 4 bits"]
        eight |= {"seeds": [1, 2], "accuracy_by_seed": [60.5, 75.0]}
        four |= {"seeds": [2], "accuracy_by_seed": [60.0]}
        claims = {c.claim: c for c in choco.claims(rows)}
        near = claims["CHOCO, QSGD, 4 bits is within 1 point of CHOCO, QSGD, 8 bits"]
        self.assertEqual((near.holds, near.seen), (False, "60.00 % and 75.00 % (1 seed)"))
        ecd = by["ecd", "QSGD, 8 bits"]
        ecd |= {"seeds": [1, 3], "accuracy_by_seed": [60.0, None], "accuracy": None}
        claims = {c.claim: c for c in choco.claims(rows)}
        self.assertIs(
            claims[
                "ECD, QSGD, 8 bits diverges, or ends 20 points below CHOCO, QSGD, 8 bits"
            ].holds,
            False,
        )
        four["seeds"] = [4]
        self.assertNotIn(near.claim, {c.claim for c in choco.claims(rows)})

    def test_one_seed_that_diverges_leaves_no_accuracy(self):
        row = choco.row_of(choco.SCHEMES[1], [outcome(90), outcome(None)])
        self.assertIsNone(row["accuracy"])
        self.assertIn("gave up", row["diverged"])


class ChocoTest(unittest.TestCase):
    def test_runs_have_a_ring_but_under_an_all_reduce(self):
        experiment = choco.Choco(None, Path("unused"), training.Choice(data="cifar"))
        runs = experiment.order("cpu")
        self.assertEqual(len(runs), 2 * len(choco.SCHEMES))
        self.assertEqual([run.seed for run in runs], sorted(run.seed for run in runs))
        self.assertEqual(len({run.folder for run in runs}), len(runs))
        for run in runs:
            pairs = dict(zip(run.options[::2], run.options[1::2], strict=True))
            self.assertEqual("--graph" in pairs, pairs["--algorithm"] != "allreduce")
            self.assertEqual(pairs["--epochs"], str(choco.EPOCHS["cpu"]))
            self.assertTrue(run.may_diverge)

    def test_the_page_tells_what_diverges_and_how_long_it_was_trained(self):
        rows = printed_rows()
        result = {"rows": rows, "checks": [], "data": "CIFAR-10", "quick": False}
        result |= {"left_out": [], "device": "cuda", "length": "6 epochs"}
        text = choco_show.text(result)
        self.assertIn("6 epochs on a GPU", text)
        self.assertIn("| ECD | QSGD, 4 bits | diverges | diverges |", text)
        self.assertIn("| CHOCO | QSGD, 4 bits | 91.92 | 91.92 | 0.5 | 0.1 |", text)
        with tempfile.TemporaryDirectory() as folder:
            choco_show.draw(result, Path(folder) / "choco")
            self.assertGreater((Path(folder) / "choco.png").stat().st_size, 10000)


class DivergingRunTest(unittest.TestCase):
    def make(self, may_diverge: bool, folder: str, **changed: object) -> training.Outcome:
        named = {"model": "mlp", "data": "generated", "generated-train": 64}
        named |= {"generated-test": 10, "batch": 8, "epochs": 3, "lr": 1e30}
        options = training.options(**(named | changed))
        run = training.Run("it", options, may_diverge=may_diverge)
        runs = training.Runs(Path(folder), [run], training.Choice())
        with contextlib.redirect_stderr(io.StringIO()):
            runs.make()
        return runs.outcome(run)

    @unittest.skipUnless("ELASTIQUANT_PROGRAM" in os.environ, "trains")
    def test_giving_up_is_an_outcome_where_it_may_be(self):
        with tempfile.TemporaryDirectory() as folder:
            said = self.make(True, folder).summary["diverged"]
            self.assertRegex(said, r"\Agave up at step \d+ after 10 [^\n]*NaN[^\n]*\Z")
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(TestbedError, "gave up"):
                self.make(False, folder)
            self.assertEqual(list(Path(folder).iterdir()), [])

    @unittest.skipUnless("ELASTIQUANT_PROGRAM" in os.environ, "trains")
    def test_another_error_is_none(self):
        wanted = self.assertRaisesRegex(TestbedError, "qsdg")
        with tempfile.TemporaryDirectory() as folder, wanted:
            self.make(True, folder, codec="qsdg")


if __name__ == "__main__":
    unittest.main()
