import { expect, test } from "vitest";
import { computedIn } from "./model.js";

test("a run that was recorded wider than it was computed is said to be", () => {
  expect(computedIn([])).toBe("");
  expect(computedIn([null, null])).toBe("");
  expect(computedIn([null, "bf16"])).toBe("The candidate was computed in bf16 and recorded wider: rounding is that of bf16.");
  expect(computedIn(["f16", "bf16"])).toMatch(/^The reference was computed in f16.* The candidate was computed in bf16/);
  expect(computedIn(["bf16", "bf16"])).toMatch(/^Both were computed in bf16/);
});
