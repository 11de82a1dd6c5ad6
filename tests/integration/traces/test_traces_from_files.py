"""From the real Triton's trace files to /metrics."""

from __future__ import annotations

import json
import time

import pytest
from traced_tritons import (
    FEW,
    REQUESTS,
    Sender,
    assert_quantiles_match,
    records,
    requests,
    traces_config,
)
from waiting import wait_until

pytestmark = pytest.mark.triton

# Triton writes a request id into its trace files as it came.
HOSTILE_ID = 'a"}],"x":[{\\\n\x01'


def test_trace_files_of_the_real_triton_become_the_same(
    files_server, settings, start_sidecar
):
    triton, path = files_server
    sender = Sender(triton.grpc)
    sender.rows("double", FEW, request_id="before the sidecar")
    config = traces_config(settings, triton, 0, otlp=None, files={"path": str(path)})
    config["probes"] = []
    sidecar = start_sidecar(config)
    sidecar.wait(lambda page: records(page, "request") == 0)
    sender.rows("double", REQUESTS)
    sender.rows("double", 5, request_id=HOSTILE_ID)
    sender.rows("pipeline", FEW)
    page = sidecar.wait(lambda page: requests(page, "pipeline") == FEW)
    assert requests(page, "double") == REQUESTS + 5
    assert records(page, "child") == 2 * FEW
    for outcome in ("invalid", "malformed", "unknown_model", "partial", "duplicate"):
        assert records(page, outcome) == 0
    assert_quantiles_match(page, "double", file_seconds(path, "before the sidecar"))
    assert len(list(path.parent.iterdir())) > REQUESTS / 5, "nothing was deleted"


def file_seconds(path, left_out):
    """Arrival to answer of the clients' requests to `double`, by a JSON parser."""
    seconds = []
    for file in path.parent.iterdir():
        who, at = {}, {}
        text = file.read_text("utf-8").replace(HOSTILE_ID, "hostile")
        for record in json.loads(text):
            if "model_name" in record:
                who[record["id"]] = record
            for stamp in record.get("timestamps", ()):
                at.setdefault(record["id"], {})[stamp["name"]] = stamp["ns"]
        for key, record in who.items():
            mine = (record["model_name"], record.get("parent_id", 0)) == ("double", 0)
            if mine and record.get("request_id") != left_out:
                ns = at[key]["GRPC_SEND_END"] - at[key]["GRPC_WAITREAD_END"]
                seconds.append(ns / 1e9)
    return seconds


def read_at(page):
    name = "tritonwatch_collector_last_success_timestamp_seconds"
    return page.value(name, collector="traces")


def test_the_owner_of_trace_files_deletes_what_was_counted(
    files_server, settings, start_sidecar
):
    triton, path = files_server
    sender = Sender(triton.grpc)
    sender.rows("double", 5, request_id="lies there before the sidecar")
    files = {"path": str(path), "owner": True, "settle_seconds": 0.5}
    config = traces_config(settings, triton, 0, otlp=None, files=files)
    config["probes"] = []
    sidecar = start_sidecar(config)
    wait_until(lambda: not any(path.parent.iterdir()), "files lie there")
    emptied_at = time.time()
    page = sidecar.wait(lambda page: read_at(page) > emptied_at)
    before = requests(page, "double")
    assert before >= 5
    sender.rows("double", 50)
    page = sidecar.wait(lambda page: requests(page, "double") == before + 50)
    assert page.sum("tritonwatch_trace_files_total", outcome="read") >= 10
    assert list(path.parent.iterdir()) == []
