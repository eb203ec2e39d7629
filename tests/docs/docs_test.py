"""Checks documents against the tree and the programs: paths, command lines, metric names, class names, the rooms table.

usage: python -m tests.docs.docs_test BIN_DIR      BIN_DIR: permafrost and permafrostd
"""

import functools
import itertools
import pathlib
import re
import subprocess
import sys
import unittest

from tests import house

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build" / "bin"
FOLDERS = ("server", "client", "tests", "bench", "deploy", "proto", "cmake", ".ci")
PROGRAMS = ("build/bin/permafrost", "build/bin/permafrostd", "permafrost", "permafrostd", "bench/run", "deploy/quickstart", "tests/run")
MAX_README_LINES = 200


def documents():
    return [ROOT / "README.md", *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.md")))]


def code(text):
    """Returns the texts in backticks within lines, and the lines of fenced blocks."""
    fenced = re.findall(r"^```.*?\n(.*?)^```", text, re.M | re.S)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    return inline, [line for block in fenced for line in block.splitlines()]


def expand(text):
    """Expands braces: a_{b,c} becomes a_b and a_c."""
    parts = [part.split(",") if i % 2 else [part] for i, part in enumerate(re.split(r"\{([^}]*)\}", text))]
    return ["".join(choice) for choice in itertools.product(*parts)]


def bad_paths(text, folder):
    """Returns links that do not exist, and paths in backticks that begin with a folder of the tree and do not exist."""
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    bad = [link for link in links if link and not (folder / link).exists()]
    for word in itertools.chain.from_iterable(expand(part) for span in code(text)[0] for part in span.split()):
        word = word.rstrip(".,:;")
        if re.fullmatch(r"(%s)(/[\w.*-]+)*/?" % "|".join(map(re.escape, FOLDERS)), word) and "/" in word and not any(ROOT.glob(word.rstrip("/"))):
            bad.append(word)
    return bad


@functools.cache
def help_of(*command):
    done = subprocess.run([*command, "--help"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout + done.stderr


def flags_of(help_text):
    return set(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", help_text))


def bad_commands(lines):
    """Returns command lines of Permafrost's programs with a flag that --help does not list."""
    bad = []
    for line in lines:
        words = re.split(r" [|#>]", line.removeprefix("$ "))[0].split()
        if len(words) < 2 or words[0] not in PROGRAMS:
            continue
        program, rest = words[0], words[1:]
        flags = [word.split("=")[0] for word in rest if re.match(r"--?[a-zA-Z]", word)]
        names = [word for word in rest if re.fullmatch(r"[a-z][a-z-]*", word)]
        if program.endswith("permafrost"):
            deep = names[:3] if names[:2] == ["server", "token"] else names[:2]
            known = flags_of(help_of(BIN / "permafrost", *deep)) | flags_of(help_of(BIN / "permafrost"))
            if not names or names[0] not in help_of(BIN / "permafrost") or (len(names) > 1 and names[1] not in help_of(BIN / "permafrost", names[0])):
                bad.append(line)
        elif program.endswith("permafrostd"):
            known = flags_of(help_of(BIN / "permafrostd"))
        elif program == "bench/run":
            known = flags_of(help_of(ROOT / program, *names[:1]))
        else:
            known = flags_of(help_of(ROOT / program)) | ({"-R"} if program == "tests/run" else set())
        bad += [f"{flag} in: {line}" for flag in flags if flag not in known]
    return bad


def workflow_commands(text):
    """Returns the command lines of a CI workflow."""
    return re.findall(r"^ *- run: (.*)$", text, re.M)


@functools.cache
def sources(folder, *suffixes):
    return "\n".join(path.read_text() for path in sorted((ROOT / folder).rglob("*")) if path.suffix in suffixes)


def bad_metrics(text):
    """Returns names of series that nothing exports. A series is defined in telemetry or in the row of a counter."""
    names = {name for span in re.findall(r"`(permafrost_[^`\s]*)`", text) for name in expand(span)}
    exported = sources("server/telemetry", ".cc", ".h") + sources("server/graphcache", ".h")
    return sorted(name for name in names if f'"{name}"' not in exported)


def bad_classes(text):
    """Returns CamelCase words in backticks that occur in no header or source of the server, no proto and no file of the Python package."""
    declared = sources("server", ".h", ".cc") + sources("proto", ".proto") + sources("client/python", ".py")
    words = {word for span in code(text)[0] for word in re.findall(r"(?<![\w/.-])(?:[A-Z][a-z]+){2,}(?![\w/.-])", span)}
    return sorted(word for word in words if not re.search(rf"\b{word}\b", declared))


def documented_rooms(text):
    """Returns what each room may include, from the table in server/README.md."""
    rows = re.findall(r"^\| `([\w/]+)` \|[^|]*\|([^|]*)\|$", text, re.M)
    return {room: sorted(re.findall(r"`([^`]+)`", may)) for room, may in rows}


def upward(rooms):
    """Returns the arrows of the table that point to their own row or to a later one."""
    order = list(rooms)
    room_of = lambda target: target if target in rooms else target.split("/")[0]
    return [(room, target) for room, may in rooms.items() for target in may if order.index(room_of(target)) >= order.index(room)]


def tested_rooms(text):
    """Returns what each room may include, from tests/rooms/rooms_test.cc."""
    table = text[text.index("kRooms[] = {") : text.index("\n};", text.index("kRooms[] = {"))]
    rows = re.findall(r'\.name = "([^"]+)",\s*\.may_include = \{([^}]*)\}', table)
    return {room: sorted(re.findall(r'"([^"]+)"', may)) for room, may in rows}


def documented_limits(text):
    """Returns how many calls are served at once, from the table of limits in server/daemon/REFERENCE.md. The key is the sorted methods that
    share a limit, or the first words of a row without methods."""
    table = text[text.index("\n## Limits\n") :].split("\n| calls | at once | each holds |\n", 1)[1].split("\n\n", 1)[0]
    limits = {}
    for calls, most in re.findall(r"^\| ([^|]+) \| ([\d,]+) \|[^|]*\|$", table, re.M):
        methods = re.findall(r"`([A-Z][\w/]+)`", calls)
        limits[", ".join(sorted(methods)) or " ".join(calls.split()[:2])] = int(most.replace(",", ""))
    return limits


def coded_limits(options, services, server):
    """Returns the limits of server/api, from its CallLimitOptions, the limit that each method of its services takes, and server.cc."""
    most = {name: int(value) for name, value in re.findall(r"^  int (\w+) = (\d+);", options, re.M)}
    methods = {}
    for source in services:
        method = None
        for definition, limit in re.findall(r"^\S.* \w+Service::(\w+)\(|\blimits_\.(\w+)", source, re.M):
            method = definition or method
            if limit:
                methods.setdefault(limit, set()).add(method)
    # The table has other words than the methods for these: every command takes the first limit, and every other call the second.
    limits = {"commands to": most["cache_commands"], "other calls": most["waiting"], "Health/Watch": most["health_watches"],
              "reflection": int(re.search(r"kMaxReflectionThreads = (\d+);", server).group(1))}
    for limit, sharing in methods.items():
        if limit not in ("cache_commands", "workers", "connections"):
            limits[", ".join(sorted(sharing))] = most["waiting" if limit == "submitters" else limit]
    return limits


class Documents(unittest.TestCase):
    def test_readme_is_short(self):
        self.assertLessEqual(len((ROOT / "README.md").read_text().splitlines()), MAX_README_LINES)

    def test_paths_exist(self):
        for path in documents():
            self.assertEqual(bad_paths(path.read_text(), path.parent), [], path)

    def test_commands_have_their_flags(self):
        for path in documents():
            inline, fenced = code(path.read_text())
            self.assertEqual(bad_commands(fenced + inline), [], path)

    def test_workflows_run_what_there_is(self):
        workflows = sorted((ROOT / ".github/workflows").glob("*.yml"))
        self.assertNotEqual(workflows, [])
        for path in workflows:
            commands = workflow_commands(path.read_text())
            self.assertNotEqual(commands, [], path)
            self.assertEqual(bad_commands(commands), [], path)
            for program in {command.split()[0] for command in commands}:
                self.assertTrue((ROOT / program).exists() or (BIN / program.removeprefix("build/bin/")).exists(), program)

    def test_metrics_are_exported(self):
        for path in documents():
            self.assertEqual(bad_metrics(path.read_text()), [], path)

    def test_classes_are_declared(self):
        for path in documents():
            if (ROOT / "server") in path.parents or path.parent == ROOT:
                self.assertEqual(bad_classes(path.read_text()), [], path)

    def test_comments_begin_with_a_subject(self):
        counted = house.count()
        self.assertGreater(counted["comment sentences"], 1000)
        self.assertLess(counted["  headless"], 0.01 * counted["comment sentences"])

    def test_rooms_are_those_of_the_test(self):
        tested = tested_rooms((ROOT / "tests/rooms/rooms_test.cc").read_text())
        self.assertGreater(len(tested), 10)
        documented = documented_rooms((ROOT / "server/README.md").read_text())
        self.assertEqual(documented, tested)
        self.assertEqual(upward(documented), [])

    def test_limits_are_those_of_the_code(self):
        api = ROOT / "server/api"
        options = (api / "guard/call_limits.h").read_text()
        coded = coded_limits(options, [path.read_text() for path in sorted(api.glob("services/*_service.cc"))], (api / "server.cc").read_text())
        self.assertGreater(len(coded), 14)
        text = (ROOT / "server/daemon/REFERENCE.md").read_text()
        self.assertEqual(documented_limits(text), coded)
        # Checks the limits that the text beside the table gives.
        for name, words in (("threads", "one of {} threads, as"), ("submitting_threads", "one of {} threads |"),
                            ("calls_of_a_connection", "connection has at most {} calls open"),
                            ("connections_of_a_client", "`--max-connections-per-client` connections ({})")):
            most = int(re.search(rf"^  int(?:64_t)? {name} = (\d+);", options, re.M).group(1))
            self.assertIn(words.format(f"{most:,}"), text, name)


class Checks(unittest.TestCase):
    """Tests that the checks find planted faults."""

    def test_planted_faults(self):
        self.assertEqual(bad_paths("`server/nowhere.h` [a](gone.md) `bench/run`, `tests/{run,flea}`", ROOT), ["gone.md", "server/nowhere.h", "tests/flea"])
        self.assertEqual(bad_metrics("`permafrost_jobs` `permafrost_{jobs,moons}`"), ["permafrost_moons"])
        self.assertEqual(bad_classes("`GraphCache` runs, `GraphCashier` not"), ["GraphCashier"])
        bad = ["build/bin/permafrost job submit --fly", "build/bin/permafrostd --land", "build/bin/permafrost jog list", "bench/run steps --swim"]
        self.assertEqual(len(bad_commands([*bad, "build/bin/permafrost job submit --epochs 2", "build/bin/permafrostd --threads 2"])), len(bad))
        self.assertEqual(workflow_commands("    steps:\n      - uses: a\n      - run: tests/run --fast\n"), ["tests/run --fast"])
        self.assertEqual(documented_rooms("| `a` | x | `b` |\n"), {"a": ["b"]})
        table = "\n## Limits\n\n| calls | at once | each holds |\n|---|---|---|\n| `WatchJob`, `Backup` together | 4,096 | |\n| reflection | 8 | x |\n\n"
        self.assertEqual(documented_limits(table), {"Backup, WatchJob": 4096, "reflection": 8})
        options = "".join(f"  int {name} = {most};\n" for name, most in (("cache_commands", 1), ("waiting", 2), ("health_watches", 3), ("plans", 4)))
        service = "Reactor* AService::PlanA(x) {\n  f(limits_.plans);\n}\nReactor* AService::PlanB(x) {\n  g(limits_.plans, limits_.workers);\n}\n"
        coded = coded_limits(options, [service], "constexpr int kMaxReflectionThreads = 5;")
        self.assertEqual(coded, {"commands to": 1, "other calls": 2, "Health/Watch": 3, "reflection": 5, "PlanA, PlanB": 4})
        self.assertEqual(upward({"a": [], "b/c": ["a"], "d": ["e/x.h", "b/c"], "e": ["d"]}), [("d", "e/x.h")])


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
