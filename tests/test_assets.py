"""Assets are found, or the error names both searched paths."""

from __future__ import annotations

import pytest

from paifuser_lab._files import asset
from paifuser_lab.errors import FileError


def test_an_asset_of_the_checkout_is_found():
    assert asset("notebooks/00_tour.ipynb").is_file()


def test_the_error_of_a_missing_asset_names_both_paths():
    with pytest.raises(
        FileError,
        match=r"neither in the installed package .*_sources.* nor in a checkout .*kernels/none.cu",
    ):
        asset("kernels/none.cu")
