"""What is kept of conversations over starts, how they are found, and what happens to a file that cannot be used."""

import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.chat.store.conversations import ConversationStore
from app.chat.store.presets import Preset, PresetStore, shipped
from app.chat.store.tree import Attachment, Facts, Role
from engine import InvalidInput, SamplingParams

USER, ASSISTANT = Role.USER, Role.ASSISTANT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private" / "chats.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[ConversationStore]:
    store = ConversationStore(path)
    yield store
    store.close()


def test_all_of_a_conversation_is_there_at_the_next_start(path: Path, store: ConversationStore) -> None:
    kept = store.create("A fox", ["Exact", "As JSON"])
    file = Attachment("a.txt", "text", 1)
    asked = store.add(kept, None, USER, "Tell me of a fox", files=[file])
    answer = store.add(kept, asked, ASSISTANT)
    answer.text, answer.facts = "Once upon", Facts("Exact", "demo", "/r.bsrun", 3, 12, 2, 0.1, 40.0, "stop")
    store.write(answer, last=True)
    kept.pinned, kept.beside, kept.ends = True, True, (answer.id, asked.id)
    store.save(kept)
    again = ConversationStore(path)
    (found,) = again.conversations()
    assert (found.title, found.pinned, found.beside, found.ends) == ("A fox", True, True, (answer.id, asked.id))
    assert found.columns == ("Exact", "As JSON")
    tree = again.tree(found)
    assert tree.turns[asked.id].files == (file,)
    assert tree.turns[asked.id].then == answer.id
    assert (tree.turns[answer.id].text, tree.turns[answer.id].facts) == (answer.text, answer.facts)
    again.close()


def test_its_file_is_for_its_owner_alone(path: Path, store: ConversationStore) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_answer_that_a_crash_cut_off_is_there_as_far_as_it_was_written(path: Path, store: ConversationStore) -> None:
    kept = store.create("A fox", [])
    asked = store.add(kept, None, USER, "Go on")
    answer = store.add(kept, asked, ASSISTANT)
    answer.text = "Once"
    store.write(answer, last=False)
    answer.text = "Once upon a time"  # and the process is gone
    again = ConversationStore(path)
    left = again.tree(again.conversations()[0]).turns[answer.id]
    assert left.text == "Once"
    assert not left.facts.over
    again.close()


def test_conversations_are_found_by_all_words_of_titles_and_texts_or_their_beginnings(store: ConversationStore) -> None:
    fox, whale = store.create("Foxes at night", []), store.create("Of whales", [])
    asked = store.add(fox, None, USER, 'Where is the "lantern"?')
    answer = store.add(fox, asked, ASSISTANT)
    answer.text = "It hangs in the orchard."
    store.write(answer, last=False)
    assert store.conversations("orchard") == []  # it is found once it is whole
    store.write(answer, last=True)
    store.add(whale, None, USER, "And a lantern fish?")
    assert [c.title for c in store.conversations("lant")] == ["Of whales", "Foxes at night"]
    assert [c.title for c in store.conversations("lantern orch")] == ["Foxes at night"]
    assert store.conversations("orchard")[0].excerpt == "It hangs in the orchard."
    assert [c.title for c in store.conversations('foxes "')] == []
    assert [c.title for c in store.conversations("FOXES")] == ["Foxes at night"]
    fox.title = "Renard"
    store.save(fox)
    assert store.conversations("foxes") == []


def test_pinned_ones_come_first_then_the_newest(store: ConversationStore) -> None:
    first, second, third = (store.create(title, []) for title in "abc")
    store.add(first, None, USER, "more")
    assert [c.title for c in store.conversations()] == ["a", "c", "b"]
    second.pinned = True
    store.save(second)
    assert [c.title for c in store.conversations()] == ["b", "a", "c"]
    assert third.pinned is False


def test_what_was_deleted_can_be_put_back_and_is_gone_for_good_at_the_next_start(
    path: Path, store: ConversationStore
) -> None:
    kept = store.create("A secret", [])
    asked = store.add(kept, None, USER, "the word is xyzzy")
    store.delete(kept)
    assert store.conversations() == store.conversations("xyzzy") == []
    store.put_back(kept)
    assert len(store.conversations("xyzzy")) == 1
    other = store.create("Another", [])
    branch = store.add(other, None, USER, "plugh")
    store.delete_turns([branch])
    assert store.tree(other).turns == {}
    store.put_back_turns([branch])
    assert list(store.tree(other).turns) == [branch.id]
    store.delete_turns([branch])
    store.delete(kept)
    store.close()
    again = ConversationStore(path)
    assert again.file.execute("SELECT count(*) FROM turn").fetchone() == (0,)
    assert asked.id not in {row[0] for row in again.file.execute("SELECT id FROM turn")}
    again.file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    again.close()
    assert b"xyzzy" not in path.read_bytes()
    assert b"plugh" not in path.read_bytes()


@pytest.mark.parametrize("content", [b"no database at all, but some text", b""])
def test_a_file_that_is_none_is_named_and_left_as_it_is(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    if not content:
        ConversationStore(path).close()  # an empty one is a new one
        return
    with pytest.raises(InvalidInput, match=r"chats\.sqlite cannot be read .*: move it away"):
        ConversationStore(path)
    assert path.read_bytes() == content


def test_a_file_of_a_newer_version_is_refused(path: Path, store: ConversationStore) -> None:
    store.file.execute("PRAGMA user_version = 99")
    store.close()
    with pytest.raises(InvalidInput, match="newer Batchscope"):
        ConversationStore(path)


def test_a_disk_that_takes_nothing_is_told_of(store: ConversationStore) -> None:
    store.file.execute("PRAGMA query_only = ON")
    with pytest.raises(InvalidInput, match="cannot be written to"):
        store.create("A fox", [])
    assert store.conversations() == []


def test_presets_begin_with_those_that_are_shipped_and_are_kept(path: Path, store: ConversationStore) -> None:
    presets = PresetStore(store)
    assert [preset.name for preset in presets.all()] == [preset.name for preset in shipped()]
    own = presets.save(Preset("Mine", "Be odd.", SamplingParams(temperature=0.3, stop=("END",), bad_words=("fox",))))
    presets.delete(presets.named("Exact"))
    again = ConversationStore(path)
    kept = PresetStore(again)
    assert [preset.name for preset in kept.all()] == ["Storyteller", "Adventurous", "As JSON", "Mine"]
    assert kept.named("Mine") == own
    assert kept.named("gone").name == "Storyteller"
    again.close()


def test_a_preset_needs_a_name_of_its_own_and_the_last_one_stays(store: ConversationStore) -> None:
    presets = PresetStore(store)
    with pytest.raises(InvalidInput, match="needs one"):
        presets.save(Preset(" "))
    with pytest.raises(InvalidInput, match="'Exact' already"):
        presets.save(Preset("Exact"))
    *others, last = presets.all()
    for preset in others:
        presets.delete(preset)
    with pytest.raises(InvalidInput, match="the last preset"):
        presets.delete(last)
    presets.put_back(others[0])
    assert [preset.name for preset in presets.all()] == ["Storyteller", "As JSON"]


def test_the_file_is_one_that_sqlite_finds_whole(path: Path, store: ConversationStore) -> None:
    kept = store.create("A fox", [])
    store.add(kept, None, USER, "hello")
    with sqlite3.connect(path) as other:
        assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    other.close()
