import { expect, test } from "vitest";
import { best, score } from "./palette.js";

const ITEMS = ["model.layers.0.mlp.down_proj", "model.layers.0.mlp.up_proj", "Theme: dark", "Sort by name", "Open another comparison"];
const find = (query: string) => best(query, ITEMS, (item) => item);

test("letters in order find a name, whole words first", () => {
  expect(find("down")[0]).toBe(ITEMS[0]);
  expect(find("mlpup")[0]).toBe(ITEMS[1]);
  expect(find("theme")).toEqual([ITEMS[2]]);
});
test("nothing typed keeps the order, nonsense finds nothing", () => {
  expect(find("")).toEqual(ITEMS);
  expect(find("zzz")).toEqual([]);
  expect(score("ba", "ab")).toBeNull();
});
test("no more than asked for", () => {
  expect(best("o", ITEMS, (item) => item, 2)).toHaveLength(2);
});
