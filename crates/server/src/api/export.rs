//! A slice to take away: `export.npy` and `export.csv`, streamed piece by piece however large it is.

use super::{Ask, At, blocking};
use crate::{
    app::App,
    edits::SideName,
    problem::{Answer, Problem},
    slices::{Shown, Subject, sides},
    table::quoted,
};
use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use std::{io, sync::Arc};
use tokio::sync::mpsc;
use twinscope_measure::{Reader, Which};
use twinscope_tensor::{DType, Operand, Picked, slice};
use utoipa::IntoParams;

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Cut {
    /// NumPy's slice syntax: `[0, :, 5:9]`. [default: all]
    slice: Option<String>,
    /// `reference`, `candidate` or `difference`. [default: reference]
    side: Option<String>,
    /// The candidate as it lies in its file.
    #[serde(default, deserialize_with = "super::flag")]
    #[param(value_type = Option<bool>)]
    original: bool,
    part: Option<usize>,
    /// The reference as this cause would make it.
    cause: Option<usize>,
    revision: Option<u64>,
}

/// A slice of a pair for NumPy
#[utoipa::path(get, path = "/api/v1/sessions/{session}/pairs/{pair}/export.npy", tag = "values",
    params(("session" = String, Path), ("pair" = usize, Path), Cut), responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream")))]
pub async fn pair_npy(
    State(app): State<Arc<App>>,
    At((id, nth)): At<(String, usize)>,
    Ask(cut): Ask<Cut>,
) -> Answer<Response> {
    export(app, id, Subject::Pair(nth), cut, Format::Npy).await
}

/// A slice of a tensor for NumPy
#[utoipa::path(get, path = "/api/v1/sessions/{session}/sources/{side}/tensors/{tensor}/export.npy", tag = "values",
    params(("session" = String, Path), ("side" = SideName, Path), ("tensor" = usize, Path), Cut),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream")))]
pub async fn tensor_npy(
    State(app): State<Arc<App>>,
    At((id, side, at)): At<(String, SideName, usize)>,
    Ask(cut): Ask<Cut>,
) -> Answer<Response> {
    export(app, id, Subject::Tensor(side, at), cut, Format::Npy).await
}

/// A slice of a pair for a spreadsheet: one line for each row of the last dimension
#[utoipa::path(get, path = "/api/v1/sessions/{session}/pairs/{pair}/export.csv", tag = "values",
    params(("session" = String, Path), ("pair" = usize, Path), Cut), responses((status = 200, body = String, content_type = "text/csv")))]
pub async fn pair_csv(
    State(app): State<Arc<App>>,
    At((id, nth)): At<(String, usize)>,
    Ask(cut): Ask<Cut>,
) -> Answer<Response> {
    export(app, id, Subject::Pair(nth), cut, Format::Csv).await
}

/// A slice of a tensor for a spreadsheet
#[utoipa::path(get, path = "/api/v1/sessions/{session}/sources/{side}/tensors/{tensor}/export.csv", tag = "values",
    params(("session" = String, Path), ("side" = SideName, Path), ("tensor" = usize, Path), Cut),
    responses((status = 200, body = String, content_type = "text/csv")))]
pub async fn tensor_csv(
    State(app): State<Arc<App>>,
    At((id, side, at)): At<(String, SideName, usize)>,
    Ask(cut): Ask<Cut>,
) -> Answer<Response> {
    export(app, id, Subject::Tensor(side, at), cut, Format::Csv).await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Npy,
    Csv,
}

/// Elements of one piece.
const PIECE: u64 = 1 << 16;

