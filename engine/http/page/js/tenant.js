// One tenant: how it is, why it waits, what it was like, and what can be done.

import { get, paths } from "./api.js";
import { change } from "./change.js";
import { charts } from "./charts.js";
import { chip, showState } from "./chip.js";
import { goneText } from "./columns.js";
import { Dead } from "./dead.js";
import { confirmed } from "./dialog.js";
import { el, mark, say } from "./dom.js";
import { count, duration, rate } from "./format.js";
import { Poll } from "./poll.js";
import { toast } from "./toast.js";
import { figure } from "./totals.js";
import { Why } from "./why.js";
import { stateOf } from "./words.js";

const WHY_MS = 4_000;
const SEEN_MS = 2_500; // an overview that was begun before a change has come by then

export class Tenant {
  constructor(project) {
    Object.assign(this, { project, state: null, isListed: false, changedAt: -Infinity });
    this.chip = chip();
    this.pause = el("button", { type: "button", class: "quiet", hidden: true, on: { click: () => this.turn() } });
    this.figures = Object.fromEntries([["backlog", "Backlog"], ["oldest", "Oldest"], ["flight", "In flight"], ["arriving", "Arriving /s"], ["leaving", "Leaving /s"], ["quota", "Quota"], ["gone", "Gone in"]].map(([key, label]) => [key, figure(label)]));
    this.why = new Why();
    this.poll = new Poll({ ask: () => get(paths.why(project)), told: (told) => this.told(told), failed: (error) => this.failed(error) });
    this.charts = charts(project);
    this.dead = new Dead(project);
    this.node = el("section", { class: "one", "aria-label": `Tenant ${project}` },
      el("div", { class: "bar-of-tools" }, el("a", { class: "back", href: "#/", text: "← All tenants" }), el("h1", { text: project, tabindex: -1 }), this.chip, this.pause),
      el("dl", { class: "totals" }, ...Object.values(this.figures).map((each) => each.node)),
      el("div", { class: "sides" }, this.why.node, el("section", { class: "sheet", "aria-labelledby": "past-title" },
        el("h2", { id: "past-title", text: "The last two minutes" }), ...this.charts.map((chart) => chart.node))),
      this.dead.node);
    this.poll.now();
  }

  show(overview) {
    const tenant = overview.tenants.find((each) => each.project === this.project);
    this.isListed = Boolean(tenant);
    if (!tenant) return;
    this.seen(stateOf(tenant));
    this.tell({ backlog: count(tenant.backlog), oldest: tenant.backlog ? duration(tenant.oldest_seconds) : "–", flight: count(tenant.in_flight), arriving: rate(tenant.arriving), leaving: rate(tenant.leaving), quota: tenant.qps === null ? "–" : `${rate(tenant.qps)}/s`, gone: goneText(tenant) || "–" });
    const borrowed = tenant.quota_now !== null && tenant.qps !== null && Math.abs(tenant.quota_now - tenant.qps) > 0.05 * tenant.qps;
    say(this.figures.quota.note, borrowed ? `${rate(tenant.quota_now)}/s to take now` : "");
    for (const chart of this.charts) chart.show(tenant);
  }

  told(told) {
    this.why.show(told);
    if (!this.isListed) this.unlisted(told);
    return WHY_MS;
  }

  failed(error) {
    this.why.failed(error.message);
    return WHY_MS;
  }

  /** One that isn't among the busiest: what the nodes say of it is all there is. */
  unlisted(told) {
    this.tell({ backlog: count(told.backlog), oldest: told.backlog ? duration(told.oldest_seconds) : "–", flight: count(told.in_flight), arriving: rate(told.rates.arriving), leaving: rate(told.rates.handled), quota: told.rates.quota === null ? "–" : `${rate(told.rates.quota)}/s`, gone: duration(told.forecast.gone_in_seconds) });
    this.seen(stateOf(told));
  }

  tell(texts) {
    for (const [key, text] of Object.entries(texts)) say(this.figures[key].value, text);
  }

  /** What is seen of a topic just after its change may be of before it: the button would turn under the hand. */
  seen(state) {
    if (performance.now() - this.changedAt > SEEN_MS) this.turned(state);
  }

  turned(state) {
    this.state = state;
    showState(this.chip, state);
    mark(this.pause, "hidden", state !== "active" && state !== "paused");
    say(this.pause, state === "active" ? "Pause" : "Resume");
  }

  async turn() {
    const pausing = this.state === "active";
    const text = pausing
      ? `Nothing of ${this.project} is handed out any more until it is resumed. What is in flight is ended; puts go on and wait.`
      : `Messages of ${this.project} are handed out again, at the rate of its topic.`;
    const act = pausing ? "Pause" : "Resume";
    if (!(await confirmed({ title: `${act} ${this.project}?`, text, act }))) return;
    const told = await change(paths.topic(this.project, act.toLowerCase()));
    if (!told) return;
    toast(`${this.project} is ${pausing ? "paused" : "active"}.`);
    this.changedAt = performance.now();
    this.turned(pausing ? "paused" : "active");
    this.poll.now();
  }

  gone() {
    this.poll.end();
    this.dead.gone();
    for (const chart of this.charts) chart.gone();
  }
}
