"""Prints "N passed, N failed, N skipped" for a JUnit file that ctest wrote."""

import sys
import xml.etree.ElementTree as ElementTree


def state(case: ElementTree.Element) -> str:
    status = case.get("status")
    if status == "run":
        return "passed"
    # A test that did not run was skipped only if it said so; else its program is missing.
    reason = case.find("skipped")
    said_so = reason is not None and reason.get("message", "").startswith("SKIP_")
    return "skipped" if said_so or status == "disabled" else "failed"


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: count_tests.py RESULTS.xml")
    states = [state(case) for case in ElementTree.parse(sys.argv[1]).getroot().iter("testcase")]
    print(", ".join(f"{states.count(word)} {word}" for word in ("passed", "failed", "skipped")))


if __name__ == "__main__":
    main()
