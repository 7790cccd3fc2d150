//! Channels of a fused tensor cut apart at the wrong places: each channel of the candidate is a channel of the reference's, but some of them
//! of a neighbouring tensor (q that holds channels of k and v, gate that holds every other channel of up).

use crate::{
    Case, Class, Examined, Explanation, Hypothesis, case::Predicted, flow::rows::Rows,
    values::spread,
};
use std::collections::BTreeMap;
use twinscope_report::{
    CauseKind,
    facts::{Pattern, Permuted},
};

#[derive(Debug)]
pub(super) struct Packed;

/// Tokens needed to know a channel again, and as many as are looked at.
const LEAST_ROWS: usize = 6;
const MOST_ROWS: usize = 64;
/// How far away in execution order the other parts are recorded.
const NEIGHBOURS: usize = 4;
/// Of the channels, how many must come from elsewhere, and how many may be unknown.
const LEAST_FOREIGN: f64 = 0.05;

/// A channel of the reference: which pair, which of its channels, its values at some tokens.
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
    // Enough tokens know a channel again; whether all of them agree is for the score.
    let tokens: Vec<usize> = spread(rows.rows, MOST_ROWS).collect();
    let pool = pool(case, rows, &tokens);
    if pool.iter().all(|channel| channel.pair == case.pair) {
        return None;
    }
    let wanted = columns(rows, case.candidate, &tokens);
    let tolerance = case.noise[0].max(1e-7);
    let mut own = vec![None; rows.features];
    for (at, channel) in pool
        .iter()
        .enumerate()
        .filter(|(_, channel)| channel.pair == case.pair)
    {
        own[channel.feature] = Some(at);
    }
    // A channel that is still what it was is not looked for elsewhere.
    let still = |feature: usize| {
        own[feature].filter(|at| {
            distance(
                &pool[*at],
                &wanted[feature],
                allowed(&wanted[feature], tolerance),
            )
            .is_some()
        })
    };
    let mut found: Vec<Option<usize>> = (0..rows.features).map(still).collect();
    let is_few = |count: usize| (count as f64) < LEAST_FOREIGN * rows.features as f64;
    if is_few(found.iter().filter(|at| at.is_none()).count()) {
        return None;
    }
    for (found, values) in found
        .iter_mut()
        .zip(&wanted)
        .filter(|(found, _)| found.is_none())
    {
        *found = Some(nearest(&pool, values, tolerance)?);
    }
    let found: Vec<usize> = found.into_iter().flatten().collect();
    let foreign = found
        .iter()
        .filter(|at| pool[**at].pair != case.pair)
        .count();
    let mut used = found.clone();
    used.sort_unstable();
    used.dedup();
    // Constant channels are all alike; a real mixture uses each channel once, and moves a good part of them.
    if is_few(foreign) || used.len() < found.len() {
        return None;
    }
    let everything = found.iter().all(|at| pool[*at].pair == pool[found[0]].pair);
    if everything {
        // Another tensor as a whole has a name of its own.
        return None;
    }
    let mut made = vec![0.0; rows.count()];
    let mut pairs: Vec<usize> = found.iter().map(|at| pool[*at].pair).collect();
    pairs.sort_unstable();
    pairs.dedup();
    for pair in pairs {
        let loaded = case.scene.load(pair)?;
        let other = alike(rows, &loaded.dims)?;
        for (feature, channel) in found
            .iter()
            .map(|at| &pool[*at])
            .enumerate()
            .filter(|(_, channel)| channel.pair == pair)
        {
            for row in 0..rows.rows {
                made[row * rows.features + feature] =
                    loaded.reference[other.at(row * other.features + channel.feature)];
            }
        }
    }
    let mut from: BTreeMap<&str, usize> = BTreeMap::new();
    for at in &found {
        *from
            .entry(case.scene.entries()[pool[*at].pair].name.as_str())
            .or_default() += 1;
    }
    let parts: Vec<String> = from
        .iter()
        .map(|(name, count)| format!("{count} of {name}"))
        .collect();
    let map: Vec<(String, usize)> = found
        .iter()
        .take(16)
        .map(|at| {
            (
                case.scene.entries()[pool[*at].pair].name.clone(),
                pool[*at].feature,
            )
        })
        .collect();
    Some(Explanation {
        kind: CauseKind::Permuted,
        text: format!(
            "the candidate's {} channels are {}: a fused tensor is taken apart at the wrong places",
            rows.features,
            parts.join(", ")
        ),
        details: Permuted::Packed {
            axis: case.dims.len() - 1,
            pattern: Pattern::Packing,
            from: from
                .into_iter()
                .map(|(name, count)| (name.to_owned(), count))
                .collect(),
            first_channels: map,
        }
        .into(),
        class: Class::Mechanism,
        // Which channel each is.
        freedom: rows.features,
        predicted: Predicted::Values(rows.scatter(&made)),
    })
}

