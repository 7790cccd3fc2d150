import { expect, test } from "vitest";
import { curve } from "./curve.js";
import type { PairRow } from "./model.js";

const at = (...sizes: (number | "NaN" | null)[]) => curve(sizes.map((rel_l2, id) => ({ id, rel_l2, max_abs: null }) as unknown as PairRow));

test("larger differences are higher, none at all is the bottom, NaN the top", () => {
  const { points } = at(0, 1e-6, 1e-3, 0.5, "NaN", null);
  const heights = points.map((point) => point.height);
  expect(heights[0]).toBe(0);
  expect(heights[1]).toBeGreaterThan(0);
  expect(heights[2]).toBeGreaterThan(heights[1] ?? 1);
  expect(heights[3]).toBeGreaterThan(heights[2] ?? 1);
  expect(heights[4]).toBe(1);
  expect(points[4]?.beyond).toBe(true);
  expect(heights[5]).toBeNull();
});

test("a NaN on one side alone is the top, whatever the other values say", () => {
  const pair = { id: 0, rel_l2: 0, max_abs: 0, unequal_nonfinite: true } as PairRow;
  expect(curve([pair, { ...pair, unequal_nonfinite: false }]).points.map(({ height, beyond }) => [height, beyond])).toEqual([[1, true], [0, false]]);
});

test("ticks are a handful of powers of ten within the picture", () => {
  for (const curve of [at(1e-30, 1e30), at(0.5), at(), at(0, 0)]) {
    expect(curve.ticks.length).toBeGreaterThanOrEqual(2);
    expect(curve.ticks.length).toBeLessThanOrEqual(7);
    for (const { height } of curve.ticks) expect(height >= 0 && height <= 1).toBe(true);
  }
});

test("a hundred thousand pairs are not too many", () => {
  expect(curve(new Array<PairRow>(100_000).fill({ id: 0, rel_l2: 1e-3 } as PairRow)).points).toHaveLength(100_000);
});
