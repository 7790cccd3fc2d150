//! Which numbers a request is about: a pair's sides lined up, the candidate as it lies in its file, a tensor by itself, the reference with a cause
//! applied; and the rows and columns of them that are to be shown.

use crate::{
    app::App,
    edits::SideName,
    problem::{Answer, Problem},
    session::Session,
    sources::Sources,
};
use serde::Deserialize;
use std::ops::Range;
use twinscope_compare::{Side, layout};
use twinscope_explain::Scene;
use twinscope_report::Pair;
use twinscope_tensor::{DType, Operand, Picked, Plane, Shape, View};
use utoipa::IntoParams;

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Pair(usize),
    Tensor(SideName, usize),
}

/// Which rows and columns, of what.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Shown {
    /// The dimension that runs down. With neither `rows` nor `cols`: the last two.
    pub rows: Option<usize>,
    /// The dimension that runs across. Alone: one row along it.
    pub cols: Option<usize>,
    /// An index for every dimension, comma-separated; those of rows and columns are not looked at. [default: zeros]
    pub at: Option<String>,
    /// First and one past the last row. [default: all]
    pub r0: Option<u64>,
    pub r1: Option<u64>,
    pub c0: Option<u64>,
    pub c1: Option<u64>,
    /// All elements as one row, in row-major order; `c0` and `c1` choose.
    #[serde(default, deserialize_with = "crate::api::flag")]
    #[param(value_type = Option<bool>)]
    pub flat: bool,
    /// The candidate's own dimensions, indices and first row and column, where they are not the reference's.
    pub other_rows: Option<usize>,
    pub other_cols: Option<usize>,
    pub other_at: Option<String>,
    pub other_r0: Option<u64>,
    pub other_c0: Option<u64>,
    /// The candidate as it lies in its file, in its own shape.
    #[serde(default, deserialize_with = "crate::api::flag")]
    #[param(value_type = Option<bool>)]
    pub original: bool,
    /// Which of several parts of the candidate, with `original`. [default: 0]
    pub part: Option<usize>,
    /// The reference as this cause of the pair (by its place) would make it: the difference that stays is what it does not explain.
    pub cause: Option<usize>,
    /// `reference`, `candidate`, `difference`, comma-separated. [default: all there are]
    pub planes: Option<String>,
    /// Refuse when pairs have changed since this revision.
    pub revision: Option<u64>,
    /// Most rows and columns of the picture; a window with more is pooled. [default: 512]
    pub height: Option<usize>,
    pub width: Option<usize>,
    /// Read every element of the window, however many; else a large window is sampled, and says so.
    #[serde(default, deserialize_with = "crate::api::flag")]
    #[param(value_type = Option<bool>)]
    pub exact: bool,
    /// With the bytes of each value in hexadecimal, most significant first.
    #[serde(default, deserialize_with = "crate::api::flag")]
    #[param(value_type = Option<bool>)]
    pub bits: bool,
}

/// The sides of a subject, as far as it has them.
pub(crate) struct Sides {
    pub(crate) reference: Option<Box<dyn Operand>>,
    pub(crate) candidate: Option<Box<dyn Operand>>,
    pub(crate) pair: Option<Pair>,
}

impl std::fmt::Debug for Sides {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sides({:?})", self.pair.as_ref().map(|pair| &pair.name))
    }
}

/// Opens what a request is about. Nothing is read yet.
pub(crate) fn sides(
    app: &App,
    session: &Session,
    subject: &Subject,
    shown: &Shown,
) -> Answer<Sides> {
    match subject {
        Subject::Tensor(side, at) => tensor(app, session, *side, *at),
        Subject::Pair(nth) => pair(app, session, *nth, shown),
    }
}

fn tensor(app: &App, session: &Session, side: SideName, at: usize) -> Answer<Sides> {
    let sources = session.sources(app)?;
    let opened = match side {
        SideName::Reference => &sources.reference,
        SideName::Candidate => sources.candidate.as_ref().ok_or_else(|| {
            Problem::not_found("no_such_side", "this session has one source, the reference")
        })?,
    };
    let info =
        opened.source.listing().tensors.get(at).ok_or_else(|| {
            Problem::not_found("no_such_tensor", format!("there is no tensor {at}"))
        })?;
    let view = opened.source.view(at).map_err(|error| {
        Problem::unprocessable("unreadable_tensor", format!("`{}`: {error}", info.name))
    })?;
    Ok(Sides {
        reference: Some(Box::new(view)),
        candidate: None,
        pair: None,
    })
}

fn pair(app: &App, session: &Session, nth: usize, shown: &Shown) -> Answer<Sides> {
    let (current, pair) = session.pair(app, nth, shown.revision)?;
    let sources = session.sources(app)?;
    let left = pair
        .reference
        .all()
        .iter()
        .map(|name| sources.reference.view(name))
        .collect::<Answer<Vec<_>>>()?;
    let right = pair
        .candidate
        .all()
        .iter()
        .map(|name| sources.other().view(name))
        .collect::<Answer<Vec<_>>>()?;
    let aligned = match &pair.layout {
        Some(layout) => Some(layout::apply(&layout.steps, &left, &right)?),
        None => None,
    };
    let original = |views: &[View], part: usize| -> Answer<Box<dyn Operand>> {
        let view = views.get(part).ok_or_else(|| {
            Problem::not_found(
                "no_such_part",
                format!("there is no part {part}, there are {}", views.len()),
            )
        })?;
        Ok(Box::new(view.clone()))
    };
    let (mut reference, mut candidate) = match aligned {
        Some(aligned) => (aligned.reference, aligned.candidate),
        // What cannot be lined up can still be looked at, each in its own shape.
        None => (
            original(&left, 0)?,
            original(&right, shown.part.unwrap_or(0))?,
        ),
    };
    if shown.original {
        candidate = original(&right, shown.part.unwrap_or(0))?;
    }
    if let Some(cause) = shown.cause {
        let shape = reference.shape().clone();
        let values = session.prediction((current.revision, nth, cause), || {
            predicted(session, &sources, nth, cause)
        })?;
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let view = View::new(DType::F64, shape, bytes.into())
            .map_err(|error| Problem::unprocessable("no_prediction", error.to_string()))?;
        reference = Box::new(view);
    }
    Ok(Sides {
        reference: Some(reference),
        candidate: Some(candidate),
        pair: Some(pair),
    })
}

