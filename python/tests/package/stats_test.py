"""Stats, records of a run, and their report."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import elastiquant
from elastiquant._record import Record, intervals, of_the_run, read_records
from elastiquant._report import _layer_row
from elastiquant._stats import LayerStats, Stats

STATS = Stats(
    steps=100,
    skipped=2,
    fp32_steps=0,
    early_buckets=0,
    bytes_up=25_000_000,
    bytes_down=26_000_000,
    fp32_bytes_up=400_000_000,
    coordinates=100_000_000,
    encode_seconds=1.0,
    wire_seconds=10.0,
    wait_seconds=0.5,
    decode_seconds=0.25,
    squared_error=1.0,
    squared_norm=8.0,
    skip_reason="worker 1: nan in fc.weight",
)
LAYERS = (
    LayerStats("conv.weight", 5, 1000, 0.1, 0.01, 0.4, 2.5, "holds"),
    LayerStats("fc.weight", 5, 5000, 0.12, 0.02, 8.0, 2.1, "loose"),
    LayerStats("fc.bias", 0, 10, None, None, None, 32.0, "unbounded"),
    LayerStats("norm.weight", 5, 20, 0.0, 0.0, 0.0, 32.0, "holds"),
    LayerStats("", 5, 6000, 0.11, 0.01, None, 2.2, "unbounded"),
)


def stats(count):
    """Sums after count times ten steps."""
    return dataclasses.replace(
        STATS,
        steps=10 * count,
        bytes_up=1000 * count,
        fp32_bytes_up=16_000 * count,
        encode_seconds=count * 0.2,
        wire_seconds=count * 1.0,
        wait_seconds=count * 0.5,
        decode_seconds=count * 0.1,
    )


def records(count=5):
    return [Record(10 * i, 2.0 * i, stats(i), LAYERS) for i in range(1, count + 1)]


class StatsTest(unittest.TestCase):
    def test_derives_rates(self):
        self.assertEqual((STATS.ratio, STATS.bits_per_coordinate), (16.0, 2.0))
        self.assertEqual(STATS.nmse, 0.125)
        half = dataclasses.replace(STATS, uncompressed_bytes_up=200_000_000)
        self.assertEqual((half.ratio, half.bits_per_coordinate), (8.0, 2.0), "bf16 has less")
        self.assertEqual(half.fp32_ratio, 16.0)
        nothing = dataclasses.replace(STATS, bytes_up=0, squared_norm=0.0)
        self.assertEqual((nothing.ratio, nothing.fp32_ratio, nothing.nmse), (1.0, 1.0, None))
        begun = dataclasses.replace(STATS, steps=0, fp32_bytes_up=0, uncompressed_bytes_up=0)
        for of in (nothing, begun):
            self.assertEqual((of.ratio, of.fp32_ratio, of.bits_per_coordinate), (1, 1, 32))
        self.assertIn("1.0x", begun.summary())

    def test_sums_itself_up(self):
        line = STATS.summary()
        self.assertNotIn("\n", line)
        for words in ("16.0x", "250.0 kB", "nmse 0.12", "2 skipped", "nan in fc.weight"):
            self.assertIn(words, line)

    def test_tells_layers_that_are_mostly_noise(self):
        noisy = LayerStats("a", 5, 10, 1.2, 0.1, 1.3, 1.0, "holds", noise=0.9)
        self.assertTrue(noisy.is_mostly_noise)
        self.assertFalse(any(layer.is_mostly_noise for layer in LAYERS))
        self.assertIn("| 0.9 | holds, mostly noise |", _layer_row(noisy))

    def test_is_frozen(self):
        with self.assertRaises(AttributeError):
            STATS.steps = 3


class Engine:
    """What Compression asks of the engine for its figures."""

    def stats(self):
        return dataclasses.asdict(STATS)

    def layers(self):
        lines = [dataclasses.asdict(layer) for layer in LAYERS]
        return [json.dumps({"layer": line.pop("name"), "worker": 0, **line}) for line in lines]

    def reset_stats(self):
        pass

    def close(self):
        pass


class ReportTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.path = Path(holder.name, "run.jsonl")

    def write(self, run):
        for record in run:
            record.append_to(self.path)

    def test_reads_what_was_written(self):
        self.write(records(3))
        self.assertEqual(read_records(self.path), records(3))

    def test_reads_what_a_run_recorded(self):
        compression = elastiquant.Compression(Engine(), {}, None)
        compression.record(self.path, 10)
        compression.reset_stats()
        compression.record(str(self.path), 20)
        first, second = read_records(self.path)
        self.assertEqual((first.resets, second.resets), (0, 1))
        self.assertEqual((first.step, second.step), (10, 20))
        self.assertLessEqual(0, first.seconds)
        self.assertLess(first.seconds, second.seconds)
        for record in (first, second):
            self.assertEqual((record.stats, record.layers), (STATS, LAYERS))

    def test_of_a_killed_run_ends_at_the_last_whole_line(self):
        self.write(records(3))
        with self.path.open("a") as file:
            file.write(records(4)[-1].to_json()[:40])
        self.assertEqual(read_records(self.path), records(3))

    def test_goes_on_behind_what_a_killed_run_has_left(self):
        whole = records(4)
        for cut in (12, 40, -1):
            self.write(whole[:2])
            with self.path.open("a") as file:
                file.write(whole[2].to_json()[:cut])
            self.write(whole[3:])
            with self.subTest(cut):
                self.assertEqual(read_records(self.path), [*whole[:2], whole[3]])
            self.path.unlink()

    def test_refuses_what_is_no_record(self):
        good = records(1)[0].to_json()
        for line in ("[]", "{}", "1", "nonsense", good.replace('"steps"', '"stops"')):
            self.path.write_text(f"{good}\n{line}\n")
            with self.subTest(line), self.assertRaisesRegex(ValueError, r"run\.jsonl:2: "):
                read_records(self.path)

    def test_reads_records_without_the_bytes_of_the_gradients_type(self):
        lines = [json.loads(record.to_json()) for record in records(2)]
        for line in lines:
            del line["uncompressed_bytes_up"]
        self.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.assertEqual(read_records(self.path), records(2))

    def test_needs_two_records(self):
        self.write(records(1))
        with self.assertRaisesRegex(ValueError, "needs two"):
            elastiquant.report(self.path)
        with self.assertRaises(FileNotFoundError):
            elastiquant.report(self.path.with_name("missing"))

    def test_takes_means_between_records_and_resets(self):
        reset = Record(40, 8.0, stats(1))
        found = list(intervals([*records(3), reset]))
        self.assertEqual([interval.step for interval in found], [20, 30, 40])
        for interval in found:
            self.assertAlmostEqual(interval.seconds, 0.2)
            self.assertAlmostEqual(interval.encode, 0.02)
            self.assertAlmostEqual(interval.wire, 0.1)
            self.assertAlmostEqual(interval.wait, 0.05)
            self.assertAlmostEqual(interval.decode, 0.01)
        self.assertEqual(list(intervals([reset, reset])), [])
        # A reset after which as many steps were made as before it, or more.
        counted = [dataclasses.replace(r, resets=0) for r in records(2)]
        for steps, of in ((2, 20), (4, 40)):
            later = Record(20 + of, 4.0 + 2.0 * steps, stats(steps), resets=1)
            *_, last = intervals([*counted, later])
            self.assertAlmostEqual(last.wait, 0.05)
            self.assertAlmostEqual(last.encode, 0.02)
        # Started again from a checkpoint: its clock begins anew.
        self.assertEqual(
            list(intervals([Record(40, 8.0, stats(4)), Record(50, 1, stats(1))])), []
        )

    def test_writes_a_table_and_plots(self):
        self.write(records())
        made = elastiquant.report(self.path)
        folder = self.path.with_name("run_report")
        names = {f"{n}.{s}" for n in ("bytes", "seconds", "layers") for s in ("png", "svg")}
        self.assertEqual({file.name for file in made.files}, names | {"table.md"})
        for file in made.files:
            self.assertEqual(file.parent, folder)
            self.assertGreater(file.stat().st_size, 300)
        self.assertEqual((folder / "table.md").read_text(), str(made))
        self.assertIn("| sent | 0.005 MB, 16 times less than fp32 |", made.table)
        self.assertIn("| wait | 50 ms a step |", made.table)
        self.assertIn("| conv.weight | 1000 | 2.5 | 0.1 | 0.01 | 0.4 | - | holds |", made.table)
        self.assertIn("| fc.bias | 10 | 32 | - | - | - | - | unbounded |", made.table)
        self.assertIn("| all | 6000 |", made.table)
        self.assertIn(
            "A step takes 200 ms, of which 50 ms", (folder / "seconds.svg").read_text()
        )
        # The exact layer and the one without a measurement are not drawn.
        self.assertIn("No layer of 2 errs", (folder / "layers.svg").read_text())

    def test_adds_up_over_resets_and_restarts(self):
        # Sums of 20 steps, then after a reset of 30, then of 40 in a process that went on from
        # a checkpoint and has reset as often by its first record.
        parts = [(0, 2, ""), (1, 3, "worker 1: nan"), (1, 4, "")]
        step, run = 0, []
        for part, (resets, tens, reason) in enumerate(parts):
            for i in range(1, tens + 1):
                step += 10
                sums = dataclasses.replace(stats(i), skipped=i, skip_reason=reason)
                seconds = 2.0 * i + (100.0 if part < 2 else 0.0) + 10 * part
                run.append(Record(step, seconds, sums, LAYERS, resets))
        run[-1] = dataclasses.replace(
            run[-1], stats=dataclasses.replace(run[-1].stats, uncompressed_bytes_up=32_000)
        )
        sums = list(of_the_run(run))
        self.assertEqual([s.steps for s in sums], list(range(10, 100, 10)))
        self.assertEqual([s.bytes_up for s in sums], list(range(1000, 10_000, 1000)))
        last = sums[-1]
        self.assertEqual((last.skipped, last.skip_reason), (9, "worker 1: nan"))
        self.assertAlmostEqual(last.wait_seconds, 4.5)
        self.assertEqual(last.fp32_ratio, 16.0)
        self.assertEqual(last.ratio, (5 * 16_000 + 32_000) / 9000, "all others were fp32")
        # Nothing but the script's step tells of a restart.
        again = [Record(20, 2.0, stats(2)), Record(10, 3.0, stats(3))]
        self.assertEqual([s.steps for s in of_the_run(again)], [20, 50])

        self.write(run)
        made = elastiquant.report(self.path)
        self.assertIn("| steps | 90, and 9 skipped |", made.table)
        self.assertIn("| sent | 0.009 MB, 16 times less than fp32 |", made.table)
        self.assertIn("| wait | 50 ms a step |", made.table)
        drawn = (self.path.with_name("run_report") / "bytes.svg").read_text()
        self.assertIn("0.009 MB sent where fp32 sends 0.144 MB, 16 times as much", drawn)

    def test_compares_gradients_of_half_the_width_with_fp32_too(self):
        for record in records():
            half = record.stats.fp32_bytes_up // 2
            narrow = dataclasses.replace(record.stats, uncompressed_bytes_up=half)
            dataclasses.replace(record, stats=narrow).append_to(self.path)
        made = elastiquant.report(self.path)
        self.assertIn("| sent | 0.005 MB, 16 times less than fp32 |", made.table)
        drawn = (self.path.with_name("run_report") / "bytes.svg").read_text()
        self.assertIn("0.005 MB sent where fp32 sends 0.08 MB, 16 times as much", drawn)

    def test_names_a_layer_above_its_bound(self):
        wrong = dataclasses.replace(LAYERS[1], nmse=9.0, verdict="exceeded")
        run = [dataclasses.replace(r, layers=(LAYERS[0], wrong)) for r in records()]
        self.write(run)
        out = self.path.with_name("elsewhere")
        elastiquant.report(self.path, out)
        self.assertIn("1 of 2 layers err more", (out / "layers.svg").read_text())

    def test_without_layers_has_no_plot_of_them(self):
        self.write(dataclasses.replace(record, layers=()) for record in records())
        made = elastiquant.report(self.path)
        self.assertEqual(len(made.files), 5)
        self.assertNotIn("| layer |", made.table)


class ImportTest(unittest.TestCase):
    def test_needs_no_matplotlib(self):
        code = "import sys, elastiquant; sys.exit('matplotlib' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-c", code]).returncode, 0)


if __name__ == "__main__":
    unittest.main()
