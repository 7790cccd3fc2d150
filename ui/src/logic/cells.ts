// One element as the inspector shows it. Pure: no DOM, no fetch.
import { numeric, short, type ApiNumber } from "./numbers.js";

export interface Cell {
  /** The exact values as text: shortest digits that give exactly them back. */
  reference: string;
  candidate: string | null;
  difference: ApiNumber | null;
  relative: ApiNumber | null;
  ulp: number | string | null;
  /** The stored bits, as hex. */
  bits: [string | null, string | null];
}

export interface Block {
  rows: number;
  cols: number;
  /** Row-major. */
  cells: Cell[];
}

/** The number behind a text, for its colour: the real part of a complex one, 1 for true. */
export function valueOf(text: string): number {
  const clean = text.trim();
  if (/^nan$/i.test(clean)) return NaN;
  if (/^\+?inf(inity)?$/i.test(clean)) return Infinity;
  if (/^-inf(inity)?$/i.test(clean)) return -Infinity;
  if (clean === "true" || clean === "True") return 1;
  if (clean === "false" || clean === "False") return 0;
  const first = /^\(?([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)/i.exec(clean);
  return first ? Number(first[1]) : 0;
}

const NUMBER = String.raw`[-+]?(?:nan|inf(?:inity)?|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)`;
const COMPLEX = new RegExp(`^\\((${NUMBER})(${NUMBER})j\\)$`, "i");
const NUMBERS = new RegExp(`^\\(?${NUMBER}(?:(?:,\\s*)?${NUMBER}j?)?j?\\)?$`, "i");

/** An exact value as the page spells it: every digit as it was sent, NaN and the infinities as in every other place of the page. */
export function valueText(text: string): string {
  if (!NUMBERS.test(text)) return text;
  return text.replace(/nan/gi, "NaN").replace(/-inf(inity)?/gi, "−∞").replace(/inf(inity)?/gi, "∞");
}

/** Units in the last place. Beyond 2^53 a browser has not all their digits: then none are made up. */
export function ulpText(ulp: number | string | null): string {
  if (ulp === null) return "–";
  return typeof ulp === "number" && ulp > Number.MAX_SAFE_INTEGER ? short(ulp) : String(ulp);
}

/** Short enough for a cell; whole numbers stay whole where there is room for their letters. */
export function cellText(text: string, digits = 4, room = 9): string {
  const clean = text.trim();
  if (/^[-+]?\d+$/.test(clean)) return clean.length <= room ? clean.replace("-", "−") : short(Number(clean), digits);
  if (/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(clean)) return short(Number(clean), digits);
  const complex = COMPLEX.exec(clean);
  if (complex) {
    const [real, imaginary] = [complex[1], complex[2]].map((part) => short(valueOf(part ?? ""), Math.max(2, digits - 1)));
    return `${real}${imaginary?.startsWith("−") ? "" : "+"}${imaginary}j`;
  }
  return valueText(clean);
}

/** Whether two equal-looking cells are the same element: a NaN equals only NaN. */
export function differs(cell: Cell): boolean {
  if (cell.candidate === null) return false;
  const difference = numeric(cell.difference);
  return difference === null ? cell.reference !== cell.candidate : difference !== 0;
}
