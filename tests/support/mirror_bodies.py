"""Bodies as they are mirrored: inference requests and responses in JSON and binary tensors."""

from __future__ import annotations

import json
import struct

import numpy as np
from tritonclient.grpc import service_pb2 as pb

RESPONSE = "org.kubeflow.serving.inference.response"


def tensor(name="x", shape=(1, 2), datatype="FP32", data=(1.5, -2), **parameters):
    found = {"name": name, "shape": list(shape), "datatype": datatype}
    if data is not None:
        found["data"] = data
    if parameters:
        found["parameters"] = parameters
    return found


def request(*tensors, **more):
    return json.dumps({"id": "r-1", "inputs": tensors or [tensor()], **more}).encode()


def response(*tensors, **more):
    return json.dumps({"outputs": tensors or [tensor("y")], **more}).encode()


def binary(**arrays):
    """The binary tensor extension: the body and what its header says."""
    tensors, parts = [], []
    for name, array in arrays.items():
        if array.dtype == np.object_:
            data = b"".join(struct.pack("<I", len(i)) + i for i in array.ravel())
            datatype = "BYTES"
        else:
            data, datatype = array.tobytes(), "FP32"
        tensors.append(
            tensor(name, array.shape, datatype, None, binary_data_size=len(data))
        )
        parts.append(data)
    head = request(*tensors)
    return head + b"".join(parts), str(len(head))


def grpc_request() -> bytes:
    """A ModelInferRequest to model m."""
    message = pb.ModelInferRequest(model_name="m", id="r")
    values = message.inputs.add(name="x", datatype="FP32", shape=(1, 2))
    values.contents.fp32_contents.extend((1.5, -2))
    return message.SerializeToString()
