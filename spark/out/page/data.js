// The document of the report, which is embedded in the page: the content of report.json.

import { UNKNOWN, duration } from "./format.js";

export const report = JSON.parse(document.getElementById("report").textContent);

/** Tenants by project. */
export const tenants = new Map(report.tenants.map((tenant) => [tenant.project, tenant]));

/** The history of a tenant by window; null if the page doesn't have it. */
export function pastOf(project) {
  return Object.hasOwn(report.windows.of, project) ? report.windows.of[project] : null;
}

/** Ends of the windows, unix seconds. */
export const ends = report.windows.ends;

const DATE = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZone: "UTC" });
const HOUR = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", timeZone: "UTC" });
const DATE_ALONE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** Formats unix seconds in UTC. */
export function dated(seconds) {
  return DATE.format(seconds * 1000);
}

/** Formats unix seconds as briefly as the window's length allows. */
export function shortly(seconds) {
  const at = seconds * 1000;
  return report.window_s >= 86400 || seconds % 86400 === 0 ? DATE_ALONE.format(at) : HOUR.format(at);
}

/** Formats an instant in the format of JSON. */
export function datedAt(instant) {
  return instant === null ? UNKNOWN : DATE.format(Date.parse(instant));
}

/** Formats when the backlog is empty: "12 s", "12 s to 3 m", or a word. */
export function emptyIn(tenant) {
  if (tenant.empty_word === "empty" || tenant.backlog === 0) return "empty";
  if (tenant.empty_s === null) return tenant.empty_word === "never" ? "never" : UNKNOWN;
  const [low, high] = [tenant.empty_low_s, tenant.empty_high_s];
  if (low === null || (high !== null && duration(low) === duration(high))) return duration(tenant.empty_s);
  return high === null ? `${duration(low)} or more` : `${duration(low)} to ${duration(high)}`;
}
