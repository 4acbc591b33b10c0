// A sparkline of the last two minutes.

import { mark, svg } from "./dom.js";

const WIDTH = 96;
const HEIGHT = 22;
const MAX_POINTS = 60;
const FULL = 120; // number of figures that take the full width

export class Spark {
  constructor(title) {
    this.line = svg("path", { class: "line" });
    this.area = svg("path", { class: "area" });
    const box = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "spark" };
    this.node = svg("svg", { ...box, role: "img", "aria-label": title }, this.area, this.line);
  }

  /** Draws the figures, the oldest first, null if there is none. They end at the right edge. */
  draw(figures) {
    const step = Math.max(1, Math.ceil(figures.length / MAX_POINTS));
    const most = Math.max(1, ...figures.filter((figure) => figure !== null));
    let path = "";
    let first = null;
    let last = null;
    figures.forEach((figure, place) => {
      if (figure === null || (figures.length - 1 - place) % step) return;
      const x = (WIDTH - ((figures.length - 1 - place) * WIDTH) / Math.max(FULL, figures.length)).toFixed(1);
      path += `${last === null ? "M" : "L"}${x} ${(HEIGHT - 1.5 - (figure / most) * (HEIGHT - 3)).toFixed(1)}`;
      first ??= x;
      last = x;
    });
    mark(this.line, "d", path || null);
    mark(this.area, "d", path ? `${path}L${last} ${HEIGHT}L${first} ${HEIGHT}Z` : null);
  }
}
