//! The ops of a transformer in plain loops, each rounded once at its end.

use crate::{arithmetic::Arithmetic, array::Array};
use std::ops::Range;

/// How a matrix product is used; the default is `x · Wᵀ + b`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Projection {
    /// How many times the bias is added.
    pub(crate) bias: f64,
    pub(crate) scale: f64,
    /// A square weight is used the other way round.
    pub(crate) transposed: bool,
    /// Only this rank's part of the sum, of so many.
    pub(crate) part: Option<(usize, usize)>,
}

impl Default for Projection {
    fn default() -> Self {
        Self {
            bias: 1.0,
            scale: 1.0,
            transposed: false,
            part: None,
        }
    }
}

/// `x [.., in]`, `weight [out, in]`, `bias [out]`.
pub(crate) fn linear(
    x: &Array,
    weight: &Array,
    bias: Option<&Array>,
    how: Projection,
    with: Arithmetic,
) -> Array {
    let flipped;
    let weight = if how.transposed {
        flipped = weight.swap_axes(0, 1);
        &flipped
    } else {
        weight
    };
    let sum = how.part.map_or(0..x.width(), |(rank, of)| {
        x.width() * rank / of..x.width() * (rank + 1) / of
    });
    let mut shape = x.shape.clone();
    *shape
        .last_mut()
        .expect("a matrix product has an axis to sum over") = weight.shape[0];
    let mut values = Vec::with_capacity(shape.iter().product());
    for row in x.rows() {
        for (at, weights) in weight.rows().enumerate() {
            let product = with.shared_dot(&row[sum.clone()], &weights[sum.clone()]);
            // Ranks add their parts up, so only one of them may bring the bias.
            let once = how.part.is_none_or(|(rank, _)| rank == 0);
            let bias = bias
                .filter(|_| once)
                .map_or(0.0, |bias| how.bias * bias.values[at]);
            values.push(with.round(how.scale * (product + bias)));
        }
    }
    Array::new(shape, values)
}

/// What a norm does with its learned weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gain {
    Weight,
    OnePlusWeight,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Norm {
    /// The mean is taken away first.
    pub(crate) centred: bool,
    pub(crate) eps: f64,
    pub(crate) gain: Gain,
    pub(crate) bias: bool,
    /// Left out, the input is the output.
    pub(crate) on: bool,
}

impl Norm {
    pub(crate) fn rms() -> Self {
        Self {
            centred: false,
            eps: 1e-6,
            gain: Gain::Weight,
            bias: false,
            on: true,
        }
    }

    pub(crate) fn layer() -> Self {
        Self {
            centred: true,
            eps: 1e-5,
            bias: true,
            ..Self::rms()
        }
    }
}

pub(crate) fn norm(
    x: &Array,
    weight: &Array,
    bias: Option<&Array>,
    how: Norm,
    with: Arithmetic,
) -> Array {
    let mut out = x.clone();
    if !how.on {
        return out;
    }
    let count = x.width() as f64;
    for row in out.rows_mut() {
        if how.centred {
            let mean = with.inner(with.sum(row) / count);
            row.iter_mut()
                .for_each(|value| *value = with.inner(*value - mean));
        }
        let inverse = with.inner(1.0 / (with.dot(row, row) / count + how.eps).sqrt());
        for (at, value) in row.iter_mut().enumerate() {
            let gain = match how.gain {
                Gain::Weight => weight.values[at],
                Gain::OnePlusWeight => 1.0 + weight.values[at],
                Gain::None => 1.0,
            };
            let bias = bias
                .filter(|_| how.bias)
                .map_or(0.0, |bias| bias.values[at]);
            *value = with.round(with.inner(*value * inverse) * gain + bias);
        }
    }
    out
}

/// Which two channels of a head are turned together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pairing {
    /// `i` with `i + dim / 2`.
    Halves,
    /// `2 i` with `2 i + 1`.
    Neighbours,
}

/// Rotary positions: pair `i` of position `p` is turned by `sign · (p + offset) / factor · theta^(-2 i / dim)`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rope {
    pub(crate) theta: f64,
    pub(crate) offset: f64,
    pub(crate) factor: f64,
    pub(crate) sign: f64,
    pub(crate) pairing: Pairing,
    /// The channels of a head that are turned at all.
    pub(crate) turned: Range<usize>,
}

