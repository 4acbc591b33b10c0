// One tenant: its present state, advice, and its history in plots.

import { emptyIn, pastOf, report } from "./data.js";
import { el } from "./dom.js";
import { UNKNOWN, count, duration, milliseconds, plural, rate, share } from "./format.js";
import { Plot } from "./plots.js";
import { itemOf } from "./sentences.js";
import { reason } from "./words.js";

const HUES = ["--accent", "--second", "--limit", "--busy", "--fault", "--good", "--still"];

export function tenantView(tenant) {
  const past = pastOf(tenant.project);
  return el("div", { class: "one" },
    el("p", { class: "back" }, el("a", { href: "#/", text: "← All tenants" })),
    el("h1", { text: tenant.project, tabindex: -1 }),
    report.links.page ? el("p", { class: "back" }, el("a", { href: `${report.links.page}/#/tenant/${encodeURIComponent(tenant.project)}`, text: "Now, on the status page" })) : null,
    attentionOf(tenant),
    figures(tenant),
    el("div", { class: "pair" }, advice(tenant), causes(tenant)),
    past === null ? el("p", { class: "sheet lines", text: "The page has the history of the busiest tenants only; the history of this one is in tenants.parquet." }) : plots(past, tenant),
    el("div", { class: "pair" }, priorities(tenant), dead(tenant)));
}

function attentionOf(tenant) {
  const items = report.attention.filter((each) => each.project === tenant.project);
  return items.length ? el("ul", { class: "sheet attention", "aria-label": "Status" }, ...items.map((item) => el("li", {}, ...itemOf(item)))) : null;
}

function figures(tenant) {
  const pairs = [
    ["Waiting", count(tenant.backlog), tenant.trend_word],
    ["Oldest", tenant.oldest_s === null ? UNKNOWN : duration(tenant.oldest_s), `${plural(tenant.in_flight, "message")} in flight`],
    ["Empty in", emptyIn(tenant), "if all goes on like this"],
    ["Waits p50 / p99", `${milliseconds(tenant.wait_p50_s)} / ${milliseconds(tenant.wait_p99_s)}`, `the longest ${milliseconds(tenant.wait_max_s)}`],
    ["Arrived", count(tenant.first_puts), `${count(tenant.retried)} retried`],
    ["Handled", count(tenant.handled), `${count(tenant.expired)} expired, ${count(tenant.dropped)} dropped`],
    ["Failed", count(tenant.retried + tenant.dead), `${count(tenant.dead)} for good`],
    ["Quota used", share(tenant.quota_used), `of ${rate(tenant.qps)}/s`],
    ["Got / due", share(tenant.got_over_due), `${share(tenant.share_in_flight)} of all in flight`],
  ];
  return el("dl", { class: "totals" }, ...pairs.map(([label, value, note]) => el("div", { class: "figure" }, el("dt", { text: label }), el("dd", {}, el("span", { class: "value", text: value }), el("span", { class: "note", text: note ?? "" })))));
}

function advice(tenant) {
  const change = tenant.advice === "raise" || tenant.advice === "lower";
  return el("section", { class: "sheet lines" }, el("h2", { text: "Recommended quota" }),
    el("p", { class: "forecast", text: change ? `${rate(tenant.recommended_qps)}/s instead of ${rate(tenant.qps)}/s` : tenant.qps === null ? "None: the topic's quota isn't known." : `Keep ${rate(tenant.qps)}/s` }),
    el("p", { class: "muted", text: tenant.reason ?? "" }),
    change ? el("pre", { text: `evenlane topics set ${tenant.project} --qps ${tenant.recommended_qps} --env ${report.env}` }) : null);
}

