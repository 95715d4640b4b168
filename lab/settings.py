"""What all measurements in a folder have in common, so that others are not mixed with them."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Iterable

import namespaces

NAME = "settings.json"


def there(out: pathlib.Path, before: dict | None = None) -> dict | None:
    """The settings in OUT/settings.json; None if there are none. `before` has what holds where
    they say nothing, as they had fewer keys once."""
    path = out / NAME
    return (before or {}) | json.loads(path.read_text()) if path.exists() else None


def keep(out: pathlib.Path, settings: dict, adopt: bool, before: dict | None = None) -> dict:
    """Writes settings to OUT/settings.json, or compares them with those that are there.

    Returns those that hold: with `adopt` what is there, whatever `settings` says. `before` is
    that of there(). Raises LabError if what is there differs.
    """
    found = there(out, before)
    if found is not None:
        if adopt:
            return found
        for key, value in settings.items():
            if found.get(key) != value:
                raise namespaces.LabError(
                    f"{out} has measurements with {key} {found.get(key)!r}, not {value!r}: "
                    "choose another --out"
                )
    (out / NAME).write_text(json.dumps(settings, indent=1) + "\n")
    return settings


def keep_arguments(args: argparse.Namespace, names: Iterable[str], adopt: bool) -> None:
    """Keeps these of a script's arguments in its --out, as keep() does, or ends the script with
    the words of the error. With `adopt` the arguments become what is there."""
    given = {name: getattr(args, name) for name in names}
    told = {n: str(v) if isinstance(v, pathlib.Path) else v for n, v in given.items()}
    try:
        held = keep(args.out, told, adopt)
    except namespaces.LabError as error:
        sys.exit(f"{pathlib.Path(sys.argv[0]).stem}: {error}")
    for name in given.keys() & held.keys():
        value = held[name]
        is_path = isinstance(given[name], pathlib.Path) and value is not None
        setattr(args, name, pathlib.Path(value) if is_path else value)
