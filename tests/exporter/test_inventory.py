"""What the server holds: one writer, any number of readers, versions in order."""

from __future__ import annotations

import threading
from dataclasses import FrozenInstanceError

import pytest

from exporter.inventory import Inventory, InventoryBoard, latest_version
from exporter.triton.model import IndexEntry, ModelSpec


def held(*versions, name="m"):
    return Inventory(
        models={
            (name, version): ModelSpec(name, version, (), ()) for version in versions
        }
    )


def test_before_the_first_look_nothing_is_known():
    board = InventoryBoard()
    assert not board.looked
    assert board.current == Inventory()
    assert not board.current.up
    assert not board.current.ready


def test_a_look_counts_whatever_it_found():
    board = InventoryBoard()
    board.publish(Inventory(up=False))
    assert board.looked
    assert not board.current.up


def test_the_latest_look_is_the_current_one():
    board = InventoryBoard()
    first, second = held("1"), held("2")
    board.publish(first)
    board.publish(second)
    assert board.current is second


def test_a_reader_keeps_what_it_took():
    board = InventoryBoard()
    board.publish(held("1"))
    mine = board.current
    board.publish(held())
    assert list(mine.models) == [("m", "1")]
    with pytest.raises(FrozenInstanceError):
        mine.up = True


def test_readers_see_whole_inventories_only():
    board, stop, mixed = InventoryBoard(), threading.Event(), []
    pictures = {True: Inventory(True, True), False: Inventory(False, False)}

    def read():
        while not stop.is_set():
            current = board.current
            if current.up != current.ready:
                mixed.append(current)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(5000):
        board.publish(pictures[number % 2 == 0])
    stop.set()
    for reader in readers:
        reader.join()
    assert mixed == []


@pytest.mark.parametrize(
    ("versions", "latest"),
    [
        (["1"], "1"),
        (["9", "10", "2"], "10"),
        (["1", "abc"], "1"),
        (["b", "a"], "b"),
        (["007", "6"], "007"),
        ([], None),
    ],
)
def test_the_latest_version_is_the_highest_number(versions, latest):
    assert latest_version(held(*versions), "m") == latest


def test_versions_of_other_models_do_not_count():
    assert latest_version(held("3", name="other"), "m") is None


@pytest.mark.parametrize(
    ("state", "ready"), [("READY", True), ("UNAVAILABLE", False), ("", False)]
)
def test_only_ready_is_ready(state, ready):
    assert IndexEntry("m", "1", state).ready is ready
