//! What a format's reader hands over: the tensors of one file, not yet named after the file or put in order.

use crate::error::Fault;
use std::sync::Arc;
use twinscope_tensor::{
    Bytes, DType, Finding, FindingKind, Meta, Plain, PlainValue, ReadError, Shape, Skipped, View,
};

/// Findings of one kind that are told.
const MOST_FINDINGS: usize = 200;

/// One tensor of a file.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Keys joined with `.`; empty for a file that holds one bare tensor.
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) meta: Meta,
    pub(crate) data: Data,
}

/// Where a tensor's values are.
#[derive(Clone)]
pub(crate) enum Data {
    /// Exactly these bytes, row-major and little-endian: what most formats have. Kept small, there can be 100,000.
    Plain(Bytes),
    /// Strides, byte order, lazy bits or quantization, over bytes that are at hand.
    View(Box<View>),
    /// Must be unpacked, gathered or decoded first; done when asked for, each time it is asked for.
    Lazy(Arc<dyn Lazy>),
    /// A tensor without values (meta device).
    None(&'static str),
}

/// A tensor that costs something to bring up. Implementations unpack through [`crate::cache::Cache`], which remembers.
pub(crate) trait Lazy: Send + Sync {
    fn view(&self) -> Result<View, ReadError>;
}

impl Entry {
    pub(crate) fn view(&self) -> Result<View, ReadError> {
        match &self.data {
            Data::Plain(bytes) => Ok(View::new(self.dtype, self.shape.clone(), bytes.clone())?),
            Data::View(view) => Ok((**view).clone()),
            Data::Lazy(lazy) => lazy.view(),
            Data::None(why) => Err(ReadError::NoData { why }),
        }
    }
}

impl Entry {
    /// See [`twinscope_tensor::TensorSource::place`].
    pub(crate) fn place(&self) -> Option<std::ops::Range<usize>> {
        match &self.data {
            Data::Plain(bytes) => Some(bytes.as_ptr().addr()..bytes.as_ptr().addr() + bytes.len()),
            Data::View(view) => Some(view.place()),
            Data::Lazy(_) | Data::None(_) => None,
        }
    }
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Data::Plain(bytes) => write!(f, "Plain({bytes:?})"),
            Data::View(view) => write!(f, "View({:?})", view.shape()),
            Data::Lazy(_) => f.write_str("Lazy"),
            Data::None(why) => write!(f, "None({why})"),
        }
    }
}

/// Everything one file holds.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) format: &'static str,
    /// In the file's own order.
    pub(crate) entries: Vec<Entry>,
    /// Whether that order is the order of execution (a pickled dict, a run) or means nothing (safetensors offsets).
    pub(crate) ordered: bool,
    pub(crate) values: Vec<PlainValue>,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) meta: Meta,
}

impl Contents {
    pub(crate) fn new(format: &'static str) -> Self {
        Self {
            format,
            ..Self::default()
        }
    }

    /// One tensor that is exactly `bytes`; a fault goes to `skipped` instead, so the others are still listed.
    pub(crate) fn push_plain(
        &mut self,
        name: String,
        dtype: DType,
        shape: Shape,
        bytes: Bytes,
        meta: Meta,
    ) {
        match View::new(dtype, shape.clone(), bytes.clone()) {
            Ok(_) => self.entries.push(Entry {
                name,
                dtype,
                shape,
                meta,
                data: Data::Plain(bytes),
            }),
            Err(error) => self.skip(name, Fault::from(error)),
        }
    }

    pub(crate) fn push_view(&mut self, name: String, view: View, meta: Meta) {
        self.entries.push(Entry {
            name,
            dtype: view.dtype(),
            shape: view.shape().clone(),
            meta,
            data: Data::View(Box::new(view)),
        });
    }

    pub(crate) fn value(&mut self, name: String, value: Plain) {
        self.values.push(PlainValue {
            name,
            value,
            after: self.entries.len(),
        });
    }

    pub(crate) fn skip(&mut self, name: impl Into<String>, fault: Fault) {
        self.skipped.push(Skipped {
            name: name.into(),
            reason: fault.to_string(),
        });
    }

    pub(crate) fn find(&mut self, kind: FindingKind, text: impl Into<String>) {
        let finding = Finding {
            kind,
            text: text.into(),
        };
        // A hostile file can ask a million times; once is enough to say so, and each is compared with all before it.
        let alike = self
            .findings
            .iter()
            .filter(|found| found.kind == kind)
            .count();
        if alike < MOST_FINDINGS && !self.findings.contains(&finding) {
            let text = if alike + 1 < MOST_FINDINGS {
                finding.text
            } else {
                "more of the same, not told one by one".to_owned()
            };
            self.findings.push(Finding { kind, text });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
            && self.values.is_empty()
            && self.skipped.is_empty()
            && self.findings.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oddities_without_end_do_not_hide_an_attack() {
        let mut contents = Contents::new("pickle");
        for number in 0..10_000 {
            contents.find(FindingKind::Odd, format!("odd {number}"));
        }
        contents.find(
            FindingKind::UnsafeGlobal,
            "asks to call os.system; not executed",
        );
        assert_eq!(contents.findings.len(), MOST_FINDINGS + 1);
        assert_eq!(
            contents.findings[MOST_FINDINGS - 1].text,
            "more of the same, not told one by one"
        );
        assert!(contents.findings.last().unwrap().kind.is_attack());
    }
}
