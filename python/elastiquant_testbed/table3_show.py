"""What table 3 has come to: tables in Markdown, and plots."""

from __future__ import annotations

import statistics
from pathlib import Path

from elastiquant_testbed import published, words
from elastiquant_testbed.table3_readings import MORE_STEPS, STEP_COST
from elastiquant_testbed.table3_steps import FIT_WITHIN

PARTS = {"Cp": "computing", "En": "encoding", "Tx": "transmission"}

NOTES = """\
Minutes of an epoch, ours and in brackets as printed: computing (Cp, which is given), encoding
(En), transmission (Tx) and their sum (T). "T overlapped" is what a real run takes, in which
encoding and sending overlap with computing. The column after each of the two says how many
times as long SGD takes. Sp, as printed, is by how much T is longer than on the next lower
number of devices. A cell is empty where nothing was measured. NMSE is the error of what a
worker sends, |g - decoded|^2 over |g|^2: serially the whole gradient is one frame, and
overlapped each bucket of layers is one. The last column has the joules that a device's radio
spends on sending in an epoch, in the mean over the devices, at the watts of their class
(`elastiquant devices`), which are assumed.
"""


def text(result: dict) -> str:
    return "\n".join(
        [
            "# Table 3 of ElastiQuant, rebuilt\n",
            _setting(result),
            _cells(result["cells"]),
            NOTES,
            _step_cost(result[STEP_COST]),
            _more_steps(result[MORE_STEPS]),
            _residuals(result["cells"]),
            _claims(result),
            words.left_out(result),
        ]
    )


def _setting(result: dict) -> str:
    fit = result["fit"]
    if fit is None:
        return f"{_rate(result['testbed'])}; nothing is fitted. Links: {result['network']}.\n"
    network, scheme, devices = fit["cell"]
    text = (
        f"The air carries {fit['bits_per_second'] / 1e6:.0f} Mbit/s, fitted to one cell: "
        f"{network}, {scheme}, {devices} devices. Links: {result['network']}.\n"
    )
    if not fit.get("fitted", True):  # older results do not say so, and are fitted
        text += f"**The fit failed**: that cell is off by more than {100 * FIT_WITHIN:.0f} %.\n"
    return text


def _rate(described: dict) -> str:
    """The rate of a testbed, for which a default stands where its file has none."""
    network = described["network"]
    if vary := network.get("vary"):
        return f"The rate varies as {described['file']} says: {vary}"
    if all("rate" in device for device in described["devices"]):
        return f"Each device has the rate that {described['file']} gives it"
    others = any("rate" in device for device in described["devices"])
    return f"The rate is {network['rate']}" + " where a device has none of its own" * others


def _minutes(cell: dict, part: str) -> str:
    ours = cell[part] / 60
    if "published" not in cell:
        return f"{ours:.1f}"
    return f"{ours:.1f} ({cell['published'][part] / 60:.1f})"


def _cells(cells: list[dict]) -> str:
    heads = ["network", "scheme", "devices", *PARTS, "T", "Sp", "SGD / T"]
    heads += ["T overlapped", "SGD / T overlapped", "NMSE", "NMSE overlapped", "radio, J"]
    rows = []
    sums = {(c["network"], c["devices"]): c for c in cells if c["scheme"] == "SGD"}
    for c in cells:
        base = sums.get((c["network"], c["devices"]), {})
        row = [c["network"], c["scheme"], c["devices"]]
        row += [_minutes(c, part) for part in (*PARTS, "T")]
        row += [_speedup(c), _gain(base, c, "T")]
        if base and "published" in c:
            row[-1] += f" ({_gain(base['published'], c['published'], 'T')})"
        really = c["T_overlapped"]
        row += ["" if really is None else f"{really / 60:.1f}", _gain(base, c, "T_overlapped")]
        row += [_error(c, "nmse"), "" if really is None else _error(c, "nmse_overlapped")]
        row.append(f"{c['radio_joules']:.0f}")
        rows.append(row)
    return words.table(heads, rows, words=2)


