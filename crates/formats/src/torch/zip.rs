//! torch's zip container: a pickle, and a record for each storage. TorchScript is the same with code beside it.

use super::{
    export, globals,
    layout::{Late, Origin},
    pickle::unpickle,
    tensors::Storages,
    walk,
};
use crate::{
    archive::zip_directory::{self, Method, ZipEntry},
    cache::Cache,
    contents::Contents,
    error::Fault,
    input::{Budget, Context, Input},
    limits::Limits,
};
use std::{collections::HashMap, sync::Arc};
use twinscope_tensor::{Bytes, FindingKind};

const EXTENSIONS: &[&str] = &[
    "pt", "pth", "bin", "ckpt", "pt2", "ptl", "pkl", "tar", "distcp",
];

/// A zip is torch's when its names are; when it has no readable directory, only its extension can tell.
pub(crate) fn recognise(input: &Input) -> bool {
    let torch_name = EXTENSIONS.contains(&input.extension().as_str());
    let zip = input.bytes.starts_with(b"PK\x03\x04") || input.bytes.starts_with(b"PK\x05\x06");
    // A tar that ends with one of torch's files ends with a zip directory, too, which is that of its last member alone.
    let embedded = !zip
        && torch_name
        && has_end_record(&input.bytes)
        && !crate::archive::tar::recognise(input);
    if !(zip || embedded) {
        return false;
    }
    match zip_directory::list(&input.bytes) {
        Ok(entries) => is_torch(&entries),
        Err(_) => zip && torch_name,
    }
}

/// Whether a zip directory ends these bytes, for archives that something was put before.
fn has_end_record(bytes: &[u8]) -> bool {
    let tail = &bytes[bytes.len().saturating_sub(22 + 65_535)..];
    tail.windows(4).any(|window| window == b"PK\x05\x06")
}

fn is_torch(entries: &[ZipEntry]) -> bool {
    let top = |name: &str, file: &str| {
        name.strip_suffix(file).is_some_and(|prefix| {
            prefix.is_empty() || prefix.ends_with('/') && prefix.matches('/').count() == 1
        })
    };
    let any = |file: &str| entries.iter().any(|entry| top(&entry.name, file));
    let within = |part: &str| {
        entries.iter().any(|entry| {
            entry
                .name
                .split_once('/')
                .is_some_and(|(_, rest)| rest.starts_with(part))
                || entry.name.starts_with(part)
        })
    };
    let versioned = any("version") || within(".data/version");
    any("data.pkl") && (versioned || any("byteorder") || any("constants.pkl") || within("data/"))
        || any("model.json") && (versioned || within("tensors/"))
        || within("data/weights/") && (any("archive_format") || any("archive_version") || versioned)
}

pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    let mut contents = Contents::new("torch-zip");
    match read_into(&input.bytes, context, &mut contents) {
        Ok(()) => Ok(contents),
        Err(fault) => walk::refuse(contents, fault),
    }
}

fn read_into(bytes: &Bytes, context: &Context, contents: &mut Contents) -> Result<(), Fault> {
    let records = Records::open(bytes, context)?;
    for entry in records
        .entries
        .iter()
        .filter(|entry| entry.escapes())
        .take(10)
    {
        contents.find(
            FindingKind::PathEscape,
            format!(
                "the archive has an entry `{}`; not followed",
                entry.name.escape_debug()
            ),
        );
    }
    records.inspect_pickles(context, contents);
    if records.has("data.pkl") {
        return records.read_pickle(context, contents);
    }
    if records.has("data/weights/model_weights_config.json") || records.has("archive_format") {
        return export::read_weights(&records, context, contents);
    }
    if records.has("model.json") {
        return export::read_model_json(&records, context, contents);
    }
    Err(Fault::Missing {
        what: format!(
            "`{}data.pkl` is not among the {} entries of the archive",
            records.prefix,
            records.entries.len()
        ),
    })
}

/// The records of one archive, below its top folder.
pub(super) struct Records {
    bytes: Bytes,
    pub(super) entries: Vec<ZipEntry>,
    index: HashMap<String, usize>,
    pub(super) prefix: String,
    big_endian: bool,
    cache: Arc<Cache>,
    limits: Limits,
    budget: Arc<Budget>,
}

impl Records {
    pub(super) fn open(bytes: &Bytes, context: &Context) -> Result<Self, Fault> {
        let entries = zip_directory::list(bytes)?;
        let first = entries.first().ok_or_else(|| Fault::Missing {
            what: "the archive is empty".into(),
        })?;
        let top = |name: &str| {
            name.split_once('/')
                .map(|(top, _)| format!("{top}/"))
                .unwrap_or_default()
        };
        let index: HashMap<String, usize> = entries
            .iter()
            .enumerate()
            .map(|(at, entry)| (entry.name.clone(), at))
            .collect();
        let mut prefix = top(&first.name);
        let telling = ["data.pkl", "model.json", "archive_format"];
        if !telling
            .iter()
            .any(|name| index.contains_key(&format!("{prefix}{name}")))
        {
            // Somebody put another entry first.
            let found = entries
                .iter()
                .find(|entry| entry.name == format!("{}data.pkl", top(&entry.name)));
            prefix = found.map_or(prefix, |entry| top(&entry.name));
        }
        let mut records = Self {
            bytes: bytes.clone(),
            entries,
            index,
            prefix,
            big_endian: false,
            cache: Arc::clone(&context.cache),
            limits: context.limits,
            budget: Arc::clone(&context.budget),
        };
        if records.has("byteorder") {
            records.big_endian = match &*records.get("byteorder")? {
                b"little" => false,
                b"big" => true,
                other => {
                    return Err(Fault::BadHeader {
                        what: format!(
                            "the byte order `{}`",
                            other[..other.len().min(20)].escape_ascii()
                        ),
                    });
                }
            };
        }
        Ok(records)
    }

