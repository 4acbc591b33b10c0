// Formats figures for people. An unknown figure is a dash.

export const UNKNOWN = "–";

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const TENTH = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
const SMALL = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 2 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", {
  day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit",
});

export function count(number) {
  return number === null || number === undefined ? UNKNOWN : WHOLE.format(number);
}

/** Messages per second. */
export function rate(number) {
  if (number === null || number === undefined) return UNKNOWN;
  if (number >= 100) return WHOLE.format(number);
  if (number >= 1 || number === 0) return TENTH.format(number);
  return SMALL.format(number);
}

const UNITS = [["d", 86400], ["h", 3600], ["m", 60]];

/** 0.4s, 12s, 3m 20s, 2h 5m, 3d 4h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  if (seconds < 9.95) return `${TENTH.format(seconds)}s`;
  const whole = Math.round(seconds);
  for (const [place, [unit, size]] of UNITS.entries()) {
    if (whole < size) continue;
    const [lower, step] = UNITS[place + 1] ?? ["s", 1];
    const rest = Math.floor((whole % size) / step);
    return `${WHOLE.format(Math.floor(whole / size))}${unit}${rest ? ` ${rest}${lower}` : ""}`;
  }
  return `${whole}s`;
}

// 1, 2, 5, 10, 20, ...
const WHOLE_STEPS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10].flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power));
const TENTH_STEPS = [0.1, 0.2, 0.5, ...WHOLE_STEPS];

/** The distances between lines of an axis whose labels have this format; undefined for any. Labels that are rounded would repeat. */
export function stepsOf(format) {
  if (format === count) return WHOLE_STEPS;
  return format === rate ? TENTH_STEPS : undefined;
}

export function share(part) {
  return part === null || part === undefined ? UNKNOWN : `${Math.round(part * 100)}%`;
}

export function milliseconds(seconds) {
  return seconds === null || seconds === undefined ? UNKNOWN : seconds < 1 ? `${Math.round(seconds * 1000)} ms` : duration(seconds);
}

export function bytes(number) {
  if (number < 1024) return `${number} B`;
  return number < 2 ** 20 ? `${TENTH.format(number / 1024)} KiB` : `${TENTH.format(number / 2 ** 20)} MiB`;
}

/** Formats a time in milliseconds. */
export function clock(at) {
  return CLOCK.format(at);
}

/** Formats an instant in the format of JSON. */
export function day(instant) {
  const at = Date.parse(instant);
  return Number.isNaN(at) ? UNKNOWN : DAY.format(at);
}

export function ago(instant, now = Date.now()) {
  const at = Date.parse(instant);
  return Number.isNaN(at) ? UNKNOWN : `${duration(Math.max(0, Math.round((now - at) / 1000)))} ago`;
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** Numbers as ranges: 0–3, 7, 9–12. */
export function ranges(numbers) {
  const parts = [];
  for (const number of numbers) {
    const last = parts.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(", ");
}
