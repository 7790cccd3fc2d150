//! `GET .../pairs/{pair}/window?rows=2&cols=3&at=0,0,0,0&r0=0&r1=76&width=512` — one 2-D cut, at most as large as a screen; and `cells`, the same
//! exactly, as text.
//!
//! A window is little-endian `f32`, plane after plane, row-major, not JSON: JSON has no NaN, and a NaN is what we came to see. What the planes
//! are is in the header `x-tensor-meta`. `f32` is for pictures only; cells are written in their own dtype, with every digit they need.

use super::{Ask, At, blocking};
use crate::{
    app::App,
    edits::SideName,
    problem::{Answer, Problem},
    slices::{Shown, Sides, Subject, sides},
};
use axum::{
    Json,
    extract::State,
    http::{HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use std::sync::Arc;
use twinscope_measure::{
    Which,
    cells::cells,
    pool::{Pooled, Size, pool},
};
use twinscope_report::{Number, Pair};
use twinscope_tensor::{Float, Operand, Picked};
use utoipa::ToSchema;

/// Numbers of one plane.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PlaneMeta {
    /// `reference`, `candidate` or `difference`
    pub plane: String,
    /// Of the finite numbers that were read; null when there are none.
    #[schema(required = true)]
    pub min: Option<f64>,
    #[schema(required = true)]
    pub max: Option<f64>,
    pub nan: u64,
    pub inf: u64,
}

/// What the bytes of a window are: the header `x-tensor-meta`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct WindowMeta {
    /// Rows and columns of each plane.
    pub height: usize,
    pub width: usize,
    /// Rows and columns of the tensor that they show: a cell of the picture is the largest magnitude of its share.
    pub rows: u64,
    pub cols: u64,
    /// Every element was read. False: a cell is the largest of those that were read of its share, and the worst known ones are where they belong.
    pub exact: bool,
    /// Elements that were read, of each side: of the columns that share a cell the middle ones, of the rows some, evenly spread.
    pub read: u64,
    pub planes: Vec<PlaneMeta>,
}

/// Windows of a side with so many elements are read whole: a few milliseconds, because they lie side by side.
const WHOLE: u64 = 1 << 20;
/// Elements read of larger ones, unless every one is asked for: those lie apart.
const BUDGET: u64 = 1 << 19;
const SIDE: usize = 512;
const MOST_SIDE: usize = 2048;
/// Elements that lie apart in both directions cost a page each: fewer are read.
const APART: u64 = 1 << 17;
/// Cells of one request.
const MOST_CELLS: u64 = 4000;

static META: HeaderName = HeaderName::from_static("x-tensor-meta");

/// A window of a pair: planes of little-endian f32, described by the header `x-tensor-meta`
#[utoipa::path(get, path = "/api/v1/sessions/{session}/pairs/{pair}/window", tag = "values",
    params(("session" = String, Path), ("pair" = usize, Path), Shown),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream", headers(("x-tensor-meta" = String, description = "a WindowMeta")))))]
pub async fn pair_window(
    State(app): State<Arc<App>>,
    At((session, pair)): At<(String, usize)>,
    Ask(shown): Ask<Shown>,
) -> Answer<Response> {
    window(app, session, Subject::Pair(pair), shown).await
}

/// A window of one tensor of a source
#[utoipa::path(get, path = "/api/v1/sessions/{session}/sources/{side}/tensors/{tensor}/window", tag = "values",
    params(("session" = String, Path), ("side" = SideName, Path), ("tensor" = usize, Path), Shown),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream", headers(("x-tensor-meta" = String, description = "a WindowMeta")))))]
pub async fn tensor_window(
    State(app): State<Arc<App>>,
    At((session, side, tensor)): At<(String, SideName, usize)>,
    Ask(shown): Ask<Shown>,
) -> Answer<Response> {
    window(app, session, Subject::Tensor(side, tensor), shown).await
}

/// The planes that are asked for and that there are.
fn planes(shown: &Shown, sides: &Sides) -> Answer<Vec<Which>> {
    let Some(text) = &shown.planes else {
        return Ok(if sides.candidate.is_some() {
            vec![Which::Reference, Which::Candidate, Which::Difference]
        } else {
            vec![Which::Reference]
        });
    };
    let mut planes = Vec::new();
    for word in text
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
    {
        let which = match word {
            "reference" => Which::Reference,
            "candidate" if sides.candidate.is_some() => Which::Candidate,
            "difference" if sides.candidate.is_some() => Which::Difference,
            "candidate" | "difference" => {
                return Err(Problem::bad(
                    "bad_plane",
                    "one tensor by itself has only the plane `reference`",
                ));
            }
            _ => {
                return Err(Problem::bad(
                    "bad_plane",
                    format!(
                        "`{word}` is not a plane: there are reference, candidate and difference"
                    ),
                ));
            }
        };
        if !planes.contains(&which) {
            planes.push(which);
        }
    }
    if planes.is_empty() {
        Err(Problem::bad("bad_plane", "no plane is asked for"))
    } else {
        Ok(planes)
    }
}

