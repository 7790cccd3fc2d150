//! The tensors of one source (`/sources/{side}/tensors`), their statistics, and what is asked of values: histograms and searches.

use super::{Ask, At, with_session};
use crate::{
    app::App,
    edits::SideName,
    problem::{Answer, Problem},
    session::Session,
    slices::{Shown, Sides, Subject, indices, sides},
    sources::{Opened, Sources},
};
use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use twinscope_measure::{
    Number as Exact, Which,
    histogram::{Bins, Histogram, histograms},
    pool::{Size, pool},
    search::{self, Wanted},
    stats as measure_stats,
};
use twinscope_report::{Finding, Number, SideTotals, Skipped};
use twinscope_tensor::{Kind, Operand, Picked, Value};
use utoipa::{IntoParams, ToSchema};

/// One tensor of a source.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TensorRow {
    pub tensor: usize,
    pub name: String,
    pub dtype: String,
    pub shape: Vec<u64>,
    #[schema(required = true)]
    pub bytes: Option<u64>,
    pub order: usize,
    #[schema(value_type = Option<Object>, required = true)]
    pub meta: Option<serde_json::Value>,
}

/// A Python value that lay beside the tensors.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ValueRow {
    pub name: String,
    pub r#type: String,
    pub text: String,
}

/// Everything a source holds.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TensorsDoc {
    pub source: String,
    pub format: String,
    pub tensors: Vec<TensorRow>,
    pub values: Vec<ValueRow>,
    pub skipped: Vec<Skipped>,
    pub findings: Vec<Finding>,
}

fn side_of(sources: &Sources, side: SideName) -> Answer<&Opened> {
    match side {
        SideName::Reference => Ok(&sources.reference),
        SideName::Candidate => sources.candidate.as_ref().ok_or_else(|| {
            Problem::not_found("no_such_side", "this session has one source, the reference")
        }),
    }
}

/// Every tensor of a source, in execution order
#[utoipa::path(get, path = "/api/v1/sessions/{session}/sources/{side}/tensors", tag = "sources",
    params(("session" = String, Path), ("side" = SideName, Path)), responses((status = 200, body = TensorsDoc)))]
pub async fn list(
    State(app): State<Arc<App>>,
    At((id, side)): At<(String, SideName)>,
) -> Answer<Json<TensorsDoc>> {
    with_session(app, id, move |app, session| {
        let sources = session.sources(app)?;
        let listing = side_of(&sources, side)?.source.listing();
        let word = if side == SideName::Reference {
            "reference"
        } else {
            "candidate"
        };
        Ok(Json(TensorsDoc {
            source: listing.source.clone(),
            format: listing.format.to_owned(),
            tensors: listing
                .tensors
                .iter()
                .enumerate()
                .map(|(at, tensor)| TensorRow {
                    tensor: at,
                    name: tensor.name.clone(),
                    dtype: tensor.dtype.to_string(),
                    shape: tensor.shape.dims().to_vec(),
                    bytes: tensor.bytes,
                    order: at,
                    meta: tensor
                        .meta
                        .as_ref()
                        .map(|meta| serde_json::Value::Object((**meta).clone())),
                })
                .collect(),
            values: listing
                .values
                .iter()
                .map(|value| ValueRow {
                    name: value.name.clone(),
                    r#type: value.value.kind().to_owned(),
                    text: plain(&value.value),
                })
                .collect(),
            skipped: listing
                .skipped
                .iter()
                .map(|skipped| Skipped {
                    side: word.to_owned(),
                    name: skipped.name.clone(),
                    reason: skipped.reason.clone(),
                })
                .collect(),
            findings: listing
                .findings
                .iter()
                .map(|finding| Finding {
                    side: word.to_owned(),
                    kind: finding.kind.name().to_owned(),
                    text: finding.text.clone(),
                })
                .collect(),
        }))
    })
    .await
}

