// What the report says: the document that stands in the page, which is report.json.

import { UNKNOWN, duration } from "./format.js";

export const report = JSON.parse(document.getElementById("report").textContent);

/** By project. */
export const tenants = new Map(report.tenants.map((tenant) => [tenant.project, tenant]));

/** The past of a tenant, window by window; null if the page has none of it. */
export function pastOf(project) {
  return Object.hasOwn(report.windows.of, project) ? report.windows.of[project] : null;
}

/** Ends of the windows, unix seconds. */
export const ends = report.windows.ends;

const DATE = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZone: "UTC" });
const HOUR = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", timeZone: "UTC" });
const DATE_ALONE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** Of unix seconds, UTC. */
export function dated(seconds) {
  return DATE.format(seconds * 1000);
}

/** As short as the window allows. */
export function shortly(seconds) {
  const at = seconds * 1000;
  return report.window_s >= 86400 || seconds % 86400 === 0 ? DATE_ALONE.format(at) : HOUR.format(at);
}

/** Of an instant as JSON has it. */
export function datedAt(instant) {
  return instant === null ? UNKNOWN : DATE.format(Date.parse(instant));
}

/** "12 s", or "12 s to 3 m"; in a word what isn't a time. */
export function emptyIn(tenant) {
  if (tenant.empty_word === "empty" || tenant.backlog === 0) return "empty";
  if (tenant.empty_s === null) return tenant.empty_word === "never" ? "never" : UNKNOWN;
  const [low, high] = [tenant.empty_low_s, tenant.empty_high_s];
  if (low === null || (high !== null && duration(low) === duration(high))) return duration(tenant.empty_s);
  return high === null ? `${duration(low)} or more` : `${duration(low)} to ${duration(high)}`;
}
