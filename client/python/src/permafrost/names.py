"""Makes resource names from what callers pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from permafrost.datasets import Dataset
    from permafrost.programs import Program


def job_name(id: str) -> str:
    return f"jobs/{id.removeprefix('jobs/')}"


def dataset_name(dataset: Dataset | str) -> str:
    id = dataset if isinstance(dataset, str) else dataset.id
    return f"datasets/{id.removeprefix('datasets/')}"


def program_name(program: Program | str) -> str:
    id = program if isinstance(program, str) else program.id
    return f"programs/{id.removeprefix('programs/')}"