fn name(which: Which) -> &'static str {
    match which {
        Which::Reference => "reference",
        Which::Candidate => "candidate",
        Which::Difference => "difference",
    }
}

/// The windows of the sides that the planes need, of one size where both are.
fn windows<'a>(
    shown: &Shown,
    sides: &'a Sides,
    planes: &[Which],
) -> Answer<(Option<Picked<'a>>, Option<Picked<'a>>)> {
    let needs = |which| {
        planes
            .iter()
            .any(|plane| *plane == which || *plane == Which::Difference)
    };
    let reference = match &sides.reference {
        Some(operand) if needs(Which::Reference) => Some(shown.window(&**operand)?),
        _ => None,
    };
    let size = match (&reference, &sides.reference) {
        (Some(window), _) => Some(window.shape().clone()),
        (None, Some(operand)) => shown
            .window(&**operand)
            .ok()
            .map(|window| window.shape().clone()),
        _ => None,
    };
    let candidate = match &sides.candidate {
        Some(operand) if needs(Which::Candidate) => {
            Some(shown.other_window(&**operand, size.as_ref())?)
        }
        _ => None,
    };
    if let (Some(r), Some(c)) = (&reference, &candidate)
        && r.shape() != c.shape()
    {
        let detail = format!(
            "the windows are {} and {}; the shapes are {} and {}",
            r.shape(),
            c.shape(),
            shape(&sides.reference),
            shape(&sides.candidate)
        );
        return Err(Problem::bad("unequal_windows", detail)
            .hint("ask for one plane at a time, or say with other_rows, other_cols, other_at where the candidate's part lies"));
    }
    Ok((reference, candidate))
}

fn shape(operand: &Option<Box<dyn Operand>>) -> String {
    operand
        .as_ref()
        .map_or_else(String::new, |operand| operand.shape().to_string())
}

async fn window(
    app: Arc<App>,
    session: String,
    subject: Subject,
    shown: Shown,
) -> Answer<Response> {
    blocking(move || {
        let session = app.session(&session)?;
        let sides = sides(&app, &session, &subject, &shown)?;
        let planes = planes(&shown, &sides)?;
        // Read along memory, whichever dimension runs across on the screen.
        let rank = sides
            .reference
            .as_ref()
            .map_or(0, |operand| operand.shape().rank());
        let turned = !shown.flat
            && matches!((shown.rows, shown.cols), (Some(rows), Some(cols)) if rows > cols);
        let asked = shown;
        let shown = if turned {
            asked.turned()
        } else {
            asked.clone()
        };
        let across = if shown.rows.is_none() && shown.cols.is_none() {
            rank.checked_sub(1)
        } else {
            shown.cols
        };
        let apart = !shown.flat && across.is_some_and(|axis| axis + 1 != rank);
        let (reference, candidate) = windows(&shown, &sides, &planes)?;
        let side = |asked: Option<usize>| asked.unwrap_or(SIDE).clamp(1, MOST_SIDE);
        let size = Size {
            height: side(shown.height),
            width: side(shown.width),
            budget: match reference
                .as_ref()
                .or(candidate.as_ref())
                .and_then(|window| window.shape().elements())
            {
                _ if shown.exact => u64::MAX,
                _ if apart => APART,
                Some(elements) if elements <= WHOLE => WHOLE,
                _ => BUDGET,
            },
        };
        let mut pooled = match (&reference, &candidate) {
            (Some(r), Some(c)) => app.pictures.install(|| pool(r, Some(c), &planes, size))?,
            // One side alone: its numbers are what is read.
            (Some(one), None) | (None, Some(one)) => app
                .pictures
                .install(|| pool(one, None, &[Which::Reference], size))?,
            (None, None) => return Err(Problem::bad("bad_plane", "there is no such plane")),
        };
        let mut of = reference
            .as_ref()
            .or(candidate.as_ref())
            .map(|window| window.shape().dims().to_vec())
            .unwrap_or_default();
        if !pooled.exact
            && let Some(pair) = &sides.pair
        {
            put_worst(&mut pooled, &planes, pair, &shown, &of);
        }
        if turned {
            of.reverse();
            turn(&mut pooled);
        }
        answer(&pooled, &planes, &of)
    })
    .await
}

