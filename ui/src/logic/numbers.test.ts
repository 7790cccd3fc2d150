import { describe, expect, test } from "vitest";
import { ago, bytes, count, counted, numeric, percent, seconds, short } from "./numbers.js";

describe("short numbers", () => {
  test("an undefined number is a dash, never 0", () => {
    expect(short(null)).toBe("–");
    expect(short(undefined)).toBe("–");
    expect(short(0)).toBe("0");
  });
  test("not-finite ones keep their names", () => {
    expect(short("NaN")).toBe("NaN");
    expect(short("Infinity")).toBe("∞");
    expect(short("-Infinity")).toBe("−∞");
    expect(short(Number.NaN)).toBe("NaN");
  });
  test("four significant digits, exponents only where zeros would be counted", () => {
    expect(short(0.03125)).toBe("0.03125");
    expect(short(1.23456789)).toBe("1.235");
    expect(short(-12.5)).toBe("−12.5");
    expect(short(0.000123456)).toBe("1.23e−4");
    expect(short(1234567)).toBe("1.23e6");
    expect(short(31_234, 3)).toBe("31200");
    expect(short(1e-45)).toBe("1e−45");
  });
  test("the API's words become numbers to calculate with", () => {
    expect(numeric("NaN")).toBeNaN();
    expect(numeric("-Infinity")).toBe(-Infinity);
    expect(numeric(null)).toBeNull();
  });
});

describe("amounts", () => {
  test("bytes go in powers of 1000 and never show 1000 of a unit", () => {
    expect(bytes(0)).toBe("0 B");
    expect(bytes(999)).toBe("999 B");
    expect(bytes(999_950)).toBe("1.0 MB");
    expect(bytes(4_700_000_000)).toBe("4.7 GB");
  });
  test("counts have thin spaces and the right plural", () => {
    expect(count(1234567)).toBe("1\u202f234\u202f567");
    expect(counted(1, "pair")).toBe("1 pair");
    expect(counted(0, "pair")).toBe("0 pairs");
  });
  test("durations and ages are rounded to what matters", () => {
    expect(seconds(0.2)).toBe("under a second");
    expect(seconds(59)).toBe("59 s");
    expect(seconds(3600 + 300)).toBe("1 h 5 min");
    expect(ago(0, 30_000)).toBe("just now");
    expect(ago(0, 25 * 3_600_000)).toBe("yesterday");
  });
  test("a share is never rounded to nothing or to everything", () => {
    expect(percent(1, 100_000)).toBe("< 0.1 %");
    expect(percent(99_999, 100_000)).toBe("> 99.9 %");
    expect(percent(0, 10)).toBe("0 %");
    expect(percent(10, 10)).toBe("100 %");
    expect(percent(1, 3)).toBe("33.3 %");
    expect(percent(0, 0)).toBe("–");
  });
});
