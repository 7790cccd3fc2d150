// The filter box: `mlp verdict:diverged shape:[*,4096] dtype:bf16 max>1e-3 /layers\.[0-3]/`. Everything written must hold.
// Pure: no DOM, no fetch.
import { VERDICTS, type Leftover, type PairRow, type Verdict } from "./model.js";
import { numeric } from "./numbers.js";

export type Metric = "max" | "rel" | "cos" | "ulp" | "differing" | "bytes" | "count" | "score";
const METRICS: Record<Metric, (pair: PairRow) => number | null> = {
  max: (pair) => (pair.unequal_nonfinite ? NaN : numeric(pair.max_abs)),
  rel: (pair) => (pair.unequal_nonfinite ? NaN : numeric(pair.rel_l2)),
  cos: (pair) => numeric(pair.cosine),
  ulp: (pair) => numeric(pair.max_ulp),
  differing: (pair) => pair.differing,
  bytes: (pair) => pair.bytes,
  count: (pair) => pair.count,
  score: (pair) => pair.score,
};

export interface Filter {
  /** The verdicts and `leftover` that are shown; none chosen means all. */
  show: ReadonlySet<Verdict | "leftover">;
  text: string;
}

export interface Matcher {
  pair(pair: PairRow): boolean;
  leftover(leftover: Leftover): boolean;
  /** What of the text could not be understood, in words; it then filters nothing. */
  problem: string | null;
  /** Nothing is filtered at all. */
  all: boolean;
}

type Test = { pair: (pair: PairRow) => boolean; leftover: (leftover: Leftover) => boolean };

export function matcher(filter: Filter): Matcher {
  const tests: Test[] = [];
  let problem: string | null = null;
  for (const word of words(filter.text)) {
    const test = testOf(word);
    if (typeof test === "string") problem ??= test;
    else tests.push(test);
  }
  const { show } = filter;
  const shown = (what: Verdict | "leftover" | null) => show.size === 0 || (what !== null && show.has(what));
  return {
    pair: (pair) => shown(pair.verdict) && tests.every((test) => test.pair(pair)),
    leftover: (leftover) => shown("leftover") && tests.every((test) => test.leftover(leftover)),
    problem,
    all: show.size === 0 && tests.length === 0,
  };
}

/** Words are separated by spaces; a regex between slashes and a shape between brackets may hold spaces. */
export function words(text: string): string[] {
  return text.match(/(?:-?\w+:)?\/(?:\\.|[^/\\])+\/i?(?=\s|$)|(?:-?shape:)?\[[^\]]*\]|\S+/g) ?? [];
}

function testOf(word: string): Test | string {
  if (word.length > 1 && word.startsWith("-")) {
    const inner = testOf(word.slice(1));
    if (typeof inner === "string") return inner;
    return { pair: (pair) => !inner.pair(pair), leftover: (leftover) => !inner.leftover(leftover) };
  }
  const metric = /^(\w+)(<=|>=|<|>|=)(.+)$/.exec(word);
  if (metric) return metricTest(metric[1] ?? "", metric[2] ?? "", metric[3] ?? "");
  const regex = /^\/(.+)\/(i?)$/.exec(word);
  if (regex) return regexTest(regex[1] ?? "", regex[2] ?? "");
  if (word.startsWith("[") && word.endsWith("]")) return shapeTest(word);
  const keyed = /^(verdict|shape|dtype|rule|origin|cause|layer):(.*)$/.exec(word);
  if (!keyed) return nameTest(word);
  const [, key = "", value = ""] = keyed;
  switch (key) {
    case "shape":
      return shapeTest(value);
    case "verdict":
      return verdictTest(value);
    case "dtype":
      return { pair: (pair) => pair.dtypes.some((dtype) => like(dtype, value)), leftover: (left) => left.dtype !== null && like(left.dtype, value) };
    case "rule":
      return { pair: (pair) => like(pair.rule, value), leftover: () => false };
    case "origin":
      return { pair: (pair) => pair.origin !== null && like(pair.origin, value), leftover: () => false };
    case "cause":
      return { pair: (pair) => pair.cause !== null && like(pair.cause, value), leftover: () => false };
    default: {
      const layer = new RegExp(`(^|[^0-9])${value.replace(/\D/g, "")}([^0-9]|$)`);
      return { pair: (pair) => layer.test(pair.name), leftover: (left) => layer.test(left.name) };
    }
  }
}

