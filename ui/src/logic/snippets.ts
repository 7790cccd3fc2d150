// The same view in NumPy, PyTorch and on the command line, to take along. Pure: no DOM, no fetch.
import type { Slice } from "./slice.js";
import { numpySlice } from "./slice.js";

export interface Subject {
  /** Paths of the sources, and the names of the tensors in them; the candidate is missing when one tensor is looked at. */
  reference: { path: string; names: string[] };
  candidate?: { path: string; names: string[] };
  /** The shape of both once the layout is applied, and that layout in words. */
  shape: readonly number[];
  layout?: { text: string; steps: readonly LayoutStep[] } | null;
}

/** The report's steps: `{"step": "permute", "order": [0, 2, 1]}`. */
export interface LayoutStep {
  step: string;
  side?: string;
  axis?: number;
  count?: number;
  order?: unknown;
  sizes?: readonly number[];
  start?: number;
  len?: number;
}

/** A name as a Python string: whatever is in it stays data. */
export function python(text: string): string {
  return JSON.stringify(text).replace(/[\u007f-\uffff]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** A word for a POSIX shell. */
export function shell(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function loader(path: string, name: string, torch: boolean): string {
  const [file, key] = [python(path), python(name)];
  const end = /\.[^./]+$/.exec(path.toLowerCase())?.[0];
  const tensor = (value: string) => (torch ? `torch.from_numpy(${value})` : value);
  switch (end) {
    case ".npy":
      return tensor(`np.load(${file})`);
    case ".npz":
      return tensor(`np.load(${file})[${key}]`);
    case ".safetensors":
      return torch ? `safetensors.torch.load_file(${file})[${key}]` : `safetensors.numpy.load_file(${file})[${key}]`;
    case ".pt":
    case ".pth":
    case ".bin":
    case ".ckpt":
      return torch ? `torch.load(${file}, map_location="cpu", weights_only=True)[${key}]` : `torch.load(${file}, map_location="cpu", weights_only=True)[${key}].float().numpy()`;
    default:
      // Every other format by the program itself, which reads them all.
      return tensor(`np.array(json.loads(subprocess.check_output(["twinscope", "show", "--json", "--full", ${file}, ${key}]))["values"], dtype=float)`);
  }
}

function imports(body: string): string {
  const lines = ["import numpy as np"];
  if (body.includes("torch.load") || body.includes("torch.")) lines.push("import torch");
  if (body.includes("safetensors.torch")) lines.push("import safetensors.torch");
  if (body.includes("safetensors.numpy")) lines.push("import safetensors.numpy");
  if (body.includes("subprocess.")) lines.push("import json, subprocess");
  return lines.join("\n");
}

function program({ reference, candidate, shape, layout }: Subject, slice: Slice, torch: boolean): string {
  const at = numpySlice(slice, shape);
  const flat = slice.mode === "flat" && shape.length > 0 ? ".reshape(-1)" : "";
  const lines = [`reference = ${loader(reference.path, reference.names[0] ?? "", torch)}`];
  if (candidate) {
    lines.push(`candidate = ${loader(candidate.path, candidate.names[0] ?? "", torch)}`);
    if (layout && layout.steps.length > 0) lines.push(`# ${layout.text.replaceAll(/[\r\n]/g, " ")}`, ...layout.steps.map((step) => stepCode(step, torch)));
    lines.push(`r, c = reference${flat}${at}, candidate${flat}${at}`);
    if (torch) lines.push("print(r, c, (c.double() - r.double()).abs().max(), sep=\"\\n\")", "torch.testing.assert_close(c, r, check_dtype=False)");
    else lines.push("print(r, c, np.abs(c.astype(np.float64) - r.astype(np.float64)).max(), sep=\"\\n\")", "np.testing.assert_allclose(c, r, rtol=1e-5)");
  } else {
    lines.push(`print(reference${flat}${at})`);
  }
  const body = lines.join("\n");
  return `${imports(body)}\n\n${body}\n`;
}

/** One step of a layout as Python. Those that join several parts are left to the reader, and said to be. */
function stepCode({ step, side, axis = 0, count = 1, order, sizes = [], start = 0, len = 0 }: LayoutStep, torch: boolean): string {
  const it = side === "reference" ? "reference" : "candidate";
  const reshaped = (sizes: string, skipped: number) => `${it} = ${it}.reshape(*${it}.shape[:${axis}], ${sizes}, *${it}.shape[${axis + skipped}:])`;
  switch (step) {
    case "squeeze":
      return `${it} = ${it}.squeeze(${axis})`;
    case "unsqueeze":
      return torch ? `${it} = ${it}.unsqueeze(${axis})` : `${it} = np.expand_dims(${it}, ${axis})`;
    case "permute":
      return `${it} = ${it}.${torch ? "permute" : "transpose"}(${Array.isArray(order) ? order.join(", ") : ""})`;
    case "split":
      return reshaped(sizes.join(", "), 1);
    case "merge":
      return reshaped("-1", count);
    case "cut":
      return `${it} = ${it}[(slice(None),) * ${axis} + (slice(${start}, ${start + len}),)]`;
    case "flatten":
      return "reference, candidate = reference.reshape(-1), candidate.reshape(-1)";
    default:
      return `# to be done by hand: ${step} of the ${it}`;
  }
}

export function numpy(subject: Subject, slice: Slice): string {
  return program(subject, slice, false);
}

export function pytorch(subject: Subject, slice: Slice): string {
  return program(subject, slice, true);
}

/** `twinscope show SOURCE 'NAME[0, :4]'` of both sides, and `explain` of the pair. */
export function commandLine({ reference, candidate, shape }: Subject, slice: Slice): string {
  const at = slice.mode === "flat" || shape.length === 0 ? "" : numpySlice(slice, shape);
  const lines = [`twinscope show ${shell(reference.path)} ${shell((reference.names[0] ?? "") + at)}`];
  if (candidate) {
    lines.push(`twinscope show ${shell(candidate.path)} ${shell(candidate.names[0] ?? "")}`);
    lines.push(`twinscope explain ${shell(reference.path)} ${shell(candidate.path)} ${shell(reference.names[0] ?? "")}`);
  }
  return `${lines.join("\n")}\n`;
}
