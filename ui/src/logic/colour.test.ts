import { describe, expect, test } from "vitest";
import { cellBackground, cellBorder, contrast, diverging, inkOn, NOT_FINITE, pack, scaled, STEPS, table, type Theme } from "./colour.js";
import { clipped, extent, pixels } from "./pixels.js";

const THEMES: Theme[] = ["light", "dark"];
const linear = (limit: number) => ({ kind: "linear" as const, limit });

describe("colours", () => {
  test("blue is negative, orange positive, in both themes", () => {
    for (const theme of THEMES) {
      const [low, high] = [diverging(-1, theme), diverging(1, theme)];
      expect(low[2]).toBeGreaterThan(low[0]);
      expect(high[0]).toBeGreaterThan(high[2]);
    }
  });
  test("every number in a cell can be read", () => {
    for (const theme of THEMES) {
      for (const value of [-1, -0.7, -0.3, 0, 0.2, 0.5, 0.9, 1, NaN, Infinity, -Infinity]) {
        const background = cellBackground(value, linear(1), theme);
        expect(contrast(inkOn(background, theme), background), `${theme} ${value}`).toBeGreaterThanOrEqual(4.5);
      }
    }
  });
  test("the symmetric logarithm keeps small values visible and the sign", () => {
    const scale = { kind: "symlog" as const, limit: 1 };
    expect(scaled(1, scale)).toBeCloseTo(1);
    expect(scaled(-1e-3, scale)).toBeLessThan(-0.2);
    expect(scaled(0, scale)).toBe(0);
    expect(scaled(5, scale)).toBe(1);
  });
  test("a scale without a limit does not divide by zero", () => {
    expect(scaled(3, linear(0))).toBe(1);
    expect(scaled(0, linear(0))).toBe(0);
  });
  test("equal values have no border, a NaN against a number has the strongest", () => {
    expect(cellBorder(0, 1, "light")).toBeNull();
    expect(cellBorder(NaN, 1, "light")?.width).toBe(3);
    expect(cellBorder(1e-9, 1, "light")?.width).toBe(1);
  });
});

describe("pixels", () => {
  test("an outlier and a NaN survive", () => {
    const out = new Uint32Array(5);
    const colours = table("light");
    pixels(new Float32Array([0, 100, -100, NaN, Infinity]), linear(1), colours, out);
    expect(out[0]).toBe(colours[(STEPS - 1) / 2]);
    expect(out[1]).toBe(colours[STEPS - 1]);
    expect(out[2]).toBe(colours[0]);
    expect(out[3]).toBe(pack(NOT_FINITE.light.nan));
    expect(out[4]).toBe(pack(NOT_FINITE.light.plus));
  });
  test("both scales agree at the ends and in the middle", () => {
    const colours = table("dark");
    const values = new Float32Array([-2, 0, 2]);
    const [a, b] = [new Uint32Array(3), new Uint32Array(3)];
    pixels(values, linear(2), colours, a);
    pixels(values, { kind: "symlog", limit: 2 }, colours, b);
    expect([...a]).toEqual([...b]);
  });
  test("the extent counts what is not finite apart", () => {
    expect(extent(new Float32Array([1, -3, NaN, Infinity, -Infinity]))).toEqual({ limit: 3, nan: 1, inf: 2 });
  });
  test("one outlier does not set the clipped range", () => {
    const values = new Float32Array(1000).fill(1);
    values[7] = 1e6;
    expect(clipped(values)).toBe(1);
    expect(clipped(new Float32Array([NaN]))).toBe(0);
  });
});