    pub(super) fn has(&self, record: &str) -> bool {
        self.index.contains_key(&format!("{}{record}", self.prefix))
    }

    pub(super) fn entry(&self, record: &str) -> Result<&ZipEntry, Fault> {
        let name = format!("{}{record}", self.prefix);
        let at = self.index.get(&name).ok_or_else(|| Fault::Missing {
            what: format!("the record `{name}`"),
        })?;
        let entry = &self.entries[*at];
        match &entry.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(entry),
        }
    }

    /// A record that is a header: read now, within the bound for headers.
    pub(super) fn get(&self, record: &str) -> Result<Bytes, Fault> {
        let entry = self.entry(record)?;
        if entry.unpacked_len > self.limits.header_bytes {
            return Err(Fault::Limit {
                what: format!(
                    "`{}` has {} bytes, {} are read",
                    entry.name, entry.unpacked_len, self.limits.header_bytes
                ),
            });
        }
        if entry.method == Method::Deflated {
            self.budget.take(&entry.name, entry.unpacked_len)?;
        }
        entry.open(&self.bytes, &self.cache, &self.limits)
    }

    /// A record's bytes, mapped when stored, unpacked on demand when not.
    pub(super) fn origin(&self, record: &str) -> Result<Origin, Fault> {
        let entry = self.entry(record)?;
        match entry.method {
            Method::Deflated => Ok(Origin::Late(Arc::new(Packed {
                archive: self.bytes.clone(),
                entry: entry.clone(),
                cache: Arc::clone(&self.cache),
                limits: self.limits,
            }))),
            Method::Stored | Method::Other(_) => entry
                .open(&self.bytes, &self.cache, &self.limits)
                .map(Origin::Ready),
        }
    }

    pub(super) fn is_big_endian(&self) -> bool {
        self.big_endian
    }

    /// Every pickle in the archive is looked at for what it would call: torch loads more than `data.pkl`.
    fn inspect_pickles(&self, context: &Context, contents: &mut Contents) {
        let data = format!("{}data.pkl", self.prefix);
        for entry in self.entries.iter().filter(|entry| {
            entry.name != data
                && (entry.name.ends_with(".pkl") || entry.name.ends_with("debug_pkl"))
        }) {
            let record = entry.name.strip_prefix(&self.prefix);
            if let Some(bytes) = record.and_then(|record| self.get(record).ok()) {
                globals::inspect(
                    &unpickle(&bytes, 0, &context.limits).graph,
                    &context.limits,
                    contents,
                    true,
                    0,
                );
            }
        }
    }

    fn read_pickle(&self, context: &Context, contents: &mut Contents) -> Result<(), Fault> {
        let script = self.has("constants.pkl");
        if script {
            contents.format = "torchscript";
        }
        self.check_version(contents);
        let pickle = unpickle(&self.get("data.pkl")?, 0, &context.limits);
        globals::inspect(&pickle.graph, &context.limits, contents, script, 0);
        let end = pickle.result?;
        if pickle.graph.nodes().any(|(_, node)| matches!(node, super::pickle::Node::Call { function, .. } if matches!(pickle.graph.node(function), super::pickle::Node::Persistent(_)))) {
            return Err(Fault::CorruptPickle { what: "a class by persistent id, which only older files have".into() });
        }
        walk::interpret(&pickle.graph, end.root, self, context, contents, 0);
        Ok(())
    }

    /// torch reads archive versions 1 to 10. We read what we understand of any, and say so.
    fn check_version(&self, contents: &mut Contents) {
        let name = if self.has("version") {
            "version"
        } else {
            ".data/version"
        };
        if let Ok(version) = self.get(name) {
            let text = String::from_utf8_lossy(&version[..version.len().min(20)])
                .trim()
                .to_owned();
            if !text
                .parse::<u32>()
                .is_ok_and(|version| (1..=10).contains(&version))
            {
                contents.find(
                    FindingKind::Odd,
                    format!(
                        "archive version `{}`, torch knows 1 to 10",
                        text.escape_debug()
                    ),
                );
            }
        }
    }
}

impl Storages for Records {
    fn bytes(&self, key: &str, len: u64) -> Result<Origin, Fault> {
        let mut record = format!("data/{key}");
        // torch 1.4 kept them elsewhere.
        if !self.has(&record) && self.has(&format!("tensors/{key}")) {
            record = format!("tensors/{key}");
        }
        let found = self.entry(&record)?.unpacked_len;
        if found != len {
            return Err(Fault::SizeMismatch {
                what: format!(
                    "the record `{}{record}` has {found} bytes, its tensors need {len}",
                    self.prefix
                ),
            });
        }
        self.origin(&record)
    }

    fn big_endian(&self) -> bool {
        self.big_endian
    }
}

/// A deflated record.
struct Packed {
    archive: Bytes,
    entry: ZipEntry,
    cache: Arc<Cache>,
    limits: Limits,
}

impl Late for Packed {
    fn len(&self) -> u64 {
        self.entry.unpacked_len
    }

    fn fetch(&self) -> Result<Bytes, Fault> {
        let bytes = self.entry.open(&self.archive, &self.cache, &self.limits)?;
        if bytes.len() as u64 != self.entry.unpacked_len {
            let what = format!(
                "`{}` unpacks to {} bytes, {} were promised",
                self.entry.name,
                bytes.len(),
                self.entry.unpacked_len
            );
            return Err(Fault::SizeMismatch { what });
        }
        Ok(bytes)
    }
}
