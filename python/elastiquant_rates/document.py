"""Fills in the tables and plots of docs/codecs.md, from gradients of one training run.

    elastiquant train --model resnet20 --data DIR --codec fp32 \\
        --dump-gradients 20,50%,100% --out runs/fp32
    elastiquant bench --all --json > bench.json
    scripts/codecs_doc.py runs/fp32/gradients/*.npy --bench bench.json --out docs/codecs.md
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

import elastiquant_plot as look
from elastiquant_rates import plots, series
from elastiquant_rates.ideal import IdealCoder

BEGIN = "<!-- begin of what scripts/codecs_doc.py writes -->"
END = "<!-- end of what scripts/codecs_doc.py writes -->"
_MORE = ("dither:bits=0.5", "dither:bits=1", "dither:bits=4")  # beside the defaults
# Options that gradients do not depend on, and how many values they take.
_NO_MATTER = {
    "--resume": 0,
    "--quiet": 0,
    "--timeout": 1,
    "--checkpoint-every": 1,
    "--eval-every": 1,
}
CLASSES = ("lossless", "unbiased", "contractive", "biased")


class DocumentError(Exception):
    """Something that the caller can mend; the message says how."""


@dataclass
class Input:
    label: str  # "Gaussian", "start", "step 20"
    file: Path | None
    analysis: dict  # one of the analysis' `inputs`

    @property
    def slug(self) -> str:
        return self.label.lower().replace(" ", "-")

    @property
    def step(self) -> str:
        """ "step 20", by the name that --dump-gradients gives."""
        match = re.search(r"(\d+)", self.file.stem)
        return f"step {int(match[1])}" if match else self.file.stem

    def row(self, codec: str) -> dict | None:
        rows = self.analysis["results"]
        return next((r for r in rows if r["codec"] == codec and "error" not in r), None)


class Program:
    """`elastiquant`, called for its JSON."""

    def __init__(self, path: Path, draws: int, gaussian: int):
        self.path, self.draws, self.gaussian = path, draws, gaussian

    def analyze(self, *arguments: str, draws: int | None = None) -> dict:
        command = [str(self.path), "analyze", "--json", "--draws", str(draws or self.draws)]
        run = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=False
        )
        if run.returncode != 0:
            raise DocumentError(run.stderr.strip())
        return json.loads(run.stdout)

    def default_specs(self) -> list[str]:
        report = self.analyze("--gaussian", "256", draws=2)
        return [row["codec"] for row in report["inputs"][0]["results"]]


def load(program: Program, files: list[Path]) -> list[Input]:
    """The Gaussian vector first, then the gradients in the order given."""
    report = program.analyze("--rates", "--gaussian", str(program.gaussian), *map(str, files))
    *gradients, gaussian = report["inputs"]
    inputs = [Input("Gaussian", None, gaussian)]
    for file, analysis in zip(files, gradients, strict=True):
        inputs.append(Input("", file, analysis))
        inputs[-1].label = inputs[-1].step
    if len(files) == 3:
        for each, label in zip(inputs[1:], ("start", "middle", "end"), strict=True):
            each.label = label
    return inputs


def training(gradient: Path) -> str:
    """The command that the run beside the gradients was made with, wherever it stood."""
    summary = gradient.parent.parent / "summary.json"
    command = json.loads(summary.read_text()).get("command") if summary.exists() else None
    if not command:
        return ""
    words = ["elastiquant", *shlex.split(command)[1:]]
    for flag, values in _NO_MATTER.items():
        if flag in words:
            at = words.index(flag)
            del words[at : at + 1 + values]
    for flag in ("--data", "--out"):
        if flag in words[:-1]:
            at = words.index(flag) + 1
            words[at] = Path(words[at]).name
    return "\n\nThe gradients are from\n\n```sh\n" + shlex.join(words) + "\n```"


def number(value: float | None, digits: int = 3) -> str:
    """Three digits that matter: 0.0123, 1.23, 123, 1.2e-05."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e4:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def code(spec: str) -> str:
    return "`" + spec.replace("|", "\\|") + "`"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def by_class(specs: list[str], inputs: list[Input]) -> list[tuple[str, list[str]]]:
    """The specs of each class, by their bits on the last but one input (mid-training)."""
    middle = inputs[-2] if len(inputs) > 2 else inputs[-1]
    rows = {row["codec"]: row for row in middle.analysis["results"]}

    def bits(spec: str) -> float:
        return rows[spec].get("bits_per_coordinate", math.inf)

    groups = []
    for kind in CLASSES:
        members = [spec for spec in specs if spec in rows and rows[spec]["class"] == kind]
        if members:
            groups.append((kind, sorted(members, key=bits)))
    return groups


