// One tenant: its state, why its messages wait, its past, and actions.

import { get, paths } from "./api.js";
import { change } from "./change.js";
import { charts } from "./charts.js";
import { goneText } from "./columns.js";
import { DeadLetters } from "./dead_letters.js";
import { confirmed } from "./dialog.js";
import { el, mark, say } from "./dom.js";
import { count, duration, plural, rate } from "./format.js";
import { Poll } from "./poll.js";
import { Statuses } from "./status.js";
import { toast } from "./toast.js";
import { figure } from "./totals.js";
import { Why } from "./why.js";
import { stateOf } from "./words.js";

const WHY_MS = 4_000;
const SEEN_MS = 2_500; // an overview that began before a change arrives within that time

export class Tenant {
  constructor(project) {
    Object.assign(this, { project, state: null, isListed: false, changedAt: -Infinity, now: { waiting: null, flight: null } });
    this.pause = el("button", { type: "button", class: "quiet", hidden: true, on: { click: () => this.changeState() } });
    this.figures = Object.fromEntries([["backlog", "Backlog"], ["oldest", "Oldest"], ["flight", "In flight"], ["arriving", "Arriving /s"], ["handled", "Handled /s"], ["failed", "Failed /s"], ["dead", "Dead /s"], ["quota", "Quota"], ["gone", "Gone in"]].map(([key, label]) => [key, figure(label)]));
    this.statuses = new Statuses();
    this.why = new Why();
    this.poll = new Poll({ ask: () => get(paths.why(project)), onAnswer: (answer) => this.onAnswer(answer), onError: (error) => this.onError(error) });
    this.charts = charts(project);
    this.deadLetters = new DeadLetters(project);
    this.node = el("section", { class: "one", "aria-label": `Tenant ${project}` },
      el("div", { class: "bar-of-tools" }, el("a", { class: "back", href: "#/", text: "← All tenants" }), el("h1", { text: project, tabindex: -1 }), this.pause),
      this.statuses.node,
      el("dl", { class: "totals" }, ...Object.values(this.figures).map((each) => each.node)),
      el("div", { class: "sides" }, this.why.node, el("section", { class: "sheet", "aria-labelledby": "past-title" },
        el("h2", { id: "past-title", text: "The last two minutes" }), ...this.charts.map((chart) => chart.node))),
      this.deadLetters.node);
    this.poll.now();
  }

  show(overview) {
    const tenant = overview.tenants.find((each) => each.project === this.project);
    this.isListed = Boolean(tenant);
    if (!tenant) return;
    this.observe(tenant);
    this.now = { waiting: tenant.backlog, flight: tenant.in_flight };
    this.showFigures({ backlog: count(tenant.backlog), oldest: tenant.backlog ? duration(tenant.oldest_seconds) : "–", flight: count(tenant.in_flight), ...rates(tenant), quota: tenant.qps === null ? "–" : `${rate(tenant.qps)}/s`, gone: goneText(tenant) || "–" });
    const borrowed = tenant.quota_now !== null && tenant.qps !== null && Math.abs(tenant.quota_now - tenant.qps) > 0.05 * tenant.qps;
    say(this.figures.quota.note, borrowed ? `${rate(tenant.quota_now)}/s available now` : "");
    for (const chart of this.charts) chart.show(tenant);
  }

  onAnswer(answer) {
    this.why.show(answer);
    if (!this.isListed) this.showUnlisted(answer);
    return WHY_MS;
  }

  onError(error) {
    this.why.fail(error.message);
    return WHY_MS;
  }

  /** Shows a tenant that isn't among the busiest: only the answer about why it waits has its figures. */
  showUnlisted(answer) {
    this.now = { waiting: answer.backlog, flight: answer.in_flight };
    this.showFigures({ backlog: count(answer.backlog), oldest: answer.backlog ? duration(answer.oldest_seconds) : "–", flight: count(answer.in_flight), ...rates(answer.rates), quota: answer.rates.quota === null ? "–" : `${rate(answer.rates.quota)}/s`, gone: duration(answer.forecast.gone_in_seconds) });
    this.observe(answer);
  }

  showFigures(texts) {
    for (const [key, text] of Object.entries(texts)) say(this.figures[key].value, text);
  }

  /** Ignores a state that is observed right after a change, as it may be older: the button would change back. */
  observe(answer) {
    if (performance.now() - this.changedAt <= SEEN_MS) return;
    this.statuses.show(answer);
    this.setState(stateOf(answer));
  }

  setState(state) {
    this.state = state;
    mark(this.pause, "hidden", state !== "active" && state !== "paused");
    say(this.pause, state === "active" ? "Pause" : "Resume");
  }

  async changeState() {
    const pausing = this.state === "active";
    const { waiting, flight } = this.now;
    const text = pausing
      ? `No more messages of ${this.project} are handed out until it is resumed: ${plural(waiting, "message waits", "messages wait")}. Messages in flight finish, now ${count(flight)}; new messages are accepted and wait.`
      : `Messages of ${this.project} are handed out again, at the rate of its topic: ${plural(waiting, "message waits", "messages wait")}.`;
    const act = pausing ? "Pause" : "Resume";
    if (!(await confirmed({ title: `${act} ${this.project}?`, texts: [text], act }))) return;
    if (!(await change(paths.topic(this.project, act.toLowerCase())))) return;
    toast(`${this.project} is ${pausing ? "paused" : "active"}.`);
    this.changedAt = performance.now();
    this.setState(pausing ? "paused" : "active");
    this.poll.now();
  }

  gone() {
    this.poll.end();
    this.deadLetters.gone();
    for (const chart of this.charts) chart.gone();
  }
}

function rates({ arriving, handled, failed, dead }) {
  return { arriving: rate(arriving), handled: rate(handled), failed: rate(failed), dead: rate(dead) };
}