fn plain(value: &twinscope_tensor::Plain) -> String {
    use twinscope_tensor::Plain;
    match value {
        Plain::None => "None".to_owned(),
        Plain::Bool(yes) => if *yes { "True" } else { "False" }.to_owned(),
        Plain::Int(digits) => digits.clone(),
        Plain::Float(x) => Value::Float(twinscope_tensor::Float::F64(*x)).to_string(),
        Plain::Complex(re, im) => Value::Complex(
            twinscope_tensor::Float::F64(*re),
            twinscope_tensor::Float::F64(*im),
        )
        .to_string(),
        Plain::Str(text) => text.clone(),
        Plain::Bytes(count) => format!("{count} bytes"),
        Plain::Other { text, .. } => text.clone(),
    }
}

/// The numbers of one tensor, summed up. Undefined is null, never 0.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct StatsDoc {
    pub tensor: usize,
    pub name: String,
    pub count: u64,
    #[schema(required = true)]
    pub finite: Option<u64>,
    #[schema(required = true)]
    pub nan: Option<u64>,
    #[schema(required = true)]
    pub inf: Option<u64>,
    #[schema(required = true)]
    pub zero: Option<u64>,
    #[schema(required = true)]
    pub mean: Option<Number>,
    #[schema(required = true)]
    pub std: Option<Number>,
    #[schema(required = true)]
    pub min: Option<Number>,
    #[schema(required = true)]
    pub max: Option<Number>,
    #[schema(required = true)]
    pub norm: Option<Number>,
    /// Why it cannot be read.
    #[schema(required = true)]
    pub problem: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Span {
    /// The first tensor. [default: 0]
    from: Option<usize>,
    /// How many; fewer come when they are large. [default: 64, at most 512]
    count: Option<usize>,
}

/// Bytes measured for one request: a second at most. At least one tensor is always measured.
const MEASURED: u64 = 1 << 30;

/// Statistics of some tensors of a source
#[utoipa::path(get, path = "/api/v1/sessions/{session}/sources/{side}/stats", tag = "sources",
    params(("session" = String, Path), ("side" = SideName, Path), Span), responses((status = 200, body = Vec<StatsDoc>)))]
pub async fn stats(
    State(app): State<Arc<App>>,
    At((id, side)): At<(String, SideName)>,
    Ask(span): Ask<Span>,
) -> Answer<Json<Vec<StatsDoc>>> {
    with_session(app, id, move |app, session| {
        let sources = session.sources(app)?;
        let opened = side_of(&sources, side)?;
        let tensors = &opened.source.listing().tensors;
        let from = span.from.unwrap_or(0).min(tensors.len());
        let to = from
            .saturating_add(span.count.unwrap_or(64).clamp(1, 512))
            .min(tensors.len());
        let (mut found, mut bytes) = (Vec::new(), 0u64);
        for (at, tensor) in tensors.iter().enumerate().take(to).skip(from) {
            bytes = bytes.saturating_add(tensor.bytes.unwrap_or(0));
            if bytes > MEASURED && !found.is_empty() {
                break;
            }
            found.push(app.answers.install(|| stats_of(opened, at)));
        }
        Ok(Json(found))
    })
    .await
}