# Of each machine that is named: results of `bench --json` by the canonical spec.
Speeds = dict[str, dict[str, dict]]


def speeds(arguments: list[str]) -> Speeds:
    """From FILE or MACHINE=FILE each; files of the same machine complete each other."""
    found: Speeds = {}
    for argument in arguments:
        machine, _, file = argument.rpartition("=")
        for result in json.loads(Path(file).read_text())["results"]:
            if "error" not in result:
                found.setdefault(machine, {})[result["codec"]] = result
    return found


def overview(specs: list[str], inputs: list[Input], bench: Speeds) -> str:
    middle = inputs[-2] if len(inputs) > 2 else inputs[-1]
    head = ["codec", "bits", *[f"NMSE, {i.label}" for i in inputs], "bias z", "cosine"]
    for machine in bench:
        head += [f"{operation} {machine}".strip() for operation in ("encode", "decode-add")]
    lines = []
    for kind, members in by_class(specs, inputs):
        lines.append([f"**{kind}**"] + [""] * (len(head) - 1))
        for spec in members:
            lines.append(_overview_row(spec, inputs, middle, bench))
    return table(head, lines)


def _overview_row(spec: str, inputs: list[Input], middle: Input, bench: Speeds) -> list[str]:
    rows = [each.row(spec) for each in inputs]
    line = [code(spec)]
    own = middle.row(spec)
    line.append(f"{own['bits_per_coordinate']:.3g}" if own else "–")
    line += [number(row and row["nmse"]) for row in rows]
    z = [row["bias_z"] for row in rows if row]
    line.append(f"{max(z):.1f}" if z else "–")
    line.append(f"{own['cosine']:.3f}" if own else "–")
    canonical = next(r["spec"] for r in middle.analysis["results"] if r["codec"] == spec)
    for results in bench.values():
        measured = results.get(canonical)
        for operation in ("encode", "decode_add"):
            ratio = measured and measured[operation]["ratio_to_memcpy"]
            line.append(f"{number(ratio, 2)}×" if ratio else "–")
    return line


def full_tables(inputs: list[Input], draws: int) -> str:
    """docs/codecs/tables.md."""
    parts = [
        "# Every codec at every usual rate\n\n"
        f"What `elastiquant analyze --rates` tells of each input, with {draws} draws; "
        "[cli.md](../cli.md#analyze) says what the columns are."
    ]
    head = ["codec", "bits", "entropy", "NMSE", "±", "dB", "bias z", "bias", "cosine"]
    for each in inputs:
        lines = []
        specs = [row["codec"] for row in each.analysis["results"]]
        for kind, members in by_class(specs, [each]):
            lines.append([f"**{kind}**"] + [""] * (len(head) - 1))
            lines += [_full_row(spec, each) for spec in members]
        elements = thousands(each.analysis["elements"])
        parts.append(f"## {each.label}\n\n{elements} values.\n\n{table(head, lines)}")
    return "\n\n".join(parts) + "\n"


def _full_row(spec: str, each: Input) -> list[str]:
    row = each.row(spec)
    if row is None:
        rows = each.analysis["results"]
        error = next(r["error"] for r in rows if r["codec"] == spec)
        return [code(spec), error] + [""] * 7
    spread = 100 * row["nmse_standard_error"] / row["nmse"] if row["nmse"] > 0 else 0
    return [
        code(spec),
        f"{row['bits_per_coordinate']:.3f}",
        number(row["entropy"]),
        number(row["nmse"]),
        f"{spread:.1f} %",
        f"{decibels(row):.2f}" if row["nmse"] > 0 else "–",
        f"{row['bias_z']:.1f}",
        f"{100 * max(0.0, row['bias_share']):.0f} %",
        f"{row['cosine']:.4f}",
    ]


