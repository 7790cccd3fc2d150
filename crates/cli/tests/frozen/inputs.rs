//! The comparisons of the groups that no `expected.json` lists: demo faults, generated layouts and shards, files of the format corpus.

use crate::{
    Case,
    common::{Folder, safetensors},
    testdata,
};
use serde_json::{Value, json};
use std::{path::Path, process::Command};

/// Every fault of the demo once, in turn in each model it exists in; every fifth with weights.
///
/// The model's `exp` and `cos` are the C library's. Another version may change a last digit of a run, and with it the size of differences that are
/// only rounding.
pub(crate) fn demo_faults(dir: &Path) -> Vec<Case> {
    let list: Value = serde_json::from_slice(&demo(dir, &["--list", "--json"]).expect("the list"))
        .expect("a JSON document");
    let faults = list["faults"].as_array().expect("the faults");
    assert!(faults.len() > 100, "the demo has its faults");
    let mut cases = Vec::new();
    for (at, fault) in faults.iter().enumerate() {
        let name = fault["name"].as_str().expect("a name");
        let models = fault["models"].as_array().expect("models");
        let model = models[at % models.len()].as_str().expect("a model");
        let sizes = "--layers 2 --seq 10 --hidden 32 --head-dim 8 --inner 56 --vocab 61";
        let mut args = vec!["--fault", name, "--model", model, "--out", name];
        args.extend(sizes.split(' '));
        let full = [&args[..], &["--record", "full"]].concat();
        // Some faults are in the weights alone: they refuse to be written without them.
        let written = (at % 5 > 0).then(|| demo(dir, &args)).flatten();
        written.or_else(|| demo(dir, &full)).expect("a demo run");
        let path = |side: &str| format!("{name}/{side}");
        cases.push(Case::new(name, path("reference"), path("candidate")));
    }
    cases
}

fn demo(dir: &Path, args: &[&str]) -> Option<Vec<u8>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinscope"));
    command.current_dir(dir).arg("demo").args(args);
    let output = command.output().expect("the binary runs");
    output.status.success().then_some(output.stdout)
}

