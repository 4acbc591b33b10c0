"""What of an overview is shown, and in which order. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.errors import ConfigError, InvalidName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Figures = dict[str, Any]
"""Of a tenant, or of one priority of it, with the names that the overview has for them."""

ALL = "all"
"""The priority of a line that stands for all."""


def _known(name: str) -> Callable[[Figures], float]:
    def value(figures: Figures) -> float:
        found = figures[name]
        return -1.0 if found is None else float(found)

    return value


def _gone(figures: Figures) -> float:
    return float("inf") if figures["never_gone"] else _known("gone_in_seconds")(figures)


SORTS: Mapping[str, Callable[[Figures], float]] = {
    "backlog": _known("backlog"),
    "oldest": _known("oldest_seconds"),
    "in-flight": _known("in_flight"),
    "arriving": _known("arriving"),
    "rate": _known("leaving"),
    "gone": _gone,
    "quota": _known("qps"),
    "name": lambda _figures: 0.0,
}
"""By name the first comes first, by all others the largest; what isn't known comes last. Equals go by name."""


class ViewState(NamedTuple):
    """`project` is a part of names, `priority` the only one shown, `limit` counts tenants. With `totals` there is one
    line for each.
    """

    project: str = ""
    priority: str | None = None
    sort: str = "backlog"
    reverse: bool = False
    limit: int | None = None
    totals: bool = False


class Line(NamedTuple):
    """A tenant's priority, or all of them; `first` of those of its tenant."""

    tenant: Figures
    figures: Figures
    first: bool = True


def check(choice: ViewState, document: Mapping[str, Any]) -> None:
    """Raises InvalidName if there is no such priority."""
    if choice.priority is not None and choice.priority not in document["priorities"]:
        known = ", ".join(document["priorities"])
        raise InvalidName(f"priority {choice.priority!r} is none of this cluster's: {known}")


def sort_named(text: str) -> str:
    """Raises ConfigError."""
    if text not in SORTS:
        raise ConfigError(f"--sort must be one of {', '.join(SORTS)}, not {text!r}")
    return text


def tenants(document: Mapping[str, Any], choice: ViewState) -> list[Figures]:
    """Those chosen, in order."""
    part = choice.project.casefold()
    found = [tenant for tenant in document["tenants"] if part in tenant["project"].casefold()]
    if choice.priority is not None:
        found = [tenant for tenant in found if _moves(_shown(tenant, choice))]
    by_name = choice.sort == "name"
    found.sort(key=lambda tenant: tenant["project"], reverse=by_name and choice.reverse)
    if not by_name:
        value = SORTS[choice.sort]
        found.sort(key=lambda tenant: value(_shown(tenant, choice)), reverse=not choice.reverse)
    return found[: choice.limit]


def lines(document: Mapping[str, Any], choice: ViewState) -> list[Line]:
    """Of each tenant that is chosen the priorities in which something waits or moves; one line at least."""
    found: list[Line] = []
    for tenant in tenants(document, choice):
        if choice.totals or choice.priority is not None:
            found.append(Line(tenant, _shown(tenant, choice)))
            continue
        busy = [band for band in tenant["priorities"] if _moves(band)] or [whole(tenant)]
        found += [Line(tenant, band, first=number == 0) for number, band in enumerate(busy)]
    return found


def narrowed(document: Mapping[str, Any], choice: ViewState) -> dict[str, Any]:
    """The document with those tenants and that priority alone which are chosen; what is said of the whole stays."""
    chosen = tenants(document, choice)
    if choice.priority is not None:
        chosen = [
            {**tenant, "priorities": [band for band in tenant["priorities"] if band["priority"] == choice.priority]}
            for tenant in chosen
        ]
    return {**document, "tenants": chosen}


def whole(tenant: Figures) -> Figures:
    """All its priorities as one: it is gone when the last of them is."""
    bands = tenant["priorities"]
    never = any(band["never_gone"] for band in bands)
    gone = [band["gone_in_seconds"] for band in bands]
    known = not never and None not in gone
    return {**tenant, "priority": ALL, "never_gone": never, "gone_in_seconds": max(gone) if known else None}


def _shown(tenant: Figures, choice: ViewState) -> Figures:
    """What the tenant is sorted by, with its quota."""
    if choice.priority is None:
        return whole(tenant)
    band = next(band for band in tenant["priorities"] if band["priority"] == choice.priority)
    return {**band, "qps": tenant["qps"]}


def _moves(figures: Figures) -> bool:
    """What waits for its time alone isn't in the backlog, but is there."""
    return figures["reason"] is not None or any(
        figures[name] for name in ("backlog", "in_flight", "arriving", "leaving")
    )
