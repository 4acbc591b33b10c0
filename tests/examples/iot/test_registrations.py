"""P7: when a gateway announces a project, and when its data may flow."""

from hypothesis import given
from hypothesis import strategies as st

from examples.iot.registrations import Registrations, Step

ASK_AGAIN = 2.0
EVENTS = st.tuples(st.sampled_from(["data", "data", "answer", "unknown"]), st.sampled_from("ab"), st.floats(0, 3))


def test_data_waits_for_the_answer():
    known = Registrations(ask_again=ASK_AGAIN)
    assert [Step.ASK, Step.WAIT] == [known.on_data("acme", 0), known.on_data("acme", 1.9)]
    known.on_answer("acme")
    assert Step.PUT == known.on_data("acme", 2)


def test_question_without_an_answer_is_asked_again():
    """The gateway or the owner that had the question died."""
    known = Registrations(ask_again=ASK_AGAIN)
    assert [Step.ASK, Step.ASK, Step.WAIT] == [known.on_data("acme", now) for now in (0, 2, 3.9)]


def test_answer_to_another_gateway_counts():
    known = Registrations(ask_again=ASK_AGAIN)
    known.on_answer("acme")
    assert Step.PUT == known.on_data("acme", 0)


def test_project_without_a_topic_is_announced_again():
    known = Registrations(ask_again=ASK_AGAIN)
    known.on_answer("acme")
    known.on_unknown("acme")
    assert Step.ASK == known.on_data("acme", 0)


def test_projects_that_nobody_answers_for_are_forgotten():
    """Each invented name is asked for; those of the last two seconds are known."""
    known = Registrations(ask_again=ASK_AGAIN)
    for number in range(1_000):
        assert Step.ASK == known.on_data(f"invented-{number}", number / 10)
    assert 20 == known.waiting


def test_answered_projects_are_bounded():
    """P7: anybody may publish answers. The projects with data stay; one that is forgotten is announced again."""
    known = Registrations(ask_again=ASK_AGAIN, most=100)
    known.on_answer("acme")
    known.on_answer("idle")
    for number in range(1_000):
        known.on_answer(f"invented-{number}")
        assert Step.PUT == known.on_data("acme", 0)
    assert 100 == known.answered
    assert Step.ASK == known.on_data("idle", 0)


@given(st.lists(EVENTS, max_size=40))
def test_any_history(events):
    """Against the whole history of each project."""
    known, history, now = Registrations(ask_again=ASK_AGAIN), {"a": [], "b": []}, 0.0
    for event, project, pause in events:
        now += pause
        if event == "data":
            step = known.on_data(project, now)
            assert expected(history[project], now) == step
            history[project].append((step, now))
        elif event == "answer":
            known.on_answer(project)
            history[project].append((event, now))
        else:
            known.on_unknown(project)
            history[project].append((event, now))


def expected(past: list, now: float) -> Step:
    """Data flows if the last word about the project was an answer; a question rests, unless it was answered."""
    words = [what for what, _ in past if what in ("answer", "unknown")]
    if words and words[-1] == "answer":
        return Step.PUT
    for what, at in reversed(past):
        if what == "answer":
            break
        if what is Step.ASK:
            return Step.WAIT if now - at < ASK_AGAIN else Step.ASK
    return Step.ASK