/// `x [batch, heads, seq, dim]`.
pub(crate) fn rope(x: &Array, how: &Rope, with: Arithmetic) -> Array {
    let (seq, dim) = (x.shape[2], how.turned.len());
    let mut out = x.clone();
    for (at, row) in out.rows_mut().enumerate() {
        let position = ((at % seq) as f64 + how.offset) / how.factor;
        let row = &mut row[how.turned.clone()];
        for pair in 0..dim / 2 {
            let angle = how.sign * position * how.theta.powf(-2.0 * pair as f64 / dim as f64);
            let (sin, cos) = (with.inner(angle.sin()), with.inner(angle.cos()));
            let (a, b) = match how.pairing {
                Pairing::Halves => (pair, pair + dim / 2),
                Pairing::Neighbours => (2 * pair, 2 * pair + 1),
            };
            (row[a], row[b]) = (
                with.round(row[a] * cos - row[b] * sin),
                with.round(row[b] * cos + row[a] * sin),
            );
        }
    }
    out
}

/// Which key head a query head uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// Each key head in turn for a group of neighbouring query heads.
    Repeated,
    /// All key heads once, then again.
    Tiled,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Attention {
    pub(crate) scale: f64,
    /// How many positions after its own a token sees: 0 is causal, -1 excludes the token itself.
    pub(crate) ahead: isize,
    /// How many positions it sees at most.
    pub(crate) window: Option<usize>,
    /// `cap * tanh(score / cap)`.
    pub(crate) cap: Option<f64>,
    pub(crate) keys: Grouping,
    pub(crate) values: Grouping,
    /// A token that sees nothing gets NaN, as a softmax over minus infinities gives, else it sees itself.
    pub(crate) blind_is_nan: bool,
    /// The softmax goes over so many keys at a time and corrects itself, as flash attention does.
    pub(crate) block: Option<usize>,
}

impl Attention {
    pub(crate) fn causal(head_dim: usize) -> Self {
        Self {
            scale: 1.0 / (head_dim as f64).sqrt(),
            ahead: 0,
            window: None,
            cap: None,
            keys: Grouping::Repeated,
            values: Grouping::Repeated,
            blind_is_nan: false,
            block: None,
        }
    }

    fn sees(&self, query: usize, key: usize) -> bool {
        let causal = (key as isize).saturating_sub(query as isize) <= self.ahead;
        causal && self.window.is_none_or(|window| key + window > query)
    }
}

fn key_head(head: usize, heads: usize, key_heads: usize, how: Grouping) -> usize {
    match how {
        Grouping::Repeated => head / (heads / key_heads),
        Grouping::Tiled => head % key_heads,
    }
}

/// Probabilities `[batch, heads, seq, seq]` of `q [batch, heads, seq, dim]` and `k [batch, key heads, seq, dim]`.
pub(crate) fn probabilities(q: &Array, k: &Array, how: &Attention, with: Arithmetic) -> Array {
    let [batch, heads, seq, dim] = q.shape[..] else {
        panic!("four axes, not {:?}", q.shape)
    };
    let key_heads = k.shape[1];
    let mut out = Array::zeros([batch, heads, seq, seq]);
    for (at, row) in out.rows_mut().enumerate() {
        let (b, head, query) = (at / (heads * seq), at / seq % heads, at % seq);
        let from = (b * key_heads + key_head(head, heads, key_heads, how.keys)) * seq;
        let q = &q.values[at * dim..(at + 1) * dim];
        let score = |key: usize| {
            let k = &k.values[(from + key) * dim..(from + key + 1) * dim];
            let score = with.inner(with.dot(q, k) * how.scale);
            how.cap
                .map_or(score, |cap| with.inner(cap * (score / cap).tanh()))
        };
        let mut seen: Vec<usize> = (0..seq).filter(|key| how.sees(query, *key)).collect();
        if seen.is_empty() {
            if how.blind_is_nan {
                row.fill(f64::NAN);
                continue;
            }
            seen.push(query);
        }
        let scores: Vec<f64> = seen.iter().map(|key| score(*key)).collect();
        for (key, share) in seen.into_iter().zip(softmax(&scores, how.block, with)) {
            row[key] = with.round(share);
        }
    }
    out
}

fn softmax(scores: &[f64], block: Option<usize>, with: Arithmetic) -> Vec<f64> {
    let (mut largest, mut total) = (f64::NEG_INFINITY, 0.0);
    for part in scores.chunks(block.unwrap_or(scores.len()).max(1)) {
        let larger = part.iter().copied().fold(largest, f64::max);
        let powers: Vec<f64> = part
            .iter()
            .map(|score| with.inner((score - larger).exp()))
            .collect();
        total = with.inner(with.inner(total * (largest - larger).exp()) + with.sum(&powers));
        largest = larger;
    }
    scores
        .iter()
        .map(|score| with.inner((score - largest).exp()) / total)
        .collect()
}

