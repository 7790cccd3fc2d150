//! `GET /api/v1/sessions/{session}/pairs`: every pair in a row; `/pairs/{pair}`: everything about one.

use super::{Ask, At, with_session};
use crate::{
    app::App,
    edits::in_order,
    problem::{Answer, Problem},
    slices::{Shown, Subject, sides},
};
use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use twinscope_compare::layout;
use twinscope_measure::{Options, Profile, Profiling, totals};
use twinscope_report::{Finding, Headline, Leftover, Number, Pair, Row, Skipped};
use twinscope_tensor::View;
use utoipa::{IntoParams, ToSchema};

/// Every pair, and every tensor without one.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PairsDoc {
    /// Counts changes of what is paired with what; `pair` numbers are of this revision.
    pub revision: u64,
    /// Not everything is measured yet, and verdicts may still change.
    pub provisional: bool,
    /// The order was pinned by hand.
    pub pinned: bool,
    pub headline: Headline,
    /// In the order to be shown.
    pub pairs: Vec<Row>,
    pub only_reference: Vec<Leftover>,
    pub only_candidate: Vec<Leftover>,
    pub skipped: Vec<Skipped>,
    pub findings: Vec<Finding>,
    pub left_out: Vec<Skipped>,
}

/// Every pair in a row: enough to list, sort, group and filter ten thousand of them
#[utoipa::path(get, path = "/api/v1/sessions/{session}/pairs", tag = "pairs", params(("session" = String, Path)), responses((status = 200, body = PairsDoc)))]
pub async fn list(State(app): State<Arc<App>>, At(id): At<String>) -> Answer<Json<PairsDoc>> {
    with_session(app, id, |app, session| {
        let current = session.compared(app)?;
        let order = session.record().order.clone();
        let report = &current.report;
        let measured = |nth: usize| current.measured.get(nth).copied().unwrap_or(true);
        let rows = report
            .pairs
            .iter()
            .enumerate()
            .map(|(nth, pair)| Row::of(nth, pair, measured(nth)))
            .collect();
        Ok(Json(PairsDoc {
            revision: current.revision,
            provisional: current.provisional,
            pinned: order.is_some(),
            headline: Headline::so_far(report, &current.measured),
            pairs: in_order(rows, order.as_deref()),
            only_reference: report.only_reference.clone(),
            only_candidate: report.only_candidate.clone(),
            skipped: report.skipped.clone(),
            findings: report.findings.clone(),
            left_out: report.left_out.clone(),
        }))
    })
    .await
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Asked {
    /// Refuse when pairs have changed since this revision.
    revision: Option<u64>,
}

/// A tensor as it lies in its file.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct OriginalDoc {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<u64>,
    #[schema(required = true)]
    pub bytes: Option<u64>,
    /// What its source says about it: dims, role, rank, inputs, ...
    #[schema(value_type = Option<Object>, required = true)]
    pub meta: Option<serde_json::Value>,
}

/// One pair with everything known about it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PairDoc {
    pub revision: u64,
    pub key: String,
    /// As the report has it: totals, causes, layout.
    #[serde(flatten)]
    pub pair: Pair,
    /// The tensors as they lie in their files; empty for an imported report.
    pub reference_tensors: Vec<OriginalDoc>,
    pub candidate_tensors: Vec<OriginalDoc>,
    /// The layout the user gave, as it was typed.
    #[schema(required = true)]
    pub layout_override: Option<String>,
    /// Names of the dimensions, where a source says them.
    #[schema(required = true)]
    pub dims: Option<String>,
}

/// Everything about one pair
#[utoipa::path(get, path = "/api/v1/sessions/{session}/pairs/{pair}", tag = "pairs",
    params(("session" = String, Path), ("pair" = usize, Path), Asked), responses((status = 200, body = PairDoc)))]
