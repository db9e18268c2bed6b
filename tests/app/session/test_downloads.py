"""Downloads from a small hub on loopback, with the real client: one at a time, stopped, resumed, remembered."""

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from app.models.items import download_item, rate_words, rest_words
from app.session.downloads import Download, Downloads, DownloadState
from app.session.session import Session
from engine.checkpoints import folder_model
from tests.engine.checkpoints.hub.conftest import FIRST
from tests.engine.checkpoints.hub.small_hub import SmallHub

WAIT = 30_000
SLOW = 0.05  # seconds between chunks, so that a download can be stopped in its midst


@pytest.fixture
def downloads(session: Session) -> Iterator[Downloads]:
    downloads = Downloads(session)
    yield downloads
    downloads.close()


def until(qtbot: QtBot, entry: Download, state: DownloadState) -> None:
    qtbot.waitUntil(lambda: entry.state is state, timeout=WAIT)


def size(hub: SmallHub, id: str) -> int:
    return sum(len(content) for content in hub.repositories[id].commits[FIRST].values())


def test_a_download_tells_its_bytes_is_stopped_and_goes_on_where_it_was(
    qtbot: QtBot, hub: SmallHub, downloads: Downloads, session: Session
) -> None:
    hub.pace = SLOW
    total = size(hub, "batch/stories-5m")
    entry = downloads.start("batch/stories-5m", FIRST, total)
    qtbot.waitUntil(lambda: entry.done > 500_000, timeout=WAIT)
    assert entry.total == total
    assert 0 < entry.share < 1
    assert "B of 10.7 MB" in download_item(entry).detail
    qtbot.waitUntil(lambda: entry.rate > 0, timeout=WAIT)
    assert rate_words(entry).endswith("B/s")
    assert rest_words(entry).startswith("about ")
    downloads.cancel(entry)
    until(qtbot, entry, DownloadState.STOPPED)
    assert entry.done < total

    again = Downloads(session)  # the next start of the window
    assert [(d.id, d.revision, d.state) for d in again.entries] == [
        ("batch/stories-5m", FIRST, DownloadState.STOPPED)
    ]  # fmt: skip
    kept = again.entries[0]
    assert kept.done == entry.done
    hub.pace = 0.0
    with qtbot.waitSignal(again.finished, timeout=WAIT) as whole:
        assert again.start("batch/stories-5m", FIRST, total) is kept
    assert whole.args == [kept]
    assert kept.state is DownloadState.DONE
    assert kept.folder is not None
    assert folder_model(kept.folder).problem == ""
    assert hub.sent("model.safetensors") < 1.5 * len(
        hub.repositories["batch/stories-5m"].commits[FIRST]["model.safetensors"]
    )
    assert not again.entries
    assert not Downloads(session).entries, "what is whole is not offered again"


def test_one_is_fetched_at_a_time_and_one_that_waits_can_be_given_up(
    qtbot: QtBot, hub: SmallHub, downloads: Downloads
) -> None:
    hub.pace = SLOW
    first = downloads.start("batch/stories-5m", FIRST, 1)
    second = downloads.start("batch/stories", FIRST, 1)
    third = downloads.start("batch/gated-stories", FIRST, 1)
    assert [d.state for d in downloads.entries] == [
        DownloadState.RUNNING, DownloadState.WAITING, DownloadState.WAITING,
    ]  # fmt: skip
    assert downloads.start("batch/stories", FIRST, 1) is second, "asked for twice, it is fetched once"
    downloads.cancel(third)
    assert third.state is DownloadState.STOPPED
    downloads.remove(third)
    downloads.remove(first)
    assert downloads.entries == [first, second], "what runs stays on the list"
    downloads.cancel(first)
    until(qtbot, first, DownloadState.STOPPED)
    hub.pace = 0.0
    until(qtbot, second, DownloadState.DONE)


def test_a_refusal_of_the_hub_is_told_and_the_next_one_goes_on(
    qtbot: QtBot, hub: SmallHub, downloads: Downloads
) -> None:
    gated = downloads.start("batch/gated-stories", FIRST, 1)
    until(qtbot, gated, DownloadState.FAILED)
    assert "gated" in gated.error
    assert download_item(gated).detail.startswith("failed")
    fine = downloads.start("batch/stories", FIRST, 1)
    until(qtbot, fine, DownloadState.DONE)


def test_closing_stops_what_runs(qtbot: QtBot, hub: SmallHub, session: Session) -> None:
    hub.pace = SLOW
    downloads = Downloads(session)
    entry = downloads.start("batch/stories-5m", FIRST, 1)
    qtbot.waitUntil(lambda: entry.done > 0, timeout=WAIT)
    downloads.close()
    until(qtbot, entry, DownloadState.STOPPED)
