//! One rank of a run, written on the caller's thread.

use super::{
    Rank, Record, Role, RunInfo,
    index::Index,
    line::Line,
    segment::{Key, Segment},
};
use crate::CaptureError;
use serde_json::{Map, Value};
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};
use xxhash_rust::xxh3::xxh3_128;

/// A segment this long is closed and the next begun: closed segments never change, so they can be moved away while the model runs.
const SEGMENT: u64 = 1 << 30;

/// When data is forced onto the disk. A killed process loses nothing either way; a machine that loses power does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncPolicy {
    #[default]
    Never,
    /// At every step.
    Step,
}

/// How long something took: a module's call, a part of the program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanRecord {
    /// The full path.
    pub name: String,
    /// When it began and how long it took, in nanoseconds.
    pub at_ns: u64,
    pub took_ns: u64,
    pub thread: u64,
    /// Memory of the process when it ended and how much more than when it began.
    pub memory: Option<MemorySample>,
    pub more: Map<String, Value>,
}

/// Memory, as far as somebody knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySample {
    /// What the operating system counts for the process, and the most it ever was.
    pub resident: Option<u64>,
    pub resident_peak: Option<u64>,
    /// What the allocator handed out, see [`crate::memory::Counting`]; the most since the process began.
    pub live: Option<u64>,
    pub live_peak: Option<u64>,
    /// Bytes and calls, ever.
    pub allocated: Option<u64>,
    pub allocations: Option<u64>,
}

impl MemorySample {
    fn fields(&self) -> Map<String, Value> {
        let fields = [
            ("rss", self.resident),
            ("rss_peak", self.resident_peak),
            ("live", self.live),
            ("live_peak", self.live_peak),
            ("allocated", self.allocated),
            ("allocations", self.allocations),
        ];
        fields
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?.into())))
            .collect()
    }
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub run: PathBuf,
    /// Tensors whose values are in the run, and those whose are not.
    pub records: u64,
    pub dropped: u64,
    /// Bytes of values, and how many of them an equal tensor before had already written.
    pub bytes: u64,
    pub repeated: u64,
    /// The first thing that went wrong.
    pub error: Option<String>,
}

/// Appends to one rank of a run.
///
/// ```
/// # fn main() -> Result<(), twinscope_capture::CaptureError> {
/// # let folder = tempfile::tempdir().unwrap();
/// use twinscope_capture::{DType, Rank, Record, Role, RunInfo, RunWriter};
/// let mut run = RunWriter::create(&folder.path().join("run"), &RunInfo::default(), &Rank::single())?;
/// let x = run.tensor(&Record::new("embed", DType::U8, vec![3]).role(Role::Output), &[1, 2, 3])?;
/// run.tensor(&Record::new("layers.0", DType::U8, vec![3]).role(Role::Output).inputs([x]), &[2, 4, 6])?;
/// run.finish()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RunWriter {
    folder: PathBuf,
    index: Index,
    segment: Option<Segment>,
    segments: u64,
    segment_bytes: u64,
    /// The record that holds the bytes of this hash and length.
    stored: HashMap<(u128, u64), u64>,
    /// How often a name (and operation), role and place was seen in this step.
    calls: HashMap<(String, &'static str, String), u64>,
    next: u64,
    step: u64,
    sync: SyncPolicy,
    /// The smallest payload that did not fit; larger ones are not tried before the next step.
    too_large: Option<u64>,
    summary: Summary,
    ended: bool,
}

impl RunWriter {
    /// Begins a rank of the run in this folder. The folder may exist (other ranks), the rank must not.
    pub fn create(run: &Path, info: &RunInfo, rank: &Rank) -> Result<Self, CaptureError> {
        let folder = run.join(format!("rank-{:05}", rank.number));
        if folder.join("index.jsonl").exists() {
            return Err(CaptureError::Exists { path: folder });
        }
        fs::create_dir_all(&folder).map_err(|error| CaptureError::io(&folder, &error, 0))?;
        if rank.number == 0 {
            info.write(run, rank)?;
        }
        rank.write(&folder)?;
        Ok(Self {
            index: Index::create(&folder)?,
            folder,
            segment: None,
            segments: 0,
            segment_bytes: SEGMENT,
            stored: HashMap::new(),
            calls: HashMap::new(),
            next: 0,
            step: 0,
            sync: SyncPolicy::Never,
            too_large: None,
            summary: Summary {
                run: run.to_owned(),
                ..Summary::default()
            },
            ended: false,
        })
    }

