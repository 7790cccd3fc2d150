//! `twinscope stats SOURCE` — one line of numbers for each tensor, in one pass over its values.

use crate::{
    NOT_DONE, hash,
    open::{Opened, Opening},
    render::{
        human, json,
        table::{self, Column},
        warnings,
    },
};
use rayon::prelude::*;
use std::{cmp::Ordering, fmt, io::Write, path::PathBuf};
use twinscope_measure::{Number, Squares, Stats as Measured};
use twinscope_report::{self as document, Exact, StatsListing, StatsRow};
use twinscope_tensor::View;

/// Measure every tensor: count, mean, std, min, max, NaN, Inf, zeros, norm
///
/// Numbers are over the finite values; NaN and infinities are counted, never averaged. What is undefined (the mean of
/// nothing, the minimum of complex numbers) is left blank, null in JSON. The digits do not depend on --threads.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  twinscope stats model.safetensors --only '*norm*'
  twinscope stats dump.pt --sort nan              those with NaN first
  twinscope stats model.gguf --json")]
pub(crate) struct Stats {
    /// A tensor file, archive or folder, or `-` for standard input
    pub(crate) source: PathBuf,
    /// Sort by this column: names and dtypes from A to Z, numbers from the largest, undefined ones last
    #[arg(long, value_name = "COLUMN", default_value = "order")]
    sort: Sort,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    /// Execution order
    Order,
    Name,
    Dtype,
    Count,
    Mean,
    Std,
    Min,
    Max,
    Nan,
    Inf,
    Zero,
    Norm,
    Sum,
}

/// One tensor's numbers, or why there are none.
struct Measure {
    index: usize,
    stats: Measured,
}

impl Stats {
    pub(crate) fn run(&self, opening: &Opening, out: &mut dyn Write) -> anyhow::Result<u8> {
        let opened = opening.open(&self.source)?;
        let tensors = opened.tensors();
        let (mut measures, unread) = measure_all(&opened, &tensors);
        opened.all_read();
        self.sort(&opened, &mut measures);
        if opening.json {
            json::document(out, &document(&opened, &measures, &unread))?;
        } else {
            table(&opened, &measures, out)?;
        }
        out.flush()?;
        warnings::about(opened.listing());
        warnings::unread(&unread);
        opened.warn_if_nothing_matches(tensors.len());
        let nothing = measures.is_empty() && !unread.is_empty();
        Ok(if nothing {
            NOT_DONE
        } else {
            opened.exit_code()
        })
    }

    fn sort(&self, opened: &Opened, measures: &mut [Measure]) {
        // Stable, so that equals stay in execution order.
        match self.sort {
            Sort::Order => {}
            Sort::Name => {
                measures.sort_by(|a, b| opened.info(a.index).name.cmp(&opened.info(b.index).name));
            }
            Sort::Dtype => {
                measures.sort_by_cached_key(|measure| opened.info(measure.index).dtype.to_string());
            }
            column => {
                measures.sort_by(|a, b| largest_first(column.key(&a.stats), column.key(&b.stats)));
            }
        }
    }
}

impl Sort {
    fn key(self, stats: &Measured) -> Option<f64> {
        let counts = stats.counts();
        match self {
            Sort::Order | Sort::Name | Sort::Dtype => None,
            Sort::Count => Some(stats.count() as f64),
            Sort::Mean => stats.mean().map(magnitude),
            Sort::Std => stats.std(),
            Sort::Min => stats.min().map(magnitude),
            Sort::Max => stats.max().map(magnitude),
            Sort::Nan => counts.map(|counts| counts.nan as f64),
            Sort::Inf => counts.map(|counts| (counts.pos_inf + counts.neg_inf) as f64),
            Sort::Zero => counts.map(|counts| counts.zeros as f64),
            Sort::Norm => stats.norm(),
            Sort::Sum => stats.sum().map(magnitude),
        }
    }
}

/// Something to sort by. Complex numbers have no order of their own; their size is one.
fn magnitude(number: Number) -> f64 {
    match number {
        Number::Int(value) => value as f64,
        Number::Float(value) => value,
        Number::Complex(real, imaginary) => real.hypot(imaginary),
    }
}

fn largest_first(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

const TOO_OFTEN: &str =
    "the tensors of this source claim its bytes too many times over; name this one with --only";

type Unread<'a> = Vec<(&'a str, String)>;

/// Measures in parallel, within each tensor and across them; the answers are in listing order.
fn measure_all<'a>(opened: &'a Opened, tensors: &[usize]) -> (Vec<Measure>, Unread<'a>) {
    let source = &*opened.source;
    // Views that are at hand tell what measuring them takes; what must be unpacked takes what it claims.
    let paid = hash::paid_for(source, tensors, |index| {
        match source.place(index).map(|_| source.view(index)) {
            Some(Ok(view)) => once(&view).byte_len().unwrap_or(0),
            Some(Err(_)) => 0,
            None => opened.info(index).bytes.unwrap_or(0),
        }
    });
    let all: Vec<Result<Measure, (&str, String)>> = tensors
        .par_iter()
        .zip(&paid)
        .map(|(index, paid)| {
            let measured = if *paid {
                measure(opened, *index)
            } else {
                Err(TOO_OFTEN.to_owned())
            };
            measured.map_err(|reason| (opened.info(*index).name.as_str(), reason))
        })
        .collect();
    let (mut measures, mut unread) = (Vec::with_capacity(all.len()), Vec::new());
    for one in all {
        match one {
            Ok(measure) => measures.push(measure),
            Err(failed) => unread.push(failed),
        }
    }
    (measures, unread)
}

