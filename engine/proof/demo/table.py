"""The tables of the demo: one while it runs, and the same with the ledger and the verdict when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from evenlane.engine.proof.demo.plan import ARMS, BURST, HOT_RATE, QUOTA, SERVICE_S, SLOTS, TITLES

if TYPE_CHECKING:
    from rich.console import RenderableType

    from evenlane.engine.proof.demo.plan import Plan
    from evenlane.engine.proof.demo.result import Result
    from evenlane.engine.proof.demo.turn import Turn
    from evenlane.engine.proof.figures import Figures

_COLUMNS = ("p50\nms", "p99\nms", "in\ntime", "hot\nput", "hot\nserved", "hot\nwaits")


def intro(plan: Plan) -> str:
    rate, count = f"{plan.victim_rate:.3g} msg/s", plan.projects - 1
    others = f"one puts {rate}" if count == 1 else f"{count:,} put {rate} each"
    return (
        f"{plan.projects:,} projects, each with a quota of {QUOTA} msg/s: {others}, one is hot and puts "
        f"{HOT_RATE:,.0f} msg/s. One node with {SLOTS} slots, handlers of {SERVICE_S * 1e3:.0f} ms, a real "
        f"nats-server and etcd; {plan.seconds:g} s.\n"
    )


def render_preparing(plan: Plan) -> RenderableType:
    return Text(f"{plan.projects:,} topics are written to etcd for each arm ...")


def render_running(result: Result, turn: Turn, number: int) -> RenderableType:
    """`turn` is that of round `number`, from 0."""
    plan = result.plan
    done = sum(map(len, result.turns.values()))
    left = max(0.0, plan.seconds - done * plan.turn_s - turn.elapsed_s)
    now = Text(f"round {number + 1} of {plan.rounds}, {TITLES[turn.arm]}; {left:.0f} s left")
    return Group(_arms(result, turn), now)


def render_closing(result: Result) -> RenderableType:
    failure = result.failure()
    verdict = Text(result.verdict(), style="green") if failure is None else Text(_sentence(failure), style="bold red")
    return Group(_arms(result), _notes(result), _ledger(result), Text(), verdict)


def _arms(result: Result, turn: Turn | None = None) -> Table:
    table = Table("", title="The other projects, from put to the handler's end", title_justify="left")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for arm in ARMS:
        style = "bold" if turn is not None and turn.arm == arm else ""
        table.add_row(TITLES[arm], *_cells(result.figures(arm, turn), hot=arm != "without hot"), style=style)
    return table


def _cells(figures: Figures, *, hot: bool) -> list[str]:
    if not figures["offered"]:
        return [""] * len(_COLUMNS)
    served = figures["served_ratio"]
    cells = [*map(_ms, (figures["p50_ms"], figures["p99_ms"])), "" if served is None else f"{served:.1%}"]
    offered, of_hot = int(figures["hot_offered"] or 0), int(figures["hot_served"] or 0)
    counts = (offered, of_hot, offered - of_hot)
    return [*cells, *(f"{count:,}" if hot else "-" for count in counts)]


def _notes(result: Result) -> Text:
    rounds = result.plan.rounds
    medians = f"Times are medians over {rounds} rounds; in" if rounds > 1 else "In"
    most = QUOTA + BURST + 1
    return Text(
        f"{medians} time means before the end of the turn. FIFO, the control, is the same node under the same load, "
        f"first come, first served, without quotas. With its quota of {QUOTA} msg/s and a burst of {BURST}, at most "
        f"{result.hot_max_1s} messages of hot began in any second ({most} are allowed).\n"
    )


def _ledger(result: Result) -> Table:
    table = Table(title="The ledger: every message that was acknowledged", title_justify="left")
    ledger = result.ledger.document()
    for name in ledger:
        table.add_column(name, justify="right")
    table.add_row(*(f"{count:,}" for count in ledger.values()))
    return table


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
