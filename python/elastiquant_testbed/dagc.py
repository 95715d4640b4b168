"""DAGC's experiment: workers with unequal volumes of data, and a ratio for each.

As the authors' code has it (Lu et al., "Data-aware gradient compression for distributed
learning", and github.com/Jiang-Yutong/DAGC): CNN3 on CIFAR-10, 10 workers, rounds of 10 local
steps with batches of 64, learning rate .01 without momentum, error feedback, top-k of what a
worker has moved; a worker counts in the mean by its volume. Ratios are .01, .05 and .1 in the
mean, and the largest volume is 10, 100 or 1000 times the smallest. Their target accuracy is
not published: ours is the highest that the least accurate run of a setting reaches, so that
all reach it. What is said of the best setting is judged once all settings are there.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import NamedTuple

from elastiquant_testbed import words
from elastiquant_testbed.checks import Claim
from elastiquant_testbed.testbed import Testbed
from elastiquant_testbed.training import Choice, Experiment, Outcome, Run, options

WORKERS, LOCAL_STEPS = 10, 10
NONE, UNIFORM, THRESHOLD = "none", "uniform", "uniform threshold"
ACCORDION, DAGC_R, DAGC_A = "ACCORDION", "DAGC-R", "DAGC-A"
SCHEMES = {
    NONE: {"algorithm": "local-sgd", "codec": "fp32"},
    UNIFORM: {"algorithm": "uniform"},
    THRESHOLD: {"algorithm": "dagc-a:exponent=0"},
    # The authors' code has these two ratios, whatever that of the other schemes is.
    ACCORDION: {"algorithm": "accordion:least=0.01,most=0.1"},
    DAGC_R: {"algorithm": "dagc-r"},
    "DAGC-R as published": {"algorithm": "dagc-r:rule=published"},
    DAGC_A: {"algorithm": "dagc-a"},
}
# Whose runs are the same at all ratios.
WITHOUT_RATIO = (NONE, ACCORDION)
# The abstract's: how much sooner than uniform.
CLAIMS = {DAGC_R: 25.43, DAGC_A: 16.65}


class Setting(NamedTuple):
    """What is compared under the same conditions."""

    skew: int
    ratio: float

    def __str__(self) -> str:
        return f"skew {self.skew}, ratio {self.ratio:g}"


# The most telling one first.
SETTINGS = sorted(
    (Setting(skew, ratio) for skew in (10, 100, 1000) for ratio in (0.01, 0.05, 0.1)),
    key=lambda setting: (setting.ratio != 0.05, setting.skew != 100, setting),
)
ROUNDS = 100


class Dagc(Experiment):
    name = "dagc"

    def __init__(self, testbed: Testbed | None, out: Path, choice: Choice):
        super().__init__(testbed, out, choice)
        self.rounds = 20 if self.quick else ROUNDS
        self.seeds = 1 if self.quick else 5
        self.settings = SETTINGS[:1] if self.quick else SETTINGS

    def one(self, scheme: str, setting: Setting, seed: int) -> Run:
        if scheme in WITHOUT_RATIO:
            # One run for all ratios, under the name that it had when it was first made.
            setting = setting._replace(ratio=SETTINGS[0].ratio)
            return self._run(scheme, setting, seed, SCHEMES[scheme])
        return self._run(scheme, setting, seed, {**SCHEMES[scheme], "ratio": setting.ratio})

    def _run(self, scheme: str, setting: Setting, seed: int, own: dict) -> Run:
        named = {"model": "cnn3", "workers": WORKERS, "batch": 64, **self.chosen(12800, 1000)}
        named |= {"lr": 0.01, "momentum": 0, "weight-decay": 0, "schedule": "constant"}
        named |= {"partition": f"volumes:skew={setting.skew}", "every": LOCAL_STEPS}
        named |= {"exact": "none", "steps": self.rounds * LOCAL_STEPS, "eval-every": 1}
        named |= {"threads": 1, "measure-every": 0, **own}
        return Run(f"{scheme}, {setting}", options(**named), seed)

    def run(self) -> dict:
        wanted = {
            (seed, setting): {scheme: self.one(scheme, setting, seed) for scheme in SCHEMES}
            for seed in range(1, self.seeds + 1)
            for setting in self.settings
        }
        runs = self.make(
            list(dict.fromkeys(run for of in wanted.values() for run in of.values()))
        )
        rows, apart = [], None
        for setting in self.settings:
            # A seed counts once all schemes have it.
            of_seeds = [
                of
                for (_, its), of in wanted.items()
                if its == setting and all(map(runs.has, of.values()))
            ]
            if of_seeds:
                outcomes = {s: [runs.outcome(of[s]) for of in of_seeds] for s in SCHEMES}
                rows += rows_of(setting, outcomes)
                apart = outcomes[UNIFORM][0].summary["steps_per_epoch"] / LOCAL_STEPS
        result = self.result(claims(rows), runs, rows=rows)
        result["rounds_between_evaluations"] = apart
        return result

    def left_out(self) -> list[str]:
        gone = [f"rounds after number {self.rounds}"]
        if self.quick:
            gone += ["skews 10 and 1000, ratios .01 and .1, and four of five seeds"]
        return gone


def curve(outcome: Outcome) -> list[tuple[float, float, float]]:
    """After each epoch: rounds so far, bytes that all workers have sent, and the accuracy."""
    summary, sent, points = outcome.summary, 0.0, []
    for count, epoch in enumerate(summary["epochs"], start=1):
        sent += epoch["bytes_up"] * summary["world_size"]
        # A run may end within an epoch.
        steps = min(count * summary["steps_per_epoch"], summary["steps"])
        points.append((steps / LOCAL_STEPS, sent, epoch["test_accuracy"]))
    return points


def reached(points: list[tuple[float, float, float]], target: float) -> tuple[float, float]:
    """Rounds and bytes at which the accuracy was reached first, between two evaluations by a
    straight line."""
    before = (0.0, 0.0, 0.0)
    for point in points:
        if point[2] >= target:
            part = (target - before[2]) / (point[2] - before[2])
            return tuple(b + part * (p - b) for b, p in zip(before[:2], point[:2], strict=True))
        before = point
    raise ValueError(f"{target} % was not reached")


def rows_of(setting: Setting, outcomes: dict[str, list[Outcome]]) -> list[dict]:
    curves = {scheme: [curve(o) for o in of] for scheme, of in outcomes.items()}
    best = [
        max(accuracy for _, _, accuracy in points) for of in curves.values() for points in of
    ]
    target = min(best)
    rows = []
    for scheme, of in curves.items():
        both = [reached(points, target) for points in of]
        last = [points[-1][2] for points in of]
        rows.append(
            {
                "skew": setting.skew,
                "ratio": setting.ratio,
                "scheme": scheme,
                "target": target,
                "rounds": statistics.fmean(rounds for rounds, _ in both),
                "rounds_by_seed": [rounds for rounds, _ in both],
                "bytes": statistics.fmean(sent for _, sent in both),
                "accuracy": statistics.fmean(last),
            }
        )
    return rows


def fewer(rows: list[dict], what: str, scheme: str, than: str) -> list[float]:
    """By setting, by how many per cent a scheme needs fewer rounds, or bytes, than another."""
    by = {(r["skew"], r["ratio"], r["scheme"]): r[what] for r in rows}
    settings = dict.fromkeys((r["skew"], r["ratio"]) for r in rows)
    return [100 * (1 - by[(*s, scheme)] / by[(*s, than)]) for s in settings]


def sooner(rows: list[dict], scheme: str) -> list[float]:
    """By setting, per cent fewer rounds than uniform top-k needs."""
    return fewer(rows, "rounds", scheme, UNIFORM)


def sooner_by_seed(rows: list[dict], scheme: str) -> list[list[float]]:
    """By setting, per cent fewer rounds than uniform top-k needs with the same seed."""
    by = {(r["skew"], r["ratio"], r["scheme"]): r["rounds_by_seed"] for r in rows}
    settings = dict.fromkeys((r["skew"], r["ratio"]) for r in rows)
    return [
        [
            100 * (1 - its / theirs)
            for its, theirs in zip(by[(*s, scheme)], by[(*s, UNIFORM)], strict=True)
        ]
        for s in settings
    ]


def seeds_of(rows: list[dict]) -> list[int]:
    """By setting, how many seeds there are."""
    return list({(r["skew"], r["ratio"]): len(r["rounds_by_seed"]) for r in rows}.values())


def _told_seeds(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{high} seed{'s' * (high > 1)}" if low == high else f"{low} to {high} seeds"


def claims(rows: list[dict]) -> list[Claim]:
    """They are of the best and the worst of all settings, and not judged before all are
    there."""
    if not rows:
        return []  # no setting has all its schemes yet
    found, seeds = [], seeds_of(rows)
    for scheme, published in CLAIMS.items():
        gains = sooner(rows, scheme)
        at_best = seeds[gains.index(max(gains))]
        whole = len(gains) == len(SETTINGS)
        settings = f"{len(gains)} of {len(SETTINGS)} settings"
        found.append(
            Claim(
                f"{scheme} needs up to {published} % fewer rounds than uniform ratios",
                max(gains) >= published if whole else None,
                f"{settings}: {_span(gains)} %; the best setting has {_told_seeds([at_best])}",
            )
        )
        found.append(
            Claim(
                f"{scheme} never needs more rounds than uniform ratios",
                min(gains) >= 0 if whole else None,
                f"{settings}: in {sum(g >= 0 for g in gains)} it does not",
            )
        )
    return found


def _span(values: list[float]) -> str:
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"


def _compared(result: dict) -> str:
    """What could be gained, and at which price."""
    rows = result["rows"]
    cells = [
        [scheme]
        + [
            _span(fewer(rows, what, scheme, than))
            for what in ("rounds", "bytes")
            for than in (UNIFORM, THRESHOLD)
        ]
        for scheme in (NONE, *CLAIMS)
    ]
    heads = ["per cent fewer than", "rounds: uniform", "rounds: uniform threshold"]
    heads += ["bytes: uniform", "bytes: uniform threshold"]
    text = (
        "By setting, from the least to the most. The row without compression (`none`) shows "
        "what uniform ratios cost in rounds, which is what other ratios can win back.\n\n"
        f"{words.table(heads, cells)}"
    )
    if apart := result.get("rounds_between_evaluations"):
        text += (
            f"\nEvaluations are {apart:g} rounds apart, and rounds and bytes are interpolated "
            "between them by a straight line.\n"
        )
    return text


def in_order(rows: list[dict]) -> list[dict]:
    """By ratio and then by skew, and not as settings take their turn to be run."""
    return sorted(rows, key=lambda row: (row["ratio"], row["skew"]))


def text(result: dict) -> str:
    rows = [
        [
            r["scheme"],
            r["skew"],
            f"{r['ratio']:g}",
            f"{r['target']:.1f}",
            f"{r['rounds']:.1f}",
            f"{r['bytes'] / 1e6:,.2f}",
            f"{r['accuracy']:.2f}",
            len(r["rounds_by_seed"]),
        ]
        for r in in_order(result["rows"])
    ]
    heads = ["scheme", "skew", "ratio", "target %", "rounds", "MB of all", "last accuracy %"]
    heads += ["seeds"]
    return words.page(
        "DAGC's experiment",
        "Rounds and bytes until the target accuracy, means over "
        f"{_told_seeds(seeds_of(result['rows']))}.",
        words.table(heads, rows) + "\n" + _compared(result),
        result,
    )


def draw(result: dict, stem: Path) -> None:
    """Rounds to the target, over those of uniform top-k, by setting."""
    import elastiquant_plot as look

    rows = in_order(result["rows"])
    settings = list(dict.fromkeys((r["skew"], r["ratio"]) for r in rows))
    schemes = [s for s in SCHEMES if s not in (NONE, UNIFORM)]
    with look.style():
        fig, (axes,) = look.figure(
            _point(rows),
            "Rounds until the accuracy that all schemes of a setting reach, against uniform "
            "top-k: below 0 is sooner. Bars: means; dots: seeds, each against uniform's.",
            height=4.6,
        )
        width = 0.8 / len(schemes)
        for i, (scheme, colour) in enumerate(
            zip(schemes, look.colours(len(schemes)), strict=True)
        ):
            at = [x + (i - len(schemes) / 2 + 0.5) * width for x in range(len(settings))]
            values = [-gain for gain in sooner(rows, scheme)]
            axes.bar(at, values, 0.9 * width, color=colour, label=scheme)
            dots = [
                (x, -gain)
                for x, gains in zip(at, sooner_by_seed(rows, scheme), strict=True)
                for gain in gains
            ]
            axes.scatter(*zip(*dots, strict=True), s=4, color=look.INK, zorder=3)
        axes.axhline(0, color=look.INK, linewidth=1)
        names = [f"skew {skew}\nratio {ratio:g}" for skew, ratio in settings]
        axes.set_xticks(range(len(settings)), names)
        axes.set_ylabel("rounds against uniform, %")
        place = {"loc": "lower left", "bbox_to_anchor": (0, 1)}  # bars may be anywhere below
        axes.legend(frameon=False, fontsize=8, ncols=len(schemes), **place)
        look.layout(fig)
        look.save(fig, stem)


def _point(rows: list[dict]) -> str:
    best = [f"{scheme} needs up to {max(sooner(rows, scheme)):.0f} %" for scheme in CLAIMS]
    return f"{' and '.join(best)} fewer rounds than uniform ratios"
