"""`every` runs all cases and loses no failure."""

from __future__ import annotations

import pytest

from tests.support.every import every


def test_every_case_runs_and_every_failure_is_told() -> None:
    seen = []

    def check() -> None:
        with every() as case:
            for number in range(4):
                with case(number):
                    seen.append(number)
                    assert number != 1
                    if number == 2:
                        pytest.fail("two")

    with pytest.raises(BaseExceptionGroup, match="2 of 4 cases fail") as caught:
        check()
    assert seen == [0, 1, 2, 3]
    first, second = caught.value.exceptions
    assert (first.__notes__, second.__notes__) == (["case: 1"], ["case: 2"])


def test_no_case_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="there is no case"), every():
        pass


def test_what_passes_or_skips() -> None:
    with every() as case, case("good"):
        assert True
    with pytest.raises(pytest.skip.Exception), every() as case, case("absent"):
        pytest.skip("not here")
