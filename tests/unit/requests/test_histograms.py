"""vLLM's length histograms as requests."""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoningpool.requests.errors import CapacityError, LogError
from reasoningpool.requests.histograms import OUTPUT, PROMPT, Histogram, page_histograms, requests_of

PAGE = (Path(__file__).parents[2] / "data" / "vllm_lengths_0_33.txt").read_text()


def page(model: str, engine: str, counts: dict[str, float], total: float, name: str = OUTPUT) -> str:
    labels = f'engine="{engine}",model_name="{model}"'
    buckets = "".join(f'{name}_bucket{{{labels},le="{le}"}} {count}\n' for le, count in counts.items())
    return f"# TYPE {name} histogram\n{buckets}{name}_sum{{{labels}}} {total}\n"


def test_page_of_vllm_0_33_gives_its_own_means() -> None:
    found = page_histograms(PAGE)["tiny"]
    drawn = requests_of(found)
    assert drawn.runs == found[OUTPUT].count == 35
    assert drawn.prompt is not None
    for metric, values in ((OUTPUT, drawn.output), (PROMPT, drawn.prompt)):
        histogram = found[metric]
        assert np.average(values, weights=drawn.weights) == pytest.approx(histogram.total / histogram.count, rel=0.01)


def test_lengths_stay_in_their_buckets() -> None:
    histogram = Histogram.of({10: 5.0, 100: 25.0, inf: 25.0}, 20 * 30.0 + 5 * 8.0)
    values, weights = histogram.lengths()
    assert weights[values <= 10].sum() == pytest.approx(5)
    assert weights[(values > 10) & (values <= 100)].sum() == pytest.approx(20)


def test_engines_of_a_page_are_merged_and_models_kept_apart() -> None:
    text = page("a", "0", {"10.0": 1, "+Inf": 2}, 30) + page("a", "1", {"10.0": 3, "+Inf": 4}, 50)
    found = page_histograms(text + page("b", "0", {"10.0": 0, "+Inf": 0}, 0))
    assert found["a"][OUTPUT] == Histogram((10.0, inf), (4.0, 6.0), 80.0)
    with pytest.raises(CapacityError, match="counts no request yet"):
        requests_of(found["b"])


def test_engines_with_different_bounds_leave_no_falling_counts() -> None:
    text = page("a", "0", {"10.0": 1, "20.0": 2, "+Inf": 2}, 30) + page("a", "1", {"10.0": 3, "+Inf": 4}, 50)
    counts = page_histograms(text)["a"][OUTPUT].counts
    assert list(counts) == sorted(counts)


def test_pages_of_two_servers_in_one_file_are_added_up() -> None:
    one, both = page_histograms(PAGE)["tiny"][OUTPUT], page_histograms(PAGE + PAGE)["tiny"][OUTPUT]
    assert both == Histogram(one.bounds, tuple(2 * count for count in one.counts), 2 * one.total)


def test_names_escaped_for_openmetrics_are_known() -> None:
    assert page_histograms(PAGE.replace("\nvllm:", "\nvllm_")) == page_histograms(PAGE)


def test_runs_beyond_the_last_bound_are_reported() -> None:
    drawn = requests_of({OUTPUT: Histogram((100.0, inf), (50.0, 100.0), 12_000.0)})
    assert any("50.0 % of runs lie beyond the last bound of 100" in note for note in drawn.notes)
    assert drawn.prompt is None


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("", f"has no histogram {OUTPUT}", None),
        ("prompt_tokens,output_tokens\n1,2\n", "is not a metrics page", 1),
        ("# a comment\nup 1\nup one\n", "is not a metrics page", 3),
        ("<html><body>404</body></html>", "is not a metrics page", 1),
        (page("a", "0", {"10.0": 1}, 1), "has no bucket le=", None),
        (page("a", "0", {"10.0": 1, "+Inf": float("nan")}, 1), "counts that are not numbers", None),
        (page("a", "0", {"x": 1, "+Inf": 1}, 1), "is not a metrics page", None),
    ],
)
def test_malformed_page_is_rejected(text: str, words: str, line: int | None) -> None:
    with pytest.raises(LogError, match=words) as caught:
        page_histograms(text)
    assert caught.value.line == line


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 1000), min_size=2, max_size=12).filter(lambda counts: sum(counts) > 1),
    st.floats(0.05, 0.95),
)
def test_mean_is_kept_wherever_it_lies_within_the_buckets(counts: list[float], part: float) -> None:
    bounds = [*(float(2**power) for power in range(len(counts) - 1)), inf]
    edges = [0.0, *bounds[:-1], 2 * bounds[-2]]
    low, high = np.dot(counts, np.maximum(edges[:-1], 1)), np.dot(counts, np.maximum(edges[1:], 1))
    total = float(low + part * (high - low))
    histogram = Histogram.of(dict(zip(bounds, np.cumsum(counts).tolist(), strict=True)), total)
    values, weights = histogram.lengths()
    assert np.dot(values, weights) == pytest.approx(total, rel=0.03)
