"""Faults of models on a real Triton: gone, erring, lying."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from typing import TYPE_CHECKING

import pytest
import urllib3
from fault_cycles import asking, in_effect, recorded, undone
from requirements import as_nobody
from sites import EmbeddedSite
from waiting import patience, wait_until

from loadtests.chaos.faults.model_faults import (
    WRAPPER,
    ErringModel,
    LyingModel,
    StalledStream,
    UnloadModel,
)
from loadtests.chaos.faults.network_faults import Bandwidth
from loadtests.chaos.faults.process_faults import KillServer
from loadtests.chaos.faults.sustained_faults import CacheStorm, _body
from loadtests.chaos.network.proxy_client import fault_proxy
from loadtests.chaos.primitives import model_control
from loadtests.errors import FaultFailedError, FaultRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from exporter.triton.embedded import EmbeddedTriton


def files(repository: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Inode, times and content of every file of a model repository."""
    found = {}
    for file in sorted(repository.rglob("*")):
        if file.is_file():
            status = file.stat()
            times = (status.st_ino, status.st_mtime_ns, status.st_mode)
            found[str(file.relative_to(repository))] = (*times, file.read_bytes())
    return found


# Unloaded.


def test_an_unloaded_model_is_refused_and_comes_back(site, client) -> None:
    with in_effect(UnloadModel(model="double"), site):
        assert client.double().startswith("InvalidRequestError")
        assert client.sleepy() == "right"
        assert client.says("/v2/health/live")
    assert client.double() == "right"


def test_a_model_of_a_server_that_is_gone_needs_no_load(site, client) -> None:
    record = recorded(UnloadModel(model="double"), site)
    UnloadModel(model="double").inject(record)
    with in_effect(KillServer(), site):
        undone(UnloadModel(model="double"), record)


def test_a_model_of_a_frozen_server_cannot_be_loaded_yet(
    site, client, monkeypatch
) -> None:
    fault = UnloadModel(model="double")
    record = recorded(fault, site)
    fault.inject(record)
    site.triton.freeze()
    with monkeypatch.context() as hurried:
        # A frozen server is not waited for; on a busy machine another may take as long.
        hurried.setattr(model_control, "_ASK_SECONDS", 0.2)
        with pytest.raises(FaultFailedError, match=r"could not be loaded again.*/load"):
            UnloadModel.revert(record)
        assert UnloadModel.residue(record) != []
    site.triton.thaw()
    undone(fault, record)
    assert client.double() == "right"


# Erring and lying.


@pytest.mark.parametrize(
    ("fault", "answer"),
    [
        (ErringModel(model="double"), "ModelError"),
        (LyingModel(model="double", lie="nan"), "wrong"),
    ],
    ids=["erring", "lying"],
)
def test_a_model_goes_wrong_and_right_again(site, client, fault, answer) -> None:
    before = files(site.repository)
    with in_effect(fault, site):
        assert client.double().startswith(answer)
        assert client.sleepy() == "right"
        assert client.says("/v2/models/double/ready")
    assert client.double() == "right"
    assert files(site.repository) == before


def test_users_need_not_wait_for_the_load_that_ends_a_fault(site, client) -> None:
    with in_effect(ErringModel(model="double"), site) as record:
        assert client.double().startswith("ModelError")
        # Somebody answers there who loads nothing.
        elsewhere = {**record, "http": site.triton.metrics}
        with pytest.raises(FaultFailedError, match="could not be loaded"):
            ErringModel.revert(elsewhere)
        assert client.double() == "right"
        assert ErringModel.residue(record) != []


def test_a_model_errs_for_a_share_of_its_requests(site, client) -> None:
    with in_effect(ErringModel(model="double", share=0.5), site):
        answers = [client.double() for _ in range(40)]
    # Fewer than 5 or more than 35 of 40 have a probability below 1e-6.
    assert 5 <= answers.count("right") <= 35


def test_no_request_is_lost_while_a_model_starts_to_lie_and_stops(site, client) -> None:
    fault = LyingModel(model="double", lie="zeros")
    with asking(site.http) as answers:
        with in_effect(fault, site):
            wait_until(lambda: "wrong" in answers, "it lies")
        count = len(answers)
        wait_until(lambda: len(answers) > count + 3, "it is asked")
    assert set(answers) == {"right", "wrong"}
    assert answers[0] == answers[-1] == "right"


