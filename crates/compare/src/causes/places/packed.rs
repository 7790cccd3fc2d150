//! Channels of a fused tensor cut apart at the wrong places: each channel of the candidate is a channel of the reference's, but some of them
//! of a neighbouring tensor (q that holds channels of k and v, gate that holds every other channel of up).

use crate::causes::{Case, Class, Examined, Explanation, Hypothesis, case::Predicted, flow::rows::Rows};
use serde_json::json;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Packed;

/// Tokens needed to know a channel again.
const LEAST_ROWS: usize = 6;
/// How far away in execution order the other parts are recorded.
const NEIGHBOURS: usize = 4;
/// Of the channels, how many must come from elsewhere, and how many may be unknown.
const LEAST_FOREIGN: f64 = 0.05;

/// A channel of the reference: which pair, which of its channels, its values token by token.
struct Channel {
    pair: usize,
    feature: usize,
    sum: f64,
    values: Vec<f64>,
}

impl Hypothesis for Packed {
    fn name(&self) -> &'static str {
        "packed"
    }

    fn examine(&self, case: &Case<'_>) -> Examined {
        if !case.is_finite() {
            return Err("not everything is finite".into());
        }
        let mut why = "there are too few tokens to know a channel again";
        for rows in Rows::all(case.dims) {
            if rows.rows < LEAST_ROWS || rows.features < 4 {
                continue;
            }
            match repacked(case, &rows) {
                Some(explanation) => return Ok(vec![explanation]),
                None => why = "its channels are not those of neighbouring tensors",
            }
        }
        Err(why.into())
    }
}

fn repacked(case: &Case<'_>, rows: &Rows) -> Option<Explanation> {
    let pool = pool(case, rows);
    if pool.iter().all(|channel| channel.pair == case.pair) {
        return None;
    }
    let wanted = columns(rows, case.candidate);
    let tolerance = case.noise[0].max(1e-7);
    let mut found = Vec::with_capacity(rows.features);
    for values in &wanted {
        found.push(nearest(&pool, values, tolerance)?);
    }
    let foreign = found.iter().filter(|at| pool[**at].pair != case.pair).count();
    let mut used = found.clone();
    used.sort_unstable();
    used.dedup();
    // Constant channels are all alike; a real mixture uses each channel once, and moves a good part of them.
    if (foreign as f64) < LEAST_FOREIGN * rows.features as f64 || used.len() < found.len() {
        return None;
    }
    let everything = found.iter().all(|at| pool[*at].pair == pool[found[0]].pair);
    if everything {
        // Another tensor as a whole has a name of its own.
        return None;
    }
    let mut made = vec![0.0; rows.count()];
    for (feature, at) in found.iter().enumerate() {
        for (row, value) in pool[*at].values.iter().enumerate() {
            made[row * rows.features + feature] = *value;
        }
    }
    let mut from: BTreeMap<&str, usize> = BTreeMap::new();
    for at in &found {
        *from.entry(case.scene.entries()[pool[*at].pair].name.as_str()).or_default() += 1;
    }
    let parts: Vec<String> = from.iter().map(|(name, count)| format!("{count} of {name}")).collect();
    let map: Vec<(String, usize)> =
        found.iter().take(16).map(|at| (case.scene.entries()[pool[*at].pair].name.clone(), pool[*at].feature)).collect();
    Some(Explanation {
        kind: "permuted",
        text: format!(
            "the candidate's {} channels are {}: a fused tensor is taken apart at the wrong places",
            rows.features,
            parts.join(", ")
        ),
        details: json!({"pattern": "packing", "axis": case.dims.len() - 1, "from": from, "first_channels": map}),
        class: Class::Mechanism,
        // Which channel each is.
        freedom: rows.features,
        predicted: Predicted::Values(rows.scatter(&made)),
    })
}

