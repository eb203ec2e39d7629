"""Tests the wheel of deploy/wheel in an environment of its own. Its programs run on that environment's torch, and bring every other library
except those of glibc and of the compiler. Without that torch, one line says what to do.

usage: python -m tests.deploy.wheel_test BIN_DIR      BIN_DIR: permafrost and permafrostd, in their build folder
"""

import contextlib
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build" / "bin"
WHEEL = ROOT / "deploy" / "wheel"
# Libraries that every machine with torch has: glibc, and those of the compiler, which torch loads as well.
MACHINE = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|mvec|dl|pthread|rt|resolv|stdc\+\+|gcc_s))\.so.*")


def run(*command, **options):
    return subprocess.run([str(word) for word in command], env={}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def torch_of_build():
    """Returns the package torch that the build links."""
    cmake_dir = re.search(r"^Torch_DIR:\w+=(.*)$", (BIN.parent / "CMakeCache.txt").read_text(), re.M).group(1)
    return pathlib.Path(cmake_dir).parents[2]


@unittest.skipUnless(sys.platform == "linux", "only Linux has the wheel")
class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        made = subprocess.run([WHEEL, "--no-build", "--build-dir", BIN.parent, "--to", cls.root, "--python", sys.executable],
                              check=True, stdout=subprocess.PIPE, text=True)
        cls.wheel = pathlib.Path(made.stdout.removesuffix("\n"))
        venv = cls.root / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", venv / "bin" / "python",
                        "install", "--no-index", "--no-deps", cls.wheel], check=True)
        cls.bin = venv / "bin"
        cls.share = venv / "share"
        cls.site = next(venv.glob("lib/python3.*/site-packages"))
        cls.programs = cls.site / "permafrost" / "launchers"
        cls.torch = torch_of_build()
        cls.version = (cls.programs / "torch-version").read_text().strip()

    @contextlib.contextmanager
    def torch_from(self, folder):
        """Makes the environment find the packages in `folder` while the context lasts."""
        path = self.site / "others.pth"
        path.write_text(f"{folder}\n")
        try:
            yield
        finally:
            path.unlink()

    def stub(self, name, **files):
        """Makes a folder with a package torch of these modules."""
        folder = self.root / name
        (folder / "torch").mkdir(parents=True)
        for module, text in files.items():
            (folder / "torch" / f"{module}.py").write_text(text)
        return folder

    def refusal(self):
        """Returns the one line that the daemon prints instead of starting."""
        done = run(self.bin / "permafrostd", "--version")
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertRegex(done.stderr, r"\Apermafrostd: [^\n]+\n\Z")
        return done.stderr

    def test_its_name_tells_where_it_runs(self):
        found = re.fullmatch(r"permafrost-[\d.]+\+torch([\d.]+?)(\.cuda)?-py3-none-manylinux_2_(\d+)_\w+\.whl", self.wheel.name)
        self.assertIsNotNone(found, self.wheel.name)
        library = re.search(r"^__version__ = '([\d.]+)", (self.torch / "version.py").read_text(), re.M).group(1)
        self.assertEqual((found[1], self.version), (library, library))
        self.assertEqual(found[2] is not None, (BIN / "libpermafrost_cuda.so").exists())
        with zipfile.ZipFile(self.wheel) as file:
            (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
            metadata = file.read(name).decode()
        self.assertRegex(metadata, r"(?m)^Name: permafrost$")
        self.assertRegex(metadata, r"(?m)^Requires-Dist: grpcio")

    @unittest.skipUnless(shutil.which("readelf"), "readelf is not here")
    def test_no_part_needs_a_newer_glibc_than_its_name_says(self):
        promised = int(re.search(r"manylinux_2_(\d+)_", self.wheel.name).group(1))
        parts = [*(self.programs / "bin").iterdir(), *(self.programs / "lib" / "permafrost").iterdir()]
        self.assertGreater(len(parts), 20)
        for part in parts:
            needed = [int(minor) for minor in re.findall(r"Name: GLIBC_2\.(\d+)", run(shutil.which("readelf"), "-V", part).stdout)]
            self.assertLessEqual(max(needed, default=0), promised, part)

    def test_every_library_comes_along_or_is_of_torch(self):
        own = {path.name for path in (self.programs / "lib" / "permafrost").iterdir()}
        self.assertFalse({name for name in own if re.match(r"lib(torch|c10|gomp|cu|nv|stdc|gcc_s)", name) or MACHINE.fullmatch(name)})
        for program in ("permafrost", "permafrostd"):
            places = {}
            listed = subprocess.run(["ldd", self.programs / "bin" / program], check=True, stdout=subprocess.PIPE, text=True,
                                    env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(self.torch / "lib")}).stdout
            for name, place in re.findall(r"^\s*(\S+) => (.*?)(?: \(0x\w+\))?$", listed, re.M):
                if not MACHINE.fullmatch(name):
                    places.setdefault(pathlib.Path(place).resolve().parent, set()).add(name)
            self.assertIn(self.programs / "lib" / "permafrost", places, listed)
            others = set().union(*(names for place, names in places.items() if place != self.programs / "lib" / "permafrost"))
            # libtorch.so must be absent, because a CUDA build's libtorch.so would load the CUDA half.
            self.assertLessEqual({"libtorch_cpu.so", "libc10.so", "libgomp.so.1"} if program == "permafrostd" else set(), others)
            self.assertFalse([name for name in others if not re.match(r"lib(torch_cpu|c10|gomp|cupti|cudart)\.so", name)], listed)

    def test_it_trains(self):
        with self.torch_from(self.torch.parent):
            state = self.root / "state"
            daemon = subprocess.Popen([self.bin / "permafrostd", "--state-dir", state, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
                                       "--import-root", self.share / "permafrost" / "sample", "--threads", "1", "--device", "cpu"],
                                      env={}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            try:
                self.assertIn("ready", daemon.stdout.readline())
                self.assertEqual(pathlib.Path(f"/proc/{daemon.pid}/exe").resolve(), self.programs / "bin" / "permafrostd")
                # There is only one OpenMP runtime. Two would have two sets of threads.
                openmp = set(re.findall(r" (/\S*libgomp\S*)$", pathlib.Path(f"/proc/{daemon.pid}/maps").read_text(), re.M))
                self.assertEqual({pathlib.Path(path).parent for path in openmp}, {(self.torch / "lib").resolve()})
                client = [self.bin / "permafrost", "--server", f"unix:{state}/permafrost.sock"]
                for words in (["dataset", "import", "zinc", self.share / "permafrost" / "sample" / "zinc"],
                              ["job", "submit", "--id", "first", "--dataset", "zinc", "--epochs", "1", "--watch"]):
                    done = run(*client, *words)
                    self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("succeeded", run(*client, "job", "list").stdout)
            finally:
                daemon.terminate()
                daemon.communicate(timeout=60)
            self.assertEqual(daemon.returncode, 0)

    def test_without_torch_only_the_daemon_refuses(self):
        self.assertIn(f"{self.bin}/python", self.refusal())
        self.assertIn(f"pip install torch=={self.version}", self.refusal())
        self.assertEqual(run(self.bin / "permafrost", "--version").returncode, 0)

    def test_a_folder_named_torch_is_not_torch(self):
        with self.torch_from(self.stub("folder")):
            self.assertIn("has no torch", self.refusal())

    def test_another_version_is_named(self):
        stub = self.stub("other", __init__="raise ImportError('only to be found')", version="__version__ = '2.0.1+cu118'\n")
        with self.torch_from(stub):
            self.assertIn(f"torch 2.0.1+cu118 is in {stub}/torch, and this daemon was built for torch {self.version}: ", self.refusal())

    def test_a_version_that_is_not_told_is_refused(self):
        with self.torch_from(self.stub("silent", __init__="")):
            self.assertIn("torch of unknown version", self.refusal())

    def test_torch_without_libraries_is_refused(self):
        with self.torch_from(self.stub("hollow", __init__="", version=f"__version__ = '{self.version}+cpu'\n")):
            self.assertIn("has no lib/libtorch_cpu.so", self.refusal())

    def test_the_python_package_is_in_it(self):
        with self.torch_from(sysconfig.get_path("purelib")):
            done = run(self.bin / "python", "-c", "import permafrost; print(permafrost.Client.__module__, permafrost.__file__)")
        self.assertEqual(done.stdout, f"permafrost.client {self.site}/permafrost/__init__.py\n", done.stderr)

    @unittest.skipUnless(shutil.which("dpkg-query"), "only Debian knows the packages of libraries")
    def test_licenses_come_along(self):
        licenses = {path.parent.name for path in (self.share / "doc" / "permafrost" / "licenses").glob("*/copyright")}
        for part in ("libgrpc", "libprotobuf", "libabsl", "libprometheus-cpp", "libsqlite3", "libsqlitecpp"):
            self.assertTrue(any(name.startswith(part) for name in licenses), f"{part}: {licenses}")

    def test_bad_arguments_get_one_line(self):
        for words, status, said in ((["--no-build", "--build-dir", self.root / "nothing"], 1, "nothing is no build folder"),
                                    (["--to"], 2, "--to needs a value"), (["--torch"], 2, "--torch: unknown")):
            done = subprocess.run([WHEEL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
            self.assertRegex(done.stderr, rf"\Awheel: .*{re.escape(said)}.*\n\Z")


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