pub async fn get(
    State(app): State<Arc<App>>,
    At((id, nth)): At<(String, usize)>,
    Ask(asked): Ask<Asked>,
) -> Answer<Json<PairDoc>> {
    with_session(app, id, move |app, session| {
        let (current, pair) = session.pair(app, nth, asked.revision)?;
        // Without its data a report can still be read.
        let sources = session.sources(app).ok();
        let originals =
            |opened: Option<&crate::sources::Opened>, names: &[String]| -> Vec<OriginalDoc> {
                let Some(opened) = opened else {
                    return Vec::new();
                };
                names
                    .iter()
                    .filter_map(|name| original(opened, name))
                    .collect()
            };
        let reference_tensors = originals(
            sources.as_ref().map(|sources| &sources.reference),
            pair.reference.all(),
        );
        let candidate_tensors = originals(
            sources.as_ref().map(|sources| sources.other()),
            pair.candidate.all(),
        );
        let dims = reference_tensors
            .first()
            .and_then(|tensor| Some(tensor.meta.as_ref()?.get("dims")?.as_str()?.to_owned()));
        let glob = pair
            .reference
            .all()
            .first()
            .map(|name| globset::escape(name));
        let layouts = session.record().settings.layouts.clone();
        let layout_override = layouts
            .into_iter()
            .find(|layout| Some(&layout.name) == glob.as_ref())
            .map(|layout| layout.steps);
        Ok(Json(PairDoc {
            revision: current.revision,
            key: pair.key(),
            pair,
            reference_tensors,
            candidate_tensors,
            layout_override,
            dims,
        }))
    })
    .await
}

fn original(opened: &crate::sources::Opened, name: &str) -> Option<OriginalDoc> {
    match opened
        .source
        .listing()
        .tensors
        .iter()
        .find(|tensor| tensor.name == name)
    {
        Some(tensor) => Some(OriginalDoc {
            name: tensor.name.clone(),
            dtype: tensor.dtype.to_string(),
            shape: tensor.shape.dims().to_vec(),
            bytes: tensor.bytes,
            meta: tensor
                .meta
                .as_ref()
                .map(|meta| serde_json::Value::Object((**meta).clone())),
        }),
        // A Python number beside the tensors.
        None => opened.view(name).ok().map(|view| OriginalDoc {
            name: name.to_owned(),
            dtype: view.dtype().to_string(),
            shape: view.shape().dims().to_vec(),
            bytes: view.byte_len(),
            meta: None,
        }),
    }
}

/// What the indices along one axis hold. Long axes are put together: entry `i` stands for `step` indices from `i * step`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ProfileDoc {
    pub axis: usize,
    pub size: u64,
    pub step: u64,
    /// ‖c - r‖ / ‖r‖; null where the reference is 0.
    pub rel_l2: Vec<Option<Number>>,
    pub max_abs: Vec<Number>,
    pub differing: Vec<u64>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ProfilesDoc {
    pub profiles: Vec<ProfileDoc>,
}

/// Entries of one profile.
const ENTRIES: usize = 4096;

/// Which token, head or channel differs: error along each axis
#[utoipa::path(get, path = "/api/v1/sessions/{session}/pairs/{pair}/profile", tag = "pairs",
    params(("session" = String, Path), ("pair" = usize, Path), Shown), responses((status = 200, body = ProfilesDoc)))]
pub async fn profile(
    State(app): State<Arc<App>>,
    At((id, nth)): At<(String, usize)>,
    Ask(shown): Ask<Shown>,
) -> Answer<Json<ProfilesDoc>> {
    with_session(app, id, move |app, session| {
        let sides = sides(app, session, &Subject::Pair(nth), &shown)?;
        let (Some(reference), Some(candidate)) = (&sides.reference, &sides.candidate) else {
            return Err(Problem::bad("bad_plane", "a profile is of two sides"));
        };
        if reference.shape() != candidate.shape() {
            return Err(Problem::unprocessable(
                "unequal_shapes",
                format!(
                    "{} and {} are not lined up",
                    reference.shape(),
                    candidate.shape()
                ),
            ));
        }
        let options = Options {
            profiles: Profiling::Whole,
            top: 1,
            tolerance: None,
        };
        let measured = app
            .answers
            .install(|| totals(&**reference, &**candidate, &options))?;
        Ok(Json(ProfilesDoc {
            profiles: measured.profiles.iter().map(ProfileDoc::of).collect(),
        }))
    })
    .await
}

