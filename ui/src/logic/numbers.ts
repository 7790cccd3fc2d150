// Numbers as the API sends them, and as a person reads them. Pure: no DOM, no fetch.

/** The contract's numbers: JSON has no NaN, so it and the infinities are words; null is undefined, never 0. */
export type ApiNumber = number | "NaN" | "Infinity" | "-Infinity";

/** A number to calculate with; undefined stays null. */
export function numeric(value: ApiNumber | null | undefined): number | null {
  if (value === null || value === undefined) return null;
  return typeof value === "number" ? value : Number(value);
}

const MINUS = "−";

/** Four significant digits at most, fit for a table: `0.0312`, `1.2e-7`, `NaN`, `∞`; an undefined one is a dash. */
export function short(value: ApiNumber | null | undefined, digits = 4): string {
  const number = numeric(value);
  if (number === null) return "–";
  if (Number.isNaN(number)) return "NaN";
  if (!Number.isFinite(number)) return number > 0 ? "∞" : `${MINUS}∞`;
  if (number === 0) return "0";
  const size = Math.abs(number);
  const sign = number < 0 ? MINUS : "";
  if (size >= 1e5 || size < 1e-3) return sign + exponent(size, Math.max(0, digits - 2));
  return sign + String(Number(size.toPrecision(digits)));
}

function exponent(size: number, digits: number): string {
  const [mantissa = "", power = ""] = size.toExponential(digits).split("e");
  return `${trimmed(mantissa)}e${power.replace("+", "").replace("-", MINUS)}`;
}

function trimmed(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** All the digits that a double has, for tooltips and copying. */
export function exact(value: ApiNumber | null | undefined): string {
  const number = numeric(value);
  return number === null ? "undefined" : String(number);
}

/** `12,345` with thin spaces. */
export function count(value: number): string {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** `1 pair`, `2 pairs`. */
export function counted(value: number, word: string, many = `${word}s`): string {
  return `${count(value)} ${value === 1 ? word : many}`;
}

/** `312 B`, `4.7 GB`: powers of 1000, as disks are sold and `ls` prints. */
export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  let size = value;
  while (size >= 999.5 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  const digits = unit === 0 || size >= 99.95 ? 0 : 1;
  return `${size.toFixed(digits)} ${units[unit]}`;
}

/** `3 s`, `2 min`, `1 h 5 min`. */
export function seconds(value: number): string {
  if (value < 0.95) return "under a second";
  const whole = Math.round(value);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.round(whole / 60);
  if (minutes < 60) return `${minutes} min`;
  const rest = minutes % 60;
  return `${Math.floor(minutes / 60)} h${rest === 0 ? "" : ` ${rest} min`}`;
}

/** `just now`, `5 min ago`, `3 days ago`, from two times in milliseconds. */
export function ago(then: number, now: number): string {
  const minutes = Math.floor((now - then) / 60_000);
  if (minutes < 1) return "just now";
  if (minutes < 60) return `${minutes} min ago`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ago`;
  const days = Math.floor(hours / 24);
  return days === 1 ? "yesterday" : `${days} days ago`;
}

/** `[1, 8, 76, 64]` */
export function shape(dims: readonly number[] | null | undefined): string {
  return dims ? `[${dims.join(", ")}]` : "–";
}

/** A share as a percentage that never rounds something to nothing or to everything. */
export function percent(part: number, whole: number): string {
  if (whole === 0) return "–";
  const share = (100 * part) / whole;
  if (part === 0) return "0 %";
  if (part === whole) return "100 %";
  if (share < 0.1) return "< 0.1 %";
  if (share > 99.9) return "> 99.9 %";
  return `${trimmed(share.toFixed(1))} %`;
}