fn stats_of(opened: &Opened, at: usize) -> StatsDoc {
    let name = opened.source.listing().tensors[at].name.clone();
    let measured = opened.source.view(at).and_then(|view| measure_stats(&view));
    let number = |exact: Option<Exact>| match exact? {
        Exact::Int(int) => Some(Number(int as f64)),
        Exact::Float(x) => Some(Number(x)),
        Exact::Complex(..) => None,
    };
    let (stats, problem) = match measured {
        Ok(stats) => (Some(stats), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let counts = stats.as_ref().and_then(|stats| stats.counts());
    let of = |pick: fn(&twinscope_measure::Stats) -> Option<Exact>| {
        number(stats.as_ref().and_then(pick))
    };
    let real = |pick: fn(&twinscope_measure::Stats) -> Option<f64>| {
        stats.as_ref().and_then(pick).map(Number)
    };
    StatsDoc {
        tensor: at,
        name,
        count: stats.as_ref().map_or(0, |stats| stats.count()),
        finite: counts.map(|counts| counts.finite),
        nan: counts.map(|counts| counts.nan),
        inf: counts.map(|counts| counts.pos_inf + counts.neg_inf),
        zero: counts.map(|counts| counts.zeros),
        mean: of(|stats| stats.mean()),
        std: real(|stats| stats.std()),
        min: of(|stats| stats.min()),
        max: of(|stats| stats.max()),
        norm: real(|stats| stats.norm()),
        problem,
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Counted {
    /// How many ranges. [default: 64, at most 1024]
    bins: Option<usize>,
    /// The ends of what is counted. [default: the least and the largest value of both sides]
    low: Option<f64>,
    high: Option<f64>,
    /// Refuse when pairs have changed since this revision.
    revision: Option<u64>,
    /// The reference as this cause would make it.
    cause: Option<usize>,
}

/// How many numbers lie in each of a row of equal ranges.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct HistogramDoc {
    pub low: f64,
    pub high: f64,
    pub counts: Vec<u64>,
    pub below: u64,
    pub above: u64,
    pub nan: u64,
    pub inf: u64,
    /// False: counted on a part and multiplied to stand for all.
    pub exact: bool,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct HistogramsDoc {
    pub reference: HistogramDoc,
    #[schema(required = true)]
    pub candidate: Option<HistogramDoc>,
    /// Of `candidate - reference`, symmetric around 0.
    #[schema(required = true)]
    pub difference: Option<HistogramDoc>,
    /// Differences by power of two (exponent, count) and by units in the last place (log2, count), as the report has them.
    pub magnitudes: Vec<(i32, u64)>,
    pub ulps: Vec<(u32, u64)>,
}

/// Elements counted for a histogram.
const COUNTED: u64 = 1 << 24;
/// Elements read to find the ends of a tensor that no report knows.
const ENDS: u64 = 1 << 22;

/// Histograms of the values of a pair and of their differences
#[utoipa::path(get, path = "/api/v1/sessions/{session}/pairs/{pair}/histogram", tag = "values",
    params(("session" = String, Path), ("pair" = usize, Path), Counted), responses((status = 200, body = HistogramsDoc)))]
pub async fn pair_histogram(
    State(app): State<Arc<App>>,
    At((id, nth)): At<(String, usize)>,
    Ask(asked): Ask<Counted>,
) -> Answer<Json<HistogramsDoc>> {
    with_session(app, id, move |app, session| {
        histogram(app, session, &Subject::Pair(nth), &asked)
    })
    .await
}

/// A histogram of one tensor
#[utoipa::path(get, path = "/api/v1/sessions/{session}/sources/{side}/tensors/{tensor}/histogram", tag = "values",
    params(("session" = String, Path), ("side" = SideName, Path), ("tensor" = usize, Path), Counted), responses((status = 200, body = HistogramsDoc)))]
pub async fn tensor_histogram(
    State(app): State<Arc<App>>,
    At((id, side, at)): At<(String, SideName, usize)>,
    Ask(asked): Ask<Counted>,
) -> Answer<Json<HistogramsDoc>> {
    with_session(app, id, move |app, session| {
        histogram(app, session, &Subject::Tensor(side, at), &asked)
    })
    .await
}

fn histogram(
    app: &App,
    session: &Session,
    subject: &Subject,
    asked: &Counted,
) -> Answer<Json<HistogramsDoc>> {
    let shown = Shown {
        revision: asked.revision,
        cause: asked.cause,
        ..Shown::default()
    };
    let sides = sides(app, session, subject, &shown)?;
    let Some(reference) = &sides.reference else {
        return Err(Problem::bad("bad_plane", "there is nothing to count"));
    };
    let candidate = sides
        .candidate
        .as_ref()
        .filter(|candidate| candidate.shape() == reference.shape());
    let ends = ends(app, &sides)?;
    let low = asked.low.or(ends.map(|ends| ends.0)).unwrap_or(0.0);
    let high = asked.high.or(ends.map(|ends| ends.1)).unwrap_or(0.0);
    if !(low.is_finite() && high.is_finite() && low <= high) {
        return Err(Problem::bad(
            "bad_range",
            format!("{low} to {high} is not a range"),
        ));
    }
    let bins = Bins {
        low,
        high,
        count: asked.bins.unwrap_or(64).clamp(1, 1024),
    };
    let mut wanted = vec![(Which::Reference, bins)];
    let totals = sides.pair.as_ref().and_then(|pair| pair.totals.as_ref());
    if candidate.is_some() {
        let applied = asked.cause.is_some();
        let most = totals
            .and_then(|totals| totals.max_abs)
            .map(|most| most.0)
            .filter(|most| most.is_finite() && !applied)
            .unwrap_or(high - low);
        let most = if most.is_finite() { most } else { f64::MAX };
        wanted.extend([
            (Which::Candidate, bins),
            (
                Which::Difference,
                Bins {
                    low: -most,
                    high: most,
                    ..bins
                },
            ),
        ]);
    }
    let mut found = histograms(
        &**reference,
        candidate.map(|candidate| &**candidate),
        &wanted,
        COUNTED,
    )?
    .into_iter()
    .map(HistogramDoc::from);
    let Some(of_reference) = found.next() else {
        return Err(Problem::internal("a histogram was asked for"));
    };
    Ok(Json(HistogramsDoc {
        reference: of_reference,
        candidate: found.next(),
        difference: found.next(),
        magnitudes: totals
            .map(|totals| totals.magnitudes.clone())
            .unwrap_or_default(),
        ulps: totals.map(|totals| totals.ulps.clone()).unwrap_or_default(),
    }))
}