impl ProfileDoc {
    fn of(profile: &Profile) -> Self {
        let size = profile.error.len();
        let step = size.div_ceil(ENTRIES).max(1);
        // Where nothing finite is left to compare and something differs, there is no number to give.
        let relative = |((error, energy), differing): ((&[f64], &[f64]), &[u64])| {
            let (error, energy): (f64, f64) = (error.iter().sum(), energy.iter().sum());
            match energy > 0.0 {
                true => Some(Number((error / energy).sqrt())),
                false => differing
                    .iter()
                    .all(|count| *count == 0)
                    .then_some(Number(0.0)),
            }
        };
        Self {
            axis: profile.axis,
            size: size as u64,
            step: step as u64,
            rel_l2: profile
                .error
                .chunks(step)
                .zip(profile.energy.chunks(step))
                .zip(profile.differing.chunks(step))
                .map(relative)
                .collect(),
            max_abs: profile
                .max_abs
                .chunks(step)
                .map(|part| Number(part.iter().copied().fold(0.0, f64::max)))
                .collect(),
            differing: profile
                .differing
                .chunks(step)
                .map(|part| part.iter().sum())
                .collect(),
        }
    }
}

/// A way to line a pair up.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct LayoutDoc {
    /// For an edit of kind `layout`.
    pub steps: String,
    /// In words.
    pub text: String,
    /// Of a sample of the values; null when undefined.
    #[schema(required = true)]
    pub rel_l2: Option<Number>,
    /// What is used now.
    pub current: bool,
}

/// Elements up to which a suggested layout is measured.
const MEASURED: u64 = 1 << 22;

/// Ways to line this pair up that its shapes allow, the best fitting first
#[utoipa::path(get, path = "/api/v1/sessions/{session}/pairs/{pair}/layouts", tag = "pairs",
    params(("session" = String, Path), ("pair" = usize, Path), Asked), responses((status = 200, body = Vec<LayoutDoc>)))]
pub async fn layouts(
    State(app): State<Arc<App>>,
    At((id, nth)): At<(String, usize)>,
    Ask(asked): Ask<Asked>,
) -> Answer<Json<Vec<LayoutDoc>>> {
    with_session(app, id, move |app, session| {
        let (_, pair) = session.pair(app, nth, asked.revision)?;
        let sources = session.sources(app)?;
        let (left, right) = (
            sources.reference.view(&pair.reference.all()[0])?,
            sources.other().view(&pair.candidate.all()[0])?,
        );
        if pair.reference.all().len() > 1 || pair.candidate.all().len() > 1 {
            return Ok(Json(Vec::new()));
        }
        let now = pair.layout.as_ref().map(|layout| layout.steps.clone());
        let mut found: Vec<LayoutDoc> = ways(right.shape().dims(), left.shape().dims())
            .into_iter()
            .filter_map(|steps| suggested(app, &steps, &left, &right, now.as_deref()))
            .collect();
        let order = |doc: &LayoutDoc| doc.rel_l2.map_or(f64::INFINITY, |number| number.0);
        found.sort_by(|a, b| order(a).total_cmp(&order(b)));
        Ok(Json(found))
    })
    .await
}

