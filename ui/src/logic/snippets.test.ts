import { expect, test } from "vitest";
import { firstSlice, withMode } from "./slice.js";
import { commandLine, numpy, python, pytorch, shell } from "./snippets.js";

const SHAPE = [2, 30, 40];
const SUBJECT = {
  reference: { path: "/runs/a.safetensors", names: ["x.weight"] },
  candidate: { path: "/runs/b.pth", names: ["y"] },
  shape: SHAPE,
};

test("names and paths stay data in Python and in the shell", () => {
  expect(python(`a"b\\c\n`)).toBe(`"a\\"b\\\\c\\n"`);
  expect(python("é")).toBe(`"\\u00e9"`);
  expect(shell("a'b; rm -rf /")).toBe(`'a'\\''b; rm -rf /'`);
  expect(shell("/plain/path.npy")).toBe("/plain/path.npy");
});

test("NumPy loads both, slices both and asserts", () => {
  const text = numpy(SUBJECT, firstSlice(SHAPE));
  expect(text).toContain("safetensors.numpy.load_file(\"/runs/a.safetensors\")[\"x.weight\"]");
  expect(text).toContain("reference[0, 0:10, 0:10]");
  expect(text).toContain("assert_allclose");
  expect(text).toContain("import safetensors.numpy");
});

test("PyTorch loads pickles only as weights", () => {
  expect(pytorch(SUBJECT, firstSlice(SHAPE))).toContain("weights_only=True");
});

test("flattened views and formats that only we read", () => {
  const text = numpy({ ...SUBJECT, reference: { path: "m.gguf", names: ["t"] } }, withMode(firstSlice(SHAPE), "flat", SHAPE));
  expect(text).toContain("reference.reshape(-1)[0:10]");
  expect(text).toContain("twinscope");
});

test("the command line shows the same slice", () => {
  expect(commandLine(SUBJECT, firstSlice(SHAPE))).toContain("twinscope show /runs/a.safetensors 'x.weight[0, 0:10, 0:10]'");
  expect(commandLine({ reference: SUBJECT.reference, shape: SHAPE }, firstSlice(SHAPE)).split("\n")).toHaveLength(2);
});

test("a layout becomes the calls that make it", () => {
  const steps = [{ step: "squeeze", axis: 0 }, { step: "permute", order: [1, 0, 2] }, { step: "split", axis: 1, sizes: [8, 64] }, { step: "merge", axis: 0, count: 2 }];
  const layout = { text: "[1, 8, 76, 64] -> ...", steps };
  expect(numpy({ ...SUBJECT, layout }, firstSlice(SHAPE))).toContain("candidate = candidate.squeeze(0)\ncandidate = candidate.transpose(1, 0, 2)\ncandidate = candidate.reshape(*candidate.shape[:1], 8, 64, *candidate.shape[2:])\ncandidate = candidate.reshape(*candidate.shape[:0], -1, *candidate.shape[2:])");
  expect(pytorch({ ...SUBJECT, layout }, firstSlice(SHAPE))).toContain("candidate.permute(1, 0, 2)");
  expect(numpy({ ...SUBJECT, layout: { text: "x", steps: [{ step: "sum", side: "candidate" }] } }, firstSlice(SHAPE))).toContain("# to be done by hand: sum");
});