/// Files of the corpus that hold the same model, or the same kind of model, in two formats, and the folders of shards in `testdata`.
pub(crate) fn corpus() -> Vec<Case> {
    let pairs = [
        ("corpus/npz/stored.npz", "corpus/npz/compressed.npz"),
        ("corpus/npz/positional.npz", "corpus/npz/stored.npz"),
        ("corpus/pt/state_dict.pt", "corpus/pt_legacy/state_dict.pt"),
        (
            "corpus/pt/state_dict.pt",
            "corpus/pt_sharded/pytorch_model.bin.index.json",
        ),
        ("corpus/pt/state_dict.pt", "corpus/pt/parameters.pt"),
        (
            "corpus/pt/state_dict.pt",
            "corpus/safetensors/sharded/model.safetensors.index.json",
        ),
        ("corpus/pt/checkpoint.pt", "corpus/pt_legacy/checkpoint.pt"),
        ("corpus/pt/checkpoint.pt", "corpus/pt/state_dict.pt"),
        ("corpus/pt/proto3.pt", "corpus/pt/proto4.pt"),
        ("corpus/pt/proto4.pt", "corpus/pt/proto5.pt"),
        ("corpus/pt/views.pt", "corpus/pt/storages.pt"),
        ("corpus/pt/shared_storage.pt", "corpus/pt/views.pt"),
        ("corpus/pt/sparse.pt", "corpus/pt/sparse.pt"),
        ("corpus/pt/conj.pt", "corpus/pt/neg.pt"),
        ("corpus/pt/big_endian.pt", "corpus/pt/no_byteorder.pt"),
        ("corpus/pt/nested_jagged.pt", "corpus/pt/nested_strided.pt"),
        ("corpus/pt/quantized_4bit.pt", "corpus/pt/state_dict.pt"),
        ("corpus/pt/dtype/float32.pt", "corpus/pt/dtype/float64.pt"),
        ("corpus/pt/dtype/float32.pt", "corpus/pt/dtype/bfloat16.pt"),
        (
            "corpus/pt/dtype/float8_e4m3fn.pt",
            "corpus/pt/dtype/float8_e5m2.pt",
        ),
        (
            "corpus/pt/dtype/float8_e4m3fn.pt",
            "corpus/pt/dtype/float8_e4m3fnuz.pt",
        ),
        ("corpus/pt/dtype/int8.pt", "corpus/pt/dtype/uint8.pt"),
        (
            "corpus/pt/dtype/complex64.pt",
            "corpus/pt/dtype/complex32.pt",
        ),
        ("corpus/pt/dtype/bits8.pt", "corpus/pt/dtype/uint8.pt"),
        ("corpus/gguf/v2.gguf", "corpus/gguf/align8.gguf"),
        ("corpus/gguf/quant_all.gguf", "corpus/gguf/type/q8_0.gguf"),
        ("corpus/gguf/type/q8_0.gguf", "corpus/gguf/type/q5_0.gguf"),
        ("corpus/gguf/type/q6_k.gguf", "corpus/gguf/type/q2_k.gguf"),
        (
            "corpus/gguf/type/iq2_xs.gguf",
            "corpus/gguf/type/iq2_s.gguf",
        ),
        ("corpus/gguf/type/mxfp4.gguf", "corpus/gguf/type/nvfp4.gguf"),
        ("corpus/dcp/single", "corpus/dcp/sharded2"),
        ("corpus/dcp/single", "corpus/dcp/misaligned"),
        ("corpus/dcp/hf", "corpus/dcp/single"),
        (
            "corpus/torchscript/traced.pt",
            "corpus/torchscript/scripted.pt",
        ),
        (
            "corpus/torchscript/scripted.pt",
            "corpus/torchscript/lite.ptl",
        ),
        (
            "corpus/torchscript/exported.pt2",
            "corpus/torchscript/traced.pt",
        ),
        ("corpus/onnx/raw_data.onnx", "corpus/onnx/typed_data.onnx"),
        ("corpus/onnx/raw_data.onnx", "corpus/onnx/external.onnx"),
        ("corpus/onnx/int4.onnx", "corpus/onnx/misc.onnx"),
        (
            "corpus/msgpack/flax_model.msgpack",
            "corpus/msgpack/flax_chunked.msgpack",
        ),
        ("corpus/hdf5/model.weights.h5", "corpus/hdf5/model.keras"),
        ("corpus/hdf5/latest.h5", "corpus/hdf5/model.weights.h5"),
        (
            "corpus/safetensors/dtypes_all.safetensors",
            "corpus/safetensors/odd_sizes.safetensors",
        ),
        (
            "corpus/safetensors/reordered_keys.safetensors",
            "corpus/safetensors/whitespace.safetensors",
        ),
        (
            "corpus/safetensors/subbyte.safetensors",
            "corpus/safetensors/subbyte.safetensors",
        ),
        ("corpus/pkl/plain_proto2.pkl", "corpus/pkl/plain_proto5.pkl"),
        ("corpus/npy/dtype_f4.npy", "corpus/npy/dtype_f8.npy"),
        ("corpus/npy/dtype_f4.npy", "corpus/npy/dtype_f2.npy"),
        ("corpus/npy/dtype_f2.npy", "corpus/npy/mldtype_bfloat16.npy"),
        ("corpus/npy/dtype_f8.npy", "corpus/npy/be_f8.npy"),
        ("corpus/npy/dtype_i4.npy", "corpus/npy/dtype_i8.npy"),
        ("corpus/npy/dtype_c8.npy", "corpus/npy/dtype_c16.npy"),
        ("corpus/npy/empty.npy", "corpus/npy/empty.npy"),
        (
            "corpus/frameworks/deepspeed_zero2",
            "corpus/frameworks/deepspeed_zero3",
        ),
        (
            "corpus/frameworks/megatron",
            "corpus/frameworks/megatron_dist",
        ),
        ("corpus/frameworks/hf_debug", "corpus/frameworks/sglang"),
        (
            "corpus/hostile/trunc/st_00064.safetensors",
            "corpus/pt/state_dict.pt",
        ),
        ("folder/ranks/input", "folder/ranks/input/rank0"),
        ("folder/ranks/input/rank0", "folder/ranks/input/rank1"),
        (
            "folder/megatron/input",
            "folder/megatron/input/iter_0000100/mp_rank_00/model_optim_rng.pt",
        ),
        (
            "folder/sharded_in_folder/input",
            "folder/sharded_index/input.safetensors.index.json",
        ),
        ("folder/hf_debug/input", "folder/hf_debug_real/input"),
        ("folder/mixed/input", "folder/mixed/input/m.safetensors"),
        ("folder/sglang/input", "folder/sglang_hooks/input"),
        (
            "run/two_ranks/input",
            "run/two_ranks/input/rank-00000/seg-00000.safetensors",
        ),
        (
            "run/python_ranks/input",
            "run/python_ranks/input/rank-00001/seg-00000.safetensors",
        ),
        ("run/closed/input", "run/killed/input"),
        ("run/python_torch/input", "run/python_killed/input"),
        ("torch/views/input.pt", "torch/tied/input.pt"),
        ("torch/zip/input.pt", "torch/legacy/input.pt"),
        ("torch/zero_2/input", "torch/zero_3/input"),
        (
            "torch/dtypes/input.pt",
            "safetensors/dtypes/input.safetensors",
        ),
    ];
    let alone = [
        "corpus/safetensors/dtypes_all.safetensors",
        "corpus/gguf/quant_all.gguf",
        "corpus/pt/state_dict.pt",
        "corpus/pt/views.pt",
        "folder/ranks/input",
        "torch/dtypes/input.pt",
    ];
    let there = |path: &str| assert!(testdata().join(path).exists(), "{path} is committed");
    let mut cases = Vec::new();
    for (reference, candidate) in pairs {
        there(reference);
        there(candidate);
        let name = format!("{reference}:{candidate}");
        cases.push(Case::new(name, reference, candidate));
    }
    for source in alone {
        there(source);
        cases.push(Case::alone(source, source));
    }
    cases
}

