// The page: all tenants, or the tenant in the address.

import { datedAt, ends, report, tenants } from "./data.js";
import { el, say } from "./dom.js";
import { count, plural, rate } from "./format.js";
import { attention, noisy, quality } from "./sentences.js";
import { tenantTable } from "./table.js";
import { tenantView } from "./tenant.js";
import { dropPlots } from "./plots.js";

const main = document.getElementById("main");
const LENGTHS = { "5m": "5 minutes", "1h": "1 hour", "1d": "1 day" };
let overview = null;
let scrolled = 0;

say(document.getElementById("env"), report.subscription ? `${report.env}, subscription ${report.subscription}` : report.env);
say(document.getElementById("when"), report.to === null ? "no data" : `${LENGTHS[report.window] ?? report.window} until ${datedAt(report.to)} UTC${Date.parse(report.to) > Date.parse(report.made_at) ? ", so far" : ""}`);

function overviewOf() {
  const left = report.windows.left_out;
  const note = left ? `The history of ${plural(left, "tenant")} isn't on this page: it has the ${count(Object.keys(report.windows.of).length)} busiest tenants and those that need attention. tenants.parquet has all.` : "";
  const spanned = report.to === null ? "" : `It covers ${plural(ends.length, "window")} of ${report.window} from ${datedAt(report.from)} to ${datedAt(report.to)}; times are UTC.`;
  return el("div", { class: "overview" }, attention(), ...(report.tenants.length ? [totals(), tenantTable(), noisy()] : []), quality(),
    el("p", { class: "muted foot", text: `Made ${datedAt(report.made_at)} UTC. ${spanned} ${note}` }));
}

function totals() {
  const sum = (name) => report.tenants.reduce((all, tenant) => all + (tenant[name] ?? 0), 0);
  const missed = report.tenants.filter((tenant) => tenant.late).length;
  const pairs = [
    ["Waiting", count(sum("backlog")), `${count(sum("in_flight"))} in flight`],
    ["Late tenants", count(missed), missed ? `${missed === 1 ? "misses" : "miss"} a target now` : "all within their targets", missed ? "fault" : null],
    ["Arriving", `${rate(sum("arrival_rate"))}/s`, `${count(sum("first_puts"))} new, ${plural(sum("retried"), "retry", "retries")}`],
    ["Handled", `${rate(sum("handled_rate"))}/s`, `${count(sum("handled"))} in the window`],
    ["Failed", `${rate(sum("failed_rate"))}/s`, `${count(sum("dead"))} for good`, sum("retried") + sum("dead") ? "fault" : null],
    ["Quotas to change", count(report.quotas.length), "each tenant's page says why"],
  ];
  return el("dl", { class: "totals" }, ...pairs.map(([label, value, note, tone]) => el("div", { class: "figure", "data-tone": tone }, el("dt", { text: label }), el("dd", {}, el("span", { class: "value", text: value }), el("span", { class: "note", text: note })))));
}

function route() {
  const project = named();
  const tenant = tenants.get(project);
  dropPlots();
  if (tenant === undefined) {
    overview ??= overviewOf();
    main.replaceChildren(overview);
    scrollTo(0, scrolled);
    return;
  }
  if (main.contains(overview)) scrolled = scrollY;
  main.replaceChildren(tenantView(tenant));
  scrollTo(0, 0);
  main.querySelector("h1").focus({ preventScroll: true });
}

/** The project in the address; a truncated address has none. */
function named() {
  try {
    return decodeURIComponent(location.hash.replace(/^#\/?/, ""));
  } catch {
    return "";
  }
}

addEventListener("hashchange", route);
route();