def decibels(row: dict) -> float:
    return 10 * math.log10(row["nmse"] / series.gaussian_limit(row["bits_per_coordinate"]))


def advantages(inputs: list[Input]) -> str:
    """How much less variance `dither` has than each other unbiased codec of equal size."""
    lines = []
    for each in inputs:
        lines_of = series.collect(series.measured(each.analysis, series.UNBIASED))
        own = next(s for s in lines_of if s.name == "dither")
        ratios = []
        for other in lines_of:
            name = other.name + (", coded" if other.coded else "")
            ratios += [(factor, name) for factor in series.advantages(own, [other])]
        ratios = [(factor, name) for factor, name in ratios if name != "dither"]
        least, rival = min(ratios)
        factors = [factor for factor, _ in ratios]
        lines.append(
            [
                each.label,
                f"{number(least)}× (`{rival.split(',')[0]}`"
                + (", coded)" if "," in rival else ")"),
                f"{number(median(factors))}×",
                f"{number(max(factors))}×",
            ]
        )
    return table(["input", "least advantage", "median", "most"], lines)


def equal_variance(program: Program, inputs: list[Input]) -> str:
    """The rate at which `dither` has the variance of 4-bit QSGD-V."""
    lines = []
    for each in inputs:
        rival = each.row("qsgdv:bits=4")
        source = [str(each.file)] if each.file else ["--gaussian", str(program.gaussian)]
        spec = f"dither:nmse={rival['nmse']:.6g}"
        own = program.analyze(*source, "--codec", spec, draws=4)["inputs"][0]["results"][0]
        bits = own["bits_per_coordinate"]
        lines.append(
            [
                each.label,
                number(rival["nmse"]),
                f"{rival['bits_per_coordinate']:.2f}",
                f"{bits:.2f}",
                f"{rival['bits_per_coordinate'] / bits:.2f}×",
            ]
        )
    return table(
        ["input", "NMSE", "bits of `qsgdv:bits=4`", "bits of `dither`", "fewer"], lines
    )


def against_ideal(inputs: list[Input]) -> str:
    """How much more variance `dither` has than its ideal coder at the same real bits."""
    rates = ("1", "2", "3", "4")
    lines = []
    for each in inputs:
        if each.file is None:
            continue
        coder = IdealCoder(np.load(each.file).ravel())
        line = [each.label]
        for rate in rates:
            row = each.row(f"dither:bits={rate}")
            excess = row["nmse"] / coder.nmse_at(row["bits_per_coordinate"]) - 1
            line.append(f"{100 * excess:+.1f} %")
        lines.append(line)
    return table(["input", *[f"{rate} bits" for rate in rates]], lines)


def against_limit(program: Program) -> str:
    lines = []
    for rate in ("2", "3", "4"):
        spec = f"dither:bits={rate},model=gauss"
        report = program.analyze("--gaussian", str(1 << 20), "--codec", spec)
        row = report["inputs"][0]["results"][0]
        lines.append(
            [
                rate,
                f"{row['bits_per_coordinate']:.3f}",
                number(row["nmse"]),
                number(series.gaussian_limit(row["bits_per_coordinate"])),
                f"{decibels(row):.2f} dB",
            ]
        )
    return table(["rate asked for", "bits", "NMSE", "limit", "above it"], lines)


def draw(inputs: list[Input], draws: int, folder: Path) -> dict[str, Path]:
    pictures = {}
    with look.style():
        for each in inputs:
            named = each.analysis | {"name": _long_name(each)}
            pictures[each.slug] = plots.figure(named, draws, folder / each.slug)[0]
    return pictures


def _long_name(each: Input) -> str:
    if each.file is None:
        return "Gaussian"
    if each.label == each.step:
        return f"Gradient of {each.step}"
    return f"Gradient at the {each.label} of training, {each.step}"