@pytest.mark.slow
def test_a_lie_outlives_its_server_and_not_its_undo(site, client) -> None:
    fault = LyingModel(model="double", lie="zeros")
    before = files(site.repository)
    with in_effect(fault, site):
        site.triton.restart()
        client.sleepy()
        assert client.double() == "wrong"
        site.triton.kill()
    assert files(site.repository) == before
    site.start_again()
    client.serves()


def test_a_fault_cut_before_the_model_was_replaced_is_undone(site, client) -> None:
    fault = LyingModel(model="double", lie="zeros")
    record = recorded(fault, site)
    folder = site.repository / "double" / "1"
    os.link(folder / "model.py", folder / "original.py")
    (folder / "fault.new").write_text("{")
    (folder / ".model.py.new").write_text("half a wrapp")
    assert len(LyingModel.residue(record)) == 3
    undone(fault, record)
    assert client.double() == "right"


def test_an_original_that_was_edited_meanwhile_is_not_put_back(site, client) -> None:
    fault = LyingModel(model="double", lie="zeros")
    record = recorded(fault, site)
    fault.inject(record)
    original = site.repository / "double" / "1" / "original.py"
    was = original.read_bytes()
    original.write_bytes(was + b"\n")
    with pytest.raises(FaultFailedError, match="was changed after the fault began"):
        LyingModel.revert(record)
    # The lie is off; the file is left to whoever edited it.
    assert client.double() == "right"
    assert len(LyingModel.residue(record)) == 3
    original.write_bytes(was)
    undone(fault, record)
    assert client.double() == "right"


# Streams.


@pytest.fixture
def llm(start_triton, tmp_path):
    shutil.copytree(WRAPPER.parents[1] / "models" / "llm", tmp_path / "m" / "llm")
    arguments = ["--load-model=llm"]
    return EmbeddedSite(
        start_triton(tmp_path / "m", model_control="explicit", arguments=arguments)
    )


def events(site: EmbeddedSite, tokens: int = 8, http: str = "") -> Iterator[str]:
    """Yield what `generate_stream` sends of each token, as it comes."""
    asked = {"text_input": "why", "stream": True}
    asked["sampling_parameters"] = json.dumps(
        {"max_tokens": tokens, "ignore_eos": True}
    )
    reply = urllib3.request(
        "POST",
        f"http://{http or site.http}/v2/models/llm/generate_stream",
        json=asked,
        preload_content=False,
        timeout=30,
    )
    for line in reply:
        if line.strip():
            said = json.loads(line.removeprefix(b"data: "))
            yield said.get("text_output", f"error: {said.get('error')}")


def test_a_stream_breaks_off_in_the_middle(llm) -> None:
    honest = list(events(llm))
    before = files(llm.repository)
    with in_effect(ErringModel(model="llm", after_responses=3), llm):
        assert list(events(llm)) == [*honest[:3], "error: asked to fail"]
        # One that ends before is whole.
        assert list(events(llm, 3)) == honest[:3]
    assert list(events(llm)) == honest
    assert files(llm.repository) == before


def test_a_stream_stalls_until_the_fault_ends(llm) -> None:
    honest = list(events(llm))
    with in_effect(StalledStream(model="llm", after_responses=2), llm):
        stalled = events(llm)
        assert [next(stalled), next(stalled)] == honest[:2]
        came: list[str] = []
        reader = threading.Thread(target=lambda: came.extend(stalled))
        reader.start()
        # The model has long made all its tokens; other streams of it stall too.
        other = events(llm)
        assert [next(other), next(other)] == honest[:2]
        time.sleep(0.3)
        assert came == []
    reader.join(20)
    assert came == honest[2:]
    assert list(other) == honest[2:]


def first_seconds(site: EmbeddedSite) -> float:
    began = time.monotonic()
    next(events(site))
    return time.monotonic() - began


def gauge(server: EmbeddedTriton, name: str) -> float:
    page = urllib3.request(
        "GET", f"http://{server.metrics}/metrics", timeout=patience(60)
    ).data.decode()
    [value] = re.findall(rf"^vllm:{name}{{.*}} (.*)$", page, re.MULTILINE)
    return float(value)