async fn export(
    app: Arc<App>,
    id: String,
    subject: Subject,
    cut: Cut,
    format: Format,
) -> Answer<Response> {
    let (send, receive) = mpsc::channel::<io::Result<Bytes>>(4);
    let (ready, waiting) = tokio::sync::oneshot::channel();
    // What goes wrong before the first byte is a problem document; afterwards the stream breaks, which is the only way to say it.
    let work = tokio::task::spawn_blocking(move || {
        let mut ready = Some(ready);
        if let Err(problem) = write(&app, &id, &subject, &cut, format, &send, &mut ready) {
            match ready.take() {
                Some(ready) => drop(ready.send(Err(problem))),
                None => drop(send.blocking_send(Err(io::Error::other(problem.detail)))),
            }
        }
    });
    let name = match waiting.await {
        Ok(named) => named?,
        Err(_) => {
            blocking(|| Ok(())).await?;
            work.await?;
            return Err(Problem::internal("the export ended before it began"));
        }
    };
    let pieces = stream::unfold(receive, |mut receive| async move {
        Some((receive.recv().await?, receive))
    });
    let kind = if format == Format::Npy {
        "application/octet-stream"
    } else {
        "text/csv; charset=utf-8"
    };
    let disposition = format!("attachment; filename=\"{name}\"");
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (
            header::CONTENT_DISPOSITION,
            HeaderValue::from_str(&disposition)
                .map_err(|error| Problem::internal(error.to_string()))?,
        ),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

type Ready = Option<tokio::sync::oneshot::Sender<Answer<String>>>;

fn write(
    app: &App,
    id: &str,
    subject: &Subject,
    cut: &Cut,
    format: Format,
    to: &mpsc::Sender<io::Result<Bytes>>,
    ready: &mut Ready,
) -> Answer<()> {
    let session = app.session(id)?;
    let shown = Shown {
        original: cut.original,
        part: cut.part,
        cause: cut.cause,
        revision: cut.revision,
        ..Shown::default()
    };
    let sides = sides(app, &session, subject, &shown)?;
    let side = cut.side.as_deref().unwrap_or("reference");
    let missing = || {
        Problem::bad(
            "bad_plane",
            "one tensor by itself has only the side `reference`",
        )
    };
    let reference = sides.reference.as_deref().ok_or_else(missing)?;
    let (first, second): (&dyn Operand, Option<&dyn Operand>) = match side {
        "reference" => (reference, None),
        "candidate" => (sides.candidate.as_deref().ok_or_else(missing)?, None),
        "difference" => (
            reference,
            Some(sides.candidate.as_deref().ok_or_else(missing)?),
        ),
        other => {
            return Err(Problem::bad(
                "bad_plane",
                format!("`{other}` is not a side: there are reference, candidate and difference"),
            ));
        }
    };
    if second.is_some_and(|second| second.shape() != first.shape()) {
        return Err(Problem::unprocessable(
            "unequal_shapes",
            "the sides are not lined up: there is no difference",
        ));
    }
    let cuts = slice::parse(cut.slice.as_deref().unwrap_or(""), first.shape())?;
    let (first, second) = (
        Picked::slice(first, &cuts),
        second.map(|second| Picked::slice(second, &cuts)),
    );
    let called = sides
        .pair
        .as_ref()
        .map_or_else(|| "tensor".to_owned(), |pair| pair.name.clone());
    let extension = if format == Format::Npy { "npy" } else { "csv" };
    let name = format!("{}.{side}.{extension}", plain_name(&called));
    let pieces = Pieces {
        first: &first,
        second: second.as_ref(),
    };
    let mut begin = |head: Vec<u8>| {
        if let Some(ready) = ready.take() {
            let _ = ready.send(Ok(name.clone()));
        }
        send(to, head)
    };
    match format {
        Format::Npy => pieces.npy(&mut begin, to),
        Format::Csv => pieces.csv(&mut begin, to),
    }
}

/// Letters that every file system takes.
fn plain_name(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "._-".contains(c) {
                c
            } else {
                '_'
            }
        })
        .take(120)
        .collect();
    plain.trim_start_matches('.').to_owned()
}

fn send(to: &mpsc::Sender<io::Result<Bytes>>, piece: Vec<u8>) -> Answer<()> {
    // Whoever asked has gone: nothing is left to do, and nothing is wrong.
    to.blocking_send(Ok(piece.into()))
        .map_err(|_| Problem::internal("the client has gone"))
}

struct Pieces<'a> {
    first: &'a Picked<'a>,
    /// For a difference.
    second: Option<&'a Picked<'a>>,
}

/// NumPy's name of a dtype whose bytes can be given as they are.
fn numpy(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "|b1",
        DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::U16 => "<u2",
        DType::I16 => "<i2",
        DType::U32 => "<u4",
        DType::I32 => "<i4",
        DType::U64 => "<u8",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::C64 => "<c8",
        DType::C128 => "<c16",
        _ => return None,
    })
}

