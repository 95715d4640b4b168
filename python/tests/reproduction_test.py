"""docs/reproduction.md: it is what stored results make of it, and lists every claim."""

import contextlib
import io
import json
import re
import tempfile
import unittest
from functools import cache
from pathlib import Path
from unittest import mock

from elastiquant_testbed import (
    checks,
    choco,
    curves,
    dagc,
    judging,
    levels,
    levels_claims,
    outcomes,
    pages,
    provenance,
    published,
    stored,
    summary,
    table3_show,
    table4,
    training,
    words,
)
from elastiquant_testbed.testbed import TestbedError

SOME = training.Outcome({"test_accuracy": 50.0, "bytes_up": 1}, [])


def claims_of_all() -> dict[str, set[str]]:
    """What each experiment claims, whatever its numbers are."""
    cells = [
        {"network": table4.NAMES[c.network], "scheme": c.scheme, "devices": c.devices}
        for c in table4.RESNET_20 + table4.RESNET_18 + table4.RESNET_110
    ]
    named = ("loss", "accuracy", "variance", "variance_steps", "seconds")
    line = {name: [1.0] for name in named}
    rounds = [
        {"skew": 1, "ratio": 1, "scheme": s, "rounds": 1, "rounds_by_seed": [1]}
        for s in dagc.SCHEMES
    ]
    reached = {"accuracy": 1.0, "accuracy_by_seed": [1.0], "epochs": 5}
    cell = dict.fromkeys(("Cp", "En", "Tx", "T"), 1.0)
    found = {
        "table3": checks.all_claims(dict.fromkeys(published.TABLE_3, cell)),
        "table4": table4.claims([{**of, **reached} for of in cells]),
        "curves": curves.claims(dict.fromkeys(curves.SCHEMES, line)),
        "dagc": dagc.claims(rounds),
        "levels": levels_claims.claims(rows_of_levels()),
        "choco": choco.claims([choco.row_of(scheme, [SOME]) for scheme in choco.SCHEMES]),
    }
    return {name: {claim.claim for claim in claims} for name, claims in found.items()}


def rows_of_levels() -> list[dict]:
    summary = {"test_accuracy": 50.0, "nmse": 0.1, "steps": 9, "skipped_steps": 0}
    summary["epochs"] = [{"train_loss": 1.0}]
    outcome = training.Outcome(summary, [])
    errors = dict.fromkeys((scheme.spec for scheme in levels.SCHEMES), 0.1)
    full = training.Outcome({"errors": errors}, [])
    return [
        levels.row_of(network, scheme, [outcome], [full])
        for network in levels.NETWORKS
        for scheme in levels.SCHEMES
    ]


@cache
def sections(page: Path) -> dict[str, str]:
    """By anchor: the text under a heading, with that of its subheadings."""
    found, open_ones = {}, []
    for line in page.read_text().splitlines():
        if head := re.match(r"(#+) (.*)", line):
            depth = len(head[1])
            open_ones = [(d, name) for d, name in open_ones if d < depth]
            anchor = re.sub(r"[^\w\- ]", "", head[2].lower()).replace(" ", "-")
            open_ones.append((depth, anchor))
        for _, name in open_ones:
            found[name] = found.get(name, "") + line + "\n"
    return found


NUMBER = r"\d[\d,]*(?:\.\d+)?|\.\d+"


def numbers(text: str) -> set[float]:
    """However they are written: 1,320 and 1320, .5 and 0.50."""
    return {float(found.replace(",", "")) for found in re.findall(NUMBER, text)}


def numbers_of_claim(text: str) -> set[float]:
    """Without those in names, such as ResNet-20, `cnn3` and L2."""
    return numbers(re.sub(rf"[^\W\d][\w-]*?-?(?:{NUMBER})", "", text))


