// Sources that tests need and no file of testdata is: written here, the same bytes every time.
import { truncateSync, writeFileSync } from "node:fs";

/** A safetensors file of f32 tensors: `{name: {shape, values}}`, and perhaps a hole at its end that reads as zeros. */
export function safetensors(path, tensors, hole = null) {
  const header = {};
  const parts = [];
  let at = 0;
  for (const [name, { shape, values }] of Object.entries(tensors)) {
    const bytes = Buffer.from(Float32Array.from(values).buffer);
    header[name] = { dtype: "F32", shape, data_offsets: [at, at + bytes.length] };
    at += bytes.length;
    parts.push(bytes);
  }
  if (hole) header[hole.name] = { dtype: "F32", shape: [hole.elements], data_offsets: [at, at + hole.elements * 4] };
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(path, Buffer.concat([length, text, ...parts]));
  if (hole) truncateSync(path, 8 + text.length + at + hole.elements * 4);
}

export function numbers(count, seed = 1) {
  let state = seed >>> 0;
  return Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  });
}

/** Ten thousand pairs, of which those from `from` on differ. */
export function many(reference, candidate, count = 10_000, from = 7000) {
  const [a, b] = [{}, {}];
  for (let nth = 0; nth < count; nth += 1) {
    const name = `model.layers.${Math.floor(nth / 20)}.block.part_${nth % 20}.weight`;
    const values = numbers(8, nth + 1);
    a[name] = { shape: [2, 4], values };
    b[name] = { shape: [2, 4], values: nth < from ? values : values.map((value, at) => (at === 3 ? value + 0.5 : value)) };
  }
  safetensors(reference, a);
  safetensors(candidate, b);
}

/** Some small tensors, and one of zeros after them that takes no room on disk but minutes to read on any machine: a comparison that goes on. */
export function endless(path, small = {}, elements = 2 ** 36) {
  safetensors(path, small, { name: "endless", elements });
}