def test_a_storm_fills_the_cache_and_all_others_wait(llm) -> None:
    assert first_seconds(llm) < patience(0.5)
    with in_effect(CacheStorm(model="llm"), llm):
        wait_until(lambda: gauge(llm.triton, "kv_cache_usage_perc") > 0.9, "cache full")
        wait_until(
            lambda: gauge(llm.triton, "num_requests_waiting") > 16, "requests wait"
        )
        assert first_seconds(llm) > 1
    wait_until(lambda: gauge(llm.triton, "num_requests_running") == 0, "all have left")
    assert first_seconds(llm) < patience(0.5)


def test_a_storm_that_the_server_refuses_is_not_in_effect(llm) -> None:
    """More tokens than the cache has room for: the model answers each with an error."""
    storm = CacheStorm(model="llm", answer_tokens=100_000)
    record = recorded(storm, llm)
    with pytest.raises(FaultFailedError, match=r"status 400: .*have room in a cache"):
        storm.inject(record)
    undone(storm, record)


def test_prompts_of_a_storm_differ_and_have_the_wanted_length(llm) -> None:
    """A prompt of one word more would leave room for others in the demo's cache."""
    record = recorded(CacheStorm(model="llm", prompt_tokens=100), llm)
    prompts = {json.loads(_body(record))["text_input"] for _ in range(20)}
    assert len(prompts) == 20
    assert {len(prompt.split()) for prompt in prompts} == {100}


def test_clients_that_read_slowly_wait_and_hold_no_room_in_the_cache(llm) -> None:
    honest = list(events(llm, 150))
    slow = Bandwidth(kilobits_per_second=64, directions="answers")
    with fault_proxy(grpc=llm.grpc, http=llm.http, seed=1) as proxy:
        site = EmbeddedSite(llm.triton, proxy=proxy)
        with in_effect(slow, site):
            began, times = time.monotonic(), []
            stream = events(llm, 150, proxy.http)
            found = [next(stream)]
            wait_until(
                lambda: gauge(llm.triton, "num_requests_running") == 0,
                "the model has made all tokens",
            )
            for text in stream:
                found.append(text)
                times.append(time.monotonic() - began)
    assert found == honest
    # 150 events of more than 100 bytes, 8,000 bytes a second.
    assert times[-1] > 1.5
    assert times[-1] - times[0] > 0.5


def test_a_storm_of_a_model_that_does_not_stream_is_refused(site) -> None:
    with pytest.raises(FaultRefusedError, match="not a language model"):
        CacheStorm(model="double").prepare(site)
    with pytest.raises(FaultRefusedError, match="does not describe model 'nobody'"):
        CacheStorm(model="nobody").prepare(site)


def test_a_stall_ends_by_itself(llm) -> None:
    honest = list(events(llm))
    with in_effect(StalledStream(model="llm", stall_seconds=0.5), llm):
        began = time.monotonic()
        assert list(events(llm)) == honest
        assert time.monotonic() - began > 0.5


def test_a_model_streams_garbage(llm) -> None:
    honest = list(events(llm))
    with in_effect(LyingModel(model="llm", lie="garbage_text"), llm):
        found = list(events(llm))
    assert [len(text) for text in found] == [len(text) for text in honest]
    assert not set(found) & set(honest)


# Refused.


def test_a_server_that_loads_nothing_on_demand_is_refused(triton) -> None:
    site = EmbeddedSite(triton)
    with pytest.raises(FaultRefusedError, match="--model-control-mode=explicit"):
        UnloadModel(model="slow").prepare(site)
    with pytest.raises(FaultRefusedError, match="--model-control-mode=explicit"):
        LyingModel(model="slow").prepare(site)


def test_a_model_that_is_not_there_is_refused_with_those_that_are(site) -> None:
    for fault in (UnloadModel(model="x"), LyingModel(model="x")):
        with pytest.raises(FaultRefusedError, match=r"double.*sleepy"):
            fault.prepare(site)


def test_a_stall_of_a_model_that_answers_at_once_is_refused(site) -> None:
    with pytest.raises(FaultRefusedError, match="in one response"):
        StalledStream(model="double").prepare(site)


def test_a_repository_that_may_not_be_written_to_is_refused(site) -> None:
    with as_nobody(), pytest.raises(FaultRefusedError, match="run as its owner"):
        LyingModel(model="double").prepare(site)


def test_a_file_where_the_original_would_go_is_refused(site) -> None:
    file = site.repository / "double" / "1" / "original.py"
    file.write_text("somebody's")
    try:
        with pytest.raises(FaultRefusedError, match=r"original\.py already exists"):
            LyingModel(model="double").prepare(site)
    finally:
        file.unlink()