/// Every channel of the reference here and nearby, sorted by the sum of its values.
fn pool(case: &Case<'_>, rows: &Rows) -> Vec<Channel> {
    let entries = case.scene.entries();
    let first = case.pair.saturating_sub(NEIGHBOURS);
    let last = (case.pair + NEIGHBOURS).min(entries.len() - 1);
    let mut pool = Vec::new();
    for (pair, entry) in entries.iter().enumerate().take(last + 1).skip(first) {
        if entry.parameter || entry.dims.len() != case.dims.len() {
            continue;
        }
        let Some(loaded) = case.scene.load(pair) else { continue };
        // The parts of a fused tensor lie alike.
        let alike = Rows::all(&loaded.dims).into_iter().find(|other| other.rows == rows.rows && other.kind == rows.kind);
        let Some(other) = alike else { continue };
        for (feature, values) in columns(&other, &loaded.reference).into_iter().enumerate() {
            if values.iter().all(|value| value.is_finite()) {
                pool.push(Channel { pair, feature, sum: values.iter().sum(), values });
            }
        }
    }
    pool.sort_by(|a, b| a.sum.total_cmp(&b.sum));
    pool
}

fn columns(rows: &Rows, values: &[f64]) -> Vec<Vec<f64>> {
    let gathered = rows.gather(values);
    (0..rows.features).map(|feature| gathered.iter().skip(feature).step_by(rows.features).copied().collect()).collect()
}

/// The channel that these values are, by its sum first.
fn nearest(pool: &[Channel], values: &[f64], tolerance: f64) -> Option<usize> {
    let norm = values.iter().map(|value| value * value).sum::<f64>().sqrt();
    let sum: f64 = values.iter().sum();
    // The sum is off by at most the norm of the noise times the root of the count.
    let reach = 4.0 * tolerance * norm * (values.len() as f64).sqrt();
    let start = pool.partition_point(|channel| channel.sum < sum - reach);
    let distance = |channel: &Channel| channel.values.iter().zip(values).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
    let near = pool[start..].iter().take_while(|channel| channel.sum <= sum + reach).enumerate();
    let (at, best) = near.map(|(at, channel)| (at, distance(channel))).min_by(|a, b| a.1.total_cmp(&b.1))?;
    (norm > 0.0 && best <= 4.0 * tolerance * norm).then_some(start + at)
}

#[cfg(test)]
mod tests {
    use crate::causes::testing::{Recorded, examine_in, examine_noisy_in, normal, proven};

    /// `q` and `k` of 24 channels for 12 tokens, cut out of one another by `of`.
    fn run(of: impl Fn(usize, usize) -> (usize, usize)) -> Vec<Recorded> {
        let fused = [normal(12 * 24, 1), normal(12 * 24, 2)];
        let cut = |part: usize| {
            let value = |at: usize| {
                let (from, channel) = of(part, at % 24);
                fused[from][at / 24 * 24 + channel]
            };
            (0..12 * 24).map(value).collect::<Vec<_>>()
        };
        let recorded = |name, part: usize| Recorded { name, dims: vec![2, 6, 24], reference: fused[part].clone(), candidate: cut(part) };
        vec![recorded("q", 0), recorded("k", 1)]
    }

    #[test]
    fn channels_that_alternate_between_two_tensors_are_told() {
        let run = run(|part, channel| ((part * 24 + channel) % 2, (part * 24 + channel) / 2));
        let (found, _) = examine_in(&run, "q");
        assert_eq!(proven(&found), Some("permuted"));
        assert_eq!(found.found[0].explanation.details["pattern"], "packing");
        assert!(found.found[0].explanation.text.contains("12 of k, 12 of q"), "{}", found.found[0].explanation.text);
        assert_eq!(proven(&examine_noisy_in(&run, "k")), Some("permuted"));
    }

    #[test]
    fn unrelated_channels_and_swapped_tensors_are_no_packing() {
        let swapped = run(|part, channel| (1 - part, channel));
        let (found, _) = examine_in(&swapped, "q");
        assert!(found.found.iter().all(|found| found.explanation.details["pattern"] != "packing"));
        let mut unrelated = run(|part, channel| (part, channel));
        unrelated[0].candidate = normal(12 * 24, 9);
        let (found, _) = examine_in(&unrelated, "q");
        assert!(found.found.iter().all(|found| found.explanation.details["pattern"] != "packing"));
    }
}
