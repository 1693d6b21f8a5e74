"""A session shows the profile of an earlier one at once, until it has its own."""

from __future__ import annotations

import pytest
import torch

import paifuser_lab as lab
from paifuser_lab._files import cache_file
from paifuser_lab.jobs import measuring
from paifuser_lab.jobs.measuring import earlier_profile, keep_profile
from paifuser_lab.records import Quality
from paifuser_lab.session import Session
from tests.support.models import Small, images, small


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(measuring, "cache_file", lambda *key: tmp_path / cache_file(*key).name)
    monkeypatch.setattr(measuring, "MIN_KEPT_MS", 0.0)


def test_the_next_session_of_the_same_model_begins_with_its_profile(monkeypatch):
    first = Session(small(), rounds=1, seconds=0.1)
    assert first.state.profile is None
    known = first.wait(120).profile
    first.close()
    work = small()
    monkeypatch.setattr(Session, "_start", lambda self: None)
    second = Session(work, rounds=1, seconds=0.1)
    assert second.state.profile is second.state.baseline
    assert [row.share for row in second.state.profile] == pytest.approx(
        [row.share for row in known]
    )
    assert second.state.profile.workload is work.name
    second.close()


@pytest.mark.parametrize(("others_share", "times"), [(0.5, 2), (0.0, 1)])
def test_a_first_profile_while_the_page_was_being_painted_is_taken_again(
    others_share, times, monkeypatch
):
    real, taken = measuring.profile, []

    def profile(*args, **options):
        share = 0.0 if taken else others_share
        taken.append(
            real(*args, **options).model_copy(update={"quality": Quality(others_share=share)})
        )
        return taken[-1]

    monkeypatch.setattr(measuring, "profile", profile)
    session = Session(small(), rounds=1, seconds=0.1)
    assert session.wait(120).profile.quality.others_share == 0 and len(taken) == times
    session.close()


def test_a_profile_is_kept_for_the_same_structure_inputs_and_machine_only(monkeypatch):
    work = small()
    keep_profile(work, lab.profile(work, seconds=0.05))
    assert earlier_profile(small()) is not None
    assert earlier_profile(small(batch=3)) is None
    wider = lab.Workload(Small(), images(2), name="small")
    wider.model.extra = torch.nn.Linear(2, 2)
    assert earlier_profile(wider) is None
    monkeypatch.setattr(measuring, "machine_label", lambda: "another machine")
    assert earlier_profile(small()) is None


def test_a_damaged_or_unwritable_cache_costs_only_the_early_view(tmp_path, monkeypatch):
    work = small()
    profile = lab.profile(work, seconds=0.05)
    keep_profile(work, profile)
    (path,) = tmp_path.glob("profile-*.json")
    path.write_text("{")
    assert earlier_profile(work) is None
    monkeypatch.setattr(measuring, "_path", lambda work: tmp_path / "no" / "file")
    (tmp_path / "no").write_text("a file in the way")
    keep_profile(work, profile)
    assert earlier_profile(work) is None


def test_profiles_of_fast_or_interrupted_runs_are_not_kept(monkeypatch, tmp_path):
    work = small()
    profile = lab.profile(work, seconds=0.05)
    keep_profile(work, profile.model_copy(update={"is_interrupted": True}))
    monkeypatch.setattr(measuring, "MIN_KEPT_MS", 1e6)
    keep_profile(work, profile)
    assert not list(tmp_path.glob("profile-*"))


def test_the_kept_profile_stays_when_a_recipe_is_chosen_at_once(monkeypatch):
    first = Session(small(), rounds=1, seconds=0.1)
    known = first.wait(120).profile
    first.close()
    monkeypatch.setattr(Session, "_start", lambda self: None)
    second = Session(small(), rounds=1, seconds=0.1)
    second.choose("fold")
    assert second.state.baseline["head"].share == pytest.approx(known["head"].share)
    assert second.state.profile is None
    second.close()
