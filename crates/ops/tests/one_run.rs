//! A block of a network, learned from one run made of lists: nothing here knows of a second run.

use std::sync::Arc;
use twinscope_ops::{
    Change, Memo, Out, Picked, Recorded, Run, Tensor, Values, functions::silu, made_by, scattered,
};
use twinscope_tensor::{
    DType,
    formula::{Formula, Function, Norm, Pairing},
};

#[derive(Default)]
struct Lists {
    tensors: Vec<Tensor>,
    values: Vec<Vec<f64>>,
    memo: Memo,
    id: u64,
}

impl Lists {
    fn record(&mut self, name: &str, dims: &[usize], parameter: bool, values: &[f64]) {
        assert_eq!(values.len(), dims.iter().product::<usize>(), "{name}");
        self.tensors.push(Tensor {
            name: name.to_owned(),
            dims: dims.to_vec(),
            dtype: DType::F32,
            parameter,
            inputs: None,
        });
        let rounded = values.iter().map(|value| f64::from(*value as f32));
        self.values.push(rounded.collect());
    }

    fn at(&self, name: &str) -> usize {
        let is = |tensor: &Tensor| tensor.name == name;
        self.tensors.iter().position(is).unwrap()
    }
}

impl Run for Lists {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn load(&self, at: usize) -> Option<Values> {
        Some(Values::new(self.values[at].clone()))
    }

    fn recorded(&self, at: usize) -> Option<Recorded> {
        self.load(at).map(Recorded::Read)
    }

    fn runs(&self, at: usize, starts: &[usize], count: usize) -> Option<Vec<f64>> {
        let run = |start: &usize| &self.values[at][*start..][..count];
        Some(starts.iter().flat_map(run).copied().collect())
    }

    fn sketch(&self, at: usize) -> Option<Arc<[f64]>> {
        let values = &self.values[at];
        Some(scattered(values.len()).map(|place| values[place]).collect())
    }

    fn memo(&self) -> &Memo {
        &self.memo
    }
}

const TOKENS: usize = 24;
const HIDDEN: usize = 16;
const INNER: usize = 40;

