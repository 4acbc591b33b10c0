// What reasons and states are called, and what they mean.

const REASONS = {
  quota: ["quota", "limit", "The topic's rate, its group's, or the nodes' share of it is used up."],
  concurrency: ["concurrency", "busy", "It has as many messages in flight as its topic, or its endpoint, allows."],
  headroom: ["headroom", "busy", "Slots are free, but kept for lighter tenants."],
  higher_priority: ["higher priority", "calm", "Messages of a higher priority in the same group go first."],
  fairness: ["fairness", "busy", "All slots are busy and it has its share of them, or another tenant is due first."],
  not_due: ["not due", "calm", "Nothing waits but what is delayed."],
  ordered: ["ordered", "calm", "An earlier message of the same key isn't done yet, or waits for its next attempt."],
  endpoint: ["endpoint", "fault", "Its endpoint, or its handler, asked for a pause."],
  paused: ["paused", "still", "The topic is paused, or there is none, or its retries and dead letters can't be stored."],
  no_owner: ["no owner", "fault", "No node may hand it out: its partition has no owner, or is being taken over."],
  handlers_busy: ["handlers busy", "busy", "All slots are busy, and the next free one may be its own."],
};

export function reason(name) {
  const [label, tone, meaning] = REASONS[name] ?? [name, "calm", "What its messages wait for."];
  return { label, tone, meaning };
}

/** One that was deleted is paused, too, unless it was being drained; but nothing here brings it back. */
export function stateOf(tenant) {
  return tenant.deleted && tenant.state === "paused" ? "deleted" : tenant.state;
}

export function state(name) {
  if (name === "active") return null;
  if (name === null) return { label: "no topic", tone: "fault", meaning: "Nothing of it is handed out until it has one." };
  if (name === "paused") return { label: "paused", tone: "still", meaning: "Nothing is handed out; puts go on and wait." };
  if (name === "deleted") return { label: "deleted", tone: "fault", meaning: "It takes no new messages, and what waits is kept: `evenlane topics resume` brings it back, `evenlane backlog purge` removes what waits." };
  return { label: name, tone: "still", meaning: "It takes no new messages; what waits is still handled." };
}

/** What a tenant's queues wait for, how many each: for who points at it. */
export function counted(reasons) {
  return Object.entries(reasons)
    .sort((a, b) => b[1] - a[1])
    .map(([name, queues]) => `${reason(name).label}: ${queues === 1 ? "1 queue" : `${queues} queues`}`)
    .join(", ");
}