/// A tensor to be written: values in row-major order.
#[derive(Clone, Debug)]
struct Tensor {
    shape: Vec<u64>,
    values: Vec<f32>,
}

/// Numbers without a pattern, always the same: between -1 and 1.
fn tensor(seed: u64, shape: &[u64]) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    // The first numbers of small seeds are alike.
    for _ in 0..8 {
        next();
    }
    let count = shape.iter().product::<u64>();
    Tensor {
        shape: shape.to_vec(),
        values: (0..count).map(|_| next()).collect(),
    }
}

impl Tensor {
    fn reshaped(&self, shape: &[u64]) -> Self {
        let shape = shape.to_vec();
        assert_eq!(shape.iter().product::<u64>(), self.values.len() as u64);
        let values = self.values.clone();
        Self { shape, values }
    }

    /// Axis `i` of the result is axis `axes[i]`, as in NumPy.
    fn permuted(&self, axes: &[usize]) -> Self {
        let shape: Vec<u64> = axes.iter().map(|axis| self.shape[*axis]).collect();
        let stride = |axis: usize| self.shape[axis + 1..].iter().product::<u64>();
        let values = (0..self.values.len() as u64)
            .map(|at| {
                let (mut rest, mut from) = (at, 0);
                for (axis, dim) in axes.iter().zip(&shape).rev() {
                    from += rest % dim * stride(*axis);
                    rest /= dim;
                }
                self.values[from as usize]
            })
            .collect();
        Self { shape, values }
    }

    /// Rows `from..to` of the first axis.
    fn rows(&self, from: u64, to: u64) -> Self {
        let row = self.values.len() / self.shape[0] as usize;
        let mut shape = self.shape.clone();
        shape[0] = to - from;
        let values = self.values[from as usize * row..to as usize * row].to_vec();
        Self { shape, values }
    }

    /// Along the first axis.
    fn stacked(parts: &[&Self]) -> Self {
        let mut shape = parts[0].shape.clone();
        shape[0] = parts.iter().map(|part| part.shape[0]).sum();
        let values = parts.iter().flat_map(|part| part.values.clone()).collect();
        Self { shape, values }
    }

    fn columns(&self, from: u64, to: u64) -> Self {
        self.permuted(&[1, 0]).rows(from, to).permuted(&[1, 0])
    }

    fn map(&self, mut of: impl FnMut(usize, f32) -> f32) -> Self {
        let values = self.values.iter().enumerate();
        Self {
            shape: self.shape.clone(),
            values: values.map(|(at, x)| of(at, *x)).collect(),
        }
    }

    /// Each value with its own relative error of at most `size`.
    fn noisy(&self, seed: u64, size: f32) -> Self {
        let noise = tensor(seed, &self.shape).values;
        self.map(|at, x| x * (1.0 + size * noise[at]))
    }

    fn bytes(&self, dtype: &str) -> Vec<u8> {
        let each = |of: fn(f32) -> Vec<u8>| self.values.iter().flat_map(|x| of(*x)).collect();
        match dtype {
            "F64" => each(|x| f64::from(x).to_le_bytes().to_vec()),
            "F32" => each(|x| x.to_le_bytes().to_vec()),
            "BF16" => each(|x| rounded_bf16(x).to_vec()),
            "F16" => each(|x| f16(x).to_le_bytes().to_vec()),
            "I64" => each(|x| ((x * 1000.0) as i64).to_le_bytes().to_vec()),
            "BOOL" => each(|x| vec![u8::from(x > 0.0)]),
            other => panic!("{other} is not written here"),
        }
    }
}

