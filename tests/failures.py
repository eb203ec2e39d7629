"""The end of what each failed test of a JUnit report printed.

usage: failures.py REPORT.xml
"""

import sys
from xml.etree import ElementTree

LINES = 30


def main():
    for test in ElementTree.parse(sys.argv[1]).getroot().iter("testcase"):
        if test.get("status") == "fail":
            print(f"run: what {test.get('name')} printed last:")
            print("\n".join((test.findtext("system-out") or "").splitlines()[-LINES:]))


if __name__ == "__main__":
    main()
