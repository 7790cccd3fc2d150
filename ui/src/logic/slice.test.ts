import { describe, expect, test } from "vitest";
import { extents, firstSlice, fitted, indexOf, moveTo, numpySlice, parseIndex, placeOf, ravel, unravel, withAxis, withMode } from "./slice.js";

describe("the first slice", () => {
  test("shows the first ten of the last two dimensions that have something to show", () => {
    const slice = firstSlice([1, 8, 76, 64]);
    expect([slice.mode, slice.rows, slice.cols, slice.rowCount, slice.colCount]).toEqual(["2d", 2, 3, 10, 10]);
    expect(firstSlice([5, 1, 300, 1])).toMatchObject({ rows: 0, cols: 2, rowCount: 5 });
  });
  test("works for no dimension, one, only ones, none at all and six", () => {
    expect(firstSlice([])).toMatchObject({ mode: "flat", colCount: 1, at: [] });
    expect(firstSlice([7])).toMatchObject({ mode: "1d", cols: 0, colCount: 7 });
    expect(firstSlice([1, 1])).toMatchObject({ mode: "1d", cols: 1, colCount: 1 });
    expect(firstSlice([0, 4])).toMatchObject({ mode: "1d", cols: 1 });
    expect(firstSlice([2, 2, 2, 2, 2, 2])).toMatchObject({ mode: "2d", rows: 4, cols: 5 });
  });
});

describe("a slice for another shape", () => {
  test("keeps what fits and clamps the rest", () => {
    const slice = { ...firstSlice([4, 100, 100]), at: [3, 0, 0], row: 90, col: 95 };
    expect(fitted(slice, [2, 50, 50])).toMatchObject({ at: [1, 0, 0], row: 40, col: 40, rows: 1, cols: 2 });
    expect(fitted(slice, [9])).toMatchObject({ mode: "1d", rows: null, cols: 0, colCount: 9 });
    expect(fitted(slice, [])).toEqual(firstSlice([]));
  });
  test("an empty dimension shows nothing rather than failing", () => {
    expect(fitted(firstSlice([0, 3]), [0, 3]).at).toEqual([0, 0]);
    expect(fitted({ ...firstSlice([5]), colCount: 5 }, [0]).colCount).toBe(0);
  });
  test("what is typed wrong becomes the nearest right", () => {
    const slice = { ...firstSlice([50, 50]), row: NaN, colCount: -3, col: 1e9 };
    expect(fitted(slice, [50, 50])).toMatchObject({ row: 0, colCount: 1, col: 49 });
  });
});

describe("modes and axes", () => {
  const shape = [2, 3, 40, 50];
  test("taking the other's axis swaps them", () => {
    const slice = withAxis(firstSlice(shape), "rows", 3, shape);
    expect([slice.rows, slice.cols]).toEqual([3, 2]);
    expect(withAxis(slice, "cols", 0, shape)).toMatchObject({ rows: 3, cols: 0, colCount: 2 });
  });
  test("flattened counts over everything, 1-D along one dimension", () => {
    const flat = withMode(firstSlice(shape), "flat", shape);
    expect(extents(flat, shape)).toEqual({ rows: 1, cols: 12_000 });
    const line = withMode(flat, "1d", shape);
    expect(line).toMatchObject({ mode: "1d", rows: null, cols: 3 });
    expect(withMode(line, "2d", shape)).toMatchObject({ mode: "2d", rows: 2, cols: 3 });
  });
});

describe("indices", () => {
  const shape = [2, 3, 40, 50];
  test("cells know their index, in every mode", () => {
    const slice = { ...firstSlice(shape), at: [1, 2, 0, 0] };
    expect(indexOf(slice, 7, 8, shape)).toEqual([1, 2, 7, 8]);
    expect(placeOf(slice, [1, 2, 7, 8], shape)).toEqual({ row: 7, col: 8 });
    const flat = withMode(slice, "flat", shape);
    expect(indexOf(flat, 0, 11_999, shape)).toEqual([1, 2, 39, 49]);
    expect(placeOf(flat, [1, 2, 39, 49], shape)).toEqual({ row: 0, col: 11_999 });
  });
  test("raveling undoes unraveling", () => {
    for (const flat of [0, 1, 49, 50, 6000, 11_999]) expect(ravel(unravel(flat, shape), shape)).toBe(flat);
    expect(unravel(0, [])).toEqual([]);
  });
  test("moving to an element shows it", () => {
    const slice = moveTo(firstSlice(shape), [1, 2, 39, 3], shape);
    expect(slice.at.slice(0, 2)).toEqual([1, 2]);
    expect(slice.row).toBe(30);
    expect(slice.col).toBe(0);
  });
  test("moving to an element in sight moves nothing", () => {
    const slice = { ...firstSlice(shape), at: [0, 0, 5, 5] };
    expect(moveTo(slice, [0, 0, 5, 5], shape)).toEqual(slice);
  });
  test("typed indices are understood or said to be wrong", () => {
    expect(parseIndex("[0, 1, 17, -1]", shape)).toEqual([0, 1, 17, 49]);
    expect(parseIndex("0 1 17 3", shape)).toEqual([0, 1, 17, 3]);
    expect(parseIndex("11999", shape)).toEqual([1, 2, 39, 49]);
    expect(parseIndex("0, 1", shape)).toContain("4 dimensions");
    expect(parseIndex("0, 3, 0, 0", shape)).toContain("dim 1");
    expect(parseIndex("a", shape)).toContain("whole numbers");
    expect(parseIndex("12000", shape)).toContain("12000 values");
    expect(parseIndex("", [])).toEqual([]);
  });
  test("the slice is written as NumPy would", () => {
    expect(numpySlice({ ...firstSlice(shape), at: [1, 2, 0, 0], row: 3 }, shape)).toBe("[1, 2, 3:13, 0:10]");
    expect(numpySlice(withMode(firstSlice(shape), "flat", shape), shape)).toBe("[0:10]");
    expect(numpySlice(firstSlice([]), [])).toBe("[()]");
  });
});