/// To nearest, ties to even; a NaN stays one.
fn rounded_bf16(x: f32) -> [u8; 2] {
    if x.is_nan() {
        return [0xc0, 0x7f];
    }
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    ((rounded >> 16) as u16).to_le_bytes()
}

/// Of normal numbers of f16 and zero; the bits that do not fit are cut off.
fn f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
    if exponent <= 0 {
        return sign;
    }
    assert!(exponent < 31, "{x} is finite in f16");
    sign | (exponent as u16) << 10 | (bits >> 13 & 0x3ff) as u16
}

/// Writes a safetensors file of tensors, each with the dtype it is stored in.
fn save(folder: &Folder, path: &str, tensors: &[(&str, &str, &Tensor)]) {
    let tensors: Vec<_> = tensors
        .iter()
        .map(|(name, dtype, tensor)| (*name, *dtype, &tensor.shape[..], tensor.bytes(dtype)))
        .collect();
    folder.write(path, &safetensors(&tensors));
}

/// The generated inputs that are being collected.
struct Inputs<'a> {
    folder: &'a Folder,
    cases: Vec<Case>,
}

impl Inputs<'_> {
    /// A case of two files, which are named after it.
    fn add(
        &mut self,
        name: &str,
        reference: &[(&str, &str, &Tensor)],
        candidate: &[(&str, &str, &Tensor)],
    ) -> Case {
        let paths = ["reference", "candidate"].map(|side| format!("{name}/{side}.safetensors"));
        save(self.folder, &paths[0], reference);
        save(self.folder, &paths[1], candidate);
        let [reference, candidate] = paths;
        let case = Case::new(name, reference, candidate);
        self.cases.push(case.clone());
        case
    }

    /// The same files again, with other settings or flags.
    fn again(&mut self, name: &str, case: Case) {
        let name = name.to_owned();
        self.cases.push(Case { name, ..case });
    }
}

pub(crate) fn layouts(folder: &Folder) -> Vec<Case> {
    let mut inputs = Inputs {
        folder,
        cases: Vec::new(),
    };
    transposes(&mut inputs);
    heads(&mut inputs);
    fused(&mut inputs);
    shards(&mut inputs);
    dtypes(&mut inputs);
    large(&mut inputs);
    odd_values(&mut inputs);
    names(&mut inputs);
    settings(&mut inputs);
    inputs.cases
}

fn transposes(inputs: &mut Inputs<'_>) {
    let (wide, square, bias) = (tensor(1, &[48, 32]), tensor(2, &[32, 32]), tensor(3, &[48]));
    let transposed = [&wide, &square].map(|x| x.permuted(&[1, 0]));
    let reference = [
        ("fc.weight", "F32", &wide),
        ("proj.weight", "F32", &square),
        ("fc.bias", "F32", &bias),
    ];
    inputs.add(
        "transposed",
        &reference,
        &[
            ("fc.weight", "F32", &transposed[0]),
            ("proj.weight", "F32", &transposed[1]),
            ("fc.bias", "F32", &bias),
        ],
    );
    let noisy = [transposed[0].noisy(4, 1e-6), transposed[1].noisy(5, 1e-2)];
    inputs.add(
        "transposed_with_errors",
        &reference,
        &[
            ("fc.weight", "F32", &noisy[0]),
            ("proj.weight", "F32", &noisy[1]),
            ("fc.bias", "F32", &bias.map(|_, x| 2.0 * x)),
        ],
    );
    let cube = tensor(6, &[6, 10, 14]);
    let orders: [(&str, [usize; 3]); 5] = [
        ("021", [0, 2, 1]),
        ("102", [1, 0, 2]),
        ("120", [1, 2, 0]),
        ("201", [2, 0, 1]),
        ("210", [2, 1, 0]),
    ];
    let permuted: Vec<(&str, Tensor)> = orders
        .iter()
        .map(|(name, axes)| (*name, cube.permuted(axes)))
        .collect();
    let left: Vec<_> = permuted
        .iter()
        .map(|(name, _)| (*name, "F32", &cube))
        .collect();
    let right: Vec<_> = permuted.iter().map(|(name, x)| (*name, "F32", x)).collect();
    inputs.add("permuted", &left, &right);
    let equal = tensor(7, &[8, 8, 8]);
    let transposed = equal.permuted(&[2, 0, 1]);
    inputs.add(
        "permuted_cube",
        &[("act", "F32", &equal)],
        &[("act", "F32", &transposed)],
    );
}

