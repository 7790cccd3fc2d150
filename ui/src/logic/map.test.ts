import { expect, test } from "vitest";
import { pairingMap, visibleLines } from "./map.js";
import type { PairRow } from "./model.js";

const pair = (reference: string[], candidate: string[]) => ({ reference, candidate }) as PairRow;

test("every part has its line, what has none is left over", () => {
  const map = pairingMap([pair(["a"], ["x"]), pair(["qkv"], ["q", "k", "v"])], ["a", "b", "qkv"], ["q", "k", "v", "x", "y"]);
  expect(map.lines.map(({ left, right }) => [left, right])).toEqual([[0, 3], [2, 0], [2, 1], [2, 2]]);
  expect([...map.left.reference]).toEqual(["b"]);
  expect([...map.left.candidate]).toEqual(["y"]);
});

test("only lines that cross the window are drawn", () => {
  const map = pairingMap([pair(["a"], ["z"]), pair(["b"], ["y"])], ["a", "b"], ["x", "y", "z"]);
  expect(visibleLines(map.lines, 2, 3).map((line) => line.pair.reference[0])).toEqual(["a"]);
  expect(visibleLines(map.lines, 0, 1)).toHaveLength(1);
});

test("names that are no longer there draw nothing", () => {
  expect(pairingMap([pair(["gone"], ["x"])], ["a"], ["x"]).lines).toEqual([]);
});
