"""The page of a report, in a real Chromium."""

import re
from datetime import UTC, datetime, timedelta

import polars as pl
import pyarrow as pa
import pytest
import pytest_asyncio

from evenlane.spark.out.document import DocumentInput, ReportProperties, document
from evenlane.spark.out.page import _SCRIPTS, _text, page
from evenlane.spark.reports.schemas import NOISY, QUALITY, TENANTS
from evenlane.spark.reports.targets import Targets
from evenlane.spark.source.columns import arrow_schema
from tests.spark import sample
from tests.support.http.browser import PHONE, launched, overflow

_ABOUT = ReportProperties("online", datetime(2026, 2, 1, 0, 5, tzinfo=UTC), "1h", sample.HOUR, Targets())


def _document(tenants, most_points=20_000):
    ends = sorted({each["window_end"] for each in tenants})
    made = DocumentInput(
        pl.from_arrow(_table(tenants, TENANTS)).lazy(),
        lambda _: pl.from_arrow(_table([sample.noisy(end) for end in ends[-1:]], NOISY)).lazy(),
        _table([sample.quality(end) for end in ends], QUALITY),
    )
    return {
        **document(made, _ABOUT, most_points),
        "quotas": [{"project": "acme", "qps": 100.0, "recommended_qps": 140.0, "reason": ""}],
    }


def _table(rows, schema):
    return pa.Table.from_pylist(rows, arrow_schema(schema))


@pytest.fixture(scope="module")
def sample_document():
    return _document(sample.tenants(count=10, windows=4))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser():
    async with launched() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def opened(browser, tmp_path):
    """Opens the page of a document from a file. It may load no other file, and its console must stay empty."""
    contexts, requests, messages = [], [], []

    async def visit(sample_document, fragment="", **options):
        file = tmp_path / "report.html"
        file.write_text(page(sample_document))
        context = await browser.new_context(**options)
        contexts.append(context)
        tab = await context.new_page()
        tab.on("request", lambda request: requests.append(request.url.partition("#")[0]))
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(f"uncaught: {error}"))
        await tab.goto(f"file://{file}{fragment}")
        return tab

    yield visit
    for context in contexts:
        await context.close()
    assert {f"file://{tmp_path / 'report.html'}"} == set(requests)
    assert [] == messages


@pytest.mark.asyncio(loop_scope="module")
async def test_page_lists_tenants_and_those_that_need_attention(opened, sample_document):
    """Names are never parsed as HTML."""
    tab = await opened(sample_document)
    attention = await tab.locator(".attention li").all_inner_texts()
    assert ["late", "late", "will", "dead"] == [text.split()[0].lower() for text in attention]
    late = r"acme: high is late since 31 Jan, 03:46 UTC: .* the oldest for 15m, and 1m is the target; other projects"
    assert re.search(late, attention[0])
    assert re.search(r"To do: a quota of 140/s instead of 100/s", attention[0])
    assert re.search(r"initech: will miss its target for mid at 31 Jan, 04:25 UTC", attention[2])
    names = await tab.locator("table.all tbody th a").all_inner_texts()
    assert {each["project"] for each in sample_document["tenants"]} == set(names)
    assert {"acme", "globex-eu"} == set(names[:2])
    assert 0 == await tab.locator("main img, main script").count()
    await tab.get_by_role("button", name="Tenant", exact=True).click()
    assert sorted(names) == await tab.locator("table.all tbody th a").all_inner_texts()
    await tab.get_by_role("searchbox").fill("GLOBEX")
    assert ["globex-eu"] == await tab.locator("table.all tbody th a").all_inner_texts()
    assert "node-1 was killed" in await tab.locator(".quality").inner_text()
    assert "didn't suffer" in await tab.locator(".loud").inner_text()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("options", [{"color_scheme": "dark"}, {"viewport": PHONE, "is_mobile": True}])
async def test_tenant_has_plots_in_dark_mode_and_on_a_phone(opened, sample_document, options):
    """Nothing is wider than a phone."""
    tab = await opened(sample_document, "#/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", **options)
    await tab.locator(".uplot canvas").nth(4).wait_for()
    titles = await tab.locator(".chart strong").all_inner_texts()
    assert [
        "Waiting",
        "How long messages waited",
        "Messages a second",
        "What the waiting was for",
        "Dead letters",
    ] == titles
    assert "Reject: <b>no such account</b>" in await tab.locator(".reasons-of").inner_text()
    if "viewport" in options:
        assert 0 == await tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    await tab.get_by_role("link", name="All tenants", exact=False).last.click()
    await tab.locator("table.all").wait_for()
    if "viewport" in options:
        assert 0 == await overflow(tab)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("width", [1280, 1366, 1440])
async def test_table_of_tenants_fits_a_desktop(opened, sample_document, width):
    """Nothing is cut off, and no name is broken into letters."""
    tab = await opened(sample_document, viewport={"width": width, "height": 900})
    await tab.locator("table.all").wait_for()
    assert 0 == await overflow(tab)
    name = tab.locator("table.all tbody th a").get_by_text("globex-eu")
    assert 1 == await name.evaluate("(each) => each.getClientRects().length")


@pytest.mark.asyncio(loop_scope="module")
async def test_page_without_data_says_so(opened):
    tab = await opened(_document([]))
    attention = await tab.locator(".attention").inner_text()
    assert "no data" in attention.lower()
    assert "There is nothing to report" in attention
    assert 0 == await tab.locator("table").count()  # an empty table would look healthy
    assert "There is no record in this time." in await tab.locator(".quality").inner_text()


def test_document_has_a_bounded_history_of_the_most_important_tenants():
    """Those that need attention first, then the busiest."""
    sample_document = _document(sample.tenants(count=12, windows=4), most_points=6 * 4)
    assert ("2026-01-31T00:00:00Z", "2026-01-31T04:00:00Z") == (sample_document["from"], sample_document["to"])
    assert 12 == len(sample_document["tenants"])
    assert {"acme", "globex-eu", "initech", "<img src=x onerror=alert(1)>"} < sample_document["windows"]["of"].keys()
    assert (6, 6) == (len(sample_document["windows"]["of"]), sample_document["windows"]["left_out"])
    [odd] = [each for each in sample_document["tenants"] if each["project"] == "постачальник"]
    assert odd["quota_used"] is None  # JSON has no NaN
    assert "</script>" not in page(sample_document).split('id="report">')[1].split("</script>")[0]


def test_window_that_has_just_begun_is_not_the_latest():
    """20 s of data say little about an hour; without other windows, it is shown."""
    rows = sample.tenants(count=2, windows=2)
    for row in rows[1::2]:
        row["covered_s"] = 20.0
    assert "2026-01-31T01:00:00Z" == _document(rows)["to"]
    assert "2026-01-31T02:00:00Z" == _document(rows[1::2])["to"]


@pytest.mark.full
def test_page_of_300_tenants_and_300_windows_is_below_5_mb():
    made = page(_document(sample.tenants(count=300, windows=300, length=timedelta(minutes=5))))
    assert len(made.encode()) < 5_000_000


def test_scripts_of_the_page_export_different_names():
    """They are joined into one script, in which each sees the exports of those before it."""
    exported = [
        name
        for part in _SCRIPTS
        for name in re.findall(r"^export (?:function|class|const) (\w+)", _text(part), re.MULTILINE)
    ]
    assert len(exported) == len(set(exported))