/// The least and the largest finite value, from the report or from a look.
fn ends(app: &App, sides: &Sides) -> Answer<Option<(f64, f64)>> {
    if let Some(totals) = sides.pair.as_ref().and_then(|pair| pair.totals.as_ref()) {
        let of = |pick: fn(&SideTotals) -> Option<Number>| {
            [&totals.reference, &totals.candidate]
                .into_iter()
                .filter_map(pick)
                .map(|number| number.0)
                .collect::<Vec<f64>>()
        };
        let (low, high) = (of(|side| side.min), of(|side| side.max));
        if !low.is_empty() && !high.is_empty() {
            return Ok(Some((
                low.into_iter().fold(f64::INFINITY, f64::min),
                high.into_iter().fold(f64::NEG_INFINITY, f64::max),
            )));
        }
    }
    let mut ends: Option<(f64, f64)> = None;
    for operand in [&sides.reference, &sides.candidate].into_iter().flatten() {
        let row = Picked::run(&**operand, 0..operand.len())?;
        let size = Size {
            height: 1,
            width: 256,
            budget: ENDS,
        };
        let pooled = app
            .pictures
            .install(|| pool(&row, None, &[Which::Reference], size))?;
        if let (Some(low), Some(high)) = (pooled.planes[0].min, pooled.planes[0].max) {
            ends = Some(ends.map_or((low, high), |(a, b)| (a.min(low), b.max(high))));
        }
    }
    Ok(ends)
}

impl From<Histogram> for HistogramDoc {
    fn from(found: Histogram) -> Self {
        let Histogram {
            low,
            high,
            counts,
            below,
            above,
            nan,
            inf,
            exact,
        } = found;
        Self {
            low,
            high,
            counts,
            below,
            above,
            nan,
            inf,
            exact,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Sought {
    /// `difference`: values that differ by more than `beyond`; `nonfinite`, `nan`; `value`: equal to `value`; `range`: from `low` to `high`.
    what: String,
    /// `reference`, `candidate` or `difference`. [default: difference for `difference`, else reference]
    on: Option<String>,
    /// The index to go on from, comma-separated, or a row-major place; it is not itself found. [default: the beginning, or the end]
    from: Option<String>,
    /// `next` or `previous`. [default: next]
    direction: Option<String>,
    value: Option<String>,
    low: Option<f64>,
    high: Option<f64>,
    beyond: Option<f64>,
    /// Where an earlier answer said to go on.
    go_on: Option<u64>,
    revision: Option<u64>,
    cause: Option<usize>,
}

/// Where it is, with the values there.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FoundDoc {
    /// Null when there is none, or none so far.
    #[schema(required = true)]
    pub index: Option<Vec<u64>>,
    /// The same in row-major order.
    #[schema(required = true)]
    pub place: Option<u64>,
    #[schema(required = true)]
    pub reference: Option<String>,
    #[schema(required = true)]
    pub candidate: Option<String>,
    /// Not everything was looked at: ask again with this.
    #[schema(required = true)]
    pub go_on: Option<u64>,
    pub count: u64,
}

/// Elements looked at for one request: some tenths of a second.
const LOOKED_AT: u64 = 1 << 26;

/// The next or the previous difference, NaN, value or range of a pair
#[utoipa::path(get, path = "/api/v1/sessions/{session}/pairs/{pair}/search", tag = "values",
    params(("session" = String, Path), ("pair" = usize, Path), Sought), responses((status = 200, body = FoundDoc)))]
