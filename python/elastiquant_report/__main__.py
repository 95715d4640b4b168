"""Command line of the report; `elastiquant report` runs it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

if not __package__:  # started by the folder's path, as `elastiquant report` does
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from elastiquant_report import certificate, consensus, decisions, findings, shares, table
from elastiquant_report.runs import Run, RunError, differences, load_runs, shown

EXIT_FAILURE, EXIT_USAGE = 1, 2  # as elastiquant/cli/command.h has them


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        runs = load_runs(options.runs)
        options.out.mkdir(parents=True, exist_ok=True)
        print(report(runs, options))
    except RunError as error:
        return fail(str(error), EXIT_USAGE)
    except ImportError as error:
        return fail(f"{error}\nThe tables are written; --no-plots stops at them.", EXIT_FAILURE)
    except OSError as error:
        return fail(str(error), EXIT_FAILURE)
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="elastiquant report", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--title", default="Training runs compared")
    parser.add_argument("--per", choices=("step", "epoch"), default="step")
    parser.add_argument("--no-plots", action="store_true")
    return parser.parse_args(arguments)


def fail(words: str, code: int) -> int:
    print(f"elastiquant report: {words}", file=sys.stderr)
    return code


def report(runs: list[Run], options: argparse.Namespace) -> str:
    """Writes everything into options.out and returns what is to be printed."""
    rows = table.rows(runs)
    if options.per == "epoch" and not table.per_epoch_is_known(rows):
        raise RunError("--per epoch needs steps_per_epoch in every run's summary.json")
    certificates = certificate.load_certificates(runs)
    words = _words(runs, certificates, options.per)
    (options.out / "report.json").write_text(
        json.dumps({"title": options.title, "findings": words, "runs": rows}, indent=2) + "\n"
    )
    (options.out / "report.csv").write_text(table.as_csv(rows))
    tables = [table.display(rows, options.per)]
    if certificates:
        tables.append(certificate.display(certificates))
        layers = certificate.rows(certificates)
        (options.out / "certificate.csv").write_text(table.as_csv(layers))
    markdown = options.out / "report.md"
    markdown.write_text(_markdown(options.title, words, tables, rows, plots=[]))
    written = [] if options.no_plots else _draw(runs, certificates, options.out)
    pngs = [path.name for path in written if path.suffix == ".png"]
    markdown.write_text(_markdown(options.title, words, tables, rows, pngs))
    plots = "".join(f"\n{shown(path)}" for path in written if path.suffix == ".png")
    texts = "\n\n".join(table.as_text(head, cells) for head, cells in tables)
    return f"{texts}\n\n" + "\n".join(words) + f"\n\n{shown(markdown)}{plots}"


def _words(runs: list[Run], certificates: list[certificate.Certificate], per: str) -> list[str]:
    words = [
        findings.conclusion(runs),
        f"Seconds are per {per}. {findings.setting(runs)}.",
    ]
    if unlike := differences(runs):
        words.append("Note: the runs differ in more than the codec: " + "; ".join(unlike) + ".")
    words += findings.mishaps(runs)
    if any(not run["replicas_identical"] for run in runs):
        words.append("WARNING: the replicas of a run were not identical.")
    if certificates:
        words.append(certificate.finding(certificates) + ".")
    return words


def _draw(
    runs: list[Run], certificates: list[certificate.Certificate], folder: Path
) -> list[Path]:
    from elastiquant_report import plots  # needs matplotlib, which the tables do not

    return (
        plots.draw_all(runs, folder)
        + certificate.draw(certificates, folder / "certificate")
        + shares.draw(runs, folder)
        + decisions.draw(runs, folder)
        + consensus.draw(runs, folder)
    )


def _markdown(title, words, tables, rows, plots) -> str:
    text = f"# {title}\n\n" + "\n\n".join(words) + "\n"
    for head, cells in tables:
        text += f"\n{table.as_markdown(head, cells)}\n"
    for name in plots:
        text += f"\n![{name}]({name})\n"
    commands = [row["command"] for row in rows if row["command"]]
    if commands:
        text += "\n## Commands\n\n```sh\n" + "\n".join(commands) + "\n```\n"
    return text


if __name__ == "__main__":
    sys.exit(main())
