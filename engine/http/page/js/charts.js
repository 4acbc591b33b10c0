// Charts of a tenant's last two minutes, drawn by uPlot.

import { el, mark } from "./dom.js";
import { clock, count, rate, stepsOf } from "./format.js";
import * as past from "./past.js";
import { followTouch } from "./touch.js";

const HEIGHT = 150;
const dark = matchMedia("(prefers-color-scheme: dark)");

/** `lines` holds {kind, label, colour}. `kind` names a series of the past, or is a function of the tenant for a level line. */
export class Chart {
  constructor(project, title, lines, format) {
    Object.assign(this, { project, title, lines, format, plot: null, tenant: null });
    this.box = el("div", { class: "plot", role: "img", "aria-label": title });
    this.node = el("figure", { class: "chart" }, el("figcaption", { text: title }), this.box);
    this.width = new ResizeObserver(() => this.plot?.setSize({ width: this.box.clientWidth, height: HEIGHT }));
    this.width.observe(this.box);
    this.redraw = () => { this.plot?.destroy(); this.plot = null; if (this.tenant) this.show(this.tenant); };
    dark.addEventListener("change", this.redraw);
  }

  show(tenant) {
    this.tenant = tenant;
    const times = past.times();
    const columns = this.lines.map(({ kind }) => (typeof kind === "function" ? times.map(() => kind(tenant)) : past.series(this.project, kind)));
    mark(this.box, "aria-label", `${this.title}: ${this.lines.map(({ label }, place) => `${label} ${summary(columns[place], this.format)}`).join("; ")}`);
    if (this.plot) this.plot.setData([times, ...columns]);
    else if (this.box.clientWidth) this.plot = new uPlot(this.options(), [times, ...columns], this.box);
  }

  options() {
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const series = this.lines.map(({ label, colour: name, dash }) => ({
      label, stroke: colour(name), width: 1.75, dash, points: { show: false }, value: (plot, figure, line, at) => this.format(at === null ? plot.data[line].at(-1) : figure),
      fill: this.lines.length === 1 ? colour("--wash") : undefined,
    }));
    return {
      width: this.box.clientWidth, height: HEIGHT, cursor: { y: false, points: { size: 7 } }, legend: { live: true },
      scales: { x: { range: (_, low, high) => [Math.min(low, high - 120), high] }, y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
      axes: [{ ...axis, size: 26, space: 90, values: (_, ticks) => ticks.map((tick) => clock(tick * 1000)) }, { ...axis, size: 52, incrs: stepsOf(this.format), values: (_, ticks) => ticks.map(this.format) }],
      series: [{ label: "at", value: (plot, at) => clock((at ?? plot.data[0].at(-1)) * 1000) }, ...series],
      hooks: { init: [followTouch] },
    };
  }

  gone() {
    this.width.disconnect();
    dark.removeEventListener("change", this.redraw);
    this.plot?.destroy();
  }
}

function summary(figures, format) {
  const known = figures.filter((figure) => figure !== null);
  return known.length ? `now ${format(known.at(-1))}, at most ${format(Math.max(...known))}` : "not known";
}

export function charts(project) {
  return [
    new Chart(project, "Backlog", [{ kind: "backlog", label: "waiting", colour: "--accent" }], count),
    new Chart(project, "Messages per second", [
      { kind: "arriving", label: "arriving", colour: "--second" },
      { kind: "handled", label: "handled", colour: "--accent" },
      { kind: "failed", label: "failed", colour: "--fault" },
      { kind: (tenant) => tenant.quota_now ?? tenant.qps, label: "quota", colour: "--limit", dash: [4, 4] },
    ], rate),
  ];
}