fn answer(pooled: &Pooled, planes: &[Which], of: &[u64]) -> Answer<Response> {
    let meta = WindowMeta {
        height: pooled.height,
        width: pooled.width,
        rows: of.first().copied().unwrap_or(0),
        cols: of.get(1).copied().unwrap_or(0),
        exact: pooled.exact,
        read: pooled.read,
        planes: planes
            .iter()
            .zip(&pooled.planes)
            .map(|(which, cells)| PlaneMeta {
                plane: name(*which).to_owned(),
                min: cells.min,
                max: cells.max,
                nan: cells.nan,
                inf: cells.inf,
            })
            .collect(),
    };
    let mut bytes = Vec::with_capacity(
        pooled
            .planes
            .iter()
            .map(|cells| size_of_val(&cells.values[..]))
            .sum(),
    );
    for value in pooled.planes.iter().flat_map(|cells| &cells.values) {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    let meta = HeaderValue::from_str(&serde_json::to_string(&meta)?)
        .map_err(|error| Problem::internal(error.to_string()))?;
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        ),
        (META.clone(), meta),
    ];
    Ok((headers, bytes).into_response())
}

/// Rows become columns.
fn turn(pooled: &mut Pooled) {
    let (height, width) = (pooled.height, pooled.width);
    for cells in &mut pooled.planes {
        if !cells.values.is_empty() {
            cells.values = (0..width)
                .flat_map(|c| (0..height).map(move |r| (r, c)))
                .map(|(r, c)| cells.values[r * width + c])
                .collect();
        }
    }
    (pooled.height, pooled.width) = (width, height);
}

/// A sample may miss the worst elements, which the report knows: they are put where they belong.
fn put_worst(pooled: &mut Pooled, planes: &[Which], pair: &Pair, shown: &Shown, of: &[u64]) {
    let plain = !shown.flat
        && !shown.original
        && shown.cause.is_none()
        && shown.other_at.is_none()
        && shown.other_rows.is_none();
    let (Some(totals), Some(shape), [rows, cols]) = (&pair.totals, &pair.shape, of) else {
        return;
    };
    let Some(difference) = planes
        .iter()
        .position(|plane| *plane == Which::Difference)
        .filter(|_| plain && shape.len() >= 2)
    else {
        return;
    };
    let (down, across) = match (shown.rows, shown.cols) {
        (None, None) => (shape.len() - 2, shape.len() - 1),
        (Some(down), Some(across)) => (down, across),
        _ => return,
    };
    let at = shown
        .at
        .as_deref()
        .and_then(|at| crate::slices::indices(at).ok())
        .unwrap_or_else(|| vec![0; shape.len()]);
    for worst in &totals.top {
        let Some(index) = &worst.index else { continue };
        let here = index
            .iter()
            .zip(&at)
            .enumerate()
            .all(|(axis, (a, b))| axis == down || axis == across || a == b);
        let (Some(r), Some(c)) = (
            index
                .get(down)
                .and_then(|r| r.checked_sub(shown.r0.unwrap_or(0))),
            index
                .get(across)
                .and_then(|c| c.checked_sub(shown.c0.unwrap_or(0))),
        ) else {
            continue;
        };
        if !here || r >= *rows || c >= *cols {
            continue;
        }
        let cell = |i: u64, size: u64, cells: usize| {
            (u128::from(i) * cells as u128 / u128::from(size)) as usize
        };
        let place = cell(r, *rows, pooled.height) * pooled.width + cell(c, *cols, pooled.width);
        let value = worst.difference() as f32;
        let slot = &mut pooled.planes[difference].values[place];
        if !slot.is_nan() && (value.is_nan() || value.abs() > slot.abs()) {
            *slot = value;
        }
    }
}

/// Values exactly, row after row. Lists that were not asked for are null.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct CellsDoc {
    pub rows: u64,
    pub cols: u64,
    /// Each in the fewest digits that mean it in its own dtype, as NumPy writes it.
    #[schema(required = true)]
    pub reference: Option<Vec<String>>,
    #[schema(required = true)]
    pub candidate: Option<Vec<String>>,
    /// `candidate - reference`; null where they are not numbers.
    #[schema(required = true)]
    pub difference: Option<Vec<Number>>,
    /// `|c - r| / max(|r|, |c|)`; null where a side is not finite.
    #[schema(required = true)]
    pub relative: Option<Vec<Option<f64>>>,
    /// Units in the last place of the coarser dtype.
    #[schema(required = true)]
    pub ulp: Option<Vec<Option<u64>>>,
    #[schema(required = true)]
    pub reference_bits: Option<Vec<String>>,
    #[schema(required = true)]
    pub candidate_bits: Option<Vec<String>>,
    /// What each side is shown in.
    #[schema(required = true)]
    pub reference_dtype: Option<String>,
    #[schema(required = true)]
    pub candidate_dtype: Option<String>,
}

/// Exact values of a pair, at most 4000
#[utoipa::path(get, path = "/api/v1/sessions/{session}/pairs/{pair}/cells", tag = "values",
    params(("session" = String, Path), ("pair" = usize, Path), Shown), responses((status = 200, body = CellsDoc)))]