def _speedup(cell: dict) -> str:
    """Minutes, ours and in brackets as printed; empty on the lowest number of devices."""
    if cell["Sp"] is None:
        return ""
    printed = published.speedup(cell["network"], cell["scheme"], cell["devices"])
    ours = f"{cell['Sp'] / 60:+.1f}"
    return ours if printed is None else f"{ours} ({printed:+.1f})"


def _error(cell: dict, name: str) -> str:
    """0 for codecs that lose nothing, whose error is not measured."""
    return "0" if cell[name] is None else f"{cell[name]:.3g}"


def _gain(base: dict, cell: dict, what: str) -> str:
    """How many times as long as the cell its base takes; empty unless both are known."""
    if base.get(what) is None or cell[what] is None:
        return ""
    return f"{base[what] / cell[what]:.2f}"


def _step_cost(cost: dict | None) -> str:
    if cost is None:
        return ""
    network, scheme, devices = cost["cell"]
    return (
        "A second reading, **with a cost of each step** that does not depend on what is sent, "
        f"takes another cell to fit, {network}, {scheme}, {devices} devices: the rate is then "
        f"{cost['factor_of_rate']:.2f} times as high, and the cost of an epoch "
        f"{cost['seconds_of_an_epoch'] / 60:.1f} minutes over the number of devices.\n"
    )


def _more_steps(more: dict | None) -> str:
    if more is None:
        return ""
    network, scheme, devices = more["cell"]
    return (
        f"A third reading, **with more steps of {network}** besides, takes a third cell to "
        f"fit, {network}, {scheme}, {devices} devices: there are then "
        f"{more['times_as_many_steps']:.2f} times as many steps as its computing lets one "
        "expect.\n"
    )


RESIDUALS = """\
How far each cell is from the printed one: ours over printed. Medians are over the cells of a
network.
"""
RESIDUALS_OF_READINGS = """\
The first columns are as measured, the others those of each further reading. Computing is given,
so that it is 1.00 everywhere, and a cost of each step does not change encoding. Cells that a
reading is fitted to are 1.00 in it.
"""


def _residuals(cells: list[dict]) -> str:
    """A row for each printed cell, and the medians of each network."""
    of = {None: ("Cp", "En", "Tx", "T"), STEP_COST: ("Tx", "T"), MORE_STEPS: ("En", "Tx", "T")}
    # There are no further readings where a file says the rate, and nothing is fitted.
    of = {
        name: parts for name, parts in of.items() if not name or any(name in c for c in cells)
    }
    columns = [(reading, part) for reading, parts in of.items() for part in parts]
    names = {None: "", STEP_COST: ", step cost", MORE_STEPS: ", more steps"}
    heads = ["network", "scheme", "devices"]
    heads += [part + names[reading] for reading, part in columns]
    rows = []
    printed = [c for c in cells if "published" in c]
    for network in dict.fromkeys(c["network"] for c in printed):
        here = [c for c in printed if c["network"] == network]
        ratios = [[_residual(c, *column) for column in columns] for c in here]
        for c, values in zip(here, ratios, strict=True):
            rows.append([network, c["scheme"], c["devices"], *map(_ratio, values)])
        medians = [_median(column) for column in zip(*ratios, strict=True)]
        rows.append([network, "**median**", "", *map(_ratio, medians)])
    notes = RESIDUALS + (RESIDUALS_OF_READINGS if len(of) > 1 else "")
    return notes + "\n" + words.table(heads, rows, words=2)


def _residual(cell: dict, reading: str | None, part: str) -> float | None:
    """Ours over printed; None where nothing is printed, as of the encoding of SGD."""
    ours, printed = (cell[reading] if reading else cell)[part], cell["published"][part]
    return ours / printed if printed else None


