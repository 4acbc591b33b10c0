// All tenants: sorted and filtered. Lines are updated in place.

import { COLUMNS, order } from "./columns.js";
import { arrange, el, mark, say } from "./dom.js";
import { count, plural, rate } from "./format.js";
import { Row } from "./row.js";

export class Table {
  constructor() {
    this.rows = new Map();
    this.sort = { key: "status", direction: "ascending" };
    this.areOpen = false;
    this.overview = null;
    this.heads = COLUMNS.map((column) => head(column, () => this.sortBy(column)));
    this.rest = el("tbody", { class: "rest", hidden: true, role: "rowgroup" });
    this.table = el("table", { class: "tenants", role: "table", "aria-label": "Tenants" },
      el("colgroup", {}, ...COLUMNS.map(({ key }) => el("col", { class: key }))),
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...this.heads)));
    this.none = el("div", { class: "state", hidden: true });
    this.bar = this.toolbar();
    this.node = el("section", { class: "sheet", "aria-label": "Tenants" }, this.bar, el("div", { class: "scroll" }, this.table), this.none);
    this.showSort();
  }

  toolbar() {
    const change = { input: () => this.arrange(true) };
    this.filter = el("input", {
      type: "search", id: "filter", placeholder: "Filter by name or status", autocomplete: "off", spellcheck: "false",
      "aria-label": "Filter tenants by name or status", on: change,
    });
    this.sorted = el("select", { id: "sort", on: { change: () => this.sortBy(COLUMNS.find(({ key }) => key === this.sorted.value)) } },
      ...COLUMNS.filter(({ by }) => by).map(({ key, label }) => el("option", { value: key, text: label })));
    this.all = el("button", { type: "button", class: "quiet", "aria-pressed": "false", text: "Priorities", on: { click: () => this.openAll() } });
    this.shown = el("span", { class: "muted", role: "status" });
    return el("div", { class: "bar-of-tools" }, el("h1", { text: "Tenants", tabindex: -1 }), this.filter,
      el("label", { class: "sort-by" }, "Sort by ", this.sorted), this.all, this.shown);
  }

  show(overview) {
    this.overview = overview;
    const listed = new Set();
    for (const tenant of overview.tenants) {
      listed.add(tenant.project);
      this.row(tenant.project).show(tenant);
    }
    for (const [project, row] of this.rows) if (!listed.has(project)) this.drop(project, row);
    this.showRest(overview.left_out);
    this.arrange();
  }

  row(project) {
    let row = this.rows.get(project);
    if (!row) {
      row = new Row(project, () => this.onToggle());
      this.rows.set(project, row);
      row.isNew = true;
    }
    return row;
  }

  drop(project, row) {
    this.rows.delete(project);
    row.gone();
  }

  /** Keeps the order while the pointer or the focus is on a line, so that no line moves away from it. */
  arrange(asked = false) {
    if (!this.overview) return;
    const matching = this.matching();
    const moving = asked || !this.isHeld() || matching.some((row) => !row.node.isConnected);
    if (moving) {
      const order = matching.map((row) => row.node);
      const [columns, header] = this.table.children;
      const focused = document.activeElement;
      arrange(this.table, [columns, header, ...order, this.rest]);
      if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
      for (const row of matching) this.openNew(row);
    }
    this.showCount(matching.length);
  }

  matching() {
    const text = this.filter.value.trim().toLowerCase();
    const tenants = this.overview.tenants.filter((tenant) => !text || matches(tenant, text));
    return tenants.sort(order(this.sort)).map((tenant) => this.rows.get(tenant.project));
  }

  isHeld() {
    const held = document.activeElement?.closest("table.tenants tbody");
    return Boolean(held) || this.table.querySelector("tbody:hover") !== null;
  }

  openNew(row) {
    if (row.isNew && this.areOpen) row.open(true);
    row.isNew = false;
  }

  sortBy({ key, first }) {
    const reversed = this.sort.direction === "ascending" ? "descending" : "ascending";
    this.sort = { key, direction: this.sort.key === key ? reversed : first };
    this.showSort();
    this.arrange(true);
  }

  showSort() {
    COLUMNS.forEach(({ key }, place) => mark(this.heads[place], "aria-sort", this.sort.key === key ? this.sort.direction : null));
    this.sorted.value = this.sort.key;
  }

  openAll() {
    this.areOpen = !this.areOpen;
    for (const row of this.rows.values()) row.open(this.areOpen);
    this.onToggle();
  }

  onToggle() {
    this.areOpen = this.rows.size > 0 && [...this.rows.values()].every((row) => row.isOpen);
    mark(this.all, "aria-pressed", String(this.areOpen));
  }

  showCount(found) {
    const all = this.overview.tenants.length;
    say(this.shown, found === all ? plural(all, "tenant") : `${count(found)} of ${plural(all, "tenant")}`);
    this.table.hidden = found === 0;
    this.none.hidden = found > 0;
    if (found > 0) return;
    if (all === 0) this.none.replaceChildren(...noTenants(this.overview));
    else this.none.replaceChildren(el("p", { text: `No tenant's name or status has “${this.filter.value.trim()}” in it.` }));
  }

  showRest(left) {
    this.rest.hidden = !left;
    if (!left) return;
    const texts = { project: `${count(left.projects)} more, less busy`, backlog: count(left.backlog), arriving: rate(left.arriving), handled: rate(left.handled), failed: rate(left.failed), dead: rate(left.dead) };
    if (!this.rest.firstElementChild) {
      this.rest.append(el("tr", { role: "row" }, ...COLUMNS.map(({ key, label, part }) =>
        el("td", { role: "cell", class: `${key}${part ? " number" : ""}${key in texts ? "" : " empty"}`, "data-label": label }))));
    }
    COLUMNS.forEach(({ key }, place) => say(this.rest.firstElementChild.children[place], texts[key] ?? ""));
  }
}

function head({ key, label, by, part }, sort) {
  const inside = by ? el("button", { type: "button", text: label, on: { click: sort } }) : el("span", { text: label });
  return el("th", { scope: "col", role: "columnheader", class: part ? `${key} number` : key }, inside);
}

function matches(tenant, text) {
  const words = [tenant.project, tenant.status.label, ...tenant.also.map((each) => each.label)];
  return words.some((word) => word.toLowerCase().includes(text));
}

function noTenants({ env }) {
  const where = env === "online" ? "" : ` --env ${env}`;
  return [
    el("h2", { text: "No tenants yet" }),
    el("p", { text: "A project appears here with its first message. Make one and put something into it:" }),
    el("pre", { text: `evenlane topics set acme --qps 100${where}\nevenlane put acme "hello"${where}` }),
  ];
}
