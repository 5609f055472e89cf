"""The page of `tidecast field view` with values, shapes and browsers that are out of the common: of recordings, in a real browser."""
import numpy as np
import pytest
from support import browser
from support.fieldrecord import record
from test_field_view import coloured, drawn, image, label, step, until
from test_field_view import view as viewer  # noqa: F401

SIDE = 2048  # of a 3-D texture, as software rendering has it


@pytest.fixture
def view(viewer, tmp_path):
    """view(steps, ...) -> the URL of a page that shows these."""
    def begin(*volumes, **how):
        return viewer(*(word for n, steps in enumerate(volumes) for word in ("--record", record(tmp_path / f"run{n}", steps, **how))))

    return begin


def ends(tab) -> tuple[float, float]:
    """The range that the page shows; none while it has not found one."""
    said = [tab.input_value(f"#{end}") for end in ("from", "to")]
    return (float(said[0]), float(said[1])) if all(said) else (np.nan, np.nan)


def slices(tab) -> list[np.ndarray]:
    return [image(tab.locator("#slices canvas").nth(n).screenshot()) for n in range(3)]


def ramp(least: float, greatest: float) -> np.ndarray:
    """A step whose values rise along z."""
    return np.broadcast_to(np.linspace(least, greatest, 16, dtype="f8")[:, None, None], (1, 16, 16, 16))


@pytest.mark.parametrize("value", [7.0, 0.0, -3e-30, 1e38])
def test_one_value_everywhere_is_seen(value, view):
    with browser.page(view(np.full((1, 16, 16, 16), value))) as tab:
        until(tab, "the volume has colour", lambda: coloured(drawn(tab)) > 0.02)
        until(tab, "slices are not black", lambda: min(one.max() for one in slices(tab)) > 100)
        least, greatest = ends(tab)
        assert least < np.float32(value) < greatest and label(tab, "values").startswith("all are")
        browser.shot(tab, f"constant {value}")


@pytest.mark.parametrize("least, greatest", [(0, 1e-30), (1e-30, 2e-30), (-1e-44, 1e-44), (1e30, 2e30), (-3.4e38, 3.4e38), (1e6, 1e6 + 1)])
def test_tiny_and_huge_values_have_their_colours(least, greatest, view):
    with browser.page(view(ramp(least, greatest))) as tab:
        until(tab, "the volume has colour", lambda: coloured(drawn(tab)) > 0.02)
        until(tab, "slices have dark and bright", lambda: (np.ptp([one.sum(axis=2) for one in slices(tab)[:2]]) > 400))
        shown = ends(tab)
        least, greatest = float(np.float32(least)), float(np.float32(greatest))
        assert shown[0] <= least and greatest <= shown[1] and shown[1] - shown[0] < 1.2 * (greatest - least), shown


def test_where_all_is_missing_it_is_said(view):
    with browser.page(view(np.stack([np.full((16, 16, 16), np.nan), ramp(2, 3)[0]]), ranges=False)) as tab:
        until(tab, "it is said", lambda: "missing" in label(tab, "values"))
        browser.settled(tab)
        assert np.isnan(ends(tab)[0])
        tab.locator("#steps").fill("1")
        until(tab, "the next step has its range", lambda: step(tab) == 1 and ends(tab)[0] == 2)


def test_the_range_is_that_of_all_pieces(view):
    """In the first of the pieces that are asked for one by one lies what the others lack."""
    steps = np.random.default_rng(3).random((1, 192, 192, 192))
    steps[0, 44, 44, 45] = 100
    with browser.page(view(steps)) as tab:
        until(tab, "a range", lambda: ends(tab)[1] >= 100)
        tab.select_option("#how", "point")
        tab.click("#auto")
        tab.click("#auto")
        # The one value of coarse cells is another.
        until(tab, "the finest level is seen too", lambda: label(tab, "shape").endswith("1:1") and ends(tab)[1] >= 100)


def test_a_recording_has_one_range_of_all_steps_before_they_are_shown(view):
    """Else a value's colour would depend on which steps were looked at before."""
    cold, none = np.concatenate([ramp(280, 300), ramp(200, 310), ramp(290, 295)]), np.full((1, 16, 16, 16), np.nan)
    with browser.page(view(np.concatenate([none, cold]))) as tab:
        until(tab, "the range of all steps", lambda: ends(tab) == (200, 310))
        for place in (3, 1, 2):
            tab.locator("#steps").fill(str(place))
            until(tab, "the step", lambda: step(tab) == place and "to" in label(tab, "values"))  # noqa: B023
            browser.settled(tab)
            assert ends(tab) == (200, 310)
        tab.locator("#steps").fill("3")
        tab.select_option("#span", "step")
        until(tab, "of the step alone", lambda: ends(tab) == (290, 295))
        tab.select_option("#span", "series")
        until(tab, "of all again", lambda: ends(tab) == (200, 310))