def _median(values: tuple[float | None, ...]) -> float | None:
    return statistics.median(there) if (there := [v for v in values if v is not None]) else None


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _claims(result: dict) -> str:
    """Those of the first reading decide; the others stand beside them."""
    if not result["checks"]:
        return words.claims([])
    names = {STEP_COST: "with a cost of each step", MORE_STEPS: "with more steps as well"}
    others = {told: result[name]["checks"] for name, told in names.items() if result[name]}
    checks = result["checks"]
    rows = [
        [check["claim"], words.holds(check), check["seen"]]
        + [f"{words.holds(also)}: {also['seen']}" for also in alike]
        for check, *alike in zip(checks, *others.values(), strict=True)
    ]
    held = [f"{_held(checks)} of {len(checks)} claims hold"]
    held += [f"{_held(of)} {told}" for told, of in others.items()]
    head = f"What the printed table says beside its numbers: {', '.join(held)}.\n\n"
    heads = ["claim", "holds", "seen", *others]
    return head + words.table(heads, rows, words=len(heads))


def _held(checks: list[dict]) -> int:
    return sum(check["holds"] is True for check in checks)


def draw(result: dict, stem: Path) -> None:
    """A panel for each number of devices, and in it a bar as printed beside ours."""
    import elastiquant_plot as look

    rate = "the air's rate is fitted to one cell, SGD on 7 devices with ResNet-34"
    if result["fit"] is None:
        rate = "the rate is what the testbed's file says"
    for network in dict.fromkeys(c["network"] for c in result["cells"]):
        cells = [c for c in result["cells"] if c["network"] == network]
        numbers = sorted({c["devices"] for c in cells})
        with look.style():
            fig, panels = look.figure(
                _point(cells, network),
                "Minutes of an epoch by the sources' serial accounting: pale as printed, dark "
                f"as measured here.{_of_lines(cells)} Computing is given; {rate}.",
                columns=len(numbers),
                height=4.6,
            )
            top = max(
                _draw_devices(axes, [c for c in cells if c["devices"] == devices], devices)
                for axes, devices in zip(panels, numbers, strict=True)
            )
            for axes in panels:
                axes.set_ylim(0, 1.05 * top)
            panels[0].set_ylabel("minutes")
            panels[0].legend(loc="upper right", frameon=False, fontsize=8)
            look.layout(fig)
            look.save(fig, stem.with_name(f"{stem.name}-{network.lower()}"))


def _of_lines(cells: list[dict]) -> str:
    """What the subtitle says of the lines across bars, if there are any."""
    if all(c["T_overlapped"] is None for c in cells):
        return ""
    return " Lines: a real run, which sends while it computes."


def _draw_devices(axes, cells: list[dict], devices: int) -> float:
    """Draws a panel, and returns the height of its highest bar."""
    import elastiquant_plot as look

    top = 0.0
    for x, cell in enumerate(cells):
        top = max(top, _draw_bar(axes, x + 0.2, cell, alpha=1, named=x == 0))
        if (really := cell["T_overlapped"]) is not None:
            axes.plot([x, x + 0.4], 2 * [really / 60], color=look.INK, linewidth=2)
            top = max(top, really / 60)
        if "published" in cell:
            top = max(top, _draw_bar(axes, x - 0.2, cell["published"], alpha=0.4, named=False))
    axes.set_title(f"{devices} devices")
    axes.set_xticks(range(len(cells)), [c["scheme"] for c in cells], rotation=45)
    return top


def _draw_bar(axes, x: float, cell: dict, alpha: float, named: bool) -> float:
    """Stacks a cell's parts, in minutes, and returns their sum."""
    import elastiquant_plot as look

    top = 0.0
    for part, phase in (("Cp", "compute"), ("En", "encode"), ("Tx", "transmit")):
        label = PARTS[part] if named else None
        height, colour = cell[part] / 60, look.PHASES[phase]
        axes.bar(x, height, 0.36, top, color=colour, alpha=alpha, label=label)
        top += height
    return top


def _point(cells: list[dict], network: str) -> str:
    """The title: what the published scheme gains, and the best of ours."""
    most = max((c["devices"] for c in cells if c["scheme"] == "SGD"), default=0)
    here = {c["scheme"]: c["T"] for c in cells if c["devices"] == most}
    best = min((s for s in here if s.startswith("dither")), key=here.get, default=None)
    others = [s for s in ("E", best) if s in here]
    if not others:
        return f"{network}: seconds of an epoch"
    times = ", and ".join(f"{here['SGD'] / here[s]:.1f} times as long as {s}" for s in others)
    return f"{network} on {most} devices: SGD takes {times}"
