// A line of the last two minutes, as small as a word.

import { mark, svg } from "./dom.js";

const WIDTH = 96;
const HEIGHT = 22;
const MOST = 60; // points
const WHOLE = 120; // figures that take the whole width

export class Spark {
  constructor(title) {
    this.line = svg("path", { class: "line" });
    this.area = svg("path", { class: "area" });
    const box = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "spark" };
    this.node = svg("svg", { ...box, role: "img", "aria-label": title }, this.area, this.line);
  }

  /** Figures from the oldest on, null where there is none. They end at the right edge. */
  draw(figures) {
    const step = Math.max(1, Math.ceil(figures.length / MOST));
    const most = Math.max(1, ...figures.filter((figure) => figure !== null));
    let path = "";
    let first = null;
    let last = null;
    figures.forEach((figure, place) => {
      if (figure === null || (figures.length - 1 - place) % step) return;
      const x = (WIDTH - ((figures.length - 1 - place) * WIDTH) / Math.max(WHOLE, figures.length)).toFixed(1);
      path += `${last === null ? "M" : "L"}${x} ${(HEIGHT - 1.5 - (figure / most) * (HEIGHT - 3)).toFixed(1)}`;
      first ??= x;
      last = x;
    });
    mark(this.line, "d", path || null);
    mark(this.area, "d", path ? `${path}L${last} ${HEIGHT}L${first} ${HEIGHT}Z` : null);
  }
}