def test_each_volume_has_its_range_of_a_step_of_all_or_a_fixed_one(view):
    warm, low = np.concatenate([ramp(280, 300), ramp(200, 310)]), np.concatenate([ramp(0, 1e-3), ramp(2, 3)])
    # Older recordings do not list the ranges of their steps: there the range of the shown values counts.
    with browser.page(view(warm, low, ranges=False), width=1400) as tab:
        until(tab, "the first one's range", lambda: ends(tab)[0] == 280 and ends(tab)[1] < 302)
        half = drawn(tab).shape[1] // 2
        for part in slice(None, half), slice(half, None):
            until(tab, "both have colour", lambda: coloured(drawn(tab)[:, part]) > 0.02)  # noqa: B023
        tab.select_option("#which", "1")
        until(tab, "the second one's range", lambda: ends(tab)[0] == 0 and ends(tab)[1] < 2e-3)
        tab.select_option("#span", "step")
        tab.locator("#steps").fill("1")
        until(tab, "its next step alone", lambda: ends(tab) == (2, 3))
        tab.select_option("#which", "0")
        until(tab, "of the first one both", lambda: ends(tab)[0] == 200 and ends(tab)[1] < 320)
        tab.locator("#from").fill("250")
        tab.locator("#from").press("Enter")
        until(tab, "fixed", lambda: tab.input_value("#span") == "fixed" and ends(tab)[0] == 250)
        tab.locator("#steps").fill("0")
        until(tab, "the first step", lambda: step(tab) == 0)
        assert ends(tab)[0] == 250 and ends(tab)[1] > 300
        tab.locator("#to").fill("20")
        tab.locator("#to").press("Enter")
        until(tab, "an empty one is not taken", lambda: "empty" in tab.inner_text("#notice"))
        until(tab, "what counts is shown", lambda: ends(tab)[0] == 250 and ends(tab)[1] > 300)
        tab.select_option("#which", "1")
        until(tab, "the other follows its steps", lambda: ends(tab)[0] == 0 and ends(tab)[1] < 2e-3)


@pytest.mark.parametrize("axis", range(3))
def test_a_side_that_is_too_long_for_a_texture_is_drawn_coarser(axis, view):
    shape = [8, 8, 8]
    shape[axis] = 2 * SIDE
    values = np.moveaxis(np.broadcast_to(np.linspace(0, 1, 2 * SIDE), (8, 8, 2 * SIDE)), 2, axis)
    assert values.shape == tuple(shape)
    with browser.page(view(values[None])) as tab:
        until(tab, "it is drawn", lambda: coloured(drawn(tab)) > 0.001)
        until(tab, "as fine as it can be", lambda: label(tab, "shape").endswith("1:2"))
        said = tab.inner_text("#notice")
        assert str(2 * SIDE) in said and str(SIDE) in said and "1:2" in said
        browser.settled(tab)
        browser.shot(tab, f"long {axis}")


def test_without_webgl_there_are_slices_and_plots(view):
    with browser.page(view(np.concatenate([ramp(1, 2), ramp(5, 9)]), ranges=False), args=browser.FLAT) as tab:
        until(tab, "what is missing is said", lambda: "WebGL" in tab.inner_text("#without"))
        until(tab, "slices have colour", lambda: all(coloured(one) > 0.02 for one in slices(tab)[:2]))
        assert ends(tab)[0] == 1 and label(tab, "values") == "1 to 2" and tab.locator("#movie").is_disabled()
        assert coloured(image(tab.locator("#curve").screenshot())) > 0.01 and tab.locator("#loss").is_visible()
        browser.shot(tab, "flat")
        before = slices(tab)[0]
        tab.locator("#steps").fill("1")
        until(tab, "the next step", lambda: step(tab) == 1 and ends(tab)[1] >= 9)
        until(tab, "other slices", lambda: (slices(tab)[0] != before).any())
        with tab.expect_download() as got:
            tab.get_by_role("button", name="Picture", exact=True).click()
        with open(got.value.path(), "rb") as png:
            assert coloured(image(png.read())) > 0.02