fn heads(inputs: &mut Inputs<'_>) {
    // Batch, head, token, channel.
    let (q, k) = (tensor(11, &[2, 4, 12, 8]), tensor(12, &[2, 2, 12, 8]));
    let by_token = q.permuted(&[0, 2, 1, 3]);
    let hidden = tensor(13, &[1, 12, 32]);
    inputs.add(
        "heads",
        &[
            ("0_query", "F32", &q),
            ("0_key", "F32", &q),
            ("1_query", "F32", &q),
            ("0_hidden", "F32", &hidden),
            ("1_hidden", "F32", &hidden),
        ],
        &[
            ("0_query", "F32", &by_token),
            ("0_key", "F32", &by_token.reshaped(&[2, 12, 32])),
            ("1_query", "F32", &by_token.reshaped(&[24, 32])),
            ("0_hidden", "F32", &hidden.reshaped(&[12, 32])),
            ("1_hidden", "F32", &hidden.permuted(&[1, 0, 2])),
        ],
    );
    // Each kv head for two query heads, as grouped attention repeats them.
    let repeated = k.reshaped(&[4, 96]);
    let rows: Vec<Tensor> = (0..4).map(|row| repeated.rows(row, row + 1)).collect();
    let twice: Vec<&Tensor> = rows.iter().flat_map(|row| [row, row]).collect();
    let repeated = Tensor::stacked(&twice).reshaped(&[2, 4, 12, 8]);
    inputs.add(
        "kv_repeated",
        &[("0_key", "F32", &k)],
        &[("0_key", "F32", &repeated)],
    );
    let (logits, last) = (tensor(14, &[12, 61]), tensor(14, &[12, 61]).rows(11, 12));
    let padded = Tensor::stacked(&[
        &tensor(15, &[61, 32]),
        &tensor(16, &[3, 32]).map(|_, _| 0.0),
    ]);
    inputs.add(
        "part_of_an_axis",
        &[
            ("logits", "F32", &logits),
            ("embed.weight", "F32", &tensor(15, &[61, 32])),
        ],
        &[("logits", "F32", &last), ("embed.weight", "F32", &padded)],
    );
    // Channels i and i + 4 next to each other: rope's two conventions.
    let halves = q
        .reshaped(&[2, 4, 12, 2, 4])
        .permuted(&[0, 1, 2, 4, 3])
        .reshaped(&[2, 4, 12, 8]);
    let reversed = q.map(|at, _| q.values[at / 384 * 384 + 383 - at % 384]);
    inputs.add(
        "heads_reordered",
        &[("0_query", "F32", &q), ("1_query", "F32", &q)],
        &[("0_query", "F32", &halves), ("1_query", "F32", &reversed)],
    );
}

fn fused(inputs: &mut Inputs<'_>) {
    let (q, k, v) = (
        tensor(21, &[32, 32]),
        tensor(22, &[16, 32]),
        tensor(23, &[16, 32]),
    );
    let parts = [
        ("layers.0.attn.q_proj.weight", "F32", &q),
        ("layers.0.attn.k_proj.weight", "F32", &k),
        ("layers.0.attn.v_proj.weight", "F32", &v),
    ];
    let stacked = Tensor::stacked(&[&q, &k, &v]);
    let name = "layers.0.attn.qkv_proj.weight";
    inputs.add("qkv_fused", &parts, &[(name, "F32", &stacked)]);
    inputs.add("qkv_split", &[(name, "F32", &stacked)], &parts);
    inputs.add(
        "qkv_fused_transposed",
        &parts,
        &[(name, "F32", &stacked.permuted(&[1, 0]))],
    );
    let swapped = Tensor::stacked(&[&q, &v, &k]);
    inputs.add("qkv_fused_kv_swapped", &parts, &[(name, "F32", &swapped)]);
    // Megatron: two groups, each with its two query heads, its key and its value head of 8 channels.
    let group = |nth: u64| {
        [
            q.rows(16 * nth, 16 * nth + 16),
            k.rows(8 * nth, 8 * nth + 8),
            v.rows(8 * nth, 8 * nth + 8),
        ]
    };
    let groups = [group(0), group(1)].concat();
    let interleaved = Tensor::stacked(&groups.iter().collect::<Vec<_>>());
    inputs.add("qkv_interleaved", &parts, &[(name, "F32", &interleaved)]);
    let noisy = stacked.map(|at, x| if at / 32 == 40 { 1.5 * x } else { x });
    inputs.add("qkv_fused_with_an_error", &parts, &[(name, "F32", &noisy)]);
    let (gate, up) = (tensor(24, &[56, 32]), tensor(25, &[56, 32]));
    let parts = [
        ("layers.0.mlp.gate_proj.weight", "F32", &gate),
        ("layers.0.mlp.up_proj.weight", "F32", &up),
    ];
    let name = "layers.0.mlp.gate_up_proj.weight";
    inputs.add(
        "gate_up_fused",
        &parts,
        &[(name, "F32", &Tensor::stacked(&[&gate, &up]))],
    );
    inputs.add(
        "gate_up_swapped",
        &parts,
        &[(name, "F32", &Tensor::stacked(&[&up, &gate]))],
    );
    let rows: Vec<Tensor> = (0..56)
        .flat_map(|row| [gate.rows(row, row + 1), up.rows(row, row + 1)])
        .collect();
    let woven = Tensor::stacked(&rows.iter().collect::<Vec<_>>());
    inputs.add("gate_up_interleaved", &parts, &[(name, "F32", &woven)]);
}

