"""Paths, variants and branches of a conversation, in plain records."""

from app.chat.store.tree import Attachment, Role, Tree, Turn, fence, messages, title_of

USER, ASSISTANT = Role.USER, Role.ASSISTANT


def made() -> Tree:
    """1 → 2 → (3 → 4 | 5 → (6 | 7)), 8 is another first."""
    parents = {1: None, 2: 1, 3: 2, 4: 3, 5: 2, 6: 5, 7: 5, 8: None}
    roles = {1: USER, 2: ASSISTANT, 3: USER, 4: ASSISTANT, 5: USER, 6: ASSISTANT, 7: ASSISTANT, 8: USER}
    return Tree([Turn(id, parents[id], roles[id], f"t{id}") for id in parents])


def ids(turns: list[Turn]) -> list[int]:
    return [turn.id for turn in turns]


def test_a_path_goes_from_the_first_turn_to_its_end() -> None:
    tree = made()
    assert ids(tree.path(tree.turns[6])) == [1, 2, 5, 6]
    assert tree.path(None) == []


def test_variants_follow_the_same_turn_in_the_same_role() -> None:
    tree = made()
    assert ids(tree.variants(tree.turns[5])) == [3, 5]
    assert ids(tree.variants(tree.turns[6])) == [6, 7]
    assert ids(tree.variants(tree.turns[8])) == [1, 8]


def test_a_branch_is_shown_to_its_end_as_it_was_shown_last() -> None:
    tree = made()
    assert tree.end_of(tree.turns[1]).id == 7  # the newest
    tree.choose(tree.turns[6])
    assert tree.end_of(tree.turns[5]).id == 6
    tree.choose(tree.turns[3])
    assert tree.end_of(tree.turns[1]).id == 4
    newest = tree.newest()
    assert newest is not None
    assert newest.id == 8


def test_what_is_taken_out_is_not_shown_until_it_is_put_back() -> None:
    tree = made()
    branch = tree.branch(tree.turns[5])
    assert sorted(ids(branch)) == [5, 6, 7]
    tree.remove(branch)
    assert tree.end_of(tree.turns[1]).id == 4
    assert ids(tree.variants(tree.turns[3])) == [3]
    tree.put_back(branch)
    assert ids(tree.variants(tree.turns[3])) == [3, 5]


def test_a_model_is_sent_the_system_prompt_and_every_word_with_its_files() -> None:
    file = Attachment("a.py", "x = '```'\n```\n", 5)
    path = [Turn(1, None, USER, "What is it?", (file,)), Turn(2, 1, ASSISTANT, ""), Turn(3, 2, USER, "Again")]
    sent = messages(path, "Be brief.")
    assert [message["role"] for message in sent] == ["system", "user", "user"]
    assert sent[1]["content"] == "a.py\n````\nx = '```'\n```\n````\n\nWhat is it?"
    assert messages(path, " ")[0]["role"] == "user"


def test_a_fence_is_longer_than_those_in_its_text() -> None:
    assert fence("plain") == "```"
    assert fence("````\nx") == "`````"


def test_a_title_is_the_beginning_of_the_first_prompt() -> None:
    assert title_of("  Tell me\na story. ") == "Tell me a story."
    long = title_of("word " * 40)
    assert len(long) <= 62
    assert long.endswith("word …")
    assert title_of("") == "New conversation"
