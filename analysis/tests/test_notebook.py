"""The example notebook runs from its first cell to its last."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "example.ipynb"


# The kernel's own machinery warns of what we cannot mend.
@pytest.mark.filterwarnings("default")
def test_the_example_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    results = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in results)
    kinds = {kind for cell in results for out in cell.outputs for kind in out.get("data", {})}
    assert {"image/png", "text/html"} <= kinds


def test_the_example_is_kept_without_its_results() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
