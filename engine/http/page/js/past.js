// Figures of the last two minutes. The node sends those from before the page was opened: a column for each kind.

const KEPT_MS = 120_000;
const SAME_MS = 300; // the first overview after the history often repeats its last entry

const samples = []; // {at, totals, tenants: Map}, the oldest first

export function begin({ at, totals, tenants }) {
  const projects = Object.entries(tenants);
  const kinds = Object.keys(totals);
  samples.length = 0;
  at.forEach((when, place) => {
    const figures = (columns) => Object.fromEntries(kinds.map((kind) => [kind, columns[kind][place]]));
    samples.push({ at: when, totals: figures(totals), tenants: new Map(projects.map(([name, own]) => [name, figures(own)])) });
  });
}

export function add(overview) {
  const at = Date.parse(overview.at);
  if (samples.length && at - samples.at(-1).at < SAME_MS) return;
  const tenants = new Map(overview.tenants.map((tenant) => [tenant.project, tenant]));
  samples.push({ at, totals: overview.totals, tenants });
  while (samples.length && samples[0].at <= at - KEPT_MS) samples.shift();
}

/** The figures of a tenant, or of the whole cluster if `project` is null. */
export function series(project, kind) {
  return samples.map((sample) => (project === null ? sample.totals : sample.tenants.get(project))?.[kind] ?? null);
}

/** The times of a series' figures, in unix seconds. */
export function times() {
  return samples.map((sample) => sample.at / 1000);
}