fn shards(inputs: &mut Inputs<'_>) {
    let (column, row, norm) = (
        tensor(31, &[64, 32]),
        tensor(32, &[32, 64]),
        tensor(33, &[32]),
    );
    let (hidden, partial) = (tensor(34, &[12, 32]), tensor(35, &[12, 32]));
    let whole: [(&str, &str, &Tensor); 4] = [
        ("layers.0.fc1.weight", "F32", &column),
        ("layers.0.fc2.weight", "F32", &row),
        ("layers.0.norm.weight", "F32", &norm),
        ("layers.0.mlp_out", "F32", &hidden),
    ];
    save(inputs.folder, "ranks/whole.safetensors", &whole);
    for ranks in [2, 4] {
        for (kind, error) in [("", 0.0f32), ("_with_an_error", 0.1)] {
            let name = format!("ranks_{ranks}{kind}");
            for rank in 0..ranks {
                let size = 64 / ranks;
                let cut = |x: &Tensor, by_row: bool| {
                    let (from, to) = (rank * size, rank * size + size);
                    if by_row {
                        x.rows(from, to)
                    } else {
                        x.columns(from, to)
                    }
                };
                let wrong = if rank == 1 { 1.0 + error } else { 1.0 };
                // Partial sums of the ranks: all but the last share the noise that the last one takes back.
                let share = if rank + 1 < ranks {
                    partial.clone()
                } else {
                    hidden.map(|at, x| x - (ranks - 1) as f32 * partial.values[at])
                };
                save(
                    inputs.folder,
                    &format!("{name}/rank{rank}/model.safetensors"),
                    &[
                        (
                            "layers.0.fc1.weight",
                            "F32",
                            &cut(&column, true).map(|_, x| wrong * x),
                        ),
                        ("layers.0.fc2.weight", "F32", &cut(&row, false)),
                        ("layers.0.norm.weight", "F32", &norm),
                        ("layers.0.mlp_out", "F32", &share),
                    ],
                );
            }
            let whole = "ranks/whole.safetensors";
            inputs.cases.push(Case::new(&name, whole, &name));
            inputs
                .cases
                .push(Case::new(format!("{name}_as_reference"), &name, whole));
        }
    }
    inputs
        .cases
        .push(Case::new("ranks_2_against_4", "ranks_2", "ranks_4"));
}

fn dtypes(inputs: &mut Inputs<'_>) {
    let (x, y) = (tensor(41, &[40, 48]), tensor(42, &[3, 700]));
    let shifted = y.map(|_, y| y + 0.01);
    for (reference, candidate) in [
        ("F32", "BF16"),
        ("BF16", "F32"),
        ("F32", "F16"),
        ("F64", "F32"),
        ("BF16", "F16"),
        ("F16", "F16"),
        ("BF16", "BF16"),
        ("I64", "F32"),
        ("BOOL", "BOOL"),
    ] {
        inputs.add(
            &format!("{reference}_{candidate}").to_lowercase(),
            &[("0_hidden", reference, &x), ("1_hidden", reference, &y)],
            &[
                ("0_hidden", candidate, &x),
                ("1_hidden", candidate, &shifted),
            ],
        );
    }
}