def introduction(program: Program, inputs: list[Input], bench: Speeds, folder: Path) -> str:
    middle = inputs[-2] if len(inputs) > 2 else inputs[-1]
    labels = [each.label for each in inputs[1:]]
    steps = ", ".join(each.step.replace("step ", "") for each in inputs[1:])
    where = f"{', '.join(labels)} of training (steps {steps})"
    text = (
        f"{thousands(program.gaussian)} Gaussian values, and one worker's gradient at {where}; "
        f"{program.draws} draws. Codecs have their defaults, memories are empty, and codecs "
        "that adapt are fitted to the vector. Bits and "
        f"cosine are those of the {middle.label}; *bias z* is the largest of all inputs, a "
        "normal number if the codec is unbiased."
    )
    if bench:
        text += (
            " Speeds are of 100 MB of Gaussian values on one thread, as a ratio to memcpy "
            "(`elastiquant bench --all`)."
        )
    text += f" All usual rates, entropies and errors: [tables]({folder.name}/tables.md)."
    return text + training(inputs[1].file)


def render(program: Program, inputs: list[Input], bench: Speeds, out: Path) -> str:
    folder = out.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tables.md").write_text(full_tables(inputs, program.draws))
    pictures = draw(inputs, program.draws, folder)

    def picture(each: Input) -> str:
        return f"![Error against bits, {each.label}]({folder.name}/{pictures[each.slug].name})"

    middle = inputs[-2] if len(inputs) > 2 else inputs[-1]
    others = ", ".join(
        f"[{each.label}]({folder.name}/{pictures[each.slug].name})"
        for each in inputs[1:]
        if each is not middle
    )
    return "\n\n".join(
        [
            introduction(program, inputs, bench, folder),
            overview([*program.default_specs(), *_MORE], inputs, bench),
            picture(middle),
            f"The same of {others}; and of Gaussian values:",
            picture(inputs[0]),
            "### What `dither` gains",
            "Variance at equal bytes, against every other unbiased codec at every rate from "
            "`dither`'s least to its largest (between the rates measured, the logarithm of its "
            "NMSE is taken for linear):",
            advantages(inputs),
            "Bits at the variance of QSGD-V with 4 bits and buckets of 512:",
            equal_variance(program, inputs),
            "Variance above that of its ideal coder at the same real bytes: one that knows "
            "each block's class of scale and every probability exactly, and has no header, "
            "states or tables ([ideal.py](../python/elastiquant_rates/ideal.py)).",
            against_ideal(inputs),
            "With its Gaussian model on 2²⁰ Gaussian values, against the least NMSE of any "
            "unbiased code, 1/(4^R - 1):",
            against_limit(program),
        ]
    )


def thousands(value: int) -> str:
    return f"{value:,}".replace(",", "\u202f")


def insert(document: str, text: str) -> str:
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise DocumentError(f"the document has no place for it: add the lines\n{BEGIN}\n{END}")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/codecs_doc.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "gradients", nargs="+", type=Path, metavar="GRADIENT.npy", help="in order of training"
    )
    parser.add_argument("--out", type=Path, required=True, help="document to fill in")
    parser.add_argument(
        "--bench",
        nargs="*",
        default=[],
        metavar="[MACHINE=]FILE",
        help="of bench --all --json; each machine has columns of its own",
    )
    parser.add_argument("--draws", type=int, default=32)
    parser.add_argument("--gaussian", type=int, default=1 << 18, metavar="N")
    parser.add_argument(
        "--program",
        type=Path,
        default=Path("build/release/bin/elastiquant"),
        help="%(default)s",
    )
    options = parser.parse_args(arguments)
    try:
        document = options.out.read_text()
        insert(document, "")  # a document without a place is found before anything is measured
        program = Program(options.program, options.draws, options.gaussian)
        inputs = load(program, options.gradients)
        text = render(program, inputs, speeds(options.bench), options.out)
        options.out.write_text(insert(document, text))
    except (DocumentError, OSError) as error:
        print(f"codecs_doc: {error}", file=sys.stderr)
        return 2
    print(options.out)
    return 0