class SummaryTest(unittest.TestCase):
    def test_every_claim_of_an_experiment_is_listed_once_and_no_other(self):
        listed = {}
        for source in summary.sources():
            if "experiment" in source:
                listed.setdefault(source["experiment"], []).extend(
                    source.get("claims", []) + source.get("readings", [])
                )
        self.assertEqual({name: set(of) for name, of in listed.items()}, claims_of_all())
        for of in listed.values():
            self.assertEqual(len(of), len(set(of)))

    def test_what_is_written_by_hand_has_a_state_and_a_place(self):
        for row in summary.rows(stored.load()):
            self.assertIn(row.state, summary.STATES, row)
            page, _, anchor = row.link.partition("#")
            path = stored.DOCS / page if page else pages.PAGE
            self.assertIn(anchor, sections(path), row)

    def test_numbers_of_what_is_written_by_hand_are_on_the_page_that_they_link_to(self):
        linked = 0
        for source in summary.sources():
            for other in source.get("other", []):
                page, _, anchor = other.get("link", source["section"]).partition("#")
                if not page:
                    continue  # a section of this page, which is written by hand too
                there = numbers(sections(stored.DOCS / page)[anchor])
                missing = numbers_of_claim(other["seen"]) - there
                self.assertEqual(missing, set(), f"{other['seen']} is not in {page}#{anchor}")
                linked += bool(numbers_of_claim(other["seen"]))
        self.assertGreater(linked, 15)

    def test_numbers_are_told_from_names(self):
        said = "`cnn3` of L2 and ResNet-20: 1,320 times at .50 %, in 4 bits, JPEG 90 (d = 512)"
        self.assertEqual(numbers_of_claim(said), {1320, 0.5, 4, 90, 512})
        self.assertEqual(numbers("| 12.5× | 0.153 | -.25"), {12.5, 0.153, 0.25})

    def test_claims_are_counted_by_who_says_so(self):
        def row(state, reading):
            return summary.Row("source", "claim", state, "seen", "#here", reading)

        found = [row(summary.REPRODUCED, False), row(summary.FAILED, True)]
        found += [row(summary.UNTESTABLE, False), row(summary.NOT_RUN, True)]
        self.assertEqual(
            summary.counts(found),
            "Of 4 claims 2 are printed in their sources: 1 reproduced, 0 not reproduced, "
            "0 not run in full, 1 cannot be tested.\nThe other 2 are our reading of vaguer "
            "words: 0 reproduced, 1 not reproduced, 1 not run in full, 0 cannot be tested.",
        )
        readings = {r.claim for r in summary.rows(stored.load()) if r.reading}
        self.assertIn("DAGC-A never needs more rounds than uniform ratios", readings)
        self.assertNotIn("ResNet-50: SGD is slower on 7 devices than on 4", readings)

    def state(self, **result) -> tuple[str, str]:
        claim = "DAGC-A never needs more rounds than uniform ratios"
        check = {"claim": claim, "holds": True, "seen": "9 of 9"}
        rows = summary.rows({"dagc": {"checks": [check], **result}})
        (row,) = (row for row in rows if row.claim == claim)
        return row.state, row.seen

    def test_a_state_is_what_the_stored_result_says(self):
        full = {"quick": False, "data": "CIFAR-10"}
        self.assertEqual(self.state(**full), (summary.REPRODUCED, "9 of 9"))
        self.assertEqual(
            self.state(**full, checks=[]),
            (summary.NOT_RUN, "not all that it needs was measured"),
        )
        wrong = {"claim": "DAGC-A never needs more rounds than uniform ratios", "holds": False}
        wrong["seen"] = "8 of 9"
        self.assertEqual(self.state(**full, checks=[wrong]), (summary.FAILED, "8 of 9"))
        unjudged = {**wrong, "holds": None}
        self.assertEqual(self.state(**full, checks=[unjudged]), (summary.NOT_RUN, "8 of 9"))

    def test_accuracies_of_short_runs_and_of_generated_images_do_not_count(self):
        for result in (
            {"quick": True, "data": "CIFAR-10"},
            {"quick": False, "data": "generated"},
        ):
            state, seen = self.state(**result)
            self.assertEqual(state, summary.NOT_RUN)
            self.assertIn("9 of 9", seen)

    def test_steps_of_a_small_model_or_of_other_links_do_not_count(self):
        whole = stored.load()["table3"]
        self.assertIn(summary.REPRODUCED, self.states(whole))
        for change in (
            {"quick": True},
            {"network": "paced by each process (--link)"},
            {"fit": {**whole["fit"], "fitted": False}},
        ):
            with self.subTest(change):
                states = self.states({**whole, **change})
                self.assertEqual(states & {summary.REPRODUCED, summary.FAILED}, set())

    def states(self, table3: dict) -> set[str]:
        rows = summary.rows({"table3": table3})
        return {row.state for row in rows if row.claim.startswith("ResNet-34: SGD takes")}