/// Every channel of the reference here and nearby, sorted by the sum of its values.
fn pool(case: &Case<'_>, rows: &Rows, tokens: &[usize]) -> Vec<Channel> {
    let entries = case.scene.entries();
    let first = case.pair.saturating_sub(NEIGHBOURS);
    let end = (case.pair + NEIGHBOURS + 1).min(entries.len());
    let mut pool = Vec::new();
    for (pair, entry) in (first..end).zip(&entries[first..end]) {
        if entry.parameter || entry.dims.len() != case.dims.len() {
            continue;
        }
        let Some(loaded) = case.scene.load(pair) else {
            continue;
        };
        let Some(other) = alike(rows, &loaded.dims) else {
            continue;
        };
        for (feature, values) in columns(&other, &loaded.reference, tokens)
            .into_iter()
            .enumerate()
        {
            if values.iter().all(|value| value.is_finite()) {
                pool.push(Channel {
                    pair,
                    feature,
                    sum: values.iter().sum(),
                    values,
                });
            }
        }
    }
    pool.sort_by(|a, b| a.sum.total_cmp(&b.sum));
    pool
}

/// The parts of a fused tensor lie alike.
fn alike(rows: &Rows, dims: &[usize]) -> Option<Rows> {
    Rows::all(dims)
        .into_iter()
        .find(|other| other.rows == rows.rows && other.kind == rows.kind)
}

fn columns(rows: &Rows, values: &[f64], tokens: &[usize]) -> Vec<Vec<f64>> {
    (0..rows.features)
        .map(|feature| {
            tokens
                .iter()
                .map(|token| values[rows.at(token * rows.features + feature)])
                .collect()
        })
        .collect()
}

/// How far away a channel may be, squared, and still be these values.
fn allowed(values: &[f64], tolerance: f64) -> f64 {
    (4.0 * tolerance).powi(2) * values.iter().map(|value| value * value).sum::<f64>()
}

/// Squared; nothing when it is more than `most`, which most channels are after a few tokens.
fn distance(channel: &Channel, values: &[f64], most: f64) -> Option<f64> {
    let mut distance = 0.0;
    for (a, b) in channel.values.iter().zip(values) {
        distance += (a - b) * (a - b);
        if distance > most {
            return None;
        }
    }
    Some(distance)
}

/// The channel that these values are, by its sum first.
fn nearest(pool: &[Channel], values: &[f64], tolerance: f64) -> Option<usize> {
    let (sum, allowed): (f64, f64) = (values.iter().sum(), allowed(values, tolerance));
    // The sum is off by at most the norm of the noise times the root of the count.
    let reach = (allowed * values.len() as f64).sqrt();
    let start = pool.partition_point(|channel| channel.sum < sum - reach);
    let near = pool[start..]
        .iter()
        .take_while(|channel| channel.sum <= sum + reach)
        .enumerate();
    let mut best: Option<(usize, f64)> = None;
    for (at, channel) in near {
        if let Some(distance) = distance(channel, values, best.map_or(allowed, |(_, best)| best)) {
            best = Some((start + at, distance));
        }
    }
    best.filter(|_| allowed > 0.0).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Recorded, examine_in, examine_noisy_in, normal, proven};

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
        let recorded = |name, part: usize| Recorded {
            name,
            dims: vec![2, 6, 24],
            reference: fused[part].clone(),
            candidate: cut(part),
        };
        vec![recorded("q", 0), recorded("k", 1)]
    }

    #[test]
    fn channels_that_alternate_between_two_tensors_are_told() {
        let run = run(|part, channel| ((part * 24 + channel) % 2, (part * 24 + channel) / 2));
        let (found, _) = examine_in(&run, "q");
        assert_eq!(proven(&found), Some("permuted"));
        assert_eq!(
            found.found[0].explanation.details.json()["pattern"],
            "packing"
        );
        assert!(
            found.found[0].explanation.text.contains("12 of k, 12 of q"),
            "{}",
            found.found[0].explanation.text
        );
        assert_eq!(proven(&examine_noisy_in(&run, "k")), Some("permuted"));
    }

    #[test]
    fn unrelated_channels_and_swapped_tensors_are_no_packing() {
        let swapped = run(|part, channel| (1 - part, channel));
        let (found, _) = examine_in(&swapped, "q");
        assert!(
            found
                .found
                .iter()
                .all(|found| found.explanation.details.json()["pattern"] != "packing")
        );
        let mut unrelated = run(|part, channel| (part, channel));
        unrelated[0].candidate = normal(12 * 24, 9);
        let (found, _) = examine_in(&unrelated, "q");
        assert!(
            found
                .found
                .iter()
                .all(|found| found.explanation.details.json()["pattern"] != "packing")
        );
    }
}
