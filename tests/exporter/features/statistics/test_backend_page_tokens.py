"""Production's tokens by the page of an OpenAI-compatible server, our own taken out."""

from __future__ import annotations

import contextlib
import threading
import time

from accesses import access_to
from page_server import PageServer

from exporter import catalogue
from exporter.access.inventory import Inventory
from exporter.features.statistics.backend_page_collector import BackendPageSettings
from exporter.triton.protocol_types import InferReply, ModelSpec, Tokens


def test_own_tokens_are_those_of_the_counter_that_includes_them():
    specs = {(name, ""): ModelSpec(name, "", (), (), 0) for name in ("llm", "other")}
    with contextlib.closing(PageServer()) as page:
        access = access_to(page.client, metrics=page.client)
        collector = BackendPageSettings().build(access)

        def production(listed="llm other", **counters):
            models = {key: specs[key] for key in specs if key[0] in listed}
            access.board.publish(Inventory(models=models))
            page.body = "".join(
                f'vllm:generation_tokens_total{{model_name="{name}"}} {tokens}\n'
                for name, tokens in counters.items()
            ).encode()
            return {
                s.labels[0]: s.value
                for s in collector.collect()
                if s.spec is catalogue.TOKENS
            }

        production(llm=1000, other=1000)
        for key in specs:
            with access.own.request([(key, 1)]) as sent:
                sent.reply = InferReply((), 0.1, tokens=Tokens(0, 300))
        found = production(llm=1310, other=1310)
        assert found == {"llm": 10, "other": 10}
        assert production(llm=1310, other=1310, listed="other") == found
        assert production(llm=1310, other=1310) == found
        # One is unloaded: ours to it are in no counter of the page now.
        assert production(other=1330, listed="other") == {"other": 30}
        assert production(other=1340, listed="other") == {"other": 40}
        assert production(listed="") == {}
        assert production(llm=20) == {"llm": 20}


def test_the_first_read_of_a_page_waits_for_our_requests_under_way():
    key = ("llm", "")
    with contextlib.closing(PageServer()) as page:
        page.body = b'vllm:generation_tokens_total{model_name="llm"} 1002\n'
        access = access_to(page.client, metrics=page.client)
        models = {key: ModelSpec(*key, (), (), 0)}
        access.board.publish(Inventory(models=models))
        collector = BackendPageSettings().build(access)
        begun = threading.Event()

        def ask():
            with access.own.request([(key, 1)]) as sent:
                begun.set()
                time.sleep(0.05)
                sent.reply = InferReply((), 0.05, tokens=Tokens(0, 2))

        asking = threading.Thread(target=ask)
        asking.start()
        begun.wait()
        samples = collector.collect()
        asking.join()
        assert [s.value for s in samples if s.spec is catalogue.TOKENS] == [0]


def test_a_request_of_ours_under_way_at_every_read_does_not_stop_the_count():
    key = ("llm", "")
    with contextlib.closing(PageServer()) as page:
        access = access_to(page.client, metrics=page.client)
        models = {key: ModelSpec(*key, (), (), 0)}
        access.board.publish(Inventory(models=models))
        collector = BackendPageSettings().build(access)

        def production(counted):
            page.body = (
                f'vllm:generation_tokens_total{{model_name="llm"}} {counted}\n'.encode()
            )
            samples = collector.collect()
            return [s.value for s in samples if s.spec is catalogue.TOKENS]

        def begun():
            under_way = contextlib.ExitStack()
            sent = under_way.enter_context(access.own.request([(key, 1)]))
            sent.reply = InferReply((), 0.1, tokens=Tokens(0, 2))
            return under_way

        assert production(1000) == [0]
        under_way = begun()
        for number in range(1, 20):
            # Production made 10 tokens, and ours, whose answer has not come, 2.
            found = production(1000 + 12 * number)
            following = begun()
            under_way.close()
            under_way = following
        under_way.close()
        assert 10 * 17 <= found[0] <= 10 * 19