class PageTest(unittest.TestCase):
    def test_the_page_is_what_the_stored_results_make_of_it(self):
        page = pages.PAGE.read_text()
        self.assertEqual(page, pages.render(page, stored.load()), "run make reproduction")

    def test_words_between_the_tables_stay(self):
        begin, end = pages.marks("dagc")
        page = pages.insert(f"before\n{begin}\nold\n{end}\nafter\n", "dagc", "new\n")
        self.assertEqual(page, f"before\n{begin}\n\nnew\n\n{end}\nafter\n")
        with self.assertRaisesRegex(TestbedError, "no place for levels"):
            pages.insert(page, "levels", "new")

    def test_stored_claims_are_what_the_code_makes_of_the_stored_numbers(self):
        for name, result in stored.load().items():
            self.assertEqual(result, judging.judged(name, result), "run make reproduction")

    def test_results_of_before_a_claim_was_changed_are_judged_again(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, result in stored.load().items():
                old = {**result, "checks": result["checks"][1:]}
                if name == "table3":
                    old["with_step_cost"] = {**old["with_step_cost"], "checks": []}
                (Path(folder) / f"{name}.json").write_text(json.dumps(old))
            self.assertEqual(pages.judge_again(Path(folder)), stored.load())
            self.assertEqual(stored.load(Path(folder)), stored.load())

    def test_the_points_of_the_figures_are_those_of_the_stored_result(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "curves.csv"
            curves.write_csv(stored.load()["curves"]["series"], path)
            self.assertEqual(path.read_text(), pages.POINTS.read_text(), "make reproduction")

    def test_a_claim_that_is_not_judged_is_told_so(self):
        checks = [{"claim": str(holds), "holds": holds, "seen": "1"} for holds in (True, None)]
        text = words.claims(checks)
        self.assertIn("Of 2 claims 1 hold here, and 1 need more than was run.", text)
        self.assertIn("| None | not judged | 1 |", text)

    def test_residuals_are_ours_over_printed(self):
        text = table3_show.text(stored.load()["table3"])
        rows = [line for line in text.splitlines() if line.startswith("| ResNet-34 |")]
        fitted = next(row for row in reversed(rows) if "| SGD | 7 |" in row)
        cells = fitted.split("|")[4:-1]
        # Fitted to its transmission; SGD encodes nothing.
        self.assertEqual({cell.strip() for cell in cells}, {"1.00", ""})
        median = next(row for row in rows if "**median**" in row)
        self.assertEqual(len(median.split("|")), len(fitted.split("|")))

    def test_dagc_is_compared_on_the_page(self):
        text = dagc.text(stored.load()["dagc"])
        rows = {(r["skew"], r["ratio"], r["scheme"]): r for r in stored.load()["dagc"]["rows"]}
        settings = {key[:2] for key in rows}

        def span(what, scheme):
            saved = [
                100 * (1 - rows[(*s, scheme)][what] / rows[(*s, "uniform")][what])
                for s in settings
            ]
            return f"| {min(saved):.1f} to {max(saved):.1f} |"

        for scheme in ("none", "DAGC-A"):
            (line,) = re.findall(rf"^\| {scheme} \| [^|]* to [^|]* \|.*", text, re.M)
            self.assertIn(span("rounds", scheme), line)
            self.assertIn(span("bytes", scheme), line)
        self.assertIn("7.8 rounds apart", text)

    def test_stored_results_name_no_folder_of_a_machine(self):
        for name, result in stored.load().items():
            text = json.dumps(result)
            self.assertLess(len(text), 60_000, name)
            self.assertIsNone(re.search(r'["\s]/\w', text), name)


class TakeTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.runs, self.kept = Path(holder.name) / "runs", Path(holder.name) / "kept"
        self.runs.mkdir()

    def test_results_are_copied_and_drawn(self):
        result = stored.load()["table3"]
        (self.runs / "table3.json").write_text(json.dumps(result))
        self.assertEqual(stored.take(self.runs, self.kept), ["table3"])
        self.assertEqual(stored.load(self.kept), {"table3": result})
        names = [picture.name for picture in stored.pictures("table3", self.kept)]
        self.assertEqual(names, ["table3-resnet-34.png", "table3-resnet-50.png"])

    @mock.patch.object(stored, "_draw")
    def test_outcomes_of_other_runs_stay(self, _):
        result = json.dumps(stored.load()["table3"])
        (self.runs / "table3.json").write_text(result)
        path = outcomes.path_of("table3", self.runs)
        outcomes.write(path, {"quick": {"total": 1}, "both": {"total": 2}})
        stored.take(self.runs, self.kept)
        outcomes.write(path, {"full": {"total": 3}, "both": {"total": 4}})
        stored.take(self.runs, self.kept)
        self.assertEqual(
            outcomes.read(outcomes.path_of("table3", self.kept)),
            {"quick": {"total": 1}, "both": {"total": 4}, "full": {"total": 3}},
        )

    def test_a_result_that_cannot_be_made_again_is_refused(self):
        (self.runs / "dagc.json").write_text('{"checks": []}')
        with self.assertRaisesRegex(TestbedError, "how it was made"):
            stored.take(self.runs, self.kept)
        self.assertFalse(self.kept.exists())

    def lesser(self, **changes) -> tuple[list[str], str]:
        """Takes a stored result, then another which is like it but for the changes. Returns
        the names of what is stored of that, and what is said."""
        whole = {"table3": stored.load()["table3"], "dagc": stored.load()["dagc"]}
        lesser = {name: {**of, **changes} for name, of in whole.items()}
        said = io.StringIO()
        for which, results in (("whole", whole), ("lesser", lesser)):
            for name, result in results.items():
                (self.runs / f"{name}.json").write_text(json.dumps(result))
                outcomes.write(outcomes.path_of(name, self.runs), {which: {}})
            with contextlib.redirect_stderr(said), mock.patch.object(stored, "_draw"):
                names = stored.take(self.runs, self.kept)
        for name in whole.keys() - set(names):
            self.assertEqual(stored.load(self.kept)[name], whole[name])
            self.assertNotIn("lesser", outcomes.read(outcomes.path_of(name, self.kept)))
        return names, said.getvalue()

    def test_a_quick_result_does_not_replace_a_full_one(self):
        names, said = self.lesser(quick=True)
        self.assertEqual(names, [])
        self.assertIn("table3 is not stored: it is of --quick", said)
        self.assertIn("dagc is not stored: it is of --quick", said)

    def test_links_that_are_paced_do_not_replace_those_of_namespaces(self):
        names, said = self.lesser(network="paced by each process (--link)")
        self.assertNotIn("table3", names)
        self.assertIn("of links that each process paces", said)
        self.assertIn(f"delete {self.kept / 'table3'}.json", said)

    def test_a_fit_that_failed_does_not_replace_one_that_did_not(self):
        names, said = self.lesser(fit={**stored.load()["table3"]["fit"], "fitted": False})
        self.assertNotIn("table3", names)
        self.assertIn("table3 is not stored: it is of a fit that failed", said)

    def test_generated_images_do_not_replace_others(self):
        names, said = self.lesser(data="generated", quick=True)
        self.assertNotIn("dagc", names)
        self.assertIn("of --quick and of generated images", said)

    def test_a_result_of_few_runs_does_not_replace_one_of_more(self):
        checks = stored.load()["table3"]["checks"]
        names, said = self.lesser(checks=checks[1:])
        self.assertEqual(names, [])
        self.assertIn(f"does not judge 1 of {len(checks)} claims", said)
        self.assertIn("testbed run --known", said)

    def test_a_result_of_fewer_rows_does_not_replace_one_of_more(self):
        rows = stored.load()["dagc"]["rows"]
        names, said = self.lesser(rows=rows[1:])
        self.assertNotIn("dagc", names)
        self.assertIn(f"it has {len(rows) - 1} rows, and what is stored has {len(rows)}", said)

    def test_a_result_of_fewer_seeds_does_not_replace_one_of_more(self):
        names, said = self.lesser(seeds=[])
        self.assertEqual(names, [])
        self.assertIn("dagc is not stored: it has 0 seeds", said)

    def test_a_result_of_which_some_rows_have_fewer_seeds_replaces_none(self):
        rows = stored.load()["dagc"]["rows"]
        fewer = [{**row, "rounds_by_seed": row["rounds_by_seed"][:2]} for row in rows[1:]]
        _, said = self.lesser(rows=[rows[0], *fewer])
        self.assertRegex(said, "dagc is not stored: it rests on \\d+ accuracies of single")

    def test_a_picture_that_cannot_be_drawn_leaves_all_as_it_was(self):
        (self.runs / "dagc.json").write_text(json.dumps(stored.load()["dagc"]))
        stored.take(self.runs, self.kept)
        before = {path.name: path.read_bytes() for path in self.kept.iterdir()}
        other = {**stored.load()["dagc"], "machine": "another"}
        (self.runs / "dagc.json").write_text(json.dumps(other))
        failing = mock.patch.object(dagc, "draw", side_effect=ValueError)
        with failing, self.assertRaises(ValueError):
            stored.take(self.runs, self.kept)
        after = {path.name: path.read_bytes() for path in self.kept.iterdir()}
        self.assertEqual(after, before)

    def test_a_damaged_result_is_named(self):
        for text in ('{"checks": [', "[]"):
            (self.runs / "dagc.json").write_text(text)
            with self.subTest(text), self.assertRaisesRegex(TestbedError, "dagc.json is "):
                stored.take(self.runs, self.kept)

    @mock.patch.object(stored, "_draw")
    def test_a_lesser_result_replaces_one_that_is_no_better(self, _):
        self.lesser()
        quick = {**stored.load()["dagc"], "quick": True, "data": "generated"}
        for kept in (quick, {**quick, "data": "CIFAR-10"}, {**quick, "quick": False}):
            (self.kept / "dagc.json").write_text(json.dumps(kept))
            others = [seed + 10 for seed in kept["seeds"]]
            (self.runs / "dagc.json").write_text(json.dumps({**kept, "seeds": others}))
            self.assertIn("dagc", stored.take(self.runs, self.kept))
        # The first claims of full runs count for more than all claims of quick ones.
        (self.kept / "dagc.json").write_text(json.dumps(quick))
        full = {**stored.load()["dagc"], "checks": []}
        (self.runs / "dagc.json").write_text(json.dumps(full))
        self.assertIn("dagc", stored.take(self.runs, self.kept))

    def test_a_command_names_no_folder(self):
        trained = {"quick": True, "data": "CIFAR-10"}
        self.assertEqual(
            provenance.command("dagc", trained),
            "elastiquant testbed run dagc --quick --data CIFAR --out runs/testbed",
        )
        emulated = {"quick": False, "network": "namespaces"}
        self.assertEqual(
            provenance.command("table3", emulated),
            "sudo elastiquant testbed run table3 --out runs/testbed",
        )


if __name__ == "__main__":
    unittest.main()
