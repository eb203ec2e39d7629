"""Tests the result of `cmake --install`. It runs with an empty environment from wherever it is moved, finds its libraries beside itself and
not in the build, and has everything that its README names. With the portable component it needs no library of the machine except glibc's.

usage: python -m tests.deploy.package_test BIN_DIR      BIN_DIR: permafrost and permafrostd, in their build folder
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build" / "bin"
DEBIAN = ROOT / "deploy" / "debian"
GLIBC = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|mvec|dl|pthread|rt|resolv))\.so.*")


def run(*command, **options):
    """Runs a command without an environment, and returns what it prints."""
    done = subprocess.run([str(word) for word in command], env={}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}: {done.stdout}")
    return done.stdout


@unittest.skipUnless(sys.platform == "linux", "only Linux has the packages")
class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        before = cls.root / "before"
        for component in ("permafrost", "portable"):
            subprocess.run(["cmake", "--install", BIN.parent, "--prefix", before, "--component", component], check=True, stdout=subprocess.DEVNULL)
            if component == "permafrost":
                cls.own = {path.name for path in (before / "lib" / "permafrost").iterdir()}
        cls.prefix = cls.root / "somewhere" / "else"
        cls.prefix.parent.mkdir()
        before.rename(cls.prefix)
        cls.programs = [cls.prefix / "bin" / name for name in ("permafrost", "permafrostd")]

    def test_libtorch_comes_along_and_nothing_else_unless_asked_for(self):
        self.assertIn("libtorch_cpu.so", self.own)
        self.assertTrue(all(re.match(r"lib(torch|c10|gomp|shm|cu|nv|permafrost_cuda\.so)", name) for name in self.own), self.own)
        self.assertFalse({"libtorch_python.so", "libtorchbind_test.so"} & self.own)

    def test_libraries_are_found_beside_the_programs(self):
        for program in self.programs:
            for line in run("/usr/bin/ldd", program).splitlines():
                name, _, place = line.strip().partition(" => ")
                if place and not GLIBC.fullmatch(name):
                    self.assertIn(str(self.prefix / "bin" / ".." / "lib" / "permafrost"), place, program)

    @unittest.skipUnless(shutil.which("readelf"), "readelf is not here")
    def test_no_path_leads_to_the_build(self):
        for path in [*self.programs, *(self.prefix / "lib" / "permafrost").iterdir()]:
            paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", run(shutil.which("readelf"), "-d", path))
            if path in self.programs:
                self.assertEqual(paths, ["$ORIGIN/../lib/permafrost"], path)
            for found in ":".join(paths).split(":"):
                self.assertTrue(found == "" or found.startswith("$ORIGIN"), f"{path}: {found}")

    def test_it_trains(self):
        state = self.root / "state"
        daemon = subprocess.Popen([self.prefix / "bin" / "permafrostd", "--state-dir", state, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
                                   "--import-root", self.prefix / "share" / "permafrost" / "sample", "--threads", "1", "--device", "cpu"],
                                  env={}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            self.assertIn("ready", daemon.stdout.readline())
            client = [self.prefix / "bin" / "permafrost", "--server", f"unix:{state}/permafrost.sock"]
            run(*client, "dataset", "import", "zinc", self.prefix / "share" / "permafrost" / "sample" / "zinc")
            run(*client, "job", "submit", "--id", "first", "--dataset", "zinc", "--epochs", "2", "--watch")
            self.assertIn("succeeded", run(*client, "job", "list"))
        finally:
            daemon.terminate()
            daemon.communicate(timeout=60)
        self.assertEqual(daemon.returncode, 0)

    def test_what_its_readme_names_is_there(self):
        share = self.prefix / "share"
        table = re.findall(r"^\| (`.*`) \|", (share / "doc" / "permafrost" / "README.md").read_text(), re.M)
        named = [name for row in table for name in re.findall(r"`([^`]+)`", row) if name != "share"]
        self.assertGreater(len(named), 5)
        for name in named:
            self.assertTrue((share / name).exists(), name)
        self.assertIn("complete", (share / "bash-completion" / "completions" / "permafrost").read_text())
        # Licenses of the machine's packages whose files were installed.
        self.assertTrue((share / "doc" / "permafrost" / "licenses" / "libtorch").exists())
        if shutil.which("dpkg-query"):
            self.assertGreater(len(list((share / "doc" / "permafrost" / "licenses").glob("lib*/copyright"))), 10)

    def test_the_configuration_is_understood(self):
        # The daemon accepts every line of the file, including those in comments, and complains only about the last flag.
        text = (ROOT / "deploy" / "permafrostd.toml").read_text()
        commented = re.sub(r'^# (?=[a-z-]+ = )(?!listen|metrics)', "", text, flags=re.M)
        self.assertGreater(len(re.findall(r"^[a-z-]+ = ", commented, re.M)), 5)
        for number, content in enumerate((text, commented)):
            config = self.root / f"{number}.toml"
            config.write_text(content)
            done = subprocess.run([self.prefix / "bin" / "permafrostd", "--config", config, "--max-upload", "much"], env={}, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("much", done.stderr)

    def test_scripts_of_the_debian_package_are_scripts(self):
        for name in ("postinst", "prerm", "postrm"):
            run("/bin/sh", "-n", DEBIAN / name)
            self.assertNotRegex((DEBIAN / name).read_text(), r"(?<!: )\brm -r", name)
        self.assertEqual((DEBIAN / "conffiles").read_text(), "/etc/permafrost/permafrostd.toml\n")


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