pub async fn pair_search(
    State(app): State<Arc<App>>,
    At((id, nth)): At<(String, usize)>,
    Ask(sought): Ask<Sought>,
) -> Answer<Json<FoundDoc>> {
    with_session(app, id, move |app, session| {
        find(app, session, &Subject::Pair(nth), &sought)
    })
    .await
}

/// The next or the previous NaN, value or range of one tensor
#[utoipa::path(get, path = "/api/v1/sessions/{session}/sources/{side}/tensors/{tensor}/search", tag = "values",
    params(("session" = String, Path), ("side" = SideName, Path), ("tensor" = usize, Path), Sought), responses((status = 200, body = FoundDoc)))]
pub async fn tensor_search(
    State(app): State<Arc<App>>,
    At((id, side, at)): At<(String, SideName, usize)>,
    Ask(sought): Ask<Sought>,
) -> Answer<Json<FoundDoc>> {
    with_session(app, id, move |app, session| {
        find(app, session, &Subject::Tensor(side, at), &sought)
    })
    .await
}

fn find(
    app: &App,
    session: &Session,
    subject: &Subject,
    sought: &Sought,
) -> Answer<Json<FoundDoc>> {
    let shown = Shown {
        revision: sought.revision,
        cause: sought.cause,
        ..Shown::default()
    };
    let sides = sides(app, session, subject, &shown)?;
    let Some(reference) = &sides.reference else {
        return Err(Problem::bad(
            "bad_plane",
            "there is nothing to look through",
        ));
    };
    let candidate = sides.candidate.as_ref();
    let which = sought.which()?;
    if which != Which::Reference && candidate.is_none() {
        return Err(Problem::bad(
            "bad_plane",
            "one tensor by itself has only the plane `reference`",
        ));
    }
    if candidate.is_some_and(|candidate| candidate.shape() != reference.shape()) {
        return Err(Problem::unprocessable(
            "unequal_shapes",
            "the sides are not lined up",
        ));
    }
    let looked_in: &dyn Operand = if which == Which::Candidate {
        &**candidate.unwrap_or(reference)
    } else {
        &**reference
    };
    let exact = sought.exact_int(looked_in, which);
    let wanted = sought.wanted(looked_in, which)?;
    let backwards = match sought.direction.as_deref().unwrap_or("next") {
        "next" => false,
        "previous" => true,
        other => {
            return Err(Problem::bad(
                "bad_direction",
                format!("`{other}` is neither next nor previous"),
            ));
        }
    };
    let mut at = sought.start(&**reference, backwards)?;
    let mut left = LOOKED_AT;
    loop {
        let from = search::From {
            at,
            backwards,
            most: left,
        };
        // One side alone is looked through by itself.
        let (first, second) = match which {
            Which::Difference => (&**reference, candidate.map(|candidate| &**candidate)),
            _ => (looked_in, None),
        };
        let on = if which == Which::Difference {
            Which::Difference
        } else {
            Which::Reference
        };
        let found = search::search(first, second, on, wanted, from)?;
        // Beyond 2^53 two integers may be one f64: then each is looked at itself.
        if let (Some(place), Some(exact)) = (found.at, exact)
            && !is_int(looked_in, place, exact)
        {
            left = left.saturating_sub(place.abs_diff(at));
            at = if backwards { place } else { place + 1 };
            continue;
        }
        let text = |operand: &dyn Operand, place: u64| -> Option<String> {
            super::window::texts(&Picked::run(operand, place..place + 1).ok()?)
                .ok()?
                .into_iter()
                .next()
        };
        let exact_text = |operand: &dyn Operand, place: u64| match operand.view() {
            Some(view) => Some(view.value(&operand.shape().unravel(place)).to_string()),
            None => text(operand, place),
        };
        return Ok(Json(FoundDoc {
            index: found.at.map(|place| reference.shape().unravel(place)),
            place: found.at,
            reference: found.at.and_then(|place| exact_text(&**reference, place)),
            candidate: found.at.and_then(|place| exact_text(&**candidate?, place)),
            go_on: found.go_on,
            count: reference.len(),
        }));
    }
}