pub async fn pair_cells(
    State(app): State<Arc<App>>,
    At((session, pair)): At<(String, usize)>,
    Ask(shown): Ask<Shown>,
) -> Answer<Json<CellsDoc>> {
    exact(app, session, Subject::Pair(pair), shown).await
}

/// Exact values of one tensor, at most 4000
#[utoipa::path(get, path = "/api/v1/sessions/{session}/sources/{side}/tensors/{tensor}/cells", tag = "values",
    params(("session" = String, Path), ("side" = SideName, Path), ("tensor" = usize, Path), Shown), responses((status = 200, body = CellsDoc)))]
pub async fn tensor_cells(
    State(app): State<Arc<App>>,
    At((session, side, tensor)): At<(String, SideName, usize)>,
    Ask(shown): Ask<Shown>,
) -> Answer<Json<CellsDoc>> {
    exact(app, session, Subject::Tensor(side, tensor), shown).await
}

async fn exact(
    app: Arc<App>,
    session: String,
    subject: Subject,
    shown: Shown,
) -> Answer<Json<CellsDoc>> {
    blocking(move || {
        let session = app.session(&session)?;
        let sides = sides(&app, &session, &subject, &shown)?;
        let planes = planes(&shown, &sides)?;
        let (reference, candidate) = windows(&shown, &sides, &planes)?;
        let of = reference
            .as_ref()
            .or(candidate.as_ref())
            .map(|window| window.shape().dims().to_vec())
            .unwrap_or_default();
        let count: u64 = of.iter().product();
        if count > MOST_CELLS {
            let detail = format!("{count} cells, {MOST_CELLS} are the most of one request");
            return Err(Problem::bad("too_many_cells", detail)
                .hint("ask for a smaller range with r0, r1, c0, c1"));
        }
        let both = match (&reference, &candidate) {
            // Strings are compared by looking at them.
            (Some(r), Some(c))
                if planes.contains(&Which::Difference)
                    && r.dtype().has_numbers()
                    && c.dtype().has_numbers() =>
            {
                Some(cells(r, c)?)
            }
            _ => None,
        };
        let bits = |window: &Option<Picked<'_>>| {
            window
                .as_ref()
                .filter(|_| shown.bits)
                .and_then(|window| bits(window))
        };
        let dtype =
            |window: &Option<Picked<'_>>| window.as_ref().map(|window| window.dtype().to_string());
        let doc = CellsDoc {
            rows: of.first().copied().unwrap_or(0),
            cols: of.get(1).copied().unwrap_or(0),
            reference_bits: bits(&reference),
            candidate_bits: bits(&candidate),
            reference_dtype: dtype(&reference),
            candidate_dtype: dtype(&candidate),
            reference: reference.as_ref().map(texts).transpose()?,
            candidate: candidate.as_ref().map(texts).transpose()?,
            difference: both
                .as_ref()
                .map(|cells| cells.iter().map(|cell| Number(cell.difference)).collect()),
            relative: both
                .as_ref()
                .map(|cells| cells.iter().map(|cell| cell.relative).collect()),
            ulp: both
                .as_ref()
                .map(|cells| cells.iter().map(|cell| cell.ulp).collect()),
        };
        Ok(Json(doc))
    })
    .await
}

/// Every value of a small part, as text.
pub(crate) fn texts(part: &Picked<'_>) -> Answer<Vec<String>> {
    let count = part.len();
    let texts = match part.view() {
        Some(view) => (0..count)
            .map(|flat| view.value(&part.shape().unravel(flat)).to_string())
            .collect(),
        None => {
            let (mut scratch, mut ints, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
            if part.int_values(0, count as usize, &mut scratch, &mut ints) {
                ints.iter().map(i128::to_string).collect()
            } else if part.f64_values(0, count as usize, &mut scratch, &mut numbers) {
                let per = part.dtype().values_per_element();
                let text = |number: &f64| Float::F64(*number).to_string();
                let element = |numbers: &[f64]| match numbers {
                    [one] => text(one),
                    many => format!("({})", many.iter().map(text).collect::<Vec<_>>().join(", ")),
                };
                numbers.chunks_exact(per).map(element).collect()
            } else {
                return Err(Problem::unprocessable(
                    "no_numbers",
                    format!(
                        "parts of {} put together have no values of their own",
                        part.dtype()
                    ),
                ));
            }
        }
    };
    part.check().map_err(twinscope_tensor::ReadError::from)?;
    Ok(texts)
}

/// The bytes of each value, most significant first; `None` where values are computed.
fn bits(part: &Picked<'_>) -> Option<Vec<String>> {
    let view = part.view()?;
    view.dtype().itemsize()?;
    let mut scratch = Vec::new();
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    Some(
        (0..part.len())
            .map(|flat| hex(view.element(&part.shape().unravel(flat), &mut scratch).0))
            .collect(),
    )
}
