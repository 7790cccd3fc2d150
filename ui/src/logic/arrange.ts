// Pairs and leftovers -> the rows of the overview: filtered, sorted, grouped. Pure: no DOM, no fetch.
import type { Matcher } from "./filter.js";
import { isBad, VERDICTS, type Leftover, type PairRow } from "./model.js";
import { areCounted, compareNames, fileOf, layerLabel, layerOf, patternOf, withoutCount } from "./names.js";
import { numeric } from "./numbers.js";

export const GROUPINGS = ["layer", "file", "pattern", "similarity", "verdict", "none"] as const;
export type Grouping = (typeof GROUPINGS)[number];
export const GROUPING_WORDS: Record<Grouping, string> = {
  layer: "layer",
  file: "file name",
  pattern: "name pattern",
  similarity: "similarity",
  verdict: "verdict",
  none: "nothing",
};

export const SORTINGS = ["execution", "name", "best", "largest", "size"] as const;
export type Sorting = (typeof SORTINGS)[number];
export const SORTING_WORDS: Record<Sorting, string> = {
  execution: "execution order",
  name: "name",
  best: "best match first",
  largest: "largest difference first",
  size: "size",
};

export interface Group {
  key: string;
  label: string;
  pairs: PairRow[];
  leftovers: Leftover[];
  bad: number;
}

export type Row =
  | { kind: "group"; key: string; group: Group; open: boolean }
  | { kind: "pair"; key: string; pair: PairRow }
  | { kind: "leftover"; key: string; leftover: Leftover };

export interface Arrangement {
  grouping: Grouping;
  sorting: Sorting;
  /** The pinned order, as keys of pairs; it stands for `execution` when there is one. */
  pinned: readonly string[] | null;
}

export const LEFTOVER_KEY = "leftovers";

/** How far apart a pair is: relative where that is defined; a NaN or an infinity is further than any number; unmeasured ones are last. */
export function distance(pair: PairRow): number {
  if (pair.unequal_nonfinite) return Infinity;
  const relative = numeric(pair.rel_l2);
  const value = relative ?? numeric(pair.max_abs);
  if (value === null) return -1;
  return Number.isNaN(value) ? Infinity : value;
}

function comparator({ sorting, pinned }: Arrangement): (a: PairRow, b: PairRow) => number {
  const rank = new Map((pinned ?? []).map((key, at) => [key, at]));
  const place = (pair: PairRow) => rank.get(pair.key) ?? rank.size + pair.order;
  const execution = (a: PairRow, b: PairRow) => place(a) - place(b) || a.order - b.order;
  const measured = (pair: PairRow) => (distance(pair) < 0 ? 1 : 0);
  switch (sorting) {
    case "execution":
      return execution;
    case "name":
      return (a, b) => compareNames(a.name, b.name) || execution(a, b);
    case "best":
      return (a, b) => measured(a) - measured(b) || order(distance(a), distance(b)) || execution(a, b);
    case "largest":
      return (a, b) => measured(a) - measured(b) || order(distance(b), distance(a)) || execution(a, b);
    case "size":
      return (a, b) => (b.bytes ?? -1) - (a.bytes ?? -1) || execution(a, b);
  }
}

/** Infinities compare without becoming NaN. */
function order(a: number, b: number): number {
  return a === b ? 0 : a < b ? -1 : 1;
}

const SIMILARITY: readonly [limit: number, label: string][] = [
  [0, "the same"],
  [1e-6, "within 1e−6"],
  [1e-4, "within 1e−4"],
  [1e-2, "within 1 %"],
  [0.1, "within 10 %"],
  [Infinity, "further apart"],
];

function groupOf(pair: PairRow, grouping: Grouping, counted: boolean): [key: string, label: string] {
  switch (grouping) {
    case "layer": {
      const layer = layerOf(counted ? withoutCount(pair.name) : pair.name);
      return layer === null ? ["-", "outside of layers"] : [layer, layerLabel(layer)];
    }
    case "file":
      return twice(fileOf(pair.name));
    case "pattern":
      return twice(patternOf(pair.name));
    case "similarity": {
      const value = distance(pair);
      if (value < 0) return ["9", "not measured"];
      const at = SIMILARITY.findIndex(([limit]) => value <= limit);
      return [String(at), SIMILARITY[at]?.[1] ?? ""];
    }
    case "verdict":
      return twice(pair.verdict ?? "waiting");
    case "none":
      return ["", ""];
  }
}

function twice(text: string): [string, string] {
  return [text, text];
}

/** The groups in the order of their first pair; groups by similarity and verdict have their own order. */
export function groups(pairs: readonly PairRow[], leftovers: readonly Leftover[], matcher: Matcher, arrangement: Arrangement): Group[] {
  const kept = pairs.filter((pair) => matcher.pair(pair)).sort(comparator(arrangement));
  const byKey = new Map<string, Group>();
  const counted = arrangement.grouping === "layer" && areCounted(pairs.map((pair) => pair.name));
  for (const pair of kept) {
    const [key, label] = groupOf(pair, arrangement.grouping, counted);
    let group = byKey.get(key);
    if (group === undefined) {
      group = { key, label, pairs: [], leftovers: [], bad: 0 };
      byKey.set(key, group);
    }
    group.pairs.push(pair);
    if (isBad(pair)) group.bad += 1;
  }
  const result = [...byKey.values()];
  if (arrangement.grouping === "similarity") result.sort((a, b) => compareNames(a.key, b.key));
  if (arrangement.grouping === "verdict") result.sort((a, b) => verdictPlace(a.key) - verdictPlace(b.key));
  const left = leftovers.filter((leftover) => matcher.leftover(leftover));
  if (left.length > 0) result.push({ key: LEFTOVER_KEY, label: "without a partner", pairs: [], leftovers: left, bad: 0 });
  return result;
}

function verdictPlace(verdict: string): number {
  const at = VERDICTS.findIndex((known) => known === verdict);
  return at < 0 ? VERDICTS.length : at;
}

/** The flat list that is drawn: a heading per group, and the rows of the open ones. */
export function rows(groups: readonly Group[], grouping: Grouping, isOpen: (group: Group) => boolean): Row[] {
  const result: Row[] = [];
  for (const group of groups) {
    const heading = grouping !== "none" || group.key === LEFTOVER_KEY;
    const open = !heading || isOpen(group);
    if (heading) result.push({ kind: "group", key: `g:${group.key}`, group, open });
    if (!open) continue;
    for (const pair of group.pairs) result.push({ kind: "pair", key: `p:${pair.key}`, pair });
    for (const leftover of group.leftovers) result.push({ kind: "leftover", key: `l:${leftover.side}:${leftover.name}`, leftover });
  }
  return result;
}

/** Which group is open before anyone clicked: the one with the first divergence; everything when there is just one. */
export function openAtFirst(groups: readonly Group[], first: number | null): (group: Group) => boolean {
  const only = groups.length === 1;
  return (group) => only || (first !== null && group.pairs.some((pair) => pair.id === first));
}

/** The next or previous bad pair in the order that is shown, around the ends; null when there is none. */
export function neighbourBad(groups: readonly Group[], current: number | null, step: 1 | -1): PairRow | null {
  const shown = groups.flatMap((group) => group.pairs);
  const here = shown.findIndex((pair) => pair.id === current);
  const beyond = step > 0 ? shown.slice(here + 1).find(isBad) : shown.slice(0, Math.max(0, here)).findLast(isBad);
  return beyond ?? (step > 0 ? shown.find(isBad) : shown.findLast(isBad)) ?? null;
}
