"""Prints "N passed, N failed, N skipped" for a JUnit file that ctest wrote.

A test program that ctest ran as a whole, or a part of one, counts as the tests inside it, if
GoogleTest left its own NAME.xml in the given folder.
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path


def state(case: ElementTree.Element) -> str:
    """Of a test as ctest reports it."""
    status = case.get("status")
    if status == "run":
        return "passed"
    # A test that did not run was skipped only if it said so; else its program is missing.
    reason = case.find("skipped")
    said_so = reason is not None and reason.get("message", "").startswith("SKIP_")
    return "skipped" if said_so or status == "disabled" else "failed"


def inner_state(case: ElementTree.Element) -> str:
    """Of a test as GoogleTest reports it."""
    if case.find("failure") is not None:
        return "failed"
    return "passed" if case.get("result") == "completed" else "skipped"


def count(results: Path, folder: Path) -> Counter:
    states = Counter()
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        inside = folder / f"{case.get('name')}.xml"
        if not inside.exists():
            states[state(case)] += 1
            continue
        tests = Counter(map(inner_state, ElementTree.parse(inside).getroot().iter("testcase")))
        states += tests
        # A sanitizer may fail a program all of whose tests have passed.
        if state(case) == "failed" and tests["failed"] == 0:
            states["failed"] += 1
    return states


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: count_tests.py RESULTS.xml FOLDER")
    states = count(Path(sys.argv[1]), Path(sys.argv[2]))
    print(", ".join(f"{states[word]} {word}" for word in ("passed", "failed", "skipped")))


if __name__ == "__main__":
    main()
