import { expect, test } from "vitest";
import { compareNames, elide, fileOf, layerLabel, layerOf, areCounted, withoutCount, patternOf, sharedPrefix, visible } from "./names.js";

test("the shared prefix ends at a separator", () => {
  expect(sharedPrefix(["model.layers.1.q", "model.layers.12.q"])).toBe("model.layers.");
  expect(sharedPrefix(["a.x", "b.x"])).toBe("");
  expect(sharedPrefix(["alone"])).toBe("");
  expect(sharedPrefix(["model.", "model.a"])).toBe("");
});

test("a long name loses its prefix, then its middle, never its end", () => {
  expect(elide("model.layers.3.mlp.down_proj", 17, "model.layers.")).toBe("…3.mlp.down_proj");
  const cut = elide("model.layers.31.self_attention.output.dense.weight", 24);
  expect([...cut].length).toBe(24);
  expect(cut.endsWith("dense.weight")).toBe(true);
  expect(cut).toContain("…");
  expect(elide("short", 10)).toBe("short");
});

test("letters outside of the basic plane are not cut in half", () => {
  expect(elide("😀😀😀😀😀😀", 4)).toBe("…😀😀😀");
});

test("layers are found in dumps and in module paths", () => {
  expect(layerOf("0_query")).toBe("0");
  expect(layerOf("model.layers.12.mlp.up")).toBe("model.layers.12");
  expect(layerOf("transformer.h.3.attn")).toBe("transformer.h.3");
  expect(layerOf("blk.4.ffn_down.weight")).toBe("blk.4");
  expect(layerOf("lm_head.weight")).toBeNull();
  expect(layerOf("conv2d")).toBeNull();
  expect(layerLabel("3")).toBe("layer 3");
});

test("a number of their own counts tensors, one for several is their layer", () => {
  expect(areCounted(["000_embed", "001_layers.0.q", "002_layers.0.k"])).toBe(true);
  expect(areCounted(["rank0/1-a", "rank1/1-a", "rank0/2-b"])).toBe(true);
  expect(areCounted(["0_query", "0_key", "1_query"])).toBe(false);
  expect(areCounted(["0_query", "1_query"])).toBe(false);
  expect(areCounted(["embed", "1_a", "2_b"])).toBe(false);
  expect(withoutCount("001_layers.0.q")).toBe("layers.0.q");
  expect(withoutCount("rank0/12 - x")).toBe("rank0/x");
  expect(withoutCount("layers.0.q")).toBe("layers.0.q");
});

test("patterns replace every number", () => {
  expect(patternOf("model.layers.12.experts.3.w1")).toBe("model.layers.*.experts.*.w*");
});

test("the file part is what stands before the last separator", () => {
  expect(fileOf("run/step1/act")).toBe("run/step1");
  expect(fileOf("model.layers.weight")).toBe("model.layers");
  expect(fileOf("x")).toBe("x");
});

test("names sort as people count", () => {
  expect(["l10", "l2", "l1"].sort(compareNames)).toEqual(["l1", "l2", "l10"]);
});

test("letters that cannot be seen are told", () => {
  expect(visible("a\u202eb\n\u200b")).toBe("a\\u{202e}b\\u{a}\\u{200b}");
  expect(visible("日本語.重み 😀 é")).toBe("日本語.重み 😀 é");
});