fn suggested(
    app: &App,
    text: &str,
    left: &View,
    right: &View,
    now: Option<&[layout::Step]>,
) -> Option<LayoutDoc> {
    let steps = if text.is_empty() {
        Vec::new()
    } else {
        layout::parse_steps(text).ok()?
    };
    let one = std::slice::from_ref;
    let aligned = layout::apply(&steps, one(left), one(right)).ok()?;
    let options = Options {
        profiles: Profiling::Off,
        top: 1,
        tolerance: None,
    };
    let small = aligned.reference.len() <= MEASURED;
    let rel_l2 = if small {
        app.answers
            .install(|| totals(&*aligned.reference, &*aligned.candidate, &options))
            .ok()?
            .rel_l2
            .map(Number)
    } else {
        None
    };
    Some(LayoutDoc {
        steps: text.to_owned(),
        text: aligned.layout.text,
        rel_l2,
        current: now == Some(&steps[..]),
    })
}

/// Steps from one shape to another that drop and add dimensions of one element and permute the others; and both as one row.
fn ways(from: &[u64], to: &[u64]) -> Vec<String> {
    let real =
        |dims: &[u64]| -> Vec<u64> { dims.iter().copied().filter(|dim| *dim != 1).collect() };
    let (source, target) = (real(from), real(to));
    let mut ways = Vec::new();
    let drops: Vec<String> = from
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, dim)| **dim == 1)
        .map(|(axis, _)| format!("squeeze({axis})"))
        .collect();
    let adds: Vec<String> = to
        .iter()
        .enumerate()
        .filter(|(_, dim)| **dim == 1)
        .map(|(axis, _)| format!("unsqueeze({axis})"))
        .collect();
    if from == to {
        ways.push(String::new());
    }
    for order in orders(&source, &target) {
        let straight = order.iter().enumerate().all(|(at, axis)| at == *axis);
        let listed: Vec<String> = order.iter().map(usize::to_string).collect();
        let permute = (!straight).then(|| format!("permute({})", listed.join(",")));
        let steps: Vec<String> = drops
            .iter()
            .cloned()
            .chain(permute)
            .chain(adds.iter().cloned())
            .collect();
        if !(straight && from == to) {
            ways.push(steps.join(" "));
        }
    }
    ways.push("flatten".to_owned());
    ways
}

/// Permutations that make the first list the second, up to a few.
fn orders(source: &[u64], target: &[u64]) -> Vec<Vec<usize>> {
    const MOST: usize = 24;
    fn go(source: &[u64], target: &[u64], taken: &mut Vec<usize>, found: &mut Vec<Vec<usize>>) {
        let Some(wanted) = target.get(taken.len()) else {
            found.push(taken.clone());
            return;
        };
        for (axis, dim) in source.iter().enumerate() {
            if dim == wanted && !taken.contains(&axis) && found.len() < MOST {
                taken.push(axis);
                go(source, target, taken, found);
                taken.pop();
            }
        }
    }
    let mut found = Vec::new();
    if source.len() == target.len() {
        go(source, target, &mut Vec::new(), &mut found);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_drop_permute_and_add() {
        assert_eq!(
            ways(&[1, 8, 76, 64], &[76, 8, 64]),
            ["squeeze(0) permute(1,0,2)", "flatten"]
        );
        assert_eq!(ways(&[4, 4], &[4, 4]), ["", "permute(1,0)", "flatten"]);
        assert_eq!(ways(&[2, 3], &[5]), ["flatten"]);
    }

    #[test]
    fn long_axes_are_put_together_and_nothing_is_lost() {
        let profile = Profile {
            axis: 0,
            error: vec![1.0; 10_000],
            energy: vec![4.0; 10_000],
            max_abs: (0..10_000).map(f64::from).collect(),
            differing: vec![1; 10_000],
        };
        let doc = ProfileDoc::of(&profile);
        assert_eq!(
            (doc.step, doc.max_abs.len(), doc.max_abs[0], doc.rel_l2[7]),
            (3, 3334, Number(2.0), Some(Number(0.5)))
        );
        assert_eq!(doc.differing.iter().sum::<u64>(), 10_000);
    }
}
