"""Learnt references on disk: which one is known, and what a rollback finds."""

from __future__ import annotations

from pathlib import Path

from drift.reference import Profile
from exporter.features.drift.drift_state import FORMER, PROFILE, Store

OLDER = Path(__file__).parents[3] / "data" / "drift" / "reference-0.1.0.profile"


def test_a_learnt_reference_of_an_older_version_is_known_and_stays(tmp_path):
    written = OLDER.read_bytes()
    profile = Profile.from_bytes(written)
    assert profile.to_bytes() != written
    store = Store(tmp_path, "m", "inputs")
    store.write(PROFILE, written)
    assert store.keep(profile)
    assert store.read(PROFILE) == written
    assert store.read(FORMER) is None
