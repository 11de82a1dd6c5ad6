"""A reload asked for over HTTP."""

from __future__ import annotations

import asyncio

import pytest
from fake_triton import FakeModel, FakeTriton
from surfaces import config_of, serving

from exporter.errors import ConfigError


async def test_reload_is_off_unless_asked_for():
    async with serving(start=False) as served:
        answer = await served.ask("/-/reload", "POST")
    assert (answer.status, answer.text) == (
        403,
        "reload over HTTP is off; start with --web.enable-lifecycle\n",
    )


async def test_reload_says_what_came_of_it():
    results = [None, "FILE: listen.port: found -1; want at least 0"]
    async with serving(start=False, reload=lambda: results.pop(0)) as served:
        good, bad = [await served.ask("/-/reload", "POST") for _ in range(2)]
    assert (good.status, good.text) == (200, "reloaded\n")
    assert (bad.status, bad.text) == (
        500,
        "FILE: listen.port: found -1; want at least 0\n",
    )


async def test_a_reload_takes_over_a_new_server_and_a_failed_one_nothing():
    with FakeTriton([FakeModel("old")]) as old, FakeTriton([FakeModel("new")]) as new:
        async with serving(old) as served:
            await served.until(lambda a: a.values("triton_model_ready", model="old"))
            served.sidecar.reload_failed()
            answer = await served.ask("/metrics")
            assert answer.values("tritonwatch_config_last_reload_successful") == [0]
            assert answer.values("triton_model_ready", model="old") == [1]
            target = {"grpc": new.grpc, "http": new.http, "metrics": new.metrics}
            served.sidecar.reload(config_of(target))
            answer = await served.until(
                lambda a: a.values("triton_model_ready", model="new")
            )
            assert answer.values("triton_model_ready", model="old") == []
            assert answer.values("tritonwatch_config_last_reload_successful") == [1]


async def test_a_reload_whose_files_cannot_be_read_leaves_the_old_server():
    with FakeTriton([FakeModel("m")]) as fake:
        async with serving(fake) as served:
            await served.until(lambda a: a.values("triton_model_serving") == [1])
            target = {
                "grpc": fake.grpc,
                "http": fake.http,
                "tls": {"ca_file": "no.pem"},
            }
            with pytest.raises(ConfigError):
                served.sidecar.reload(config_of(target))
            await asyncio.sleep(1)
            assert (await served.ask("/metrics")).values("triton_model_serving") == [1]
