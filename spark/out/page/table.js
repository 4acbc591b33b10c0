// All tenants: a table with sorting and search. On a phone each tenant is a card.

import { emptyIn, ends, pastOf, report } from "./data.js";
import { arrange, el, mark, say } from "./dom.js";
import { UNKNOWN, count, duration, milliseconds, plural, rate, share } from "./format.js";
import { Spark } from "./spark.js";
import { reason } from "./words.js";
import { linkTo } from "./sentences.js";

const COLUMNS = [
  ["project", "Tenant", (tenant) => tenant.project, projectCell, "words"],
  ["status", "Status", urgency, statusCell, "words"],
  ["backlog", "Waiting", (tenant) => tenant.backlog, backlogCell, "Messages that wait at the end of the window; the line shows earlier windows."],
  ["priorities", "By priority", (tenant) => tenant.backlog, prioritiesCell, "words"],
  ["oldest", "Oldest / target", lateness, oldestCell, "How long the oldest message has waited, and how long it may wait, in the priority that is worst off."],
  ["p95", "Waits p50 / p95 / p99", (tenant) => tenant.wait_p95_s, waitsCell, "Of messages whose handler began in the window: half waited less than the first figure, 95 % less than the second, 99 % less than the third."],
  ["arrival", "Arriving", (tenant) => tenant.arrival_rate, (tenant) => rate(tenant.arrival_rate), "Messages per second."],
  ["handled", "Handled", (tenant) => tenant.handled_rate, handledCell, "Messages per second that were handled."],
  ["failed", "Failed", (tenant) => tenant.failed_rate, failedCell, "Attempts per second that failed, retried ones and those that failed for good."],
  ["empty", "Empty in", emptyOrder, emptyIn, "When the backlog will be gone if all goes on like this."],
  ["quota", "Quota used", (tenant) => tenant.quota_used, quotaCell, "Share of the topic's QPS that was used in the window."],
  ["cause", "Waits mostly for", (tenant) => topCause(tenant)?.cause ?? "", causeCell, "words"],
  ["got", "Got / due", (tenant) => tenant.got_over_due, (tenant) => share(tenant.got_over_due), "Share of handling time that it got, over the share it was due."],
  ["dead", "Dead", (tenant) => tenant.dead, deadCell, "Messages that became dead letters in the window."],
];
const UPWARDS = new Set(["project", "status", "cause"]); // sorted upwards first
const FIRST = 100;
const BEHIND = "higher_priority";

let sortedBy = "status";
let downwards = false;
let pattern = "";
let all = false;

export function tenantTable() {
  const rows = new Map(report.tenants.map((tenant) => [tenant.project, row(tenant)]));
  const body = el("tbody", {});
  const note = el("span", { class: "muted" });
  const more = el("button", { class: "quiet", type: "button", on: { click: () => { all = true; show(); } } });
  const heads = COLUMNS.map(([name, label, , , about]) => head(name, label, about, show));
  const picker = el("select", { id: "sort", on: { change: () => { sortedBy = picker.value; downwards = !UPWARDS.has(sortedBy); show(); } } },
    ...COLUMNS.filter(([name]) => name !== "priorities").map(([name, label]) => el("option", { value: name, text: label })));
  const search = el("input", { type: "search", placeholder: "Find a tenant", "aria-label": "Find a tenant", on: { input: () => { pattern = search.value.trim().toLowerCase(); show(); } } });

  function show() {
    const found = sortedTenants().filter((tenant) => tenant.project.toLowerCase().includes(pattern));
    const shown = all ? found : found.slice(0, FIRST);
    arrange(body, shown.map((tenant) => rows.get(tenant.project)));
    say(note, found.length === shown.length ? plural(found.length, "tenant") : `${count(shown.length)} of ${plural(found.length, "tenant")}`);
    say(more, `Show all ${count(found.length)}`);
    more.hidden = found.length === shown.length;
    picker.value = sortedBy;
    for (const each of heads) mark(each, "aria-sort", each.dataset.column === sortedBy ? (downwards ? "descending" : "ascending") : null);
  }

  show();
  return el("section", { class: "sheet", "aria-labelledby": "tenants" },
    el("div", { class: "bar-of-tools" }, el("h2", { id: "tenants", text: "Tenants" }), search, el("label", { class: "sort-by" }, "Sort by ", picker), note),
    el("div", { class: "scroll" }, el("table", { class: "all" }, el("thead", {}, el("tr", {}, ...heads)), body)), el("div", { class: "more" }, more), legend());
}

/** What the columns mean, for those who can't hover over their heads. */
function legend() {
  const lines = COLUMNS.filter(([, , , , about]) => about !== "words").flatMap(([, label, , , about]) => [el("dt", { text: label }), el("dd", { text: about })]);
  return el("details", { class: "legend" }, el("summary", { text: "What the columns mean" }), el("dl", {}, ...lines));
}

function head(name, label, about, show) {
  const button = el("button", { type: "button", text: label, on: { click: () => {
    downwards = sortedBy === name ? !downwards : !UPWARDS.has(name);
    sortedBy = name;
    show();
  } } });
  return el("th", { class: about === "words" ? "" : "number", scope: "col", "data-column": name, title: about === "words" ? null : about }, name === "priorities" ? label : button);
}

