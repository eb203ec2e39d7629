"""The Pythons that run peers, which are virtual environments below the work folder. PyG's environment reuses the packages of this
interpreter and installs the rest. GraphBolt has an environment of its own, since it needs an old torch."""

import json
import subprocess
import sys
import sysconfig

from bench import tools

REQUIREMENTS = tools.ROOT / "bench" / "peer-requirements.txt"
GRAPHBOLT = tools.ROOT / "bench" / "graphbolt-requirements.txt"
# PyG's NeighborLoader needs these. They have no wheels, and compiling takes 20 minutes.
SAMPLER = ("torch-scatter", "torch-sparse")


def _wanted():
    return dict(line.strip().split("==") for line in REQUIREMENTS.read_text().splitlines() if line.strip())


def _installed(python):
    """Returns the version of each wanted package that is installed."""
    ask = ("import importlib.metadata as m, json, sys\nfound = {}\nfor name in sys.argv[1:]:\n try: found[name] = m.version(name)\n"
           " except m.PackageNotFoundError: pass\nprint(json.dumps(found))")
    names = [*_wanted(), *SAMPLER]
    return json.loads(subprocess.run([python, "-c", ask, *names], check=True, stdout=subprocess.PIPE, text=True).stdout)


def _pip(python, *arguments):
    subprocess.run([python, "-m", "ensurepip", "--upgrade"], check=True, stdout=sys.stderr)
    done = subprocess.run([python, "-m", "pip", "install", "--disable-pip-version-check", *arguments], stdout=sys.stderr)
    if done.returncode != 0:
        raise tools.Missing(f"pip install {' '.join(map(str, arguments))} failed in {python}")


def add_install_flag_of_sampler(parser):
    parser.add_argument("--install-sampler", action="store_true", help="compile torch-sparse for PyG's NeighborLoader, once: about 20 minutes")


def add_install_flag_of_graphbolt(parser):
    parser.add_argument("--install-graphbolt", action="store_true", help="install DGL's GraphBolt with the torch that it takes, once: 5 GB")


def python(work, with_sampler, must_sample=False):
    """Returns PyG's interpreter, which is made the first time. with_sampler: also installs what NeighborLoader needs. must_sample: fails
    without it."""
    folder = work / "pyg"
    interpreter = folder / "bin" / "python"
    if not interpreter.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        # Shares this interpreter's packages, because torch alone is 200 MB.
        (site,) = (folder / "lib").glob("python3.*/site-packages")
        (site / "shared.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    # A build of torch may have a suffix, such as 2.13.0+cpu.
    installed = {name: version.split("+")[0] for name, version in _installed(interpreter).items()}
    if any(installed.get(name) != version for name, version in _wanted().items()):
        print(f"bench: installing {' '.join(REQUIREMENTS.read_text().split())} into {folder}", file=sys.stderr)
        _pip(interpreter, "-r", REQUIREMENTS)
    if with_sampler and not installed.keys() >= set(SAMPLER):
        print(f"bench: compiling {' and '.join(SAMPLER)} into {folder}: about 20 minutes", file=sys.stderr)
        _pip(interpreter, "--no-build-isolation", *SAMPLER)
    elif must_sample and not installed.keys() >= set(SAMPLER):
        raise tools.Missing(f"{' and '.join(SAMPLER)} are not in {folder}; --install-sampler compiles them: about 20 minutes")
    return interpreter


def graphbolt(work, install):
    """Returns the interpreter that has GraphBolt. It is made the first time if `install`."""
    folder = work / "graphbolt"
    interpreter, done = folder / "bin" / "python", folder / "installed"
    wanted = GRAPHBOLT.read_text()
    if not done.exists() or done.read_text() != wanted:
        if not install:
            raise tools.Missing(f"GraphBolt is not in {folder}; --install-graphbolt installs it: 5 GB")
        print(f"bench: installing {' '.join(wanted.split())} into {folder}: about 5 GB", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        _pip(interpreter, "-r", GRAPHBOLT)
        done.write_text(wanted)
    return interpreter


def ask(module, settings, tools_):
    """Runs a module of PyG's side with the settings as JSON, on as many threads as ours, and returns the JSON that it writes."""
    done = subprocess.run([python(tools_.work, with_sampler=False), "-m", module], input=json.dumps({**settings, "threads": tools_.threads}),
                          stdout=subprocess.PIPE, text=True, check=True, cwd=tools.ROOT,
                          env=tools.peer_environment(tools_.threads))
    return json.loads(done.stdout)
