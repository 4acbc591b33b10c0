// Plots of a tenant's history, drawn by uPlot.

import { el } from "./dom.js";
import { followTouch } from "./touch.js";
import { dated, ends, report, shortly } from "./data.js";
import { stepsOf } from "./format.js";

const TALL = 170;
// A single window is drawn over its whole length: a line needs two points.
const times = ends.length === 1 ? [ends[0] - report.window_s, ends[0]] : ends;
const known = (figures) => (ends.length === 1 ? [figures[0], figures[0]] : figures);
const darkly = matchMedia("(prefers-color-scheme: dark)");
const drawn = [];

/** Drops the plots of the previous view, which would continue to listen. */
export function dropPlots() {
  while (drawn.length) drawn.pop().drop();
}
darkly.addEventListener("change", () => drawn.forEach((plot) => plot.redraw()));

/** `lines` holds {label, colour, figures, dash}. Options: `stacked` adds up the shares, `most` is the end of the axis. */
export class Plot {
  constructor(title, note, lines, format, { stacked = false, most = null } = {}) {
    Object.assign(this, { lines: lines.map((line) => ({ ...line, figures: known(line.figures) })), format, stacked, most, plot: null });
    this.box = el("div", { class: "plot", role: "img", "aria-label": `${title}: ${lines.map(summaryOf(format)).join("; ")}` });
    this.node = el("figure", { class: "chart" }, el("figcaption", {}, el("strong", { text: title }), el("span", { text: note })), this.box);
    this.seen = new ResizeObserver(() => this.draw());
    this.seen.observe(this.box);
    drawn.push(this);
  }

  draw() {
    const width = this.box.clientWidth;
    if (this.plot) this.plot.setSize({ width, height: TALL });
    else if (width) this.plot = new uPlot(this.options(width), [times, ...this.columns()], this.box);
  }

  redraw() {
    this.plot?.destroy();
    this.plot = null;
    this.draw();
  }

  drop() {
    this.seen.disconnect();
    this.plot?.destroy();
  }

  /** Stacked: draws each line as the sum of itself and the lines below, the highest first, so that no fill hides another. */
  columns() {
    if (!this.stacked) return this.lines.map((line) => line.figures);
    const sums = this.lines.map((_, place) => times.map((_at, at) => summed(this.lines.slice(0, place + 1), at)));
    return sums.reverse();
  }

  options(width) {
    const colour = (name) => (name.startsWith("--") ? getComputedStyle(document.documentElement).getPropertyValue(name).trim() : name);
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const lines = this.stacked ? [...this.lines].reverse() : this.lines;
    const few = times.length <= 12;
    const series = lines.map((line) => ({
      label: line.label, stroke: colour(line.colour), width: this.stacked ? 1 : 1.75, dash: line.dash, spanGaps: false,
      points: { show: few && !this.stacked && !line.dash, size: 5 }, value: (_, _figure, _series, at) => this.format(line.figures[at ?? times.length - 1]),
      fill: this.stacked ? colour(line.colour) : lines.length === 1 ? colour("--wash") : undefined,
    }));
    return {
      width, height: TALL, cursor: { y: false, points: { size: 7, show: !this.stacked } }, legend: { live: true },
      scales: { x: { range: (_, low, high) => [low, high] }, y: { range: (_, _low, high) => [0, this.most ?? Math.max(high * 1.1, 1e-9) ] } },
      axes: [
        { ...axis, size: 26, space: 70, values: (_, ticks) => ticks.map(shortly) },
        { ...axis, size: 58, incrs: stepsOf(this.format), values: (_, ticks) => ticks.map(this.format) },
      ],
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      hooks: { init: [followTouch] },
      series: [{ label: "until", value: (_, at) => dated(at ?? times.at(-1)) }, ...series],
    };
  }
}

function summed(lines, at) {
  const known = lines.map((line) => line.figures[at]).filter((figure) => figure !== null);
  return known.length ? known.reduce((sum, figure) => sum + figure, 0) : null;
}

function summaryOf(format) {
  return ({ label, figures }) => {
    const present = figures.filter((figure) => figure !== null);
    return present.length ? `${label} ${format(present.at(-1))} at the end, at most ${format(Math.max(...present))}` : `${label} not known`;
  };
}