function causes(tenant) {
  const items = tenant.causes.map((each) => {
    const { label, tone, meaning } = reason(each.cause);
    return el("li", {}, el("span", { class: "chip", "data-tone": tone, text: label }), el("span", { text: share(each.share) }), el("span", { class: "muted", text: meaning }));
  });
  const behind = tenant.causes.some((each) => each.cause === "higher_priority");
  return el("section", { class: "sheet lines" }, el("h2", { text: "What its messages waited for" }), items.length ? el("ul", { class: "causes" }, ...items) : el("p", { class: "muted", text: "Nothing waited in the latest window." }),
    behind ? el("p", { class: "muted", text: "Messages behind a higher priority wait for that priority's cause: the list of tenants attributes them to it." }) : null);
}

function plots(past, tenant) {
  const lines = (figures, called = (name) => name) => Object.keys(figures).map((name, place) => ({ label: called(name), colour: HUES[place % HUES.length], figures: figures[name] }));
  const causeLines = lines(past.waited, (name) => reason(name).label);
  return el("section", { class: "sheet grid", "aria-label": "Past" }, ...[
    new Plot("Waiting", "messages at the end of each window, by priority", lines(inOrder(past.backlog, tenant)), count),
    new Plot("How long messages waited", "until their handler began", [
      { label: "p50", colour: "--accent", figures: past.p50 }, { label: "p95", colour: "--limit", figures: past.p95 }, { label: "p99", colour: "--fault", figures: past.p99 },
    ], milliseconds),
    new Plot("Messages a second", "arriving, handled and failed, under the quota", [
      { label: "arriving", colour: "--second", figures: past.arrival }, { label: "handled", colour: "--accent", figures: past.handled }, { label: "failed", colour: "--fault", figures: past.failed }, { label: "quota", colour: "--limit", figures: past.quota, dash: [4, 4] },
    ], rate),
    causeLines.length ? new Plot("What the waiting was for", "share of all waiting in the window", causeLines, share, { stacked: true, most: 1 }) : null,
    past.dead.some((figure) => figure) ? new Plot("Dead letters", "in each window", [{ label: "dead letters", colour: "--fault", figures: past.dead }], count) : null,
  ].filter((plot) => plot !== null).map((plot) => plot.node));
}

/** Sorts the figures by priority. */
function inOrder(figures, tenant) {
  const order = tenant.priorities.map((each) => each.priority);
  return Object.fromEntries(Object.entries(figures).sort(([a], [b]) => order.indexOf(a) - order.indexOf(b)));
}

function priorities(tenant) {
  const heads = ["Priority", "Waiting", "Oldest", "Target", "p50", "p95", "p99"];
  const rows = tenant.priorities.map((each) => el("tr", {}, el("th", { scope: "row", text: each.priority }),
    ...[count(each.backlog), duration(each.oldest_s), duration(each.target_s), milliseconds(each.wait_p50_s), milliseconds(each.wait_p95_s), milliseconds(each.wait_p99_s)]
      .map((text, place) => el("td", { class: `number${place === 1 && each.late_by_s > 0 ? " wrong" : ""}`, "data-label": heads[place + 1], text }))));
  return el("section", { class: "sheet lines" }, el("h2", { text: "By priority" }), el("div", { class: "scroll" },
    el("table", { class: "plain" }, el("thead", {}, el("tr", {}, ...heads.map((text, place) => el("th", { class: place ? "number" : "", scope: "col", text })))), el("tbody", {}, ...rows))));
}

function dead(tenant) {
  const own = report.subscription ? ` --subscription ${report.subscription}` : "";
  const items = tenant.dead_reasons.map((each) => el("li", {}, el("span", { class: "times", text: count(each.count) }), el("span", { class: "cause", text: each.reason })));
  return el("section", { class: "sheet lines" }, el("h2", { text: "Dead letters in the latest window" }),
    el("p", { class: "muted", text: tenant.dead ? `${plural(tenant.dead, "message")}. To see them:` : "None." }),
    tenant.dead ? el("pre", { text: `evenlane dlq list ${tenant.project} --env ${report.env}${own}` }) : null,
    el("ul", { class: "reasons-of" }, ...items));
}
