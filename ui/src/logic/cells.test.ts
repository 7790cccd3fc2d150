import { expect, test } from "vitest";
import { cellText, differs, ulpText, valueOf, valueText, type Cell } from "./cells.js";

test("texts become numbers for their colour", () => {
  expect(valueOf("NaN")).toBeNaN();
  expect(valueOf("-inf")).toBe(-Infinity);
  expect(valueOf("Infinity")).toBe(Infinity);
  expect(valueOf("true")).toBe(1);
  expect(valueOf("-0.25")).toBe(-0.25);
  expect(valueOf("1.5-2j")).toBe(1.5);
  expect(valueOf("9007199254740993")).toBe(9007199254740992);
});

test("cells are short, whole numbers whole", () => {
  expect(cellText("-0.357421875")).toBe("−0.3574");
  expect(cellText("128")).toBe("128");
  expect(cellText("-9223372036854775808")).toBe("−9.22e18");
  expect(cellText("-9223372036854775807", 4, 20)).toBe("−9223372036854775807");
  expect(cellText("nan")).toBe("NaN");
  expect(cellText("(-0.19727996+1.4207999j)")).toBe("−0.197+1.42j");
  expect(cellText("(nan-infj)")).toBe("NaN−∞j");
  expect(cellText("-inf")).toBe("−∞");
  expect(cellText("True")).toBe("True");
});

test("NaN and infinities are spelled one way, words from files are left alone", () => {
  expect(["nan", "NaN", "inf", "-inf", "Infinity", "-Infinity"].map(valueText)).toEqual(["NaN", "NaN", "∞", "−∞", "∞", "−∞"]);
  expect(["(nan+infj)", "(1.5-infj)", "-infj", "(1.0, nan)"].map(valueText)).toEqual(["(NaN+∞j)", "(1.5−∞j)", "−∞j", "(1.0, NaN)"]);
  expect(["-0.357421875", "1e-05", "9007199254740993", "(1+2j)"].map(valueText)).toEqual(["-0.357421875", "1e-05", "9007199254740993", "(1+2j)"]);
  expect(["'nan'", "info", "banana", "True", "NaT"].map(valueText)).toEqual(["'nan'", "info", "banana", "True", "NaT"]);
});

test("units in the last place are exact or rounded in sight", () => {
  expect([0, 161, 9007199254740991, 9191605328316392448, null].map(ulpText)).toEqual(["0", "161", "9007199254740991", "9.19e18", "–"]);
});

test("a NaN against a number differs, against a NaN it does not", () => {
  const cell: Cell = { reference: "NaN", candidate: "1", difference: "NaN", relative: null, ulp: null, bits: [null, null] };
  expect(differs(cell)).toBe(true);
  expect(differs({ ...cell, candidate: "NaN", difference: 0 })).toBe(false);
  expect(differs({ ...cell, candidate: "NaN", difference: null })).toBe(false);
  expect(differs({ ...cell, candidate: null })).toBe(false);
});
