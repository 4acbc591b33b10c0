// One tenant in the table: its line, and one per priority while the tenant is open.

import { chip, showReason, showStatus } from "./chip.js";
import { attempts, COLUMNS, used } from "./columns.js";
import { el, mark, say } from "./dom.js";
import { rate } from "./format.js";
import * as past from "./past.js";
import { Spark } from "./spark.js";

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) entry.target.row.appears(entry.isIntersecting);
}, { rootMargin: "200px" });

export class Row {
  constructor(project, onToggle) {
    this.project = project;
    this.isOpen = false;
    this.isSeen = false;
    this.lines = [];
    this.spark = new Spark(`backlog of ${project} over the last two minutes`);
    this.toggle = el("button", {
      class: "toggle", type: "button", "aria-expanded": "false", "aria-label": `priorities of ${project}`,
      on: { click: () => { this.open(!this.isOpen); onToggle(); } },
    });
    this.status = chip();
    this.cells = Object.fromEntries(COLUMNS.map((column) => [column.key, cell(column)]));
    this.line = el("tr", { class: "tenant", role: "row" }, ...Object.values(this.cells));
    this.node = el("tbody", { role: "rowgroup", "data-project": project }, this.line);
    this.node.row = this;
    this.fill();
    seen.observe(this.node);
  }

  fill() {
    const link = el("a", { href: `#/tenant/${encodeURIComponent(this.project)}`, text: this.project, title: this.project });
    this.cells.project.append(el("span", { class: "who" }, this.toggle, link));
    this.cells.trend.append(this.spark.node);
    this.cells.status.append(this.status);
    this.bar = el("i", { class: "bar" });
    this.quota = el("span");
    this.cells.quota.append(this.quota, el("span", { class: "track", "aria-hidden": "true" }, this.bar));
  }

  show(tenant) {
    this.tenant = tenant;
    for (const { key, text } of COLUMNS) if (text) say(this.cells[key], text(tenant));
    say(this.quota, quota(tenant));
    showUse(this.bar, used(tenant));
    showStatus(this.status, tenant.status);
    for (const key of ["failed", "dead"]) mark(this.cells[key], "data-tone", tenant[key] ? "fault" : null);
    if (this.isSeen) this.draw();
    if (this.isOpen) this.showParts();
  }

  open(isOpen) {
    this.isOpen = isOpen;
    mark(this.toggle, "aria-expanded", String(isOpen));
    this.node.classList.toggle("open", isOpen);
    if (isOpen) this.showParts();
    else this.lines.splice(0).forEach((line) => line.node.remove());
  }

  appears(isSeen) {
    this.isSeen = isSeen;
    if (isSeen) this.draw();
  }

  draw() {
    this.spark.draw(past.series(this.project, "backlog"));
  }

  showParts() {
    const parts = this.tenant.priorities;
    while (this.lines.length < parts.length) {
      const line = new Line();
      this.lines.push(line);
      this.node.append(line.node);
    }
    parts.forEach((part, place) => this.lines[place].show(part));
  }

  gone() {
    seen.unobserve(this.node);
    this.node.remove();
  }
}

class Line {
  constructor() {
    this.reason = chip();
    this.cells = Object.fromEntries(COLUMNS.map((column) => [column.key, cell(column)]));
    this.cells.status.append(this.reason);
    for (const empty of ["trend", "quota"]) this.cells[empty].classList.add("empty");
    this.node = el("tr", { class: "part", role: "row" }, ...Object.values(this.cells));
  }

  show(part) {
    say(this.cells.project, part.priority);
    for (const column of COLUMNS) if (column.part) say(this.cells[column.key], column.part(part));
    showReason(this.reason, part.reason, part.reasons);
  }
}

function cell({ key, label, part }, tag = key === "project" ? "th" : "td") {
  const head = tag === "th" ? { scope: "row", role: "rowheader" } : { role: "cell" };
  return el(tag, { ...head, class: part ? `${key} number` : key, "data-label": label });
}

function quota(tenant) {
  if (tenant.qps === null) return "";
  return `${rate(attempts(tenant))} of ${rate(tenant.qps)}`;
}

/** Draws a bar as wide as the used part, in another colour if no room is left. */
export function showUse(bar, part) {
  const width = `${Math.min(100, Math.round((part ?? 0) * 100))}%`;
  if (bar.style.width !== width) bar.style.width = width;
  mark(bar, "data-full", part !== null && part >= 0.95);
}