impl Pieces<'_> {
    fn npy(
        &self,
        begin: &mut dyn FnMut(Vec<u8>) -> Answer<()>,
        to: &mpsc::Sender<io::Result<Bytes>>,
    ) -> Answer<()> {
        let view = self.first.view().filter(|_| self.second.is_none());
        let own = view.and_then(|view| Some((view, numpy(view.dtype())?)));
        let narrow = self.second.is_none() && self.first.dtype().is_exact_in_f32();
        let descr = own.map_or(if narrow { "<f4" } else { "<f8" }, |(_, descr)| descr);
        let mut reader = match (own, self.second) {
            (Some(_), _) => None,
            (None, Some(second)) => Some(Reader::two(self.first, second)?),
            (None, None) => Some(Reader::one(self.first)?),
        };
        if reader.as_ref().is_some_and(|reader| reader.per() != 1) {
            return Err(Problem::unprocessable(
                "no_numpy_dtype",
                format!("NumPy has no dtype for {}", self.first.dtype()),
            ));
        }
        begin(npy_header(descr, self.first.shape().dims()))?;
        let which = if self.second.is_some() {
            Which::Difference
        } else {
            Which::Reference
        };
        let (len, mut at, mut scratch) = (self.first.len(), 0, Vec::new());
        while at < len {
            let count = PIECE.min(len - at) as usize;
            let piece = match (&own, &mut reader) {
                (Some((view, _)), _) => view.chunk(at, count, &mut scratch).to_vec(),
                (None, Some(reader)) => {
                    reader.read(at, count);
                    let numbers = reader.numbers(which);
                    if narrow {
                        numbers
                            .iter()
                            .flat_map(|x| (*x as f32).to_le_bytes())
                            .collect()
                    } else {
                        numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
                    }
                }
                (None, None) => Vec::new(),
            };
            self.first
                .check()
                .map_err(twinscope_tensor::ReadError::from)?;
            send(to, piece)?;
            at += count as u64;
        }
        Ok(())
    }

    fn csv(
        &self,
        begin: &mut dyn FnMut(Vec<u8>) -> Answer<()>,
        to: &mpsc::Sender<io::Result<Bytes>>,
    ) -> Answer<()> {
        let width = self
            .first
            .shape()
            .dims()
            .last()
            .copied()
            .unwrap_or(1)
            .max(1);
        let mut reader = self
            .second
            .map(|second| Reader::two(self.first, second))
            .transpose()?;
        begin(Vec::new())?;
        let (len, mut at) = (self.first.len(), 0);
        while at < len {
            let count = PIECE.min(len - at);
            let texts = match &mut reader {
                Some(reader) => {
                    reader.read(at, count as usize);
                    reader
                        .numbers(Which::Difference)
                        .iter()
                        .map(|x| twinscope_tensor::Float::F64(*x).to_string())
                        .collect()
                }
                None => match self.first.view() {
                    Some(view) => (at..at + count)
                        .map(|flat| view.value(&self.first.shape().unravel(flat)).to_string())
                        .collect(),
                    None => super::window::texts(&Picked::run(self.first, at..at + count)?)?,
                },
            };
            self.first
                .check()
                .map_err(twinscope_tensor::ReadError::from)?;
            let mut lines = String::new();
            for (nth, text) in texts.iter().enumerate() {
                let place = at + nth as u64;
                lines += &field(text);
                lines.push(if (place + 1).is_multiple_of(width) {
                    '\n'
                } else {
                    ','
                });
            }
            send(to, lines.into_bytes())?;
            at += count;
        }
        Ok(())
    }
}

/// A value as a field: NaN and infinities by the words of all our JSON and CSV, a string from a file as no formula.
fn field(text: &str) -> String {
    match text {
        "nan" => "NaN".to_owned(),
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        other => quoted(other),
    }
}

/// Version 1, padded to a multiple of 64 as NumPy does.
fn npy_header(descr: &str, dims: &[u64]) -> Vec<u8> {
    let dims: String = dims.iter().map(|dim| format!("{dim}, ")).collect();
    let mut header = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}",
        dims.trim_end()
    );
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    [
        b"\x93NUMPY\x01\x00".as_slice(),
        &(header.len() as u16).to_le_bytes(),
        header.as_bytes(),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_npy_header_is_as_numpy_writes_it() {
        let header = npy_header("<f4", &[2, 3]);
        assert!(header.len().is_multiple_of(64) && header.ends_with(b" \n"));
        assert!(
            String::from_utf8_lossy(&header[10..])
                .starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3,), }")
        );
        assert!(String::from_utf8_lossy(&npy_header("<f4", &[])[10..]).contains("'shape': ()"));
    }

    #[test]
    fn names_from_files_are_no_paths() {
        assert_eq!(plain_name("../../etc/passwd\r\n\"x"), "_.._etc_passwd___x");
        assert_eq!(plain_name("0_query"), "0_query");
    }
}
