import { describe, expect, test } from "vitest";
import { groups, neighbourBad, openAtFirst, rows, type Arrangement } from "./arrange.js";
import { matcher, words } from "./filter.js";
import type { Leftover, PairRow } from "./model.js";
import { move, moveBefore } from "./reorder.js";

function pair(id: number, name: string, more: Partial<PairRow> = {}): PairRow {
  return {
    id, key: name, name, reference: [name], candidate: [name], order: id, rule: "exact", score: 1, verdict: "identical", origin: null, agrees_at: null, unequal_nonfinite: false,
    reason: null, shape: [2, 3], dtypes: ["f32", "f32"], bytes: 24, count: 6, differing: 0, max_abs: 0, rel_l2: 0, cosine: 1, max_ulp: 0, cause: null, cause_text: null, rearranged: false,
    ...more,
  };
}
const LEFT: Leftover = { side: "candidate", name: "extra.bias", dtype: "f32", shape: [3], suggestion: null, score: null };
const PAIRS = [
  pair(0, "0_query", { rel_l2: 1e-3, bytes: 10 }),
  pair(1, "0_key", { rel_l2: 0.5, verdict: "diverged", origin: "own", shape: [1, 4096], dtypes: ["bf16", "f32"], max_abs: 2 }),
  pair(2, "1_query", { rel_l2: "NaN", verdict: "diverged", origin: "inherited", bytes: 999 }),
  pair(3, "10_query", { verdict: "incomparable", rel_l2: null, max_abs: null, shape: null }),
  pair(4, "2_query", { verdict: null, rel_l2: null, max_abs: null }),
];
const none = (text = "") => matcher({ show: new Set(), text });
const by = (more: Partial<Arrangement> = {}): Arrangement => ({ grouping: "none", sorting: "execution", pinned: null, ...more });
const ids = (text: string, more: Partial<Arrangement> = {}) => groups(PAIRS, [LEFT], none(text), by(more)).flatMap((g) => g.pairs.map((p) => p.id));

describe("filter", () => {
  test("words combine, and each kind of test works", () => {
    expect(ids("query")).toEqual([0, 2, 3, 4]);
    expect(ids("query verdict:diverged")).toEqual([2]);
    expect(ids("verdict:bad")).toEqual([1, 2, 3]);
    expect(ids("shape:[*,4096]")).toEqual([1]);
    expect(ids("[1, 4096]")).toEqual([1]);
    expect(ids("shape:[..., 4096]")).toEqual([1]);
    expect(ids("shape:4096")).toEqual([1]);
    expect(ids("dtype:bf16")).toEqual([1]);
    expect(ids("/^1_/")).toEqual([2]);
    expect(ids("-query")).toEqual([1]);
    expect(ids("layer:1")).toEqual([2]);
    expect(ids("origin:own")).toEqual([1]);
  });
  test("a NaN is beyond every limit, an unmeasured pair is beyond none", () => {
    expect(ids("rel>1e-2")).toEqual([1, 2]);
    expect(ids("rel<1e-2")).toEqual([0]);
    expect(ids("max>=2")).toEqual([1]);
  });
  test("what cannot be understood is said and filters nothing", () => {
    for (const bad of ["/(/", "nonsense>3", "max>abc", "verdict:odd", "shape:[a]"]) {
      expect(none(bad).problem, bad).not.toBeNull();
      expect(ids(bad), bad).toHaveLength(5);
    }
  });
  test("leftovers are shown when nothing or they are chosen, and found by name", () => {
    expect(none().leftover(LEFT)).toBe(true);
    expect(matcher({ show: new Set(["diverged"]), text: "" }).leftover(LEFT)).toBe(false);
    expect(matcher({ show: new Set(["leftover"]), text: "bias" }).leftover(LEFT)).toBe(true);
    expect(none("max>0").leftover(LEFT)).toBe(false);
    expect(none("[3]").leftover(LEFT)).toBe(true);
  });
  test("spaces inside of regexes and shapes do not split", () => {
    expect(words("/a b/ shape:[1, 2] x")).toEqual(["/a b/", "shape:[1, 2]", "x"]);
  });
});