/// What the candidate would be if a cause were the whole truth.
fn predicted(session: &Session, sources: &Sources, nth: usize, cause: usize) -> Answer<Vec<f64>> {
    let gone = || {
        Problem::conflict("not_in_memory", "the comparison is no longer in memory")
            .hint("compare again: it takes no longer than the first time")
    };
    let job = session.job().ok_or_else(gone)?;
    let (plan, report) = job.plan().zip(job.judged()).ok_or_else(gone)?;
    let cause = report
        .pairs
        .get(nth)
        .and_then(|pair| pair.causes.get(cause));
    let cause =
        cause.ok_or_else(|| Problem::not_found("no_such_cause", "the pair has no such cause"))?;
    let (left, right) = (
        Side::new(&*sources.reference.source),
        Side::new(&*sources.other().source),
    );
    let scene = Scene::new(plan, &left, &right, &report.pairs);
    let none = "this cause says what differs, but not what the values would be; or the pair is too large to be read whole";
    twinscope_explain::predicted(&scene, nth, cause)
        .ok_or_else(|| Problem::unprocessable("no_prediction", none))
}

impl Shown {
    /// The same with rows and columns exchanged.
    pub(crate) fn turned(&self) -> Self {
        let own = self.other_rows.is_some() || self.other_cols.is_some();
        Self {
            rows: self.cols,
            cols: self.rows,
            r0: self.c0,
            r1: self.c1,
            c0: self.r0,
            c1: self.r1,
            other_rows: if own { self.other_cols } else { None },
            other_cols: if own { self.other_rows } else { None },
            other_r0: self.other_c0,
            other_c0: self.other_r0,
            height: self.width,
            width: self.height,
            ..self.clone()
        }
    }

    /// The part of an operand that is asked for, always as rows and columns.
    pub(crate) fn window<'a>(&self, operand: &'a dyn Operand) -> Answer<Picked<'a>> {
        self.part_of(
            operand,
            self.rows,
            self.cols,
            self.at.as_deref(),
            [self.r0, self.r1, self.c0, self.c1],
        )
    }

    /// The same of the candidate, by its own indices where they are given.
    pub(crate) fn other_window<'a>(
        &self,
        operand: &'a dyn Operand,
        size: Option<&Shape>,
    ) -> Answer<Picked<'a>> {
        let own = self.other_rows.is_some()
            || self.other_cols.is_some()
            || self.other_at.is_some()
            || self.other_r0.is_some()
            || self.other_c0.is_some();
        let Some(size) = size.filter(|_| own) else {
            return self.window(operand);
        };
        let (r0, c0) = (self.other_r0.unwrap_or(0), self.other_c0.unwrap_or(0));
        let (r1, c1) = (
            r0.saturating_add(size.dims()[0]),
            c0.saturating_add(size.dims()[1]),
        );
        let (rows, cols) = match (self.other_rows, self.other_cols) {
            (None, None) => (self.rows, self.cols),
            own => own,
        };
        self.part_of(
            operand,
            rows,
            cols,
            self.other_at.as_deref().or(self.at.as_deref()),
            [Some(r0), Some(r1), Some(c0), Some(c1)],
        )
    }

    fn part_of<'a>(
        &self,
        operand: &'a dyn Operand,
        rows: Option<usize>,
        cols: Option<usize>,
        at: Option<&str>,
        [r0, r1, c0, c1]: [Option<u64>; 4],
    ) -> Answer<Picked<'a>> {
        if self.flat {
            return Ok(Picked::run(
                operand,
                c0.unwrap_or(0)..c1.unwrap_or(operand.len()),
            )?);
        }
        let dims = operand.shape().dims();
        let rank = dims.len();
        let (rows, cols) = match (rows, cols) {
            (None, None) => (rank.checked_sub(2), rank.checked_sub(1)),
            chosen => chosen,
        };
        let at = match at.filter(|at| !at.is_empty()) {
            None => vec![0; rank],
            Some(text) => indices(text)?,
        };
        let size =
            |axis: Option<usize>| axis.map_or(1, |axis| dims.get(axis).copied().unwrap_or(0));
        let range = |from: Option<u64>, to: Option<u64>, axis| -> Range<u64> {
            from.unwrap_or(0)..to.unwrap_or_else(|| size(axis))
        };
        let plane = Plane {
            rows,
            cols,
            at,
            down: range(r0, r1, rows),
            across: range(c0, c1, cols),
        };
        Ok(Picked::plane(operand, &plane)?)
    }
}

/// `0,3,17`
pub(crate) fn indices(text: &str) -> Answer<Vec<u64>> {
    let text = text.trim().trim_start_matches('[').trim_end_matches(']');
    let number = |word: &str| {
        word.trim()
            .parse()
            .map_err(|_| Problem::bad("bad_index", format!("`{}` is not an index", word.trim())))
    };
    text.split(',')
        .filter(|word| !word.trim().is_empty())
        .map(number)
        .collect()
}
