"""View state: which part of an overview is shown, and in which order. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.errors import ConfigError, InvalidName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Figures = dict[str, Any]
"""Figures of a tenant, or of one of its priorities, with the overview's field names."""

ALL = "all"
"""The priority of a line for all priorities."""


SortKey = tuple[float, ...]


def _read_figure(name: str) -> Callable[[Figures], SortKey]:
    def value(figures: Figures) -> SortKey:
        found = figures[name]
        return (-1.0 if found is None else float(found),)

    return value


def _read_gone(figures: Figures) -> SortKey:
    return (float("inf"),) if figures["never_gone"] else _read_figure("gone_in_seconds")(figures)


def _read_status(figures: Figures) -> SortKey:
    """The most urgent status has the highest value; of several projects with it, the one with most waiting."""
    return -figures["status"]["urgency"], figures["backlog"]


SORTS: Mapping[str, Callable[[Figures], SortKey]] = {
    "status": _read_status,
    "backlog": _read_figure("backlog"),
    "oldest": _read_figure("oldest_seconds"),
    "in-flight": _read_figure("in_flight"),
    "arriving": _read_figure("arriving"),
    "rate": _read_figure("handled"),
    "failed": _read_figure("failed"),
    "dead": _read_figure("dead"),
    "gone": _read_gone,
    "quota": _read_figure("qps"),
    "name": lambda _figures: (),
}
"""Sort orders: by name ascending, by others descending; unknown values come last, equal ones are in name order."""


class ViewState(NamedTuple):
    """Choices of the user. `project` is a part of project names; `priority` is the only one shown; `limit` is a number
    of tenants. With `totals` there is one line per tenant.
    """

    project: str = ""
    priority: str | None = None
    sort: str = "status"
    reverse: bool = False
    limit: int | None = None
    totals: bool = False


class TenantLine(NamedTuple):
    """A line for one priority of a tenant, or for all. `first`: it is the tenant's first line."""

    tenant: Figures
    figures: Figures
    first: bool = True


def check(choice: ViewState, document: Mapping[str, Any]) -> None:
    """Raise InvalidName if there is no such priority."""
    if choice.priority is not None and choice.priority not in document["priorities"]:
        known = ", ".join(document["priorities"])
        raise InvalidName(f"priority {choice.priority!r} is not one of this cluster's: {known}")


def sort_named(text: str) -> str:
    """Return a valid sort order. Raises ConfigError."""
    if text not in SORTS:
        raise ConfigError(f"--sort must be one of {', '.join(SORTS)}, not {text!r}")
    return text


def tenants(document: Mapping[str, Any], choice: ViewState) -> list[Figures]:
    """Return the chosen tenants, in order."""
    part = choice.project.casefold()
    found = [tenant for tenant in document["tenants"] if part in tenant["project"].casefold()]
    if choice.priority is not None:
        found = [tenant for tenant in found if _is_active(_select_figures(tenant, choice))]
    by_name = choice.sort == "name"
    found.sort(key=lambda tenant: tenant["project"], reverse=by_name and choice.reverse)
    if not by_name:
        value = SORTS[choice.sort]
        found.sort(key=lambda tenant: value(_select_figures(tenant, choice)), reverse=not choice.reverse)
    return found[: choice.limit]


def lines(document: Mapping[str, Any], choice: ViewState) -> list[TenantLine]:
    """Return the lines of the chosen tenants: their priorities with any activity, or one line for all."""
    found: list[TenantLine] = []
    for tenant in tenants(document, choice):
        if choice.totals or choice.priority is not None:
            found.append(TenantLine(tenant, _select_figures(tenant, choice)))
            continue
        busy = [band for band in tenant["priorities"] if _is_active(band)] or [whole(tenant)]
        found += [TenantLine(tenant, band, first=number == 0) for number, band in enumerate(busy)]
    return found


def narrow(document: Mapping[str, Any], choice: ViewState) -> dict[str, Any]:
    """Return the document with only the chosen tenants and priority; figures of the whole are unchanged."""
    chosen = tenants(document, choice)
    if choice.priority is not None:
        chosen = [
            {**tenant, "priorities": [band for band in tenant["priorities"] if band["priority"] == choice.priority]}
            for tenant in chosen
        ]
    return {**document, "tenants": chosen}


def whole(tenant: Figures) -> Figures:
    """Return all priorities as one: it is gone when the last of them is."""
    bands = tenant["priorities"]
    never = any(band["never_gone"] for band in bands)
    gone = [band["gone_in_seconds"] for band in bands]
    known = not never and None not in gone
    return {**tenant, "priority": ALL, "never_gone": never, "gone_in_seconds": max(gone) if known else None}


def _select_figures(tenant: Figures, choice: ViewState) -> Figures:
    """Return the figures that the tenant is sorted by, with its quota."""
    if choice.priority is None:
        return whole(tenant)
    band = next(band for band in tenant["priorities"] if band["priority"] == choice.priority)
    return {**band, "qps": tenant["qps"], "status": tenant["status"]}


def _is_active(figures: Figures) -> bool:
    """Whether there is any activity; delayed messages count, although they aren't in the backlog."""
    return figures["reason"] is not None or any(
        figures[name] for name in ("backlog", "in_flight", "arriving", "leaving")
    )
