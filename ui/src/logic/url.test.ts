import { describe, expect, test } from "vitest";
import { firstSlice, fitted, withMode } from "./slice.js";
import { format, parse, readIndex, readSlice, writeSlice } from "./url.js";

describe("routes", () => {
  test("every screen survives being written and read", () => {
    for (const hash of ["#/", "#/s/ab12", "#/s/ab12/map", "#/s/ab12/explore", "#/s/ab12/pair/4?d=0,r,c&cell=0,1,2", "#/s/ab12/tensor/a%2Fb%20c"]) {
      expect(format(parse(hash))).toBe(hash);
    }
  });
  test("hostile names are data", () => {
    const tensor = "../<img src=x onerror=alert(1)>?#&/%";
    expect(parse(format({ screen: "tensor", session: "s", tensor, query: new URLSearchParams() }))).toMatchObject({ tensor });
  });
  test("what is no route is the first screen", () => {
    for (const hash of ["", "#", "#/nonsense", "#/s", "#/s//"]) expect(parse(hash).screen).toBe("open");
    expect(parse("#/s/%E0%A4%A")).toMatchObject({ screen: "overview" });
  });
});

describe("slices in the address", () => {
  test("2-D, 1-D and flattened slices come back", () => {
    const shape = [2, 3, 40, 50];
    const slices = [
      fitted({ ...firstSlice(shape), at: [1, 2, 0, 0], row: 5, col: 7 }, shape),
      withMode(firstSlice(shape), "1d", shape),
      withMode(firstSlice(shape), "flat", shape),
    ];
    for (const slice of slices) {
      const query = new URLSearchParams();
      writeSlice(query, slice);
      const read = readSlice(query);
      expect(read && fitted(read, shape)).toEqual(slice.mode === "flat" ? { ...slice, at: [0, 0, 0, 0] } : slice);
    }
  });
  test("damaged addresses give something that can be fitted", () => {
    for (const text of ["d=", "d=x,y", "d=r,r&c=abc", "d=0,r,c&r=-5.999999"]) {
      const slice = readSlice(new URLSearchParams(text));
      expect(slice && fitted(slice, [4, 5, 6])).toBeTruthy();
    }
    expect(readSlice(new URLSearchParams(""))).toBeNull();
  });
  test("cells", () => {
    expect(readIndex(new URLSearchParams("cell=0,17"))).toEqual([0, 17]);
    expect(readIndex(new URLSearchParams("cell="))).toEqual([]);
    expect(readIndex(new URLSearchParams("cell=a"))).toBeNull();
    expect(readIndex(new URLSearchParams(""))).toBeNull();
  });
});
