// The current view, and the parts that all views share: the connection, the notes, the totals.

import { el, mark, say } from "./dom.js";
import { clock } from "./format.js";
import * as live from "./live.js";
import { Nodes } from "./nodes.js";
import { Table } from "./table.js";
import { Tenant } from "./tenant.js";
import * as tip from "./tip.js";
import { Totals } from "./totals.js";

const main = document.getElementById("main");
const loading = document.getElementById("loading");
const [pulse, banner, notes, env] = ["pulse", "banner", "notes", "env"].map((id) => document.getElementById(id));

const totals = new Totals();
const table = new Table();
const tenants = {
  name: "tenants", title: "Tenants", node: el("div", {}, totals.node, table.node),
  show: (overview) => { totals.show(overview); table.show(overview); },
};

let view = null;

function viewOf(hash) {
  const [, kind = "", name = ""] = hash.replace(/^#/, "").split("/");
  if (kind === "nodes") return Object.assign(new Nodes(), { name: "nodes", title: "Nodes" });
  if (kind === "tenant" && name) {
    const project = decoded(name);
    return Object.assign(new Tenant(project), { name: "tenants", title: project });
  }
  return tenants;
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

function go(isFirst) {
  const next = viewOf(location.hash);
  if (next === view) return;
  view?.gone?.();
  view = next;
  document.title = `${view.title} · Evenlane`;
  for (const link of document.querySelectorAll("nav a")) mark(link, "aria-current", link.dataset.view === view.name ? "page" : null);
  main.replaceChildren(live.now.overview ? view.node : loading);
  if (live.now.overview) view.show(live.now.overview);
  if (!isFirst) {
    scrollTo(0, 0);
    (main.querySelector("h1") ?? main).focus({ preventScroll: true });
  }
}

function onFeed({ overview, state, why }) {
  say(pulse.lastElementChild, state === "live" ? clock(Date.parse(overview.at)) : { connecting: "connecting", lost: "no connection", trouble: "no overview" }[state]);
  mark(pulse, "data-state", state);
  document.body.classList.toggle("stale", state !== "live" && overview !== null);
  warn(state, why, overview);
  if (!overview) return;
  if (loading.isConnected) main.replaceChildren(view.node);
  if (state === "live") show(overview);
}

function show(overview) {
  say(env, overview.env);
  env.hidden = false;
  const text = overview.notes.join("\n");
  if (notes.dataset.text !== text) notes.replaceChildren(...overview.notes.map((note) => el("p", { text: note })));
  notes.dataset.text = text;
  notes.hidden = !text;
  view.show(overview);
}

function warn(state, why, overview) {
  const last = overview ? ` The figures are of ${clock(Date.parse(overview.at))}.` : "";
  const texts = { lost: `Connection lost: trying again.${last}`, trouble: `No overview: ${why}.${last}` };
  const text = texts[state] ?? "";
  say(banner, text);
  banner.hidden = !text;
  if (!overview && text) say(loading.lastChild, state === "lost" ? "Waiting for the node …" : "Waiting for an overview …");
}

function onKey(event) {
  const typing = event.target.closest?.("input, select, textarea, dialog");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey || view !== tenants) return;
  event.preventDefault();
  table.filter.focus();
}

document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
addEventListener("hashchange", () => go(false));
addEventListener("keydown", onKey);
tip.start();
live.listen(onFeed);
go(true);
live.start();
