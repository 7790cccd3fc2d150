import { expect, test } from "vitest";
import { dropIndex, MOST_ROWS, scrollTo, visible } from "./virtual.js";

test("only rows near the window are drawn", () => {
  expect(visible(0, 280, 28, 10_000)).toEqual({ first: 0, end: 16 });
  expect(visible(2800, 280, 28, 10_000)).toEqual({ first: 94, end: 116 });
});

test("the end of the list is the end", () => {
  expect(visible(279_720, 280, 28, 10_000).end).toBe(10_000);
  expect(visible(0, 280, 28, 0)).toEqual({ first: 0, end: 0 });
});

test("a list that was shortened while scrolled down still shows its end", () => {
  const { first, end } = visible(50_000, 280, 28, 5);
  expect(first).toBe(0);
  expect(end).toBe(5);
});

test("a list without bounds never draws everything", () => {
  const { first, end } = visible(0, 1e9, 28, 100_000);
  expect(end - first).toBe(MOST_ROWS);
});

test("a row in sight does not scroll, others come in with neighbours", () => {
  expect(scrollTo(5, 0, 280, 28)).toBe(0);
  expect(scrollTo(0, 500, 280, 28)).toBe(0);
  expect(scrollTo(100, 0, 280, 28)).toBe(103 * 28 - 280);
});

test("a row lands between the nearest two", () => {
  expect(dropIndex(0, 13, 28, 10)).toBe(0);
  expect(dropIndex(0, 15, 28, 10)).toBe(1);
  expect(dropIndex(280, 0, 28, 100)).toBe(10);
  expect(dropIndex(0, 9999, 28, 10)).toBe(10);
});
