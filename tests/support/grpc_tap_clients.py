"""A gRPC tap with a reader behind it, and the messages that are sent to it."""

from __future__ import annotations

import grpc
from running_taps import PATIENT_SECONDS, RunningTap, mirrored
from tritonclient.grpc import service_pb2 as pb
from waiting import patience

from exporter.network.admission import Admission
from exporter.taps.tap_grpc import GrpcTap

CALL = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


class Served(RunningTap):
    """A mirror collector behind a gRPC tap, and one reader."""

    def __init__(self, access, admission=None, **settings):
        self.collector, self.got = mirrored(access, grpc=True, **settings)
        self.admission = admission or Admission()
        super().__init__(
            GrpcTap(
                self.collector.routes,
                self.admission.grpc,
                answer_seconds=PATIENT_SECONDS,
            )
        )
        self.channel = grpc.insecure_channel(self.tap.address)

    def close(self):
        self.channel.close()
        super().close(within_seconds=15)

    def call(self, message):
        """The answer's bytes, or the status it was refused with."""
        if not isinstance(message, bytes):
            message = message.SerializeToString()
        try:
            return self.channel.unary_unary(CALL)(message, timeout=patience(20))
        except grpc.RpcError as error:
            return error.code()

    def outcomes(self):
        return {s.labels[1]: s.value for s in self.tap.samples()}


def message(*inputs, model="m", raw=(), **more):
    found = pb.ModelInferRequest(model_name=model, id="r-1", **more)
    for name, datatype, shape, values in inputs or [("x", "FP32", (1, 2), (1.5, -2))]:
        entry = found.inputs.add(name=name, datatype=datatype, shape=shape)
        fields = {
            "FP32": "fp32",
            "INT8": "int",
            "INT64": "int64",
            "UINT64": "uint64",
            "BYTES": "bytes",
        }
        if values is not None:
            getattr(entry.contents, f"{fields[datatype]}_contents").extend(values)
    found.raw_input_contents.extend(raw)
    return found