/// More elements than a block or a chunk of the kernels has, and lengths that fill neither.
fn large(inputs: &mut Inputs<'_>) {
    let (x, y) = (tensor(51, &[67, 1031]), tensor(52, &[5, 40_009]));
    for dtype in ["F64", "F32", "BF16", "F16"] {
        let close = x.noisy(53, 1e-4);
        let outlier = y
            .noisy(54, 1e-3)
            .map(|at, y| if at == 123_457 { -y } else { y });
        inputs.add(
            &format!("large_{}", dtype.to_lowercase()),
            &[
                ("0_act", dtype, &x),
                ("1_act", dtype, &y),
                ("2_act", dtype, &x),
                ("3_act", dtype, &y),
            ],
            &[
                ("0_act", dtype, &close),
                ("1_act", dtype, &outlier),
                ("2_act", dtype, &x),
                ("3_act", dtype, &y.map(|_, y| 1.1 * y + 0.1)),
            ],
        );
    }
    let bf16 = x.noisy(55, 1e-2);
    inputs.add(
        "large_f32_bf16",
        &[("0_act", "F32", &x)],
        &[("0_act", "BF16", &bf16)],
    );
    inputs.add(
        "large_transposed",
        &[("fc.weight", "F32", &x)],
        &[("fc.weight", "F32", &x.permuted(&[1, 0]))],
    );
    let scales = [1e-30f32, 1e30, 1e-40];
    let sizes = scales.map(|scale| {
        [
            x.map(|_, x| scale * x),
            x.noisy(56, 1e-3).map(|_, x| scale * x),
        ]
    });
    inputs.add(
        "large_scales",
        &[
            ("0_act", "F32", &sizes[0][0]),
            ("1_act", "F32", &sizes[1][0]),
            ("2_act", "F32", &sizes[2][0]),
        ],
        &[
            ("0_act", "F32", &sizes[0][1]),
            ("1_act", "F32", &sizes[1][1]),
            ("2_act", "F32", &sizes[2][1]),
        ],
    );
}

fn odd_values(inputs: &mut Inputs<'_>) {
    let x = tensor(61, &[30, 70]);
    let at = |bad: f32, place: usize| x.map(|at, x| if at == place { bad } else { x });
    let nan = at(f32::NAN, 777);
    let zeros = x.map(|_, _| 0.0);
    let signs = x.map(|at, _| [0.0, -0.0][at % 2]);
    let constant = x.map(|_, _| 0.25);
    let nan_row = x.map(|at, x| if at / 70 == 4 { f32::NAN } else { x });
    let right = [
        nan.clone(),
        nan.clone(),
        at(f32::INFINITY, 3),
        nan_row,
        signs,
        x.clone(),
        constant.map(|_, x| x + 1e-3),
    ];
    let left = [nan, x.clone(), x.clone(), x, zeros.clone(), zeros, constant];
    let names = [
        "same_nan",
        "new_nan",
        "new_inf",
        "nan_row",
        "signed_zeros",
        "zeros",
        "constant",
    ];
    fn listed<'a>(names: &[&'a str], of: &'a [Tensor]) -> Vec<(&'a str, &'a str, &'a Tensor)> {
        names
            .iter()
            .zip(of)
            .map(|(name, x)| (*name, "F32", x))
            .collect()
    }
    inputs.add(
        "odd_values",
        &listed(&names, &left),
        &listed(&names, &right),
    );
    let (empty, one) = (tensor(62, &[0, 4]), tensor(63, &[]));
    let (other, short) = (tensor(64, &[]), tensor(65, &[5, 4]));
    inputs.add(
        "odd_shapes",
        &[
            ("empty", "F32", &empty),
            ("one", "F32", &one),
            ("other", "F32", &one),
            ("never", "F32", &short),
            ("gone", "F32", &short),
        ],
        &[
            ("empty", "F32", &empty),
            ("one", "F32", &one),
            ("other", "F32", &other),
            ("never", "F32", &tensor(66, &[3, 7])),
            ("new", "F32", &tensor(67, &[9])),
        ],
    );
}