describe("sort and group", () => {
  test("largest first puts NaN before numbers and the unmeasured last", () => {
    expect(ids("", { sorting: "largest" })).toEqual([2, 1, 0, 3, 4]);
    expect(ids("", { sorting: "best" })).toEqual([0, 1, 2, 3, 4]);
    expect(ids("", { sorting: "size" })[0]).toBe(2);
    expect(ids("", { sorting: "name" })).toEqual([1, 0, 2, 4, 3]);
  });
  test("a pinned order stands for the execution order, new pairs come after it", () => {
    expect(ids("", { pinned: ["10_query", "0_key"] })).toEqual([3, 1, 0, 2, 4]);
  });
  test("groups keep the order of their first pair, leftovers come last", () => {
    const found = groups(PAIRS, [LEFT], none(), by({ grouping: "layer" }));
    expect(found.map((g) => g.label)).toEqual(["layer 0", "layer 1", "layer 10", "layer 2", "without a partner"]);
    expect(found[0]?.bad).toBe(1);
    expect(groups(PAIRS, [], none(), by({ grouping: "verdict" })).map((g) => g.key)).toEqual(["diverged", "incomparable", "identical", "waiting"]);
    expect(groups(PAIRS, [], none(), by({ grouping: "pattern" })).map((g) => g.key)).toEqual(["*_query", "*_key"]);
    expect(groups(PAIRS, [], none(), by({ grouping: "similarity" })).map((g) => g.label)).toEqual(["within 1 %", "further apart", "not measured"]);
  });
  test("groups are closed at first but the one with the first divergence", () => {
    const found = groups(PAIRS, [LEFT], none(), by({ grouping: "layer" }));
    const flat = rows(found, "layer", openAtFirst(found, 2));
    expect(flat.map((row) => row.key)).toEqual(["g:0", "g:1", "p:1_query", "g:10", "g:2", "g:leftovers"]);
  });
  test("without grouping there are no headings but that of the leftovers", () => {
    const found = groups(PAIRS, [LEFT], none(), by());
    const flat = rows(found, "none", () => true);
    expect(flat.map((row) => row.kind)).toEqual(["pair", "pair", "pair", "pair", "pair", "group", "leftover"]);
  });
  test("the next bad pair goes around the end", () => {
    const found = groups(PAIRS, [], none(), by({ grouping: "layer" }));
    expect(neighbourBad(found, 0, 1)?.id).toBe(1);
    expect(neighbourBad(found, 3, 1)?.id).toBe(1);
    expect(neighbourBad(found, 0, -1)?.id).toBe(3);
    expect(neighbourBad(found, null, 1)?.id).toBe(1);
    expect(neighbourBad([], 0, 1)).toBeNull();
  });
});

describe("reorder", () => {
  test("a row lands before what stood at the drop", () => {
    expect(move(["a", "b", "c", "d"], 0, 3)).toEqual(["b", "c", "a", "d"]);
    expect(move(["a", "b", "c", "d"], 3, 0)).toEqual(["d", "a", "b", "c"]);
    expect(move(["a", "b"], 0, 2)).toEqual(["b", "a"]);
  });
  test("a move to its own place changes nothing", () => {
    const items = ["a", "b", "c"];
    expect(move(items, 1, 1)).toBe(items);
    expect(move(items, 1, 2)).toBe(items);
    expect(move(items, 7, 0)).toBe(items);
  });
  test("moving before another by id", () => {
    expect(moveBefore([1, 2, 3], 3, 1)).toEqual([3, 1, 2]);
    expect(moveBefore([1, 2, 3], 1, null)).toEqual([2, 3, 1]);
    expect(moveBefore([1, 2, 3], 1, 99)).toEqual([1, 2, 3]);
  });
});