function verdictTest(value: string): Test | string {
  if (value === "bad") return { pair: (pair) => pair.verdict === "diverged" || pair.verdict === "incomparable", leftover: () => false };
  if (value === "leftover") return { pair: () => false, leftover: () => true };
  if (value === "waiting") return { pair: (pair) => pair.verdict === null, leftover: () => false };
  const wanted = VERDICTS.filter((verdict) => verdict.startsWith(value));
  if (wanted.length === 0) return `there is no verdict “${value}”; there are ${VERDICTS.join(", ")}, bad, leftover`;
  return { pair: (pair) => pair.verdict !== null && wanted.includes(pair.verdict), leftover: () => false };
}

function metricTest(name: string, sign: string, text: string): Test | string {
  const measure = METRICS[name as Metric];
  if (measure === undefined) return `there is no number “${name}”; there are ${Object.keys(METRICS).join(", ")}`;
  const limit = Number(text);
  if (text.trim() === "" || Number.isNaN(limit)) return `“${text}” is not a number`;
  const holds = (value: number | null): boolean => {
    if (value === null) return false;
    // A NaN is further off than any limit.
    if (Number.isNaN(value)) return sign.startsWith(">");
    if (sign === "=") return value === limit;
    if (sign === "<") return value < limit;
    if (sign === "<=") return value <= limit;
    return sign === ">" ? value > limit : value >= limit;
  };
  return { pair: (pair) => holds(measure(pair)), leftover: () => false };
}

function regexTest(source: string, flags: string): Test | string {
  try {
    const regex = new RegExp(source, flags);
    return {
      pair: (pair) => namesOf(pair).some((name) => regex.test(name)),
      leftover: (leftover) => regex.test(leftover.name),
    };
  } catch (error) {
    return error instanceof Error ? error.message : "not a regex";
  }
}

/** `[*, 4096]`, `4096` anywhere, `[..., 64]` for any number of leading dims. */
function shapeTest(text: string): Test | string {
  const parts = text.replace(/^\[|\]$/g, "").split(/[,x\s]+/).filter((part) => part !== "");
  if (parts.some((part) => !/^(\d+|\*|\.\.\.|…)$/.test(part))) return `“${text}” is not a shape; try [*, 4096] or [..., 64]`;
  if (parts.length === 1 && /^\d+$/.test(parts[0] ?? "") && !text.startsWith("[")) {
    const size = Number(parts[0]);
    return { pair: (pair) => pair.shape?.includes(size) ?? false, leftover: (left) => left.shape?.includes(size) ?? false };
  }
  const fits = (shape: number[] | null) => shape !== null && fitsShape(shape, parts);
  return { pair: (pair) => fits(pair.shape), leftover: (left) => fits(left.shape) };
}

function fitsShape(shape: readonly number[], parts: readonly string[]): boolean {
  const [part, ...rest] = parts;
  if (part === undefined) return shape.length === 0;
  if (part === "..." || part === "…") return shape.some((_, at) => fitsShape(shape.slice(at), rest)) || fitsShape([], rest);
  if (shape.length === 0) return false;
  return (part === "*" || Number(part) === shape[0]) && fitsShape(shape.slice(1), rest);
}

function nameTest(word: string): Test {
  const test = (name: string) => like(name, word);
  return { pair: (pair) => namesOf(pair).some(test), leftover: (leftover) => test(leftover.name) };
}

function namesOf(pair: PairRow): string[] {
  return [pair.name, ...pair.reference, ...pair.candidate];
}

/** Anywhere in the name, upper and lower case alike; `*` stands for anything. */
function like(name: string, word: string): boolean {
  const parts = word.toLowerCase().split("*");
  const text = name.toLowerCase();
  let at = 0;
  for (const part of parts) {
    const found = text.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return true;
}
