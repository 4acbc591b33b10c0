// Columns of the tenants' table: the text and the sort key of each. Unknown figures come last.

import { count, duration, rate } from "./format.js";

const WORST = Number.MAX_VALUE;

/** Seconds until the backlog is empty: null if unknown, WORST if never. */
export function gone(tenant) {
  const parts = tenant.priorities;
  if (parts.some((part) => part.never_gone)) return WORST;
  return parts.some((part) => part.gone_in_seconds === null) ? null : Math.max(0, ...parts.map((part) => part.gone_in_seconds));
}

function goneIn(part) {
  if (part.never_gone) return "never";
  return part.backlog || part.gone_in_seconds === null ? duration(part.gone_in_seconds) : "";
}

export function goneText(tenant) {
  const seconds = gone(tenant);
  if (seconds === WORST) return "never";
  return tenant.backlog || seconds === null ? duration(seconds) : "";
}

/** `key`, `label`, `by` (the number or text to sort by), `then` (the order of equal ones), `text` of a tenant, and `part` of one of its priorities. */
export const COLUMNS = [
  { key: "project", label: "Tenant", by: (tenant) => tenant.project, first: "ascending" },
  {
    key: "status", label: "Status", first: "ascending",
    by: (tenant) => tenant.status.urgency, then: (a, b) => b.backlog - a.backlog,
  },
  { key: "trend", label: "Backlog, 2 min" },
  figure("backlog", "Backlog", (each) => count(each.backlog)),
  figure("oldest_seconds", "Oldest", (each) => (each.backlog ? duration(each.oldest_seconds) : "")),
  figure("arriving", "Arriving /s", (each) => rate(each.arriving)),
  figure("handled", "Handled /s", (each) => rate(each.handled)),
  figure("failed", "Failed /s", (each) => rate(each.failed)),
  figure("dead", "Dead /s", (each) => rate(each.dead)),
  { key: "quota", label: "Quota used", by: (tenant) => used(tenant), first: "descending" },
  { key: "gone", label: "Gone in", by: gone, first: "descending", text: goneText, part: goneIn },
];

function figure(key, label, text) {
  return { key, label, by: (tenant) => tenant[key], first: "descending", text, part: text };
}

/** Attempts per second: each uses a part of the quota. */
export function attempts({ handled, failed }) {
  return handled === null || failed === null ? null : handled + failed;
}

/** The part of its quota that a tenant uses; null if it has none. */
export function used(tenant) {
  return tenant.qps === null || attempts(tenant) === null ? null : attempts(tenant) / tenant.qps;
}

/** Compares two tenants; equal ones are in the order of their names. */
export function order({ key, direction }) {
  const { by, then } = COLUMNS.find((column) => column.key === key);
  const sign = direction === "ascending" ? 1 : -1;
  return (one, other) => {
    const [a, b] = [by(one), by(other)];
    if (a === b) return then?.(one, other) || (one.project < other.project ? -1 : 1);
    if (a === null || b === null) return a === null ? 1 : -1;
    return (a < b ? -1 : 1) * sign;
  };
}
