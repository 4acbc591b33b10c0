// Labels and meanings of wait reasons, and the tones of statuses.

const REASONS = {
  quota: ["quota", "limit", "The topic's rate, its group's, or the nodes' share of it is used up."],
  concurrency: ["concurrency", "busy", "It has the maximum of messages in flight that its topic, or its endpoint, allows."],
  headroom: ["headroom", "busy", "Slots are free, but kept for lighter tenants."],
  higher_priority: ["higher priority", "calm", "Messages of a higher priority in the same group go first."],
  fairness: ["fairness", "busy", "All slots are busy and it has its share of them, or another tenant is due first."],
  not_due: ["not due", "calm", "All its waiting messages are delayed."],
  ordered: ["ordered", "calm", "An earlier message of the same key isn't done yet, or waits for its next attempt."],
  endpoint: ["endpoint", "fault", "Its endpoint, or its handler, asked for a pause."],
  paused: ["paused", "still", "The topic is paused, or there is none, or its retries and dead letters can't be stored."],
  no_owner: ["no owner", "fault", "No node may hand it out: its partition has no owner, or is being taken over."],
  no_handler: ["no handler", "fault", "No handler of the node takes it: its application names none for the project, or the kind."],
  handlers_busy: ["handlers busy", "busy", "All slots are busy, and the next free one may be its own."],
};

export function reason(name) {
  const [label, tone, meaning] = REASONS[name] ?? [name, "calm", "The reason why its messages wait."];
  return { label, tone, meaning };
}

/** A deleted topic is paused, unless it was draining; the page has no button that restores it. */
export function stateOf(tenant) {
  return tenant.deleted && tenant.state === "paused" ? "deleted" : tenant.state;
}

const TONES = { critical: "fault", warning: "limit", info: "calm" };

/** The words of a status, which the server has chosen; null if nothing is to be said. */
export function status({ name, severity, label, sentence, remedy }) {
  if (name === "ok") return null;
  const tone = name === "paused" || name === "draining" ? "still" : TONES[severity];
  return { label, tone, meaning: remedy ? `${sentence}. To do: ${remedy}.` : `${sentence}.` };
}

/** The number of a tenant's queues per wait reason, for a tooltip. */
export function counted(reasons) {
  return Object.entries(reasons)
    .sort((a, b) => b[1] - a[1])
    .map(([name, queues]) => `${reason(name).label}: ${queues === 1 ? "1 queue" : `${queues} queues`}`)
    .join(", ");
}
