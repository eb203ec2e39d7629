"""Counts what a new colleague has to know: lines, files, small files, comments without a subject.

usage: python -m tests.house [COMMIT]      COMMIT: of this repository; without one, the files as they are

Blank lines do not count. Source is C++, Python, shell, CMake and proto under server, client, proto, cmake, deploy and bench. Test is the
same under tests, except golden files. A sentence of a C++ comment, in tests too, counts as headless if it begins with one of the words of
HEADLESS.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ("server/", "client/", "proto/", "cmake/", "deploy/", "bench/", "CMakeLists.txt")
ENDINGS = (".cc", ".h", ".mm", ".py", ".sh", ".cmake", ".proto", "CMakeLists.txt")
CPP = (".cc", ".h", ".mm")
SMALL = 50
HEADLESS = re.compile(r"^(Of|What|Whether|Those|That of|As many|So many)\b")


def run(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, errors="replace").stdout


def files(commit: str | None) -> dict[str, str]:
    """Returns the text of each tracked file of code."""
    names = run("git", "ls-tree", "-r", "--name-only", commit).splitlines() if commit else run("git", "ls-files").splitlines()
    wanted = [n for n in names if n.endswith(ENDINGS) and n.startswith((*SOURCE, "tests/"))]
    if commit is None:
        return {n: (ROOT / n).read_text(errors="replace") for n in wanted if (ROOT / n).is_file()}
    return {n: run("git", "show", f"{commit}:{n}") for n in wanted}


def lines(texts: list[str]) -> int:
    return sum(1 for text in texts for line in text.splitlines() if line.strip())


def sentences(text: str) -> list[str]:
    """Returns the sentences of a C++ file's comments. Adjacent comment lines are one text."""
    out: list[str] = []
    for block in re.findall(r"(?:^[ \t]*//[^\n]*\n)+", text, re.M):
        words = " ".join(line.strip().lstrip("/").strip() for line in block.splitlines())
        out += [s for s in re.split(r"(?<=[.:!?])\s+(?=[A-Z])", words) if s]
    return out


def count(commit: str | None = None) -> dict[str, int]:
    """Returns the counts by name."""
    code = files(commit)
    source = {n: t for n, t in code.items() if not n.startswith("tests/")}
    test = {n: t for n, t in code.items() if n.startswith("tests/")}
    server = {n: t for n, t in source.items() if n.startswith("server/") and n.endswith(CPP)}
    client = {n: t for n, t in source.items() if n.startswith("client/") and n.endswith(CPP)}
    comments = [s for n, t in code.items() if n.endswith(CPP) for s in sentences(t)]
    headless = sum(1 for s in comments if HEADLESS.match(s))
    return {
        "source lines": lines(list(source.values())),
        "test lines": lines(list(test.values())),
        "server files": len(server),
        f"  below {SMALL} lines": sum(1 for t in server.values() if lines([t]) < SMALL),
        "client files": len(client),
        "comment sentences": len(comments),
        "  headless": headless,
    }


def main() -> None:
    for name, number in count(sys.argv[1] if len(sys.argv) > 1 else None).items():
        print(f"{name:20}{number:>10,}")


if __name__ == "__main__":
    main()
