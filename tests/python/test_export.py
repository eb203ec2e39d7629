"""Tests that export writes what the module computes, also at other sizes, and tests what it refuses."""

import copy
import json
import os
import subprocess
import sys
import zipfile

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from torch.export.pt2_archive._package import load_pt2

from tests.python.conftest import ROOT
from tests.python.net_data import another, call, example, example_for
from tests.python.nets import NETS

pytestmark = pytest.mark.usefixtures("one_thread")


def read_program(path):
    archive = load_pt2(str(path))
    return archive.exported_programs, json.loads(archive.extra_files["permafrost.json"])


def results(module, output):
    prediction, *loss = output if isinstance(output, tuple) else (output,)
    (loss[0] if loss else prediction.square().mean()).backward()
    return prediction, {key: value.grad for key, value in module.named_parameters() if value.grad is not None}


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """Returns a function that gives a module and its file by name. It exports each module once."""
    made, folder = {}, tmp_path_factory.mktemp("programs")

    def export_once(name):
        from permafrost import export

        if name not in made:
            torch.manual_seed(3)
            module, given = NETS[name](), example_for(name)
            before = copy.deepcopy(module.state_dict())
            made[name] = module, export(module, given, folder / f"{name}.pt2")
            assert module.training and all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
        return made[name]

    return export_once


@pytest.mark.parametrize("name", NETS)
def test_computes_what_the_module_computes(name, exported):
    module, path = exported(name)
    programs, described = read_program(path)
    batch, values = another(name)
    assert set(programs["train"].state_dict) == set(programs["eval"].state_dict) == set(module.state_dict())
    for form, training in (("train", True), ("eval", False)):
        own, loaded = copy.deepcopy(module).train(training), programs[form].module()
        want, want_gradients = results(own, call(name, own, batch, values))
        have, gradients = results(loaded, loaded(*(values[one["name"]] for one in described["inputs"])))
        assert torch.equal(have, want), form
        # torch may use another name for a weight that has several.
        first = {name: names[0] for names in described["tied"] for name in names}
        gradients = {first.get(key, key): value for key, value in gradients.items()}
        want_gradients = {first.get(key, key): value for key, value in want_gradients.items()}
        assert want_gradients and gradients.keys() == want_gradients.keys()
        assert [key for key in gradients if not torch.equal(gradients[key], want_gradients[key])] == [], form
        state = own.state_dict()
        assert [key for key, value in loaded.state_dict().items() if not torch.equal(value, state[key])] == [], form


def test_describes_what_the_server_needs(exported):
    _, described = read_program(exported("of_data")[1])
    assert described["format"] == 1 and described["torch"] == torch.__version__
    assert described["module"] == "tests.python.nets.OfData"
    assert described["inputs"] == [
        {"name": "x", "dtype": "int64", "shape": ["nodes"]},
        {"name": "edge_index", "dtype": "int64", "shape": [2, "edges"]},
        {"name": "batch", "dtype": "int64", "shape": ["nodes"]},
        {"name": "y", "dtype": "float32", "shape": ["graphs"]},
        {"name": "num_graphs", "number": "graphs"},
    ]
    assert described["outputs"] == [{"name": "prediction", "dtype": "float32", "shape": ["graphs"]},
                                    {"name": "loss", "dtype": "float32", "shape": []}]
    assert described["least"] == {"nodes": 2, "edges": 2, "graphs": 2}

    _, described = read_program(exported("links")[1])
    assert described["outputs"] == [{"name": "prediction", "dtype": "float32", "shape": ["links"]}]
    assert {one["name"]: one["trained"] for one in described["parameters"]} == {
        "first.weight": True, "first.bias": True, "second.weight": True, "second.bias": False}
    assert described["tied"] == [["first.weight", "second.weight"]]

    # The module sorts the three largest nodes of each graph, so a batch must have three.
    _, described = read_program(exported("sorted")[1])
    assert described["least"]["nodes of the largest graph"] == 3


class EvaluatesFour(torch.nn.Module):
    """A module whose eval form reads the fourth node."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(5, 1)

    def forward(self, x):
        return self.head(x) if self.training else self.head(x) + x[3].sum()


def test_the_fewest_rows_are_those_of_both_forms(tmp_path):
    from permafrost import export

    path = export(EvaluatesFour(), {"x": torch.randn(6, 5)}, tmp_path / "four.pt2")
    assert read_program(path)[1]["least"]["nodes"] == 4


def test_a_program_is_kept_until_the_new_one_is_whole(tmp_path, monkeypatch):
    from permafrost import InputError
    from permafrost.exporting import archive, export

    path = tmp_path / "program.pt2"
    path.write_bytes(b"kept")

    def full(reader, writer):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive, "_share_weights", full)
    with pytest.raises((InputError, RuntimeError)):
        export(EvaluatesFour(), {"x": torch.randn(6, 5)}, path)
    assert path.read_bytes() == b"kept"
    assert [file.name for file in tmp_path.iterdir()] == ["program.pt2"]


_ALONE = """
import sys, torch
from permafrost import export
from tests.python.nets import NETS
from tests.python.net_data import example

torch.manual_seed(3)
export(NETS["inferred"](), [example()] * 2, sys.argv[1])
"""


def test_equal_modules_give_equal_files(exported, pytestconfig, tmp_path):
    """Exports with another example of the same columns, and in another process, whose sets have another order."""
    path = tmp_path / "other.pt2"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": f"{pytestconfig.permafrost_installed}:{ROOT}"}
    subprocess.run([sys.executable, "-c", _ALONE, path], env=environment, check=True)
    assert path.read_bytes() == exported("inferred")[1].read_bytes()


def test_stores_weights_once(exported):
    module, path = exported("gine")
    with zipfile.ZipFile(path) as archive:
        names = [name.partition("/")[2] for name in archive.namelist()]
        folder = archive.namelist()[0].partition("/")[0]
        configs = [json.loads(archive.read(f"{folder}/data/weights/{form}_weights_config.json"))["config"] for form in ("train", "eval")]
    paths = [{name: weight["path_name"] for name, weight in config.items()} for config in configs]
    assert paths[0] == paths[1] and set(paths[0]) == set(module.state_dict())
    assert sum(name.startswith("data/weights/weight_") for name in names) == len(module.state_dict())
    assert {"models/train.json", "models/eval.json", "extra/permafrost.json"} <= set(names)
