// The words of the page: a pair as one row of the overview, a tensor left over, a verdict. Pure: no DOM, no fetch.
import type { ApiNumber } from "./numbers.js";

export type Verdict = "identical" | "rounding" | "harmless" | "diverged" | "incomparable";
export const VERDICTS: readonly Verdict[] = ["diverged", "incomparable", "harmless", "rounding", "identical"];

export type Side = "reference" | "candidate";
export type Plane = Side | "difference";
export const PLANES: readonly Plane[] = ["reference", "candidate", "difference"];

/** What the overview knows of a pair. `id` is its place in the report, `key` what links and pinned orders know it by. */
export interface PairRow {
  id: number;
  key: string;
  name: string;
  reference: string[];
  candidate: string[];
  order: number;
  rule: string;
  score: number;
  /** null while it waits for its turn. */
  verdict: Verdict | null;
  origin: "own" | "inherited" | null;
  agrees_at: string | null;
  reason: string | null;
  shape: number[] | null;
  dtypes: [string, string];
  bytes: number | null;
  count: number | null;
  differing: number | null;
  /** A NaN or an infinity on one side alone: further apart than any number; the numbers below are of the other elements. */
  unequal_nonfinite: boolean;
  max_abs: ApiNumber | null;
  rel_l2: ApiNumber | null;
  cosine: ApiNumber | null;
  max_ulp: ApiNumber | null;
  /** The kind of the best cause, and its sentence. */
  cause: string | null;
  cause_text: string | null;
  /** Whether the candidate had to be rearranged. */
  rearranged: boolean;
}

/** A tensor without its partner. */
export interface Leftover {
  side: Side;
  name: string;
  dtype: string | null;
  shape: number[] | null;
  suggestion: string | null;
  score: number | null;
}

/** One word for the list, the same as the contract's. */
export function verdictWord(verdict: Verdict | null): string {
  return verdict ?? "waiting";
}

/** Where a divergence began, as a sentence. */
export function originSentence(origin: "own" | "inherited"): string {
  return origin === "inherited" ? "diverged, carried on from an earlier pair" : "diverged here: more than rounding explains";
}

/** What the verdict means for this pair, as a sentence. */
export function verdictSentence(pair: PairRow): string {
  switch (pair.verdict) {
    case null:
      return "not compared yet";
    case "identical":
      return "every value is the same";
    case "rounding":
      return "equal up to rounding";
    case "harmless":
      return pair.agrees_at ? `differs here, agrees again at ${pair.agrees_at}` : "differs here, agrees again downstream";
    case "diverged":
      return originSentence(pair.origin ?? "own");
    case "incomparable":
      return `not comparable${pair.reason ? `: ${pair.reason}` : ""}`;
  } // no default: a new verdict must not compile until it has a sentence
}

export function isBad(pair: PairRow): boolean {
  return pair.verdict === "diverged" || pair.verdict === "incomparable";
}

/** Which side was computed in a coarser dtype than it is recorded in, as a sentence; empty for none. */
export function computedIn([reference = null, candidate = null]: readonly (string | null)[]): string {
  if (reference === null && candidate === null) return "";
  if (reference === candidate) return `Both were computed in ${reference} and recorded wider: rounding is that of ${reference}.`;
  const said = [["reference", reference], ["candidate", candidate]].filter(([, dtype]) => dtype !== null);
  return said.map(([side, dtype]) => `The ${side} was computed in ${dtype} and recorded wider: rounding is that of ${dtype}.`).join(" ");
}

/** How many pairs there are of each verdict. */
export function tally(pairs: readonly PairRow[]): Record<Verdict | "waiting", number> {
  const counts = { identical: 0, rounding: 0, harmless: 0, diverged: 0, incomparable: 0, waiting: 0 };
  for (const pair of pairs) counts[pair.verdict ?? "waiting"] += 1;
  return counts;
}