fn is_int(operand: &dyn Operand, place: u64, wanted: i128) -> bool {
    let mut ints = Vec::new();
    operand.int_values(place, 1, &mut Vec::new(), &mut ints) && ints.first() == Some(&wanted)
}

impl Sought {
    fn which(&self) -> Answer<Which> {
        match self.on.as_deref() {
            None if self.what == "difference" => Ok(Which::Difference),
            None | Some("reference") => Ok(Which::Reference),
            Some("candidate") => Ok(Which::Candidate),
            Some("difference") => Ok(Which::Difference),
            Some(other) => Err(Problem::bad(
                "bad_plane",
                format!("`{other}` is not a plane: there are reference, candidate and difference"),
            )),
        }
    }

    /// The integer that is looked for, among integers.
    fn exact_int(&self, operand: &dyn Operand, which: Which) -> Option<i128> {
        let whole =
            matches!(operand.dtype().kind(), Kind::Int | Kind::Bool) && which != Which::Difference;
        self.value
            .as_ref()
            .filter(|_| whole && self.what == "value")?
            .trim()
            .parse()
            .ok()
    }

    fn wanted(&self, operand: &dyn Operand, which: Which) -> Answer<Wanted> {
        match self.what.as_str() {
            "difference" => Ok(Wanted::Beyond(self.beyond.unwrap_or(0.0))),
            "nonfinite" => Ok(Wanted::NotFinite),
            "nan" => Ok(Wanted::Nan),
            "range" => match (self.low, self.high) {
                (None, None) => Err(Problem::bad("bad_range", "a range has a low or a high end")),
                (low, high) => Ok(Wanted::Within(
                    low.unwrap_or(f64::NEG_INFINITY),
                    high.unwrap_or(f64::INFINITY),
                )),
            },
            "value" => {
                let text = self
                    .value
                    .as_deref()
                    .map(str::trim)
                    .filter(|text| !text.is_empty());
                let text = text.ok_or_else(|| Problem::bad("bad_value", "no value is given"))?;
                let value: f64 = text
                    .parse()
                    .map_err(|_| Problem::bad("bad_value", format!("`{text}` is not a number")))?;
                if value.is_nan() {
                    return Ok(Wanted::Nan);
                }
                // What is typed is what the cells show: 0.1 finds the bf16 that is written 0.1.
                let own = if which == Which::Difference {
                    None
                } else {
                    rounded(operand, text)
                };
                let value = own.unwrap_or(value);
                Ok(Wanted::Within(value, value))
            }
            other => Err(
                Problem::bad("bad_search", format!("`{other}` cannot be looked for"))
                    .hint("there are difference, nonfinite, nan, value and range"),
            ),
        }
    }

    fn start(&self, operand: &dyn Operand, backwards: bool) -> Answer<u64> {
        if let Some(go_on) = self.go_on {
            return Ok(go_on.min(operand.len()));
        }
        let Some(from) = self.from.as_deref().filter(|from| !from.is_empty()) else {
            return Ok(if backwards { operand.len() } else { 0 });
        };
        let given = indices(from)?;
        let dims = operand.shape().dims();
        let place = match given.as_slice() {
            [place] if dims.len() != 1 => *place,
            index
                if index.len() == dims.len()
                    && index.iter().zip(dims).all(|(index, dim)| index < dim) =>
            {
                index
                    .iter()
                    .zip(dims)
                    .fold(0, |flat, (index, dim)| flat * dim + index)
            }
            _ => {
                return Err(Problem::bad(
                    "bad_index",
                    format!("[{from}] is not inside {}", operand.shape()),
                ));
            }
        };
        Ok(if backwards {
            place.min(operand.len())
        } else {
            place.saturating_add(1).min(operand.len())
        })
    }
}

/// The nearest number to a text in an operand's own dtype.
fn rounded(operand: &dyn Operand, text: &str) -> Option<f64> {
    let view = operand.view().filter(|view| !view.is_empty())?;
    match view.value(&vec![0; view.shape().rank()]) {
        Value::Float(like) => like.parse_like(text).map(|float| float.to_f64()),
        _ => None,
    }
}
