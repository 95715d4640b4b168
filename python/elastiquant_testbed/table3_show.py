"""What table 3 has come to: tables in Markdown, and plots."""

from __future__ import annotations

from pathlib import Path

from elastiquant_testbed import words

PARTS = {"Cp": "computing", "En": "encoding", "Tx": "transmission"}

NOTES = """
Minutes of an epoch, ours and in brackets as printed: computing (Cp, which is given), encoding
(En), transmission (Tx) and their sum (T). Then what SGD takes in sum over what the scheme
takes; minutes as we really run, where encoding and sending overlap with computing; and the
error of a frame, |g - decoded|^2 over |g|^2, which bits alone do not tell.
"""


def text(result: dict) -> str:
    return "\n".join(
        [
            "# Table 3 of ElastiQuant, rebuilt\n",
            _setting(result),
            _cells(result["cells"]),
            NOTES,
            _step_cost(result["with_step_cost"]),
            _claims(result["checks"], result["with_step_cost"]["checks"]),
            words.left_out(result),
        ]
    )


def _setting(result: dict) -> str:
    network, scheme, devices = result["fit"]["cell"]
    return (
        f"The air carries {result['fit']['bits_per_second'] / 1e6:.0f} Mbit/s, fitted to one "
        f"cell: {network}, {scheme}, {devices} devices. Links: {result['network']}.\n"
    )


def _minutes(cell: dict, part: str) -> str:
    ours = cell[part] / 60
    if "published" not in cell:
        return f"{ours:.1f}"
    return f"{ours:.1f} ({cell['published'][part] / 60:.1f})"


def _cells(cells: list[dict]) -> str:
    heads = ["network", "scheme", "devices", *PARTS, "T", "SGD / T", "T overlapped", "NMSE"]
    lines = ["| " + " | ".join(heads) + " |", "| --- | --- |" + " ---: |" * (len(heads) - 2)]
    sums = {(c["network"], c["devices"]): c for c in cells if c["scheme"] == "SGD"}
    for c in cells:
        base, gain = sums.get((c["network"], c["devices"])), ""
        if base:
            gain = f"{base['T'] / c['T']:.2f}"
            if "published" in c:
                gain += f" ({base['published']['T'] / c['published']['T']:.2f})"
        words = [c["network"], c["scheme"], str(c["devices"])]
        words += [_minutes(c, part) for part in (*PARTS, "T")]
        words += [gain, f"{c['T_overlapped'] / 60:.1f}"]
        words.append("0" if c["nmse"] is None else f"{c['nmse']:.3g}")
        lines.append("| " + " | ".join(words) + " |")
    return "\n".join(lines)


def _step_cost(cost: dict) -> str:
    network, scheme, devices = cost["cell"]
    return (
        "A second reading, **with a cost of each step** that does not depend on what is sent, "
        f"takes another cell to fit, {network}, {scheme}, {devices} devices: the rate is then "
        f"{cost['factor_of_rate']:.2f} times as high, and the cost of an epoch "
        f"{cost['seconds_of_an_epoch'] / 60:.1f} minutes over the number of devices.\n"
    )


def _claims(checks: list[dict], second: list[dict]) -> str:
    held = [sum(check["holds"] for check in of) for of in (checks, second)]
    lines = [
        f"What the printed table says beside its numbers: {held[0]} of {len(checks)} hold, and "
        f"{held[1]} with a cost of each step.\n"
    ]
    lines += [
        "| claim | holds | seen | with a cost of each step |",
        "| --- | --- | --- | --- |",
    ]
    for check, also in zip(checks, second, strict=True):
        words = ["yes" if c["holds"] else "**no**" for c in (check, also)]
        lines.append(
            f"| {check['claim']} | {words[0]} | {check['seen']} | {words[1]}: {also['seen']} |"
        )
    return "\n".join(lines) + "\n"


def draw(result: dict, stem: Path) -> None:
    """A panel for each number of devices, and in it a bar as printed beside ours."""
    import elastiquant_plot as look

    colours = {"Cp": "compute", "En": "encode", "Tx": "transmit"}
    for network in dict.fromkeys(c["network"] for c in result["cells"]):
        cells = [c for c in result["cells"] if c["network"] == network]
        numbers = sorted({c["devices"] for c in cells})
        with look.style():
            fig, panels = look.figure(
                _point(cells, network),
                "Minutes of an epoch by the sources' serial accounting: pale as printed, dark "
                "as measured here. Computing is given; the air's rate is fitted to one cell, "
                "SGD on 7 devices with ResNet-34.",
                columns=len(numbers),
                height=4.6,
            )
            top = 0.0
            for axes, devices in zip(panels, numbers, strict=True):
                here = [c for c in cells if c["devices"] == devices]
                for x, cell in enumerate(here):
                    pairs = [(x + 0.2, cell, 1.0)]
                    if "published" in cell:
                        pairs.append((x - 0.2, cell["published"], 0.4))
                    for at, parts, alpha in pairs:
                        bottom = 0.0
                        for part, phase in colours.items():
                            height = parts[part] / 60
                            axes.bar(
                                at,
                                height,
                                0.36,
                                bottom,
                                color=look.PHASES[phase],
                                alpha=alpha,
                                label=PARTS[part] if x == 0 and alpha == 1 else None,
                            )
                            bottom += height
                        top = max(top, bottom)
                axes.set_title(f"{devices} devices")
                axes.set_xticks(range(len(here)), [c["scheme"] for c in here], rotation=45)
            for axes in panels:
                axes.set_ylim(0, 1.05 * top)
            panels[0].set_ylabel("minutes")
            panels[0].legend(loc="upper right", frameon=False, fontsize=8)
            look.layout(fig)
            look.save(fig, stem.with_name(f"{stem.name}-{network.lower()}"))


def _point(cells: list[dict], network: str) -> str:
    """The title: what the published scheme gains, and the best of ours."""
    most = max(c["devices"] for c in cells if c["scheme"] == "SGD")
    here = {c["scheme"]: c["T"] for c in cells if c["devices"] == most}
    best = min((s for s in here if s.startswith("dither")), key=here.get)
    return (
        f"{network} on {most} devices: SGD takes {here['SGD'] / here['E']:.1f} times as long "
        f"as E, and {here['SGD'] / here[best]:.1f} times as long as {best}"
    )
