// The last two minutes, as far as they were seen: the node tells what was before this page came.

const KEPT_MS = 120_000;
const SAME_MS = 300; // the first look after the past is often the last one of it

const KINDS = ["backlog", "arriving", "leaving"];
const looks = []; // {at, totals, tenants: Map}, the oldest first

export function begin({ at, totals, tenants }) {
  const projects = Object.entries(tenants);
  looks.length = 0;
  at.forEach((when, place) => {
    const figures = (columns) => Object.fromEntries(KINDS.map((kind) => [kind, columns[kind][place]]));
    looks.push({ at: when, totals: figures(totals), tenants: new Map(projects.map(([name, own]) => [name, figures(own)])) });
  });
}

export function add(overview) {
  const at = Date.parse(overview.at);
  if (looks.length && at - looks.at(-1).at < SAME_MS) return;
  const tenants = new Map(overview.tenants.map((tenant) => [tenant.project, tenant]));
  looks.push({ at, totals: overview.totals, tenants });
  while (looks.length && looks[0].at <= at - KEPT_MS) looks.shift();
}

/** Of one tenant; the whole cluster's if `project` is null. */
export function series(project, kind) {
  return looks.map((look) => (project === null ? look.totals : look.tenants.get(project))?.[kind] ?? null);
}

/** In seconds, as many as a series has figures. */
export function times() {
  return looks.map((look) => look.at / 1000);
}