fn measure(opened: &Opened, index: usize) -> Result<Measure, String> {
    let view = opened
        .source
        .view(index)
        .map_err(|error| error.to_string())?;
    if hash::is_unreasonable(&once(&view)) {
        return Err(format!(
            "it claims {} values over {} of data",
            view.len(),
            human::size(view.stored_len())
        ));
    }
    let stats = twinscope_measure::stats(&view).map_err(|error| error.to_string())?;
    Ok(Measure { index, stats })
}

/// The view without its repetitions, which are measured once and counted.
fn once(view: &View) -> View {
    use twinscope_tensor::slice::Cut;
    let dims = view.shape().dims().iter().zip(view.strides());
    let cuts: Vec<Cut> = dims
        .map(|(dim, stride)| match stride {
            0 => Cut::Range {
                start: 0,
                step: 1,
                len: (*dim).min(1),
            },
            _ => Cut::Range {
                start: 0,
                step: 1,
                len: *dim,
            },
        })
        .collect();
    view.slice(&cuts)
}

fn table(opened: &Opened, measures: &[Measure], out: &mut dyn Write) -> anyhow::Result<()> {
    let mut columns = vec![
        Column::left("name"),
        Column::left("dtype"),
        Column::left("shape"),
    ];
    columns.extend(
        [
            "count", "mean", "std", "min", "max", "nan", "inf", "zero", "norm",
        ]
        .map(Column::right),
    );
    table::write(
        out,
        &columns,
        measures.len(),
        human::stdout_width(),
        "name",
        &mut |at, row| {
            let Measure { index, stats } = &measures[at];
            let info = opened.info(*index);
            let counts = stats.counts();
            row.cell(human::safe(&info.name));
            row.cell(info.dtype);
            row.cell(human::Dims(info.shape.dims()));
            row.cell(stats.count());
            row.cell(Brief(stats.mean()));
            row.cell(Brief(stats.std().map(Number::Float)));
            row.cell(Brief(stats.min()));
            row.cell(Brief(stats.max()));
            let number =
                |count: Option<u64>| Brief(count.map(|count| Number::Int(i128::from(count))));
            row.cell(number(counts.map(|counts| counts.nan)));
            row.cell(number(counts.map(|counts| counts.pos_inf + counts.neg_inf)));
            row.cell(number(counts.map(|counts| counts.zeros)));
            row.cell(Brief(stats.norm().map(Number::Float)));
        },
    )?;
    Ok(())
}

/// A number as people read it; nothing where it is undefined.
struct Brief(Option<Number>);

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("-"),
            Some(Number::Int(value)) => write!(f, "{value}"),
            Some(Number::Float(value)) => f.write_str(&human::number(value)),
            Some(Number::Complex(real, imaginary)) => {
                let sign = if imaginary.is_sign_negative() {
                    ""
                } else {
                    "+"
                };
                write!(
                    f,
                    "{}{sign}{}j",
                    human::number(real),
                    human::number(imaginary)
                )
            }
        }
    }
}

/// `stats --json`
fn document<'a>(
    opened: &'a Opened,
    measures: &[Measure],
    unread: &'a Unread<'_>,
) -> StatsListing<'a> {
    let listing = opened.listing();
    StatsListing {
        source: listing.source.as_str().into(),
        format: listing.format.into(),
        tensors: measures
            .iter()
            .map(|measure| row(opened, measure))
            .collect(),
        skipped: json::skipped(listing, unread),
        findings: json::findings(listing),
    }
}

fn row<'a>(opened: &'a Opened, measure: &Measure) -> StatsRow<'a> {
    let Measure { index, stats } = measure;
    let info = opened.info(*index);
    let counts = stats.counts();
    StatsRow {
        name: info.name.as_str().into(),
        dtype: info.dtype.to_string(),
        shape: info.shape.dims().into(),
        order: *index,
        count: stats.count(),
        finite: counts.map(|counts| counts.finite),
        mean: stats.mean().map(exact),
        std: stats.std().map(document::Number),
        min: stats.min().map(exact),
        max: stats.max().map(exact),
        nan: counts.map(|counts| counts.nan),
        inf: counts.map(|counts| counts.pos_inf + counts.neg_inf),
        pos_inf: counts.map(|counts| counts.pos_inf),
        neg_inf: counts.map(|counts| counts.neg_inf),
        zero: counts.map(|counts| counts.zeros),
        norm: stats.norm().map(document::Number),
        sum: stats.sum().map(exact),
        max_abs: stats.max_abs().map(exact),
        squares: stats.squares().and_then(|squares| match squares {
            Squares::InRange => None,
            Squares::Overflowed => Some(document::Squares::Overflowed),
            Squares::Underflowed => Some(document::Squares::Underflowed),
        }),
    }
}

fn exact(number: Number) -> Exact {
    match number {
        Number::Int(value) => Exact::Int(value),
        Number::Float(value) => Exact::Float(value),
        Number::Complex(real, imaginary) => Exact::Complex(real, imaginary),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undefined_numbers_sort_last() {
        let mut keys = vec![None, Some(1.0), Some(f64::NEG_INFINITY), None, Some(3.0)];
        keys.sort_by(|a, b| largest_first(*a, *b));
        assert_eq!(
            keys,
            [Some(3.0), Some(1.0), Some(f64::NEG_INFINITY), None, None]
        );
    }

    #[test]
    fn undefined_is_a_dash_and_complex_has_two_parts() {
        assert_eq!(Brief(None).to_string(), "-");
        assert_eq!(
            Brief(Some(Number::Complex(1.5, -2.0))).to_string(),
            "1.5-2j"
        );
        assert_eq!(
            Brief(Some(Number::Int(i128::from(u64::MAX) + 1))).to_string(),
            "18446744073709551616"
        );
    }
}
