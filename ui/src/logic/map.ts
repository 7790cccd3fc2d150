// Both name columns and the lines between them. Pure: no DOM, no fetch.
import type { PairRow, Side } from "./model.js";

export interface Line {
  pair: PairRow;
  left: number;
  right: number;
}

export interface PairingMap {
  reference: string[];
  candidate: string[];
  lines: Line[];
  /** Names that no line touches. */
  left: Record<Side, ReadonlySet<string>>;
}

/** One line per pair and part, from its place on the left to its place on the right. */
export function pairingMap(pairs: readonly PairRow[], reference: readonly string[], candidate: readonly string[]): PairingMap {
  const place = (names: readonly string[]) => new Map(names.map((name, at) => [name, at]));
  const [lefts, rights] = [place(reference), place(candidate)];
  const lines: Line[] = [];
  const free = { reference: new Set(reference), candidate: new Set(candidate) };
  for (const pair of pairs) {
    for (const name of pair.reference) free.reference.delete(name);
    for (const name of pair.candidate) free.candidate.delete(name);
    const parts = Math.max(pair.reference.length, pair.candidate.length);
    for (let part = 0; part < parts; part += 1) {
      const left = lefts.get(pair.reference[Math.min(part, pair.reference.length - 1)] ?? "");
      const right = rights.get(pair.candidate[Math.min(part, pair.candidate.length - 1)] ?? "");
      if (left !== undefined && right !== undefined) lines.push({ pair, left, right });
    }
  }
  return { reference: [...reference], candidate: [...candidate], lines, left: free };
}

/** The lines of which something is in sight. */
export function visibleLines(lines: readonly Line[], first: number, end: number): Line[] {
  return lines.filter(({ left, right }) => Math.max(left, right) >= first && Math.min(left, right) < end);
}
