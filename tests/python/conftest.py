"""Fixtures: the wheel, installed; a daemon; a client of it."""

import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def pytest_addoption(parser):
    parser.addoption("--bin-dir", required=True, help="holds permafrostd")


def pytest_configure(config):
    """Installs the wheel before anything imports the package, so that tests run what a user installs."""
    folder = pathlib.Path(config.getoption("--bin-dir")).resolve().parent / "python"
    wheel = subprocess.run([ROOT / "deploy" / "python-wheel", "--to", folder, "--python", sys.executable], check=True,
                           stdout=subprocess.PIPE, text=True).stdout.strip()
    installed = folder / "installed"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade", "--target",
                    installed, wheel], check=True)
    sys.path.insert(0, str(installed))
    config.permafrost_installed = installed


@pytest.fixture
def one_thread():
    """Gives PyTorch one thread. Sums of scattered rows are then in one order, and small tensors do not wait on a busy machine."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Server:
    """permafrostd on a port that it keeps after a restart."""

    def __init__(self, bin_dir, folder, *flags):
        self.program = pathlib.Path(bin_dir).resolve() / "permafrostd"
        self.state_dir = folder / "state"
        self.import_root = folder / "root"
        self.import_root.mkdir()
        self.flags = flags
        self.target = "127.0.0.1:0"
        self.process = None
        self.clients = []
        self.log = tempfile.TemporaryFile("w+")

    def start(self):
        self.process = subprocess.Popen(
            [self.program, "--listen", self.target, "--metrics", "127.0.0.1:0", "--state-dir", self.state_dir, "--import-root",
             self.import_root, "--device", "cpu", "--threads", "2", *self.flags], stdout=subprocess.PIPE, stderr=self.log, text=True)
        ready = re.search(r"grpc ([^,]+),", self.process.stdout.readline())
        if ready is None:
            self.log.seek(0)
            raise RuntimeError(f"permafrostd did not start: {self.log.read()[-2000:]}")
        self.target = ready[1]
        return self

    def connect(self):
        from permafrost import Client

        self.clients.append(Client(self.target))
        return self.clients[-1]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=60)

    def stop(self):
        for client in self.clients:
            client.close()
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(timeout=60) == 0


@pytest.fixture(scope="session")
def server(pytestconfig, tmp_path_factory):
    """One server for all tests that do not harm it."""
    started = Server(pytestconfig.getoption("--bin-dir"), tmp_path_factory.mktemp("server")).start()
    yield started
    started.stop()


@pytest.fixture
def make_server(pytestconfig, tmp_path):
    """Starts servers with the given flags for one test."""
    made = []

    def make(*flags):
        made.append(Server(pytestconfig.getoption("--bin-dir"), tmp_path, *flags))
        return made[-1].start()

    yield make
    for one in made:
        one.stop()


@pytest.fixture(scope="session")
def client(server):
    from permafrost import Client

    with Client(state_dir=server.state_dir) as connected:
        yield connected