fn names(inputs: &mut Inputs<'_>) {
    let all: Vec<Tensor> = (0..8).map(|nth| tensor(71 + nth, &[16, 16])).collect();
    let of = |template: &[&str], first: usize| -> Vec<String> {
        let layers = [0, 1].iter().flat_map(|layer| {
            let layer = (layer + first).to_string();
            template.iter().map(move |name| name.replace('L', &layer))
        });
        layers.collect()
    };
    let hf = of(
        &[
            "model.layers.L.self_attn.q_proj.weight",
            "model.layers.L.self_attn.o_proj.weight",
            "model.layers.L.mlp.up_proj.weight",
            "model.layers.L.mlp.down_proj.weight",
        ],
        0,
    );
    let gguf = of(
        &[
            "blk.L.attn_q.weight",
            "blk.L.attn_output.weight",
            "blk.L.ffn_up.weight",
            "blk.L.ffn_down.weight",
        ],
        0,
    );
    let later = of(
        &[
            "model.layers.L.self_attn.q_proj.weight",
            "model.layers.L.self_attn.o_proj.weight",
            "model.layers.L.mlp.up_proj.weight",
            "model.layers.L.mlp.down_proj.weight",
        ],
        1,
    );
    let typos = of(
        &[
            "model.layers.L.self_atn.q_proj.weight",
            "model.layers.L.self_attn.o_proj.wieght",
            "model.layers.L.mlp.uproj.weight",
            "model.layers.L.mlp.down_proj.weight",
        ],
        0,
    );
    let stages = of(&["L_query", "L_attn_out", "L_up", "L_post_mlp"], 0);
    let unrelated: Vec<String> = (0..8).map(|nth| format!("tensor_{}", 7 - nth)).collect();
    let changed: Vec<Tensor> = all
        .iter()
        .enumerate()
        .map(|(at, x)| {
            if at == 5 {
                x.map(|_, x| 0.5 * x)
            } else {
                x.clone()
            }
        })
        .collect();
    fn listed<'a>(names: &'a [String], of: &'a [Tensor]) -> Vec<(&'a str, &'a str, &'a Tensor)> {
        names
            .iter()
            .zip(of)
            .map(|(name, x)| (name.as_str(), "F32", x))
            .collect()
    }
    for (name, names) in [
        ("gguf", &gguf),
        ("layer_later", &later),
        ("typos", &typos),
        ("stages", &stages),
        ("unrelated", &unrelated),
    ] {
        inputs.add(
            &format!("names_{name}"),
            &listed(&hf, &all),
            &listed(names, &all),
        );
        inputs.add(
            &format!("names_{name}_with_an_error"),
            &listed(&hf, &all),
            &listed(names, &changed),
        );
    }
}

fn settings(inputs: &mut Inputs<'_>) {
    let (x, w) = (tensor(91, &[2, 6, 8]), tensor(92, &[16, 24]));
    let (small, repeat) = (x.noisy(93, 1e-3), x.noisy(94, 1e-3));
    let reference = [
        ("0_query", "F32", &x),
        ("1_query", "F32", &x),
        ("fc.weight", "F32", &w),
    ];
    let transposed = x.permuted(&[0, 2, 1]);
    let case = inputs.add(
        "settings",
        &reference,
        &[
            ("0_query", "F32", &small),
            ("1_query", "F32", &transposed),
            ("fc.weight", "F32", &w.noisy(95, 0.1)),
        ],
    );
    save(
        inputs.folder,
        "settings/repeat.safetensors",
        &[
            ("0_query", "F32", &repeat),
            ("1_query", "F32", &x),
            ("fc.weight", "F32", &w),
        ],
    );
    for (name, settings) in [
        ("rtol", json!({"rtol": 2e-3})),
        ("rtol_atol", json!({"rtol": 1e-4, "atol": 1e-4})),
        ("no_causes", json!({"causes": false})),
        ("only", json!({"only": ["*_query"]})),
        ("skip", json!({"skip": ["0_*"]})),
        (
            "layout",
            json!({"layouts": [{"name": "1_query", "steps": "permute(0,2,1)"}]}),
        ),
        (
            "wrong_layout",
            json!({"layouts": [{"name": "1_query", "steps": "permute(1,0,2)"}]}),
        ),
        (
            "map",
            json!({"map": [{"reference": "0_query", "candidate": "1_query"}]}),
        ),
        ("shape_only", json!({"rules": ["shape"]})),
        ("values_only", json!({"rules": ["values"]})),
        ("layer_offset", json!({"layer_offset": 1})),
        (
            "pattern",
            json!({"rules": ["pattern"], "patterns": [{"reference": "(?<layer>\\d+)_(?<op>\\w+)"}]}),
        ),
    ] {
        inputs.again(&format!("settings_{name}"), case.clone().with(settings));
    }
    inputs.again(
        "settings_noise",
        case.clone()
            .args(&["--noise", "settings/repeat.safetensors"]),
    );
    let alone = Case::alone("settings_alone", "settings/reference.safetensors");
    inputs.cases.push(alone.clone());
    inputs.again("settings_alone_exact", alone.args(&["--exact"]));
    inputs.again(
        "settings_allow_missing",
        case.args(&["--allow-missing", "--threads", "1"]),
    );
}
