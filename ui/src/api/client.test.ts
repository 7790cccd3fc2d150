// The page's document is not there: only what is pure is tested here.
import { beforeAll, expect, test, vi } from "vitest";
import { firstSlice, withMode } from "../logic/slice.js";

let client: typeof import("./client.js");
beforeAll(async () => {
  vi.stubGlobal("document", { getElementById: () => null });
  client = await import("./client.js");
});

test("what is typed into the search is a value, a range or an explanation", () => {
  expect(client.parseWanted("0.5", "reference")).toMatchObject({ what: "value", value: "0.5", on: "reference" });
  expect(client.parseWanted("−3", "reference")).toMatchObject({ what: "value", value: "-3" });
  expect(client.parseWanted("0.5..2", "difference")).toMatchObject({ what: "range", low: 0.5, high: 2 });
  expect(client.parseWanted("-1 to 1", "difference")).toMatchObject({ what: "range", low: -1, high: 1 });
  expect(client.parseWanted("> 1e-3", "difference")).toMatchObject({ what: "range", low: 1e-3 });
  expect(client.parseWanted("nan", "candidate")).toMatchObject({ what: "nan" });
  for (const bad of ["", "abc", "2..1", "> x"]) expect(typeof client.parseWanted(bad, "reference"), bad).toBe("string");
});

test("a slice becomes the query of a request", () => {
  const shape = [2, 3, 40, 50];
  const look = { original: false, cause: null, other: null };
  const query = client.lookQuery({ ...firstSlice(shape), at: [1, 2, 0, 0], row: 5 }, look);
  expect(Object.fromEntries(query)).toEqual({ rows: "2", cols: "3", at: "1,2,0,0", r0: "5", r1: "15", c0: "0", c1: "10" });
  const flat = client.lookQuery(withMode(firstSlice(shape), "flat", shape), { ...look, cause: 1 });
  expect(Object.fromEntries(flat)).toEqual({ flat: "1", c0: "0", c1: "10", cause: "1" });
});
