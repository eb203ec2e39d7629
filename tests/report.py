"""Sums up ctest's JUnit report. Counts each test of a suite, although the suite ran in one process.

usage: report.py REPORT.xml SUITES_DIR OUTPUT_FILE
Prints `PASSED FAILED SKIPPED`, then the name of each failed test on a line of its own. Appends the end of each failed
ctest test's output to OUTPUT_FILE. SUITES_DIR holds GoogleTest's report of each suite (cmake/AddSuites.cmake).
"""

import pathlib
import sys
from xml.etree import ElementTree

LINES = 30


def suite_results(report):
    """Returns [(name of a test, "run" or "skipped" or "fail")] from GoogleTest's report, or [] without a report."""
    try:
        root = ElementTree.parse(report).getroot()
    except (OSError, ElementTree.ParseError):
        return []
    results = []
    for test in root.iter("testcase"):
        failed = test.find("failure") is not None
        skipped = test.get("result") == "skipped"
        results.append((test.get("name"), "fail" if failed else "skipped" if skipped else "run"))
    return results


def main():
    report, suites, output = sys.argv[1:]
    counts = {"run": 0, "fail": 0, "skipped": 0}
    failures = []
    with open(output, "a", encoding="utf-8") as printed:
        for test in ElementTree.parse(report).getroot().iter("testcase"):
            name, status = test.get("name"), test.get("status")
            results = suite_results(pathlib.Path(suites) / f"{name.replace('/', '_')}.xml")
            if status == "fail":
                print(f"run: what {name} printed last:", file=printed)
                print("\n".join((test.findtext("system-out") or "").splitlines()[-LINES:]), file=printed)
                # A suite that failed without a failed test has crashed, which counts as one failure.
                if not any(result == "fail" for _, result in results):
                    results.append(("", "fail"))
            elif status != "run":
                results = [("", "skipped")]
            for part, result in results or [("", "run")]:
                counts[result] += 1
                if result == "fail":
                    failures.append(f"{name}.{part}" if part else name)
    print(counts["run"], counts["fail"], counts["skipped"])
    print("\n".join(failures))


if __name__ == "__main__":
    main()
