"""A model that multiplies, what asks it, and what a server of it may have left behind."""

from __future__ import annotations

import contextlib
import http.client
import json
from pathlib import Path

from waiting import patience

from exporter.triton import keeper

SCALE = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        values = [pb.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        return [pb.InferenceResponse([pb.Tensor("y", v * {factor})]) for v in values]
"""

SCALE_CONFIG = """
backend: "python"
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


def write_model(repository: Path, name: str, config: str, source: str) -> Path:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config)
    (repository / name / "1" / "model.py").write_text(source)
    return repository


def scaling(repository, factor=2, name="scale"):
    """A repository whose one model multiplies by the factor."""
    return write_model(repository, name, SCALE_CONFIG, SCALE.format(factor=factor))


def ask(server, values=(1.0, 2.0, 4.0), *, timeout=None):
    """What `scale` answers, through HTTP and JSON."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [len(values)], "data": values}
    connection = http.client.HTTPConnection(
        server.http, timeout=timeout or patience(10)
    )
    with contextlib.closing(connection):
        body = json.dumps({"inputs": [tensor]})
        connection.request("POST", "/v2/models/scale/infer", body)
        return json.loads(connection.getresponse().read())["outputs"][0]["data"]


def alive(pid):
    """Whether the process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def shared_memory(token):
    return [path.name for path in Path("/dev/shm").iterdir() if token in path.name]


def left(folder):
    """What remains of the server that ran from the folder."""
    processes = keeper.members(folder.name)
    return processes + shared_memory(folder.name) + [folder] * folder.exists()