    /// Removes what a run of before left of this rank, and only files that the format names.
    pub fn remove(run: &Path, rank: &Rank) -> Result<(), CaptureError> {
        let folder = run.join(format!("rank-{:05}", rank.number));
        for file in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            let ours = name == "index.jsonl"
                || name == "rank.json"
                || name.starts_with("seg-") && name.ends_with(".safetensors");
            if ours {
                fs::remove_file(file.path())
                    .map_err(|error| CaptureError::io(&file.path(), &error, 0))?;
            }
        }
        Ok(())
    }

    pub fn sync(mut self, policy: SyncPolicy) -> Self {
        self.sync = policy;
        self
    }

    /// Closes segments at this many bytes instead of 1 GiB.
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes.max(1);
        self
    }

    /// Appends a tensor: its values, row-major and little-endian, then its line. Returns the record's number, which
    /// [`Record::inputs`] of later ones may name.
    pub fn tensor(&mut self, record: &Record, values: &[u8]) -> Result<u64, CaptureError> {
        let i = self.next;
        self.tensor_numbered(i, record, values).map(|()| i)
    }

    /// The same with a number that was given out before: it must be larger than every one so far.
    pub fn tensor_numbered(
        &mut self,
        i: u64,
        record: &Record,
        values: &[u8],
    ) -> Result<(), CaptureError> {
        self.tensor_hashed(i, record, values, hash_of(values))
    }

    /// The same when somebody else had the time to hash the values.
    pub(crate) fn tensor_hashed(
        &mut self,
        i: u64,
        record: &Record,
        values: &[u8],
        hash: u128,
    ) -> Result<(), CaptureError> {
        check_length(record, values)?;
        let mut line = self.begin(i, record)?;
        let len = values.len() as u64;
        line.text("hash", &format!("xxh3:{hash:032x}"));
        if let Some(same) = self.stored.get(&(hash, len)) {
            line.number("same", *same);
            self.append(&line.end_with(&record.more))?;
            self.summary.repeated += len;
        } else {
            match self.payload(i, record, values) {
                Ok((number, begin, end)) => {
                    line.number("seg", number);
                    line.numbers("off", &[begin, end]);
                    self.append(&line.end_with(&record.more))?;
                    self.stored.insert((hash, len), i);
                }
                Err(error) => {
                    line.text("err", &error.to_string());
                    // Where even this line finds no room, the error says the same.
                    let _ = self.index.append(&line.end_with(&record.more));
                    return Err(self.failed(error));
                }
            }
        }
        self.summary.records += 1;
        self.summary.bytes += len;
        Ok(())
    }

    /// Says that there was a tensor, and why its values are not here.
    pub fn tensor_without_values(
        &mut self,
        i: Option<u64>,
        record: &Record,
        why: &str,
    ) -> Result<(), CaptureError> {
        let mut line = self.begin(i.unwrap_or(self.next), record)?;
        line.text("err", why);
        self.summary.dropped += 1;
        self.index.append(&line.end_with(&record.more))
    }

    /// The next step begins: the next token, the next batch. The first step, number 0, begins by itself.
    pub fn step(&mut self) -> Result<(), CaptureError> {
        self.step += 1;
        self.calls.clear();
        self.too_large = None;
        let mut line = Line::new("s");
        line.number("step", self.step);
        line.number("ts", crate::clock::now_ns());
        self.append(&line.end())?;
        if self.sync == SyncPolicy::Step {
            // The payload before what points at it, as always.
            self.segment.as_ref().map_or(Ok(()), Segment::sync)?;
            self.index.sync()?;
        }
        Ok(())
    }

    pub fn span(&mut self, span: &SpanRecord) -> Result<(), CaptureError> {
        let mut line = Line::new("x");
        line.text("name", &span.name);
        line.number("step", self.step);
        line.number("ts", span.at_ns);
        line.number("dur", span.took_ns);
        line.number("thread", span.thread);
        if let Some(memory) = &span.memory {
            line.value("mem", &memory.fields().into());
        }
        self.append(&line.end_with(&span.more))
    }

    /// `name` is the span it was measured in; empty for none.
    pub fn memory(&mut self, name: &str, sample: &MemorySample) -> Result<(), CaptureError> {
        let line = self.event("a", name);
        self.append(&line.end_with(&sample.fields()))
    }

    /// Anything a later reader should know: tokens, a prompt, a loss.
    pub fn note(&mut self, name: &str, value: &Value) -> Result<(), CaptureError> {
        let mut line = self.event("m", name);
        line.value("value", value);
        self.append(&line.end())
    }

    fn event(&self, kind: &str, name: &str) -> Line {
        let mut line = Line::new(kind);
        line.text("name", name);
        line.number("step", self.step);
        line.number("ts", crate::clock::now_ns());
        line
    }

    /// Counts a tensor that never came as far as this writer.
    pub fn dropped(&mut self, why: &CaptureError) {
        self.summary.dropped += 1;
        self.summary.error.get_or_insert_with(|| why.to_string());
    }

    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Closes the run. A writer that is dropped does the same, without a word about what went wrong.
    pub fn finish(mut self) -> Result<Summary, CaptureError> {
        self.end()?;
        Ok(self.summary.clone())
    }

    fn end(&mut self) -> Result<(), CaptureError> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        let closed = self.segment.take().map_or(Ok(()), Segment::close);
        let Summary {
            records,
            bytes,
            dropped,
            error,
            ..
        } = &self.summary;
        let mut line = Line::new("end");
        line.number("n", *records);
        line.number("bytes", *bytes);
        line.number("dropped", *dropped);
        line.number("ts", crate::clock::now_ns());
        line.maybe_text("err", error.as_deref());
        self.index.append(&line.end())?;
        closed
    }

    fn begin(&mut self, i: u64, record: &Record) -> Result<Line, CaptureError> {
        if i < self.next {
            return Err(CaptureError::Order {
                i,
                last: self.next - 1,
            });
        }
        self.next = i + 1;
        // An operation is told from others of its module by what it does.
        let op = record
            .op
            .as_deref()
            .filter(|_| record.role == Role::Op)
            .unwrap_or_default();
        let seen = self
            .calls
            .entry((
                format!("{}\0{op}", record.name),
                record.role.name(),
                record.arg.clone(),
            ))
            .or_default();
        let call = record.call.unwrap_or(*seen);
        *seen = call + 1;
        Ok(record.line(i, call, self.step))
    }

    fn payload(
        &mut self,
        i: u64,
        record: &Record,
        values: &[u8],
    ) -> Result<(u64, u64, u64), CaptureError> {
        let len = values.len() as u64;
        if let Some(limit) = self.too_large.filter(|limit| len >= *limit) {
            let what = format!("{limit} bytes did not fit before");
            return Err(CaptureError::Full {
                path: self.folder.clone(),
                needed: len,
                what,
            });
        }
        let full = |segment: &Segment| {
            segment.len() > 0 && segment.len() + len > self.segment_bytes
                || segment.header_is_full()
        };
        if self.segment.as_ref().is_some_and(full) {
            self.segment
                .take()
                .expect("it was just looked at")
                .close()?;
        }
        if self.segment.is_none() {
            self.segment = Some(Segment::create(&self.folder, self.segments)?);
            self.segments += 1;
        }
        let segment = self.segment.as_mut().expect("it was just made");
        let key = Key {
            i,
            name: &record.name,
            role: record.role.name(),
            arg: &record.arg,
        };
        let written = segment.append(&key, record.dtype, &record.shape, values);
        if let Err(CaptureError::Full { .. }) = written {
            self.too_large = Some(len);
        }
        written.map(|(begin, end)| (self.segments - 1, begin, end))
    }

    fn append(&mut self, line: &[u8]) -> Result<(), CaptureError> {
        self.index.append(line).map_err(|error| self.failed(error))
    }

    fn failed(&mut self, error: CaptureError) -> CaptureError {
        self.dropped(&error);
        error
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// What equal tensors are found by.
pub(crate) fn hash_of(values: &[u8]) -> u128 {
    xxh3_128(values)
}

fn check_length(record: &Record, values: &[u8]) -> Result<(), CaptureError> {
    let shape = || record.shape.dims().to_vec();
    let bytes = record
        .shape
        .elements()
        .and_then(|elements| record.dtype.byte_len(elements));
    match bytes {
        Some(expected) if expected == values.len() as u64 => Ok(()),
        Some(expected) => Err(CaptureError::Length {
            name: record.name.clone(),
            dtype: record.dtype.to_string(),
            shape: shape(),
            expected,
            found: values.len() as u64,
        }),
        None => Err(CaptureError::Shape {
            name: record.name.clone(),
            shape: shape(),
        }),
    }
}
