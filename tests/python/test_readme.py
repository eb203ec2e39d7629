"""Tests that the code in client/python/README.md runs in a fresh Python that has only the installed wheel."""

import os
import re
import subprocess
import sys

from tests.python.conftest import ROOT


def test_the_ten_lines_run(server, client, pytestconfig, tmp_path):
    code, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "client" / "python" / "README.md").read_text(), re.DOTALL)
    lines = [line for line in code.splitlines() if line]
    assert len(lines) == 10
    script = tmp_path / "notebook.py"
    script.write_text(code)
    environment = {**os.environ, "PERMAFROST_SERVER": server.target, "PYTHONPATH": str(pytestconfig.permafrost_installed)}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "valid_metric" in done.stdout
    assert "tensor(" in done.stdout
    assert client.datasets.get("fake").summary["graphs"] == 200


def test_the_models_need_no_grpc(pytestconfig):
    code = "import sys\nfrom permafrost import models\nassert 'grpc' not in sys.modules\nprint([of for _, of in models.MODULES])"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(pytestconfig.permafrost_installed)},
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "gine" in done.stdout