function sortedTenants() {
  const key = COLUMNS.find(([name]) => name === sortedBy)[2];
  const way = downwards ? -1 : 1;
  return [...report.tenants].sort((a, b) => {
    const [left, right] = [key(a), key(b)];
    if (left === null || right === null) return (left === null) - (right === null);
    if (left !== right) return left < right ? -way : way;
    return b.backlog - a.backlog || (a.project < b.project ? -1 : 1);
  });
}

function row(tenant) {
  return el("tr", {}, ...COLUMNS.map(([name, label, , cell, about]) => {
    const shown = cell(tenant);
    return el(name === "project" ? "th" : "td", { class: `${name}${about === "words" ? "" : " number"}`, scope: name === "project" ? "row" : null, "data-label": label }, ...(Array.isArray(shown) ? shown : [shown]));
  }));
}

function projectCell(tenant) {
  return linkTo(tenant.project);
}

/** The place of the tenant's most urgent item in the report's attention, which is in the order of urgency. */
function urgency(tenant) {
  const place = report.attention.findIndex((each) => each.project === tenant.project);
  return place === -1 ? report.attention.length : place;
}

function statusCell(tenant) {
  const item = report.attention[urgency(tenant)];
  return item ? el("span", { class: "chip", "data-tone": item.tone, title: item.sentence, text: item.label }) : "";
}

function backlogCell(tenant) {
  const past = pastOf(tenant.project);
  const trend = { growing: "↗", shrinking: "↘" }[tenant.trend_word] ?? "";
  const figure = el("span", { class: "figure-of", text: `${trend && tenant.backlog ? `${trend} ` : ""}${count(tenant.backlog)}`, title: tenant.trend_word });
  if (past === null || ends.length < 2) return figure;
  const line = new Spark(`Waiting over the last ${plural(ends.length, "window")}`);
  line.draw(stretched(past.waiting));
  return [figure, line.node];
}

/** Stretches the figures over the whole width; otherwise the sparkline would be aligned to the right. */
function stretched(figures) {
  if (figures.length >= 120 || figures.length < 2) return figures;
  return Array.from({ length: 120 }, (_, place) => between(figures, (place / 119) * (figures.length - 1)));
}

function between(figures, place) {
  const [left, right] = [figures[Math.floor(place)], figures[Math.ceil(place)]];
  return left === null || right === null ? left : left + (right - left) * (place % 1);
}

function prioritiesCell(tenant) {
  const waiting = tenant.priorities.filter((each) => each.backlog > 0);
  if (!waiting.length) return el("span", { class: "muted", text: UNKNOWN });
  return el("ul", { class: "by" }, ...waiting.map((each) => el("li", { class: each.late_by_s > 0 ? "wrong" : "" }, el("span", { text: each.priority }), el("span", { text: count(each.backlog) }))));
}

/** The priority whose oldest message has used up the largest part of its target. */
function worst(tenant) {
  return tenant.priorities.reduce((most, each) => (each.oldest_s !== null && (most === null || each.oldest_s / each.target_s > most.oldest_s / most.target_s) ? each : most), null);
}

function lateness(tenant) {
  const each = worst(tenant);
  return each === null ? 0 : each.oldest_s / each.target_s;
}

function oldestCell(tenant) {
  const each = worst(tenant);
  if (each === null) return UNKNOWN;
  return [el("span", { class: each.oldest_s > each.target_s ? "wrong" : "", text: duration(each.oldest_s) }), el("span", { class: "muted", text: ` / ${duration(each.target_s)}` })];
}

function waitsCell(tenant) {
  return [tenant.wait_p50_s, tenant.wait_p95_s, tenant.wait_p99_s].map(milliseconds).join(" / ");
}

function handledCell(tenant) {
  const behind = tenant.backlog > 0 && tenant.trend_word === "growing";
  return el("span", { class: behind ? "behind" : "", text: rate(tenant.handled_rate) });
}

function failedCell(tenant) {
  const failed = tenant.retried + tenant.dead;
  return el("span", { class: failed ? "wrong" : "", text: rate(tenant.failed_rate) });
}

function emptyOrder(tenant) {
  return tenant.backlog === 0 ? 0 : tenant.empty_s ?? Infinity;
}

function quotaCell(tenant) {
  if (tenant.quota_used === null) return UNKNOWN;
  const used = Math.min(1, tenant.quota_used);
  const bar = el("progress", { max: 1, value: used.toFixed(3), "aria-hidden": true });
  return [el("span", { text: `${share(tenant.quota_used)} of ${rate(tenant.qps)}/s` }), bar];
}

/** The main cause. Messages behind a higher priority wait for that priority's cause. */
function topCause(tenant) {
  return tenant.causes.find((each) => each.cause !== BEHIND) ?? tenant.causes[0];
}

function causeCell(tenant) {
  const first = topCause(tenant);
  if (first === undefined) return UNKNOWN;
  const { label, tone, meaning } = reason(first.cause);
  const others = tenant.causes.filter((each) => first.cause === BEHIND || each.cause !== BEHIND);
  const text = `${label} ${share(first.share / others.reduce((sum, each) => sum + each.share, 0))}`;
  // Without a backlog, the short waits of the window don't matter.
  if (!tenant.backlog) return el("span", { class: "muted", title: meaning, text });
  return el("span", { class: "chip", "data-tone": tone, title: meaning, text });
}

function deadCell(tenant) {
  const top = tenant.dead_reasons[0];
  return el("span", { class: tenant.dead ? "wrong" : "", title: top ? `mostly: ${top.reason}` : null, text: count(tenant.dead) });
}
