import { expect, test } from "vitest";
import { around, contains, pan, pictureSize, poolingText, resolution, whole, zoom } from "./viewport.js";

test("coming closer keeps the cell under the cursor", () => {
  const near = zoom(whole(1000, 1000), 500, 250, 0.5, 1000, 1000);
  expect(near).toEqual({ r0: 250, r1: 750, c0: 125, c1: 625 });
});

test("zooming always moves and ends at the whole and at a few cells", () => {
  let view = whole(50, 3);
  for (let step = 0; step < 40; step += 1) view = zoom(view, 25, 1, 0.8, 50, 3);
  expect(view.r1 - view.r0).toBe(4);
  expect(view.c1 - view.c0).toBe(3);
  for (let step = 0; step < 60; step += 1) view = zoom(view, 25, 1, 1.25, 50, 3);
  expect(view).toEqual(whole(50, 3));
});

test("moving stops at the ends", () => {
  const view = { r0: 10, r1: 20, c0: 0, c1: 5 };
  expect(pan(view, -100, 3, 30, 30)).toEqual({ r0: 0, r1: 10, c0: 3, c1: 8 });
  expect(pan(view, 100, 100, 30, 30)).toEqual({ r0: 20, r1: 30, c0: 25, c1: 30 });
});

test("a cell in a corner is shown although it cannot be in the middle", () => {
  const view = around(0, 99, 100, 100);
  expect(contains(view, 0, 99)).toBe(true);
  expect(view).toEqual({ r0: 0, r1: 16, c0: 84, c1: 100 });
});

test("never more values than pixels nor than cells", () => {
  expect(resolution(whole(10_000, 5), 400, 300)).toEqual({ width: 5, height: 300 });
});

test("a picture of a long row is still something to look at", () => {
  expect(pictureSize(whole(1, 4096), 400, 300)).toEqual({ width: 400, height: 64 });
  expect(pictureSize(whole(100, 100), 400, 300)).toEqual({ width: 300, height: 300 });
});

test("a picture says what a pixel is, and that a sample is one", () => {
  const whole = { r0: 0, r1: 1000, c0: 0, c1: 1000 };
  expect(poolingText(whole, { width: 1000, height: 1000, exact: true, read: 1_000_000 })).toBe("every value is a cell");
  expect(poolingText(whole, { width: 400, height: 500, exact: true, read: 1_000_000 })).toBe("2 × 2.5 abs-max pooling: each pixel is the largest of its block, NaN and infinities first");
  const large = { r0: 0, r1: 32_768, c0: 0, c1: 32_768 };
  expect(poolingText(large, { width: 256, height: 256, exact: false, read: 524_288 })).toMatch(/^128 × 128 abs-max pooling of a sample: each pixel is the largest of 8 values read of its block \(< 0.1 % of all\)/);
});