/// `[batch, heads, seq, dim]` from probabilities and `v [batch, key heads, seq, dim]`.
pub(crate) fn mix(probabilities: &Array, v: &Array, how: &Attention, with: Arithmetic) -> Array {
    let [batch, heads, seq, _] = probabilities.shape[..] else {
        panic!("four axes, not {:?}", probabilities.shape)
    };
    let (key_heads, dim) = (v.shape[1], v.shape[3]);
    // Columns of v lie together, so that every sum runs over neighbours.
    let columns = v.swap_axes(2, 3);
    let mut values = Vec::with_capacity(batch * heads * seq * dim);
    for (at, row) in probabilities.rows().enumerate() {
        let (b, head) = (at / (heads * seq), at / seq % heads);
        let from = (b * key_heads + key_head(head, heads, key_heads, how.values)) * dim;
        values.extend((from..from + dim).map(|column| {
            with.round(with.dot(row, &columns.values[column * seq..(column + 1) * seq]))
        }));
    }
    Array::new([batch, heads, seq, dim], values)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    Silu,
    GeluErf,
    GeluTanh,
    GeluQuick,
    Relu,
    Identity,
}

impl Activation {
    pub(crate) fn of(self, x: f64) -> f64 {
        match self {
            Self::Silu => x / (1.0 + (-x).exp()),
            Self::GeluErf => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
            Self::GeluTanh => {
                0.5 * x
                    * (1.0
                        + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x))
                            .tanh())
            }
            Self::GeluQuick => x / (1.0 + (-1.702 * x).exp()),
            Self::Relu => x.max(0.0),
            Self::Identity => x,
        }
    }
}

/// `erf x = 2 / √π · e^(-x²) · Σ 2ⁿ x^(2n+1) / (2n+1)!!`: all terms have one sign, so nothing cancels.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return 1f64.copysign(x);
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// What becomes the residual stream: so many times the stream, the branch, and the normed input of the branch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Join {
    pub(crate) stream: f64,
    pub(crate) branch: f64,
    pub(crate) normed: f64,
}

impl Join {
    pub(crate) const SUM: Self = Self {
        stream: 1.0,
        branch: 1.0,
        normed: 0.0,
    };

    /// Those of the three that are really used.
    pub(crate) fn parts<'a, T>(&self, stream: &'a T, branch: &'a T, normed: &'a T) -> Vec<&'a T> {
        let all = [
            (self.stream, stream),
            (self.branch, branch),
            (self.normed, normed),
        ];
        all.into_iter()
            .filter(|(times, _)| *times != 0.0)
            .map(|(_, part)| part)
            .collect()
    }
}

pub(crate) fn join(
    stream: &Array,
    branch: &Array,
    normed: &Array,
    how: Join,
    with: Arithmetic,
) -> Array {
    let sum = stream.zip(branch, |stream, branch| {
        how.stream * stream + how.branch * branch
    });
    sum.zip(normed, |sum, normed| {
        with.round(if how.normed == 0.0 {
            sum
        } else {
            sum + how.normed * normed
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinscope_tensor::DType;

    const EXACT: Arithmetic = Arithmetic {
        dtype: DType::F64,
        parts: 1,
    };

    #[test]
    fn erf_has_the_digits_of_the_tables() {
        for (x, value) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (-3.0, -0.999_977_909_503_001_4),
        ] {
            assert!((erf(x) - value).abs() < 1e-14, "{x}");
        }
    }

    #[test]
    fn probabilities_sum_to_one_over_what_is_seen() {
        let q = Array::new([1, 2, 3, 2], (0..12).map(|n| f64::from(n) * 0.1).collect());
        let k = Array::new(
            [1, 1, 3, 2],
            (0..6).map(|n| 1.0 - f64::from(n) * 0.3).collect(),
        );
        let whole = probabilities(&q, &k, &Attention::causal(2), EXACT);
        for (at, row) in whole.rows().enumerate() {
            assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-15);
            assert!(row[at % 3 + 1..].iter().all(|share| *share == 0.0));
        }
        let blocks = probabilities(
            &q,
            &k,
            &Attention {
                block: Some(2),
                ..Attention::causal(2)
            },
            EXACT,
        );
        assert!(
            whole
                .values
                .iter()
                .zip(&blocks.values)
                .all(|(a, b)| (a - b).abs() < 1e-15)
        );
    }

    #[test]
    fn a_turn_keeps_the_length_of_every_pair() {
        let x = Array::new([1, 1, 2, 4], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let how = Rope {
            theta: 100.0,
            offset: 0.0,
            factor: 1.0,
            sign: 1.0,
            pairing: Pairing::Halves,
            turned: 0..4,
        };
        let turned = rope(&x, &how, EXACT);
        assert_eq!(turned.values[..4], x.values[..4]);
        assert!((turned.values[4].hypot(turned.values[6]) - 5f64.hypot(7.0)).abs() < 1e-12);
        assert_ne!(turned.values[4], 5.0);
    }
}
