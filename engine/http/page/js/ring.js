// Partitions as a ring, in the colours of their owners.

import { el, mark, say, svg } from "./dom.js";
import { plural } from "./format.js";

const OUTER = 100;
const INNER = 74;
const ONE_BY_ONE = 360; // with more partitions, neighbours with the same owner are one piece
const COLOURS = 8;

/** The class with the colour of a node, which is the same on the whole page. */
export function colour(nodes, id) {
  return `owner-${nodes.findIndex((node) => node.id === id) % COLOURS}`;
}

export class Ring {
  constructor() {
    this.pieces = [];
    this.drawn = "";
    this.main = svg("text", { class: "main", y: -2 });
    this.sub = svg("text", { class: "sub", y: 16 });
    this.group = svg("g", { role: "group", "aria-label": "Partitions, one after the other: arrow keys go round" });
    const hatch = svg("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("rect", { class: "hatch-ground", width: 5, height: 5 }), svg("rect", { class: "hatch-line", width: 2, height: 5 }));
    this.picture = svg("svg", { class: "ring", viewBox: "-106 -106 212 212" }, svg("defs", {}, hatch), this.group, this.main, this.sub);
    this.picture.addEventListener("keydown", (event) => this.onKey(event));
    this.picture.addEventListener("pointerleave", () => this.point(null));
    this.picture.addEventListener("focusout", () => this.point(null));
    this.node = el("figure", { class: "ring-box" }, this.picture);
  }

  show({ nodes, partitions, unowned }) {
    const owners = new Array(partitions).fill(null);
    for (const node of nodes) for (const partition of node.partitions) owners[partition] = node.id;
    const drawn = JSON.stringify([owners, nodes.map((node) => node.id)]);
    this.whole = [plural(partitions, "partition"), unowned.length ? `${unowned.length} unowned` : plural(nodes.length, "node")];
    this.whole.tone = unowned.length ? "fault" : null;
    if (drawn !== this.drawn) this.draw(owners, nodes);
    this.drawn = drawn;
    if (!this.pointed) this.label(this.whole);
  }

  draw(owners, nodes) {
    const at = this.pieces.findIndex((piece) => piece.node === document.activeElement);
    const runs = owners.length <= ONE_BY_ONE ? owners.map((owner, place) => [place, place, owner]) : runsOf(owners);
    this.pieces = runs.map(([from, to, owner]) => this.piece(from, to, owner, owners.length, nodes));
    this.group.replaceChildren(...this.pieces.map((piece) => piece.node));
    this.pieces.forEach((piece, place) => mark(piece.node, "tabindex", place === Math.max(0, at) ? 0 : -1));
    if (at >= 0) this.pieces[Math.min(at, this.pieces.length - 1)].node.focus();
  }

  piece(from, to, owner, all, nodes) {
    const name = from === to ? `partition ${from}` : `partitions ${from}–${to}`;
    const node = svg("path", {
      d: arc(from / all, (to + 1) / all), class: owner === null ? "piece unowned" : `piece ${colour(nodes, owner)}`,
      role: "img", "aria-label": `${name}: ${owner ?? "no owner"}`, tabindex: -1,
    });
    const piece = { node, owner, texts: Object.assign([name, owner ?? "no owner"], { tone: owner === null ? "fault" : null }) };
    for (const event of ["pointerenter", "focus"]) node.addEventListener(event, () => this.point(piece));
    return piece;
  }

  point(piece) {
    this.pointed = piece;
    this.label(piece ? piece.texts : this.whole);
    this.light(piece?.owner);
  }

  /** Highlights the partitions of one node, or all if `owner` is undefined. */
  light(owner) {
    this.picture.classList.toggle("lit", owner !== undefined);
    for (const each of this.pieces) each.node.classList.toggle("of", each.owner === owner);
  }

  label(texts) {
    const [main, sub] = texts;
    mark(this.sub, "data-tone", texts.tone);
    say(this.main, main);
    say(this.sub, sub.length > 22 ? `${sub.slice(0, 21)}…` : sub);
  }

  onKey(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const at = this.pieces.findIndex((piece) => piece.node === document.activeElement);
    const count = this.pieces.length;
    const to = event.key === "Home" ? 0 : event.key === "End" ? count - 1 : step && at >= 0 ? (at + step + count) % count : -1;
    if (to < 0) return;
    event.preventDefault();
    mark(this.pieces[Math.max(0, at)].node, "tabindex", -1);
    mark(this.pieces[to].node, "tabindex", 0);
    this.pieces[to].node.focus();
  }
}

function runsOf(owners) {
  const runs = [];
  owners.forEach((owner, place) => {
    const last = runs.at(-1);
    if (last && last[2] === owner) last[1] = place;
    else runs.push([place, place, owner]);
  });
  return runs;
}

/** The path of a piece. `from` and `to` are shares of the circle, clockwise from the top. */
function arc(from, to) {
  const end = Math.min(to, from + 0.9999);
  const point = (part, radius) => {
    const angle = (part - 0.25) * 2 * Math.PI;
    return `${(Math.cos(angle) * radius).toFixed(2)} ${(Math.sin(angle) * radius).toFixed(2)}`;
  };
  const far = end - from > 0.5 ? 1 : 0;
  return `M${point(from, OUTER)}A${OUTER} ${OUTER} 0 ${far} 1 ${point(end, OUTER)}`
    + `L${point(end, INNER)}A${INNER} ${INNER} 0 ${far} 0 ${point(from, INNER)}Z`;
}
