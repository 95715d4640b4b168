import itertools
import pathlib
import tempfile
import unittest

import namespaces
import varying


class VaryingTest(unittest.TestCase):
    def test_steps_have_their_rates_and_seconds(self):
        trace = varying.parse("20mbit@10s,500kbit@250ms")
        self.assertEqual(trace, [(10, 20e6), (0.25, 5e5)])

    def test_a_walk_keeps_its_bounds_and_repeats(self):
        text = "walk:low=5mbit,high=20mbit,every=500ms,seed=3"
        trace = varying.parse(text)
        self.assertEqual(trace, varying.parse(text))
        self.assertNotEqual(trace, varying.parse(text.replace("seed=3", "seed=4")))
        rates = [rate for _, rate in trace]
        self.assertEqual(sum(seconds for seconds, _ in trace), varying.WALK_SECONDS)
        self.assertEqual((min(rates), max(rates)), (5e6, 20e6))
        for before, after in itertools.pairwise(rates):
            self.assertLess(abs(after / before - 1), 0.3)

    def test_files_are_read_as_they_are_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "trace"
            varying.write([(1.5, 2e6), (0.25, 0)], path)
            self.assertEqual(varying.parse(str(path)), [(1.5, 2e6), (0.25, 0)])
            self.assertEqual(varying.parse(path.name, path.parent), [(1.5, 2e6), (0.25, 0)])

    def test_rates_that_the_switch_would_refuse_are_named(self):
        for text in ("5mbit@0s", "5mbit@0.1us", "5mbit@2000000s"):
            with self.subTest(text), self.assertRaisesRegex(namespaces.LabError, "cannot be"):
                varying.parse(text)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "trace"
            for lines, words in (
                ("", "no rate is above 0"),
                ("1 0", "no rate is above 0"),
                ("1 0.4", "no rate is above 0"),
                ("1 -5", "cannot be"),
                ("1 inf", "cannot be"),
                ("nan 5", "cannot be"),
                ("1 2 3", "too many values"),
            ):
                path.write_text(lines)
                with self.subTest(lines), self.assertRaisesRegex(namespaces.LabError, words):
                    varying.parse(str(path))

    def test_a_wrong_walk_says_what_is_wrong(self):
        walk = "walk:low=5mbit,high=20mbit"
        for text, words in (
            (walk + ",every=0.1us", "every must be 1ms or more"),
            (walk + ",every=soon", "'soon' is not a time"),
            (walk + ",pace=1s", "pace is not known"),
            ("walk:low=5mbit,high=1mbit", "low must not be above high"),
            (f"walk:low=5mbit,high={400 * '9'}mbit", "is not a rate"),
        ):
            with self.subTest(words), self.assertRaisesRegex(namespaces.LabError, words):
                varying.parse(text)

    def test_the_mean_is_over_any_time_and_begins_anew(self):
        trace = [(2.0, 10.0), (1.0, 40.0)]
        self.assertEqual(varying.period(trace), 3)
        for begin, end, mean in (
            (0, 2, 10),
            (0, 3, 20),
            (1, 3, 25),
            (2.5, 3.5, 25),
            (5, 6, 40),
            (0.5, 300.5, 20),
        ):
            self.assertAlmostEqual(varying.mean(trace, begin, end), mean)

    def test_anything_else_says_what_is_right(self):
        for text in ("fast", "20mbit@", "walk:low=5mbit", "walk:low=5mbit,high=1mbit", "20@1s"):
            with self.subTest(text), self.assertRaisesRegex(namespaces.LabError, "20mbit@10s"):
                varying.parse(text)


if __name__ == "__main__":
    unittest.main()
