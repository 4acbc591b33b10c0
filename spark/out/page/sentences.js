// The parts in sentences: tenants that need attention, noisy tenants, and the quality of the data.

import { datedAt, report } from "./data.js";
import { el } from "./dom.js";
import { milliseconds, plural, share } from "./format.js";

export function linkTo(project) {
  return el("a", { href: `#/${encodeURIComponent(project)}`, text: project });
}

/** Splits a sentence at backticks, which enclose commands. */
export function worded(sentence) {
  return sentence.split("`").map((part, place) => (place % 2 ? el("code", { text: part }) : part));
}

const MOST = 12;
const SHOWN = 3; // windows with problems
export function attention() {
  const items = report.attention.slice(0, MOST).map((item) => el("li", {}, ...itemOf(item, linkTo(item.project), ": ")));
  if (!items.length) items.push(el("li", {}, el("span", { class: "chip", "data-tone": report.tenants.length ? "good" : "limit", text: report.tenants.length ? "all well" : "no data" }), el("p", { text: report.tenants.length ? "Every tenant meets its targets, nothing fails, and none will miss a target at its present rate." : "There is nothing to report: no meter records in this time. Nodes write them once they run; a wrong --env or time range looks the same." })));
  const more = report.attention.length > MOST ? el("p", { class: "muted more", text: `and ${plural(report.attention.length - MOST, "more sentence")}; the table below shows every tenant.` }) : null;
  return el("section", { class: "sheet attention", "aria-labelledby": "attention" }, el("h2", { id: "attention", text: "What needs attention" }), el("ul", {}, ...items), more);
}

/** A chip and the sentences of an item of the report's attention. */
export function itemOf({ tone, label, sentence, remedy, runbook }, ...before) {
  const more = report.links.runbooks && runbook ? [" ", el("a", { href: `${report.links.runbooks}#${runbook}`, text: "Runbook" })] : [];
  return [el("span", { class: "chip", "data-tone": tone, text: label }), el("div", {},
    el("p", {}, ...before, ...worded(`${sentence}.`)), remedy ? el("p", { class: "muted" }, ...worded(`To do: ${remedy}.`), ...more) : null)];
}

export function quality() {
  const seen = report.quality.filter((each) => report.to === null || Date.parse(each.window_end) <= Date.parse(report.to));
  const latest = seen.at(-1) ?? report.quality.at(-1);
  const before = report.quality.filter((each) => each !== latest).filter((each) => TROUBLES.some((name) => each[name] > 0) || each.killed.length || each.silent.length);
  const lines = latest === undefined ? ["There is no record in this time."] : [`${plural(latest.records, "record")} of ${plural(latest.nodes, "node")} in the latest window. ${latest.sentence}`];
  lines.push(...before.slice(-SHOWN).reverse().map((each) => `Until ${datedAt(each.window_end)}: ${each.sentence}`));
  if (before.length > SHOWN) lines.push(`${plural(before.length - SHOWN, "window")} before had problems, too: report.json describes them.`);
  return el("section", { class: "sheet quality", "aria-labelledby": "quality" }, el("h2", { id: "quality", text: "How good the data is" }), ...lines.map((text) => el("p", { text })));
}

const TROUBLES = ["missing", "skewed", "unreadable", "newer", "uncounted"];

export function noisy() {
  const rows = report.noisy.map((each) => el("tr", {}, ...NOISY.map(([label, text, words]) => {
    const shown = text(each);
    return el("td", { class: words ? "" : "number", "data-label": label }, shown);
  })));
  const body = rows.length
    ? el("div", { class: "scroll" }, el("table", { class: "plain noisy" }, el("thead", {}, el("tr", {}, ...NOISY.map(([label, , words]) => el("th", { class: words ? "" : "number", text: label })))), el("tbody", {}, ...rows)))
    : el("p", { text: "No tenant used much more than its share of the handlers in the latest window." });
  return el("section", { class: "sheet loud", "aria-labelledby": "noisy" }, el("h2", { id: "noisy", text: "Noisy tenants, and their effect on the others" }), body);
}

const NOISY = [
  ["Tenant", (each) => linkTo(each.project), true],
  ["In flight", (each) => share(each.share_in_flight)],
  ["Handling time", (each) => share(each.share_handling)],
  ["Its due", (each) => share(each.due)],
  ["Its wait p95", (each) => milliseconds(each.wait_p95_s)],
  ["The quiet ones'", (each) => milliseconds(each.quiet_p95_s)],
  ["", (each) => each.sentence, true],
];