/// Numbers that look random, about 1 in size.
fn noise(count: usize, seed: u64) -> Vec<f64> {
    let one = |at: u64| {
        let uniform = |nth: u64| {
            let mixed = twinscope_ops::sampling::splitmix(seed << 32 | at << 4 | nth);
            (mixed >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..12).map(uniform).sum::<f64>() - 6.0
    };
    (0..count as u64).map(one).collect()
}

fn rms_norm(x: &[f64], weight: &[f64]) -> Vec<f64> {
    let row = |row: &[f64]| {
        let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
        let factor = 1.0 / (mean + 1e-6).sqrt();
        row.iter()
            .zip(weight)
            .map(|(x, w)| x * factor * w)
            .collect::<Vec<f64>>()
    };
    x.chunks_exact(HIDDEN).flat_map(row).collect()
}

/// `[out, in]`
fn linear(x: &[f64], weight: &[f64], inner: usize) -> Vec<f64> {
    let dot = |row: &[f64], w: &[f64]| row.iter().zip(w).map(|(x, w)| x * w).sum::<f64>();
    x.chunks_exact(inner)
        .flat_map(|row| weight.chunks_exact(inner).map(move |w| dot(row, w)))
        .collect()
}

/// norm -> gate and up -> silu(gate) * up -> down -> residual.
fn block(seed: u64) -> Lists {
    let mut run = Lists {
        id: seed,
        ..Lists::default()
    };
    let weight = |count: usize, seed: u64| -> Vec<f64> {
        noise(count, seed).iter().map(|w| 0.2 * w).collect()
    };
    let norm: Vec<f64> = noise(HIDDEN, 1).iter().map(|w| 1.0 + 0.3 * w).collect();
    let [gate, up, down] = [2, 3, 4].map(|seed| weight(INNER * HIDDEN, seed));
    run.record("gate.weight", &[INNER, HIDDEN], true, &gate);
    run.record("up.weight", &[INNER, HIDDEN], true, &up);
    run.record("down.weight", &[HIDDEN, INNER], true, &down);

    let tokens = [TOKENS, HIDDEN];
    let x = noise(TOKENS * HIDDEN, 10 + seed);
    run.record("x", &tokens, false, &x);
    let normed = rms_norm(&x, &norm);
    run.record("normed", &tokens, false, &normed);
    let (gated, upped) = (linear(&normed, &gate, HIDDEN), linear(&normed, &up, HIDDEN));
    run.record("gate", &[TOKENS, INNER], false, &gated);
    run.record("up", &[TOKENS, INNER], false, &upped);
    let act: Vec<f64> = gated
        .iter()
        .zip(&upped)
        .map(|(g, u)| silu(*g) * u)
        .collect();
    run.record("act", &[TOKENS, INNER], false, &act);
    let mlp = linear(&act, &down, INNER);
    run.record("mlp", &tokens, false, &mlp);
    let out: Vec<f64> = x.iter().zip(&mlp).map(|(x, mlp)| x + mlp).collect();
    run.record("out", &tokens, false, &out);
    run
}

fn formula(run: &Lists, name: &str) -> Option<Formula> {
    made_by(run, run.at(name)).map(|learned| learned.formula)
}

#[test]
fn a_block_is_learned_from_one_run() {
    let run = block(1);
    let boxed = Formula::boxed;
    let product = |input: &str, weight: &str| Formula::Linear {
        input: boxed(input),
        weight: boxed(weight),
        bias: false,
    };
    let silu = Formula::Function {
        function: Function::Named("silu"),
        of: boxed("gate"),
    };
    let expected = [
        (
            "normed",
            Formula::Norm {
                kind: Norm::Rms,
                of: boxed("x"),
                epsilon: 1e-6,
            },
        ),
        ("gate", product("normed", "gate.weight")),
        ("up", product("normed", "up.weight")),
        ("act", Formula::Product(vec![silu, Formula::tensor("up")])),
        ("mlp", product("act", "down.weight")),
    ];
    for (name, expected) in expected {
        let found = formula(&run, name);
        // Of this few rows in f32 any small epsilon makes the same values.
        match (found, expected) {
            (Some(Formula::Norm { kind, of, .. }), Formula::Norm { kind: k, of: o, .. }) => {
                assert_eq!((kind, of), (k, o));
            }
            (found, expected) => assert_eq!(found, Some(expected), "{name}"),
        }
    }
    let Some(Formula::Sum(mut terms)) = formula(&run, "out") else {
        panic!("the residual is a sum");
    };
    terms.sort_by_key(|term| *term == Formula::tensor("mlp"));
    assert_eq!(terms, [Formula::tensor("x"), Formula::tensor("mlp")]);
}

#[test]
fn what_a_run_starts_with_is_made_by_nothing() {
    let run = block(1);
    assert!(made_by(&run, run.at("x")).is_none());
    assert!(made_by(&run, run.at("gate.weight")).is_none());
}

#[test]
fn a_formula_applies_to_another_run_with_the_same_tensors() {
    let (one, other) = (block(1), block(2));
    for name in ["normed", "gate", "act", "mlp", "out"] {
        let at = one.at(name);
        let learned = made_by(&one, at).unwrap();
        let rows = one.tensors[at].dims[0];
        let made = (learned.predict)(&other, Picked::Run(0, rows)).unwrap();
        let off = made
            .iter()
            .zip(&other.values[at])
            .map(|(made, value)| (made - value).abs())
            .fold(0.0, f64::max);
        assert!(off < 1e-4, "{name} is off by {off}");
        assert!(made != one.values[at], "{name} differs between the runs");
    }
}

#[test]
fn every_alternative_to_rope_names_the_pairing_that_was_learned() {
    const HEADS: usize = 3;
    const SIZE: usize = 8;
    let mut run = Lists::default();
    let dims = [1, HEADS, TOKENS, SIZE];
    let x = noise(HEADS * TOKENS * SIZE, 20);
    let rotated = |flat: usize| {
        let (token, channel) = (flat / SIZE % TOKENS, flat % SIZE);
        let pair = channel % (SIZE / 2);
        let angle = token as f64 * 100f64.powf(-2.0 * pair as f64 / SIZE as f64);
        let first = flat - channel + pair;
        let (x, y) = (x[first], x[first + SIZE / 2]);
        if channel < SIZE / 2 {
            angle.cos() * x - angle.sin() * y
        } else {
            angle.sin() * x + angle.cos() * y
        }
    };
    let out: Vec<f64> = (0..x.len()).map(rotated).collect();
    run.record("x", &dims, false, &x);
    run.record("rotated", &dims, false, &out);
    let learned = made_by(&run, 1).unwrap();
    let halves = Formula::Rope {
        of: Formula::boxed("x"),
        pairing: Pairing::Halves,
    };
    assert_eq!(learned.formula, halves);
    let alternatives = learned.alternatives.as_ref().unwrap()(&Out::new(&run, 1));
    assert_eq!(alternatives.len(), 4);
    for alternative in alternatives {
        let Change::Rope { input, pairing, .. } = alternative.change else {
            panic!("{:?} is no rotation", alternative.change);
        };
        assert_eq!((input, pairing), (0, Pairing::Halves));
    }
}
